//! Everything that waits for a time: one `next_timeout`, one `handle_timeout`.

use core::time::Duration;

use clearway_recovery::Space;

use super::life::{ConnectionError, Handshake};
use super::rest::REST_AFTER;
use super::space::SPACES;
use super::{Config, Connection};
use crate::Instant;
use crate::count::Count;
use crate::crypto::OneRttKeys;
use crate::event::TraceEvent;
use crate::wire::PacketKind;

/// Deadlines that no other part owns.
#[derive(Debug)]
pub(crate) struct Timers {
    /// Silence until then closes the connection.
    pub(crate) idle: Option<Instant>,
    /// The effective idle timeout, the smaller of both ends' (RFC 9000 §10.1).
    pub(crate) idle_timeout: Option<Duration>,
    /// `idle` was put off already, to three PTOs of silence.
    idle_put_off: bool,
    /// A PING is due then.
    pub(crate) keep_alive: Option<Instant>,
    /// The pacer opens then.
    pub(crate) pacing: Option<Instant>,
    /// The connection has been silent for so long that it rests.
    pub(crate) rest: Option<Instant>,
    /// It counts as silence then.
    pub(crate) silence: Option<Instant>,
    /// PINGs sent into the silence since stream data last arrived.
    pub(crate) asked_in_silence: u8,
    /// An ack-eliciting packet has left since the last packet arrived: only
    /// the first restarts the idle timer (RFC 9000 §10.1).
    sent_since_received: bool,
    /// `handle_timeout` had nothing to do so often: a busy timer is a defect.
    pub(crate) idle_wakeups: u64,
}

impl Timers {
    pub(crate) fn new(now: Instant, config: &Config) -> Self {
        let idle_timeout = Some(config.idle_timeout).filter(|timeout| !timeout.is_zero());
        Self {
            idle: idle_timeout.map(|timeout| now + timeout),
            idle_timeout,
            idle_put_off: false,
            keep_alive: None,
            pacing: None,
            rest: None,
            silence: None,
            asked_in_silence: 0,
            sent_since_received: false,
            idle_wakeups: 0,
        }
    }

    pub(crate) fn on_packet_received(&mut self, now: Instant) {
        self.sent_since_received = false;
        self.restart_idle(now);
        self.rest = Some(now + REST_AFTER);
    }

    pub(crate) fn on_ack_eliciting_sent(&mut self, now: Instant, config: &Config) {
        if !self.sent_since_received {
            self.sent_since_received = true;
            self.restart_idle(now);
        }
        self.keep_alive = config.keep_alive.map(|period| now + period);
        self.rest = Some(now + REST_AFTER);
    }

    /// The smaller of both ends' values holds; zero means none (RFC 9000 §10.1).
    pub(crate) fn agree_on_idle(&mut self, now: Instant, peer_millis: u64) {
        if peer_millis > 0 {
            let peer = Duration::from_millis(peer_millis);
            self.idle_timeout = Some(self.idle_timeout.map_or(peer, |ours| ours.min(peer)));
            self.restart_idle(now);
        }
    }

    fn restart_idle(&mut self, now: Instant) {
        self.idle = self.idle_timeout.map(|timeout| now + timeout);
        self.idle_put_off = false;
    }
}

impl Connection {
    /// When [`handle_timeout`](Self::handle_timeout) has to be called next;
    /// `None` = only a datagram or the application can move the connection.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        if !self.life.is_open() {
            return self.life.until();
        }
        // Without credit or connection ID an ACK leaves when those arrive.
        let speaks = !self.is_amplification_blocked() && self.may_speak(self.paths.active());
        let acks = SPACES
            .into_iter()
            .filter(|&space| speaks && self.keys.sending_kind(space, self.is_client()).is_some())
            .filter_map(|space| self.spaces.get(space)?.ack.next_timeout());
        let keys = self.keys.one_rtt.as_ref().and_then(OneRttKeys::discard_at);
        [
            self.recovery.next_timeout(),
            self.timers.idle,
            self.handshake_deadline(),
            self.timers
                .keep_alive
                .filter(|_| self.handshake != Handshake::Running),
            self.timers.pacing,
            self.timers.rest,
            self.timers.silence,
            self.keys.zero_rtt_until,
            self.paths.next_timeout(|path| self.may_speak(path)),
            keys,
        ]
        .into_iter()
        .flatten()
        .chain(acks)
        .min()
    }

    /// Does what is due at `now`. Harmless when nothing is.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(until) = self.life.until() {
            if now >= until {
                self.on_drained(now);
            }
            return;
        }
        if !self.life.is_open() {
            return;
        }
        if self.handshake_deadline().is_some_and(|at| now >= at) {
            return self.expire_handshake(now);
        }
        let mut did = self.on_idle_timeout(now);
        if !self.life.is_open() {
            return;
        }
        did |= self.on_recovery_timeout(now);
        did |= self.on_keep_alive(now);
        did |= self.on_path_timeouts(now);
        did |= self.on_rest_timeout(now);
        did |= self.on_silence(now);
        if self.timers.pacing.is_some_and(|at| now >= at) {
            self.timers.pacing = None;
            did = true;
        }
        if self.keys.zero_rtt_until.is_some_and(|at| now >= at) {
            self.keys.discard_zero_rtt();
            self.trace(now, || TraceEvent::KeysDiscarded {
                kind: PacketKind::ZeroRtt,
            });
            did = true;
        }
        if let Some(keys) = &mut self.keys.one_rtt
            && keys.discard_at().is_some_and(|at| now >= at)
        {
            keys.discard_previous(now);
            did = true;
        }
        for space in self.spaces.iter_mut() {
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
        // RFC 9000 §10.1: at least three PTOs, so that a lost packet's probe
        // can save the connection. Of this silence only: the agreed timeout
        // stays as it is.
        let timeout = self.timers.idle_timeout.unwrap_or_default();
        let silence = self.pto_of(self.paths.active_id()).saturating_mul(3);
        let until = at + silence.saturating_sub(timeout);
        if !self.timers.idle_put_off && now < until {
            self.timers.idle = Some(until);
            self.timers.idle_put_off = true;
            return true;
        }
        // Silent: the peer has given up too, or will.
        self.end_silently(now, ConnectionError::IdleTimeout);
        true
    }

    fn on_recovery_timeout(&mut self, now: Instant) -> bool {
        if self.recovery.next_timeout().is_none_or(|at| now < at) {
            return false;
        }
        let mut outcome = core::mem::take(&mut self.outcome);
        self.trace_timer_expired(now);
        self.recovery.on_timeout(now, &mut outcome);
        self.apply(now, &mut outcome);
        self.outcome = outcome;
        true
    }

    fn on_keep_alive(&mut self, now: Instant) -> bool {
        if self.timers.keep_alive.is_none_or(|at| now < at) {
            return false;
        }
        self.timers.keep_alive = self.config.keep_alive.map(|period| now + period);
        self.space(Space::Data).ping = true;
        true
    }
}
