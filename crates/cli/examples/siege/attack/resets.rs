//! Requests that are reset at once, by the client or, provoked by it, by the server. The
//! server has begun to work on them.

use std::io;
use std::time::Instant;

use clearway_quic::connection::Config;

use super::sockets::{Sockets, Traffic};
use super::swarm::{Member, Swarm};
use super::wire::put_varint;
use super::{Attacker, Context, http3};

/// Who resets the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reset {
    /// The client, with RESET_STREAM and STOP_SENDING.
    Own,
    /// The server, because the body is longer than announced ("MadeYouReset").
    Provoked,
}

/// Limit of resets on a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// At once.
    pub(crate) burst: f64,
    /// Each second after that.
    pub(crate) per_second: f64,
}

impl Pace {
    /// As fast as stream credit allows.
    pub(crate) const UNBOUNDED: Self = Self {
        burst: f64::INFINITY,
        per_second: 0.0,
    };

    /// Just below the default limits of HTTP/3
    /// (`clearway_http3::Limits::abandoned_burst`).
    pub(crate) const WITHIN_LIMITS: Self = Self {
        burst: 480.0,
        per_second: 190.0,
    };
}

/// Sends requests and resets them.
pub(crate) struct Resets {
    swarm: Swarm<Budget>,
    connections: usize,
    request: Vec<u8>,
    reset: Reset,
    pace: Pace,
    requests: u64,
}

/// The resets of a connection.
struct Budget {
    spent: f64,
    since: Instant,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            spent: 0.0,
            since: Instant::now(),
        }
    }
}

impl Resets {
    pub(crate) fn new(
        context: &Context,
        connections: usize,
        path: &str,
        reset: Reset,
        pace: Pace,
    ) -> io::Result<Self> {
        let sockets = Sockets::bind(context.number, 0, connections)?;
        let request = match reset {
            Reset::Own => http3::get(path),
            Reset::Provoked => {
                let mut request = http3::get_with_body(path, 1);
                put_varint(&mut request, http3::DATA);
                put_varint(&mut request, 2);
                request.extend_from_slice(b"xx");
                request
            }
        };
        Ok(Self {
            swarm: Swarm::new(context.server, sockets, Config::default())?,
            connections,
            request,
            reset,
            pace,
            requests: 0,
        })
    }
}

impl Attacker for Resets {
    fn turn(&mut self, packets: u64) {
        self.swarm.keep(self.connections);
        self.swarm.step();
        // Two packets each: the request and the reset.
        for _ in 0..packets / 2 {
            let Some(handle) = self.swarm.next_ready() else {
                return;
            };
            let Some(member) = self.swarm.get(handle) else {
                return;
            };
            if !may_ask(member, self.pace) {
                continue;
            }
            let Some(id) = member.request(&self.request, self.reset == Reset::Own) else {
                continue;
            };
            self.requests += 1;
            self.swarm.speak(handle);
            if self.reset == Reset::Own
                && let Some(member) = self.swarm.get(handle)
            {
                let _ = member.connection.reset(id, http3::REQUEST_CANCELLED);
                let _ = member.connection.stop(id, http3::REQUEST_CANCELLED);
                self.swarm.speak(handle);
            }
        }
    }

    fn traffic(&self) -> Traffic {
        self.swarm.traffic()
    }

    fn held(&self) -> usize {
        self.swarm.established()
    }

    fn note(&self) -> String {
        format!(
            "{} requests reset; {}",
            self.requests,
            self.swarm.closures()
        )
    }
}

/// Takes one reset from a connection's budget, if there is one.
fn may_ask(member: &mut Member<Budget>, pace: Pace) -> bool {
    let budget = &mut member.state;
    let allowed = pace.burst + pace.per_second * budget.since.elapsed().as_secs_f64();
    let may = budget.spent + 1.0 <= allowed;
    budget.spent += f64::from(u8::from(may));
    may
}
