//! Noticing that a backend sends nothing although it is sent something.

use std::time::Duration;

/// What has passed between the balancer and a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exchanged {
    /// Datagrams sent to the backend.
    pub(crate) sent: u64,
    /// Datagrams received from it.
    pub(crate) received: u64,
}

/// Since when a backend has been sent datagrams without sending any.
///
/// This is a reason to probe it, and not more: what clients send may be nothing that a server
/// answers, and a datagram from a backend's address may be forged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Silence {
    exchanged: Exchanged,
    /// When it was first seen that the backend has been sent something since it sent something.
    since: Option<Duration>,
    /// When it was last seen that the backend has been sent something.
    sent: Duration,
}

impl Silence {
    /// Takes note of the counts at `now`.
    pub(crate) fn look(&mut self, now: Duration, exchanged: Exchanged) {
        let before = std::mem::replace(&mut self.exchanged, exchanged);
        if exchanged.received != before.received {
            self.since = None;
        } else if exchanged.sent != before.sent {
            self.since.get_or_insert(now);
            self.sent = now;
        }
    }

    /// Returns whether the silence began at least `least` ago, and the backend has been sent
    /// something in that time.
    pub(crate) fn has_lasted(&self, now: Duration, least: Duration) -> bool {
        let lasted = |since| now.saturating_sub(since) >= least;
        self.since.is_some_and(lasted) && now.saturating_sub(self.sent) < least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_millis(500);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(1_000 + millis)
    }

    fn look(silence: &mut Silence, millis: u64, sent: u64, received: u64) -> bool {
        silence.look(at(millis), Exchanged { sent, received });
        silence.has_lasted(at(millis), LEAST)
    }

    #[test]
    fn silence_begins_with_the_first_datagram_that_is_not_answered() {
        let mut silence = Silence::default();
        assert!(!look(&mut silence, 0, 5, 5), "both at once");
        assert!(!look(&mut silence, 100, 6, 5));
        assert!(!look(&mut silence, 599, 7, 5));
        assert!(look(&mut silence, 600, 8, 5));
        assert!(!look(&mut silence, 700, 9, 6), "it has sent something");
        assert!(!look(&mut silence, 800, 10, 6));
        assert!(look(&mut silence, 1_300, 11, 6));
    }

    #[test]
    fn backend_that_is_sent_nothing_is_not_silent() {
        let mut silence = Silence::default();
        for millis in (0..5_000).step_by(20) {
            assert!(!look(&mut silence, millis, 0, 0));
        }
        look(&mut silence, 5_000, 1, 0);
        assert!(look(&mut silence, 5_500, 2, 0));
        assert!(look(&mut silence, 5_999, 2, 0));
        assert!(
            !look(&mut silence, 6_000, 2, 0),
            "nothing for half a second"
        );
    }
}
