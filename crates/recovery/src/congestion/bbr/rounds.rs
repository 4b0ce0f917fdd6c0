//! Packet-timed round trips (§5.5.1).

/// Counts rounds. A round ends when a packet is acknowledged that was sent after the round
/// began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds {
    /// BBR.round_count.
    pub(super) count: u64,
    /// BBR.round_start: the current ACK began a round.
    pub(super) started: bool,
    /// BBR.rounds_since_probe_up.
    pub(super) since_probe_up: u64,
    /// BBR.next_round_delivered.
    next_delivered: u64,
    /// Whether the window was in full use in this round, and in the one before.
    limited: [bool; 2],
    /// Whether the application is the limit now, and the last round in which it was.
    application: bool,
    application_round: u64,
}

/// Rounds after which no packet is acknowledged that was marked application-limited because
/// of the application: what was in flight then is delivered in the first, and what was sent
/// meanwhile in the second.
const APPLICATION_ROUNDS: u64 = 2;

impl Rounds {
    /// StartRound(): begins a round at `delivered` bytes.
    pub(super) fn restart(&mut self, delivered: u64) {
        self.next_delivered = delivered;
    }

    /// UpdateRound(): the newest acknowledged packet was sent when `prior_delivered` bytes
    /// were delivered; now `delivered` are.
    pub(super) fn update(&mut self, prior_delivered: u64, delivered: u64) {
        self.started = prior_delivered >= self.next_delivered;
        if self.started {
            self.restart(delivered);
            self.count += 1;
            self.since_probe_up = self.since_probe_up.saturating_add(1);
            self.limited = [false, self.limited[0]];
        }
        self.note_application();
    }

    /// Records that the window has no room for another packet.
    pub(super) fn note_window_full(&mut self) {
        self.limited[0] = true;
    }

    /// Sets whether the application is the limit.
    pub(super) fn set_application_limited(&mut self, limited: bool) {
        self.note_application();
        self.application = limited;
        self.note_application();
    }

    fn note_application(&mut self) {
        if self.application {
            self.application_round = self.count;
        }
    }

    /// Returns whether the application was the limit when a packet was sent that is now
    /// acknowledged. If not, samples are marked application-limited only by ProbeRTT.
    pub(super) fn is_application_limited(&self) -> bool {
        self.count <= self.application_round.saturating_add(APPLICATION_ROUNDS)
    }

    /// C.is_cwnd_limited (§2.2).
    pub(super) fn is_cwnd_limited(&self) -> bool {
        self.limited[0] || self.limited[1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_ends_when_data_sent_in_it_is_delivered() {
        let mut rounds = Rounds::default();
        rounds.update(0, 1_000);
        assert!(rounds.started, "the first ACK begins the first round");
        // The rest of the first flight was sent before anything was delivered.
        rounds.update(0, 5_000);
        assert!(!rounds.started);
        // A packet sent at the first ACK is acknowledged.
        rounds.update(1_000, 6_000);
        assert!(rounds.started);
        assert_eq!(rounds.count, 2);
        rounds.update(5_000, 7_000);
        assert!(!rounds.started);
        rounds.restart(9_000);
        rounds.update(8_999, 10_000);
        assert!(!rounds.started, "restarted");
        rounds.update(9_000, 10_000);
        assert!(rounds.started);
    }

    #[test]
    fn application_limit_lasts_two_rounds() {
        let mut rounds = Rounds::default();
        rounds.set_application_limited(true);
        for delivered in 1..10 {
            rounds.update(delivered, delivered);
        }
        assert!(rounds.is_application_limited());
        rounds.set_application_limited(false);
        for (delivered, expected) in [(11, true), (12, true), (13, false)] {
            rounds.update(delivered, delivered);
            assert_eq!(rounds.is_application_limited(), expected, "{delivered}");
        }
        rounds.set_application_limited(true);
        assert!(rounds.is_application_limited());
    }

    #[test]
    fn cwnd_limited_flag_lasts_one_round() {
        let mut rounds = Rounds::default();
        rounds.note_window_full();
        rounds.update(0, 1_000);
        assert!(rounds.is_cwnd_limited());
        rounds.update(1_000, 2_000);
        assert!(!rounds.is_cwnd_limited());
    }
}
