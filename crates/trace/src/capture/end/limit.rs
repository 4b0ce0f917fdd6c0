//! Why an end stopped sending, told by what made it continue.
//!
//! | it continued | it had waited for |
//! |---|---|
//! | with an ACK of its data | the congestion window, as large as what was in flight |
//! | with an ACK and a request | the application |
//! | soon after a full packet, or after the last ACK of its data | the pacer |
//! | by itself otherwise, or after everything was acknowledged | the application |
//! | with a probe, while nothing was acknowledged | what it had waited for before |
//! | whatever it was, with its credit used up | flow control |

use clearway_recovery::limit::Limit;

/// Shortest and longest time between an event and the packets that it caused.
const REACTION: (u64, u64) = (1_000_000, 10_000_000);
/// Shortest pause that is not taken for pacing.
const PAUSE: u64 = 2_000_000;

/// The end of a burst of packets.
#[derive(Clone, Copy, Debug)]
struct Burst {
    end: u64,
    flight: u64,
    blocked: Option<Limit>,
    /// Whether its last packet had room for more.
    short: bool,
}

/// What was found out about an end that had stopped sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    /// When it stopped.
    pub(super) time: u64,
    /// The limit since then, if it is another one than before.
    pub(super) changed: Option<Limit>,
    /// The congestion window, if that was the limit.
    pub(super) window: Option<u64>,
}

/// Follows an end that sends and stops.
#[derive(Debug, Default)]
pub(super) struct LimitTracker {
    /// The burst after which it is not known yet why the end stopped.
    burst: Option<Burst>,
    /// Since the burst: the last ACK that made room, the last data and the last request.
    freed: Option<u64>,
    data: Option<u64>,
    request: Option<u64>,
    limit: Option<Limit>,
}

impl LimitTracker {
    /// Whether it waits for what makes the end continue.
    pub(super) const fn is_open(&self) -> bool {
        self.burst.is_some()
    }

    /// The end sent data and may have stopped now, with so much in flight.
    pub(super) fn stop(
        &mut self,
        now: u64,
        flight: u64,
        blocked: Option<Limit>,
        short: bool,
    ) -> Option<Stop> {
        self.freed = None;
        self.data = None;
        self.request = None;
        let burst = Burst {
            end: now,
            flight,
            blocked,
            short,
        };
        self.burst = Some(burst);
        // That its credit is used up is certain.
        blocked.map(|limit| self.close(burst, limit))
    }

    /// The end received a packet.
    pub(super) fn on_received(&mut self, now: u64, freed: bool, data: bool, request: bool) {
        if freed {
            self.freed = Some(now);
        }
        if data {
            self.data = Some(now);
        }
        if request {
            self.request = Some(now);
        }
    }

    /// The end is about to send data.
    pub(super) fn on_sent(&mut self, now: u64, rtt: Option<u64>) -> Option<Stop> {
        let burst = self.burst?;
        let reaction = reaction(rtt);
        let recent =
            |since: Option<u64>| since.is_some_and(|since| now.saturating_sub(since) <= reaction);
        let gap = now.saturating_sub(burst.end);
        // The window may have been full until an ACK made room, for the pacer to fill.
        let paced = now.saturating_sub(self.freed.unwrap_or(0).max(burst.end));
        let limit = if let Some(blocked) = burst.blocked {
            blocked
        } else if recent(self.request) || recent(self.data) && burst.short {
            Limit::Application
        } else if recent(self.freed) {
            Limit::Congestion
        } else if self.freed.is_none() && self.data.is_none() && gap <= reaction {
            // The same burst.
            return None;
        } else if burst.short || paced >= rtt.map_or(PAUSE, |rtt| PAUSE.max(rtt / 4)) {
            Limit::Application
        } else {
            Limit::Pacing
        };
        Some(self.close(burst, limit))
    }

    /// Nothing happened until now: an end that has nothing in flight and did not continue with the
    /// last ACK has nothing to send.
    pub(super) fn on_silence(&mut self, now: u64, flight: u64, rtt: Option<u64>) -> Option<Stop> {
        let burst = self.burst?;
        let since = self.freed.max(Some(burst.end))?;
        let over = now.saturating_sub(since) > reaction(rtt);
        (over && flight == 0)
            .then(|| self.close(burst, burst.blocked.unwrap_or(Limit::Application)))
    }

    /// The capture ends.
    pub(super) fn finish(&mut self, flight: u64) -> Option<Stop> {
        let burst = self.burst?;
        if burst.short || flight == 0 {
            return Some(self.close(burst, Limit::Application));
        }
        // It ends in the middle of a transfer: as before.
        self.give_up();
        None
    }

