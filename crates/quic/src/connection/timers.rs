//! Deadlines that no other part owns.

use core::time::Duration;

use super::config::Config;
use super::silence_timer::SilenceTimer;
use crate::Instant;

/// Time without packets after which a connection rests.
pub(super) const REST_AFTER: Duration = Duration::from_secs(1);

/// Deadlines that no other part owns.
#[derive(Debug)]
pub(crate) struct Timers {
    /// When the connection closes if nothing arrives.
    pub(crate) idle: Option<Instant>,
    /// The effective idle timeout, the smaller of both ends' values (RFC 9000 §10.1).
    pub(crate) idle_timeout: Option<Duration>,
    /// `idle` was already extended to three PTOs.
    idle_extended: bool,
    /// When a keep-alive PING is due.
    pub(crate) keep_alive: Option<Instant>,
    /// When the pacer allows more.
    pub(crate) pacing: Option<Instant>,
    /// When the connection rests.
    pub(crate) rest: Option<Instant>,
    /// When a client that waits for a response sends a PING.
    pub(crate) silence: SilenceTimer,
    /// An ack-eliciting packet was sent since the last packet arrived: only the first
    /// restarts the idle timer (RFC 9000 §10.1).
    sent_since_received: bool,
    /// The server's host says that its port is closed.
    pub(super) port_unreachable: bool,
    /// Times that `handle_timeout` had nothing to do: more than a few are a defect.
    pub(crate) idle_wakeups: u64,
}

impl Timers {
    pub(crate) fn new(now: Instant, config: &Config) -> Self {
        let idle_timeout = Some(config.idle_timeout).filter(|timeout| !timeout.is_zero());
        Self {
            idle: idle_timeout.map(|timeout| now + timeout),
            idle_timeout,
            idle_extended: false,
            keep_alive: None,
            pacing: None,
            rest: None,
            silence: SilenceTimer::default(),
            sent_since_received: false,
            port_unreachable: false,
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

    /// Applies the peer's idle timeout: the smaller of both ends' values is used; zero
    /// means none (RFC 9000 §10.1).
    pub(crate) fn negotiate_idle_timeout(&mut self, now: Instant, peer_millis: u64) {
        if peer_millis > 0 {
            let peer = Duration::from_millis(peer_millis);
            self.idle_timeout = Some(self.idle_timeout.map_or(peer, |ours| ours.min(peer)));
            self.restart_idle(now);
        }
    }

    fn restart_idle(&mut self, now: Instant) {
        self.idle = self.idle_timeout.map(|timeout| now + timeout);
        self.idle_extended = false;
    }

    /// Extends the idle timer once, to three `pto`s, so that a lost packet's probe can save
    /// the connection (RFC 9000 §10.1). The negotiated timeout is unchanged. Returns false
    /// if three `pto`s are over.
    pub(super) fn extend_idle(&mut self, now: Instant, at: Instant, pto: Duration) -> bool {
        let timeout = self.idle_timeout.unwrap_or_default();
        let until = at + pto.saturating_mul(3).saturating_sub(timeout);
        let put_off = !self.idle_extended && now < until;
        if put_off {
            self.idle = Some(until);
            self.idle_extended = true;
        }
        put_off
    }
}
