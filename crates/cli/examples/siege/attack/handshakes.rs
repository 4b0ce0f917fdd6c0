//! Floods of handshakes: from unvalidated addresses, from validated ones, and replayed
//! with 0-RTT.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clearway_quic::connection::Config;
use clearway_quic::crypto::{ClientSessions, ServerId, ServerName};

use super::initial::{CID, connection_ids, hello_pieces, initial};
use super::sockets::{Sockets, Traffic};
use super::swarm::Swarm;
use super::wire::put_crypto;
use super::{Attacker, Context, http3};

/// Number of source addresses.
const SOURCES: usize = 200;

/// Sends complete ClientHellos, each with a new connection ID, and reads no answers.
pub(crate) struct Hellos {
    server: std::net::SocketAddr,
    sockets: Sockets,
    /// The Source Connection ID named in the ClientHello's transport parameters.
    scid: Vec<u8>,
    /// The frames of each Initial.
    flight: Vec<Vec<u8>>,
    ids: u64,
}

impl Hellos {
    pub(crate) fn new(context: &Context) -> io::Result<Self> {
        let sockets = Sockets::bind(context.number, 0, 1)?;
        let mut model = Swarm::<()>::new(context.server, sockets, Config::default())?;
        let datagrams = model.first_flight(&[]);
        let (_, scid) = datagrams
            .first()
            .and_then(|first| connection_ids(first))
            .ok_or_else(|| io::Error::other("the ClientHello was not captured"))?;
        let flight = datagrams
            .iter()
            .filter_map(|datagram| hello_pieces(datagram))
            .map(|pieces| {
                let mut frames = Vec::new();
                for (offset, data) in pieces {
                    put_crypto(&mut frames, offset, &data);
                }
                frames
            })
            .filter(|frames| !frames.is_empty())
            .collect();
        Ok(Self {
            server: context.server,
            sockets: Sockets::bind(context.number, 1, SOURCES)?,
            scid: scid.to_vec(),
            flight,
            ids: context.unique,
        })
    }
}

impl Attacker for Hellos {
    fn turn(&mut self, packets: u64) {
        for _ in 0..packets / self.flight.len().max(1) as u64 {
            self.ids += 1;
            let dcid: [u8; CID] = self.ids.to_be_bytes();
            let socket = (self.ids % SOURCES as u64) as usize;
            for (number, frames) in (0..).zip(&self.flight) {
                let packet = initial(&dcid, &self.scid, &[], number, frames);
                self.sockets.send(socket, self.server, &packet);
            }
        }
    }

    fn traffic(&self) -> Traffic {
        self.sockets.traffic
    }

    fn note(&self) -> String {
        let sent = self.sockets.traffic.packets / self.flight.len().max(1) as u64;
        format!("{sent} ClientHellos")
    }
}

/// Completes handshakes and abandons the connections.
pub(crate) struct Handshakes {
    swarm: Swarm<()>,
}

/// Limit of concurrent handshakes.
const AT_ONCE: usize = 128;

impl Handshakes {
    pub(crate) fn new(context: &Context) -> io::Result<Self> {
        let sockets = Sockets::bind(context.number, 0, SOURCES)?;
        let mut swarm = Swarm::new(context.server, sockets, Config::default())?;
        swarm.max_handshakes = AT_ONCE;
        Ok(Self { swarm })
    }
}

impl Attacker for Handshakes {
    fn turn(&mut self, packets: u64) {
        // Each takes about four packets.
        self.swarm.keep(AT_ONCE.min(packets.div_ceil(4) as usize));
        self.swarm.step();
        while self.swarm.established() > 0 {
            let Some(handle) = self.swarm.next_ready() else {
                return;
            };
            self.swarm.forget(handle);
        }
    }

    fn traffic(&self) -> Traffic {
        self.swarm.traffic()
    }

    fn note(&self) -> String {
        format!(
            "{} handshakes; {}",
            self.swarm.completed,
            self.swarm.closures()
        )
    }
}

/// Replays captured first flights with 0-RTT requests.
pub(crate) struct Replays {
    swarm: Swarm<()>,
    sessions: Arc<ClientSessions>,
    flights: Vec<Vec<Vec<u8>>>,
    from: Sockets,
    server: std::net::SocketAddr,
    next: usize,
    replays: u64,
    tried: Instant,
}

/// Number of flights to capture.
const FLIGHTS: usize = 512;

/// Interval at which a new ticket is looked for.
const TRY_EVERY: Duration = Duration::from_millis(2);

impl Replays {
    pub(crate) fn new(context: &Context) -> io::Result<Self> {
        let sessions = Arc::new(ClientSessions::default());
        let sockets = Sockets::bind(context.number, 0, 8)?;
        let known = Some(sessions.clone());
        let config = Config::default();
        Ok(Self {
            swarm: Swarm::with_sessions(context.server, sockets, config, known)?,
            sessions,
            flights: Vec::new(),
            from: Sockets::bind(context.number, 8, SOURCES)?,
            server: context.server,
            next: 0,
            replays: 0,
            tried: Instant::now(),
        })
    }

    /// Captures another first flight if there is a ticket for it.
    fn capture(&mut self) {
        if self.tried.elapsed() < TRY_EVERY {
            return;
        }
        self.tried = Instant::now();
        let Ok(name) = ServerName::try_from("localhost") else {
            return;
        };
        let port = self.server.port();
        if self.sessions.stored(&ServerId { name, port }).tickets > 0 {
            let flight = self.swarm.first_flight(&http3::get("/small"));
            self.flights.push(flight);
        } else if let Some(handle) = self.swarm.next_ready() {
            // All its tickets were used: a new connection brings more.
            self.swarm.forget(handle);
        } else {
            self.swarm.keep(1);
        }
    }
}

impl Attacker for Replays {
    fn turn(&mut self, packets: u64) {
        self.swarm.step();
        if self.flights.len() < FLIGHTS {
            self.capture();
        }
        let before = self.from.traffic.packets;
        while !self.flights.is_empty() && self.from.traffic.packets < before + packets {
            let socket = self.next % self.from.len();
            for datagram in &self.flights[self.next % self.flights.len()] {
                self.from.send(socket, self.server, datagram);
            }
            self.next += 1;
            self.replays += 1;
        }
    }

    fn traffic(&self) -> Traffic {
        let mut traffic = self.swarm.traffic();
        traffic.packets += self.from.traffic.packets;
        traffic.bytes += self.from.traffic.bytes;
        traffic
    }

    fn note(&self) -> String {
        format!(
            "{} flights, replayed {} times",
            self.flights.len(),
            self.replays
        )
    }
}
