//! All timers of a connection: one `next_timeout`, one `handle_timeout`.

use core::time::Duration;

use super::Connection;
use super::network::can_send;
use super::state::HandshakeState;
use crate::count::Count;
use crate::error::ConnectionError;
use crate::event::TraceEvent;
use crate::wire::PacketKind;
use crate::{Instant, Role};

/// How long a handshake may take whose server's host says that the port is closed: two
/// retransmissions (after 1 and 3 s) that a server which is just starting may answer.
const UNREACHABLE_TIMEOUT: Duration = Duration::from_millis(3_500);

/// What the timers of an open connection are rounded up to for event loops, in nanoseconds: the
/// granularity of RFC 9002 §6.1.2.
const TIMER_GRAIN: u64 = 1_000_000;

/// What the end of the closing and draining states is rounded up to for event loops, in nanoseconds:
/// nothing waits for it but the memory of the connection.
const END_GRAIN: u64 = 16_000_000;

impl Connection {
    /// Returns when [`handle_timeout`](Self::handle_timeout) must be called next; `None` if
    /// only a datagram or the application can make a difference.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let (precise, coarse) = self.next_timeouts();
        precise.into_iter().chain(coarse).min()
    }

    /// Returns when an event loop with many connections should wake up for this one: at
    /// [`next_timeout`](Self::next_timeout), or up to a millisecond later where that does no harm
    /// (up to 16 once the connection has ended). As these times are whole multiples, the connections
    /// share them. Timers are no finer than a millisecond by default (RFC 9002 §6.1.2).
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Instant> {
        let (precise, coarse) = self.next_timeouts();
        let grain = if self.lifecycle.is_open() {
            TIMER_GRAIN
        } else {
            END_GRAIN
        };
        let shared = |at: Instant| {
            let nanos = at.as_nanos();
            Instant::from_nanos(nanos.checked_next_multiple_of(grain).unwrap_or(nanos))
        };
        precise.into_iter().chain(coarse.map(shared)).min()
    }

    /// Returns the next of the timers that have to be met precisely (of pacing and
    /// acknowledgements), and of the others.
    fn next_timeouts(&self) -> (Option<Instant>, Option<Instant>) {
        if !self.lifecycle.is_open() {
            return (None, self.lifecycle.state.until());
        }
        // Without credit or connection ID, an ACK is sent when these arrive.
        let blocked = self
            .network
            .is_amplification_blocked(self.lifecycle.handshake);
        let speaks = !blocked && can_send(self.network.paths.active(), &self.frames);
        let spaces = if speaks {
            self.keys.sending_spaces()
        } else {
            &[]
        };
        let acks = spaces
            .iter()
            .filter(|&&space| self.keys.sending_kind(space).is_some())
            .filter_map(|&space| self.frames.spaces.get(space)?.ack.next_timeout());
        let [zero_rtt, previous] = self.keys.next_timeouts();
        let coarse = [
            self.network.recovery.next_timeout(),
            self.timers.idle,
            self.handshake_deadline(),
            self.timers
                .keep_alive
                .filter(|_| self.lifecycle.handshake != HandshakeState::Running),
            self.timers.rest,
            self.timers.silence.next_timeout(),
            zero_rtt,
            self.network
                .paths
                .next_timeout(|path| can_send(path, &self.frames)),
            previous,
        ];
        let precise = self.timers.pacing.into_iter().chain(acks).min();
        (precise, coarse.into_iter().flatten().min())
    }

    /// Handles the timers that are due at `now`. Harmless if none is.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.begin_trace(now);
        if let Some(until) = self.lifecycle.state.until() {
            if now >= until {
                self.lifecycle.on_drained(now, &mut self.reports);
            }
            return;
        }
        if !self.lifecycle.is_open() {
            return;
        }
        if self.handshake_deadline().is_some_and(|at| now >= at) {
            return self.expire_handshake(now);
        }
        let mut did = self.on_idle_timeout(now);
        if !self.lifecycle.is_open() {
            return;
        }
        did |= self.on_recovery_timeout(now);
        did |= self.on_keep_alive(now);
        did |= self.on_path_timeouts(now);
        did |= self.on_rest_timeout(now);
        did |= self.on_silence_timeout(now);
        if self.timers.pacing.is_some_and(|at| now >= at) {
            self.timers.pacing = None;
            did = true;
        }
        if self.keys.zero_rtt_until.is_some_and(|at| now >= at) {
            self.keys.discard_zero_rtt();
            self.reports.trace(now, || TraceEvent::KeysDiscarded {
                kind: PacketKind::ZeroRtt,
            });
            did = true;
        }
        did |= self.keys.discard_previous(now);
        for space in self.frames.spaces.iter_mut() {
            space.ack.handle_timeout(now);
            did |= space.ack.is_due(now);
        }
        if !did {
            self.timers.idle_wakeups.count_one();
        }
    }

    fn on_idle_timeout(&mut self, now: Instant) -> bool {
        let Some(at) = self.timers.idle.filter(|&at| now >= at) else {
            return false;
        };
        if self.timers.extend_idle(now, at, self.network.pto()) {
            return true;
        }
        // Without CONNECTION_CLOSE: the peer has given up too, or will.
        self.end_silently(now, ConnectionError::IdleTimeout);
        true
    }

    fn on_recovery_timeout(&mut self, now: Instant) -> bool {
        if self
            .network
            .recovery
            .next_timeout()
            .is_none_or(|at| now < at)
        {
            return false;
        }
        let (network, mut cx, outcome) = self.network_parts(now);
        network.on_recovery_timeout(&mut cx, outcome);
        true
    }

    fn on_path_timeouts(&mut self, now: Instant) -> bool {
        let due = self.network.is_path_timer_due(now);
        if due {
            let (network, mut cx, outcome) = self.network_parts(now);
            network.on_path_timeout(&mut cx, outcome);
        }
        due
    }

    /// Restarts the silence timer after a packet arrived.
    #[inline]
    pub(super) fn restart_silence_timer(&mut self, now: Instant) {
        let waits = self.is_client()
            && self.lifecycle.handshake == HandshakeState::Confirmed
            && self.frames.streams.has_own_requests();
        let silence = &mut self.timers.silence;
        silence.restart(now, waits, || self.network.pto());
    }

    /// Sends a PING after a silence, if it is time. Returns whether it was time.
    fn on_silence_timeout(&mut self, now: Instant) -> bool {
        if !self.timers.silence.take_expired(now) {
            return false;
        }
        // Packets in flight have a probe timeout of their own.
        if self.has_nothing_in_flight() && self.frames.streams.awaits_answer() {
            self.timers.silence.on_ping_sent();
            self.frames.ping();
        }
        true
    }

    fn on_keep_alive(&mut self, now: Instant) -> bool {
        if self.timers.keep_alive.is_none_or(|at| now < at) {
            return false;
        }
        self.timers.keep_alive = self.config.keep_alive.map(|period| now + period);
        self.frames.ping();
        true
    }

    /// Returns when the handshake is given up, while it runs. Nothing that the peer sends
    /// extends it.
    fn handshake_deadline(&self) -> Option<Instant> {
        if self.lifecycle.handshake != HandshakeState::Running {
            return None;
        }
        let began = self.network.recovery.limits().started();
        let waits_for_hello = self.role == Role::Server && self.keys.handshake.is_none();
        let hello = Some(self.config.client_hello_timeout).filter(|_| waits_for_hello);
        let closed = self.timers.port_unreachable && !self.has_heard_server();
        let unreachable = Some(UNREACHABLE_TIMEOUT).filter(|_| closed);
        [hello, unreachable, Some(self.config.handshake_timeout)]
            .into_iter()
            .flatten()
            .filter(|timeout| !timeout.is_zero())
            .map(|timeout| began + timeout)
            .min()
    }

    /// Returns whether a packet of the server has arrived, or a Retry.
    fn has_heard_server(&self) -> bool {
        self.tls.peer_cid.is_some() || self.tls.retry_scid.is_some()
    }

    /// Handles an ICMP error by which the server's host says that the port is closed. As long as
    /// nothing arrives from the server, a client then gives up three and a half seconds after
    /// the handshake began instead of at [`Config::handshake_timeout`](super::Config): not at once,
    /// because the server may just be restarting, and because whoever saw the client's packet
    /// can send such an error. Use
    /// [`Endpoint::find_quoted`](crate::endpoint::Endpoint::find_quoted) to find the connection.
    pub fn on_port_unreachable(&mut self) {
        self.timers.port_unreachable |= self.is_client();
    }

    /// Gives up a handshake that takes too long, without CONNECTION_CLOSE: the peer has a
    /// deadline of its own, and a server with many handshakes has no room for the closing
    /// state of each. Does nothing once the handshake is complete.
    ///
    /// Call this for the [overdue](crate::endpoint::Endpoint::next_overdue) handshakes of
    /// an endpoint under load. The timeouts in [`Config`](super::Config) need no call.
    pub fn expire_handshake(&mut self, now: Instant) {
        self.begin_trace(now);
        if self.lifecycle.handshake == HandshakeState::Running && self.lifecycle.is_open() {
            self.end_silently(now, ConnectionError::HandshakeTimeout);
        }
    }
}
