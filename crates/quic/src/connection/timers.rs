//! Deadlines that no other part owns.

use core::time::Duration;

use super::Config;
use super::silence_timer::SilenceTimer;
use crate::Instant;

/// Silence after which a connection rests.
pub(super) const REST_AFTER: Duration = Duration::from_secs(1);

/// Deadlines that no other part owns.
#[derive(Debug)]
pub(crate) struct Timers {
    /// Silence until then closes the connection.
    pub(crate) idle: Option<Instant>,
    /// The effective idle timeout, the smaller of both ends' (RFC 9000 §10.1).
    pub(crate) idle_timeout: Option<Duration>,
    /// `idle` was put off already, to three PTOs of silence.
    idle_extended: bool,
    /// A PING is due then.
    pub(crate) keep_alive: Option<Instant>,
    /// The pacer opens then.
    pub(crate) pacing: Option<Instant>,
    /// The connection has been silent for so long that it rests.
    pub(crate) rest: Option<Instant>,
    /// A client listens for answers.
    pub(crate) silence: SilenceTimer,
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
            idle_extended: false,
            keep_alive: None,
            pacing: None,
            rest: None,
            silence: SilenceTimer::default(),
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

    /// Puts the end of a silence off, once, so that it lasts three `pto`s: then a lost
    /// packet's probe can save the connection (RFC 9000 §10.1). Of this silence only: the
    /// agreed timeout stays as it is. False if it has lasted as long.
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