    /// What comes next is not waited for any longer.
    pub(super) fn give_up(&mut self) {
        self.burst = None;
    }

    fn close(&mut self, burst: Burst, limit: Limit) -> Stop {
        self.burst = None;
        let changed = (self.limit != Some(limit)).then_some(limit);
        self.limit = Some(limit);
        Stop {
            time: burst.end,
            changed,
            window: (limit == Limit::Congestion).then_some(burst.flight),
        }
    }
}

/// How soon packets follow what caused them.
fn reaction(rtt: Option<u64>) -> u64 {
    let (least, most) = REACTION;
    rtt.map_or(least, |rtt| (rtt / 8).clamp(least, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const RTT: Option<u64> = Some(40 * MS);

    /// An end that stopped at 100 ms with 2,400 bytes in flight.
    fn stopped(short: bool) -> LimitTracker {
        let mut tracker = LimitTracker::default();
        assert_eq!(tracker.stop(100 * MS, 2400, None, short), None);
        tracker
    }

    fn limit(stop: Option<Stop>) -> Option<Limit> {
        stop.and_then(|stop| stop.changed)
    }

    #[test]
    fn sender_that_continues_with_an_ack_waited_for_the_window() {
        let mut tracker = stopped(false);
        tracker.on_received(140 * MS, true, false, false);
        let expected = Stop {
            time: 100 * MS,
            changed: Some(Limit::Congestion),
            window: Some(2400),
        };
        assert_eq!(tracker.on_sent(140 * MS, RTT), Some(expected));
        // The same limit again is not a change, but another measurement of the window.
        tracker.stop(140 * MS, 3600, None, false);
        tracker.on_received(180 * MS, true, false, false);
        let stop = tracker.on_sent(181 * MS, RTT).expect("a stop");
        assert_eq!((stop.changed, stop.window), (None, Some(3600)));
    }

    #[test]
    fn sender_that_continues_with_a_request_waited_for_the_application() {
        let mut tracker = stopped(false);
        tracker.on_received(140 * MS, true, true, true);
        assert_eq!(
            limit(tracker.on_sent(140 * MS, RTT)),
            Some(Limit::Application)
        );
        let mut tracker = stopped(true);
        tracker.on_received(140 * MS, true, true, false);
        assert_eq!(
            limit(tracker.on_sent(140 * MS, RTT)),
            Some(Limit::Application)
        );
        // A sender with full packets that also receives data has no request to wait for.
        let mut tracker = stopped(false);
        tracker.on_received(140 * MS, true, true, false);
        assert_eq!(
            limit(tracker.on_sent(140 * MS, RTT)),
            Some(Limit::Congestion)
        );
    }

    #[test]
    fn sender_that_continues_by_itself_was_paced_or_had_nothing_to_send() {
        for (gap, short, expected) in [
            (4, false, None),
            (8, false, Some(Limit::Pacing)),
            (8, true, Some(Limit::Application)),
            (20, false, Some(Limit::Application)),
        ] {
            let mut tracker = stopped(short);
            let stop = tracker.on_sent((100 + gap) * MS, RTT);
            assert_eq!(limit(stop), expected, "{gap} {short}");
        }
    }

    #[test]
    fn pacer_that_fills_the_room_an_ack_made_is_not_the_application() {
        for (after, expected) in [(8, Limit::Pacing), (20, Limit::Application)] {
            let mut tracker = stopped(false);
            tracker.on_received(130 * MS, true, false, false);
            let stop = tracker.on_sent((130 + after) * MS, RTT);
            assert_eq!(limit(stop), Some(expected), "{after}");
        }
    }

    #[test]
    fn used_up_credit_is_the_limit_at_once() {
        let mut tracker = LimitTracker::default();
        let blocked = Some(Limit::StreamFlowControl);
        assert_eq!(limit(tracker.stop(100 * MS, 2400, blocked, false)), blocked);
        assert!(!tracker.is_open());
    }

    #[test]
    fn sender_with_nothing_in_flight_has_nothing_to_send() {
        let mut tracker = stopped(false);
        tracker.on_received(140 * MS, true, false, false);
        assert_eq!(tracker.on_silence(140 * MS, 0, RTT), None);
        assert_eq!(tracker.on_silence(150 * MS, 1200, RTT), None);
        let stop = tracker.on_silence(150 * MS, 0, RTT);
        assert_eq!(limit(stop), Some(Limit::Application));
    }

    #[test]
    fn capture_that_ends_within_a_transfer_keeps_the_limit() {
        assert_eq!(stopped(false).finish(2400), None);
        let stop = stopped(true).finish(2400);
        assert_eq!(limit(stop), Some(Limit::Application));
    }
}
