use super::*;

/// One bin of 0.35 RTT.
const BIN: u64 = 35;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// A sender that is told of its packets and ACKs once a bin, with a round trip of 100 ms.
struct Flow {
    search: Search,
    now: u64,
    rtt: Duration,
}

impl Flow {
    fn new() -> Self {
        let mut flow = Self {
            search: Search::default(),
            now: 0,
            rtt: ms(100),
        };
        assert_eq!(
            flow.ack(0, 0),
            None,
            "the first sample only starts the bins"
        );
        flow
    }

    /// Sends and acknowledges at once.
    fn ack(&mut self, sent: u64, acked: u64) -> Option<u64> {
        self.search.on_sent(sent);
        self.search.on_acked(acked);
        self.search.on_ack(at(self.now), Some(self.rtt), ms(100))
    }

    /// A bin in which this was sent and acknowledged.
    fn bin(&mut self, sent: u64, acked: u64) -> Option<u64> {
        self.now += BIN;
        self.ack(sent, acked)
    }

    /// Slow start for `bins`: all that was sent arrives three bins later, and twice as much is
    /// sent. Returns what was sent, bin by bin.
    fn slow_start(&mut self, bins: usize) -> Vec<u64> {
        let mut sent = vec![1_000, 1_000, 1_000];
        for bin in 0..bins {
            let acked = sent[bin];
            sent.push(2 * acked);
            assert_eq!(self.bin(2 * acked, acked), None, "in bin {bin}");
        }
        sent
    }

    fn timeline(&self) -> &Timeline {
        self.search.timeline.as_ref().unwrap()
    }
}

#[test]
fn window_is_three_and_a_half_of_the_first_round_trips_in_ten_bins() {
    let flow = Flow::new();
    assert_eq!(flow.timeline().bin, BIN * 1_000_000);
    assert_eq!(flow.timeline().end, at(BIN));
    assert_eq!((BINS, EXTRA_BINS, ACKED, SENT), (10, 15, 11, 26));
}

#[test]
fn nothing_is_measured_before_the_first_rtt_sample() {
    let mut search = Search::default();
    search.on_sent(5_000);
    search.on_acked(1_000);
    assert_eq!(search.on_ack(at(10), None, ms(100)), None);
    assert!(search.timeline.is_none());
    search.on_ack(at(20), Some(ms(100)), ms(100));
    let timeline = search.timeline.unwrap();
    assert_eq!((timeline.sent_by(0), timeline.acked_by(0)), (5_000, 1_000));
}

#[test]
fn doubling_each_round_trip_continues_slow_start() {
    let mut flow = Flow::new();
    flow.slow_start(60);
    assert_eq!(flow.timeline().ended, 60);
}

#[test]
fn first_comparison_needs_a_window_and_a_round_trip_and_a_bin() {
    // Nothing arrives at all, which is noticed as soon as there is something to compare.
    let mut flow = Flow::new();
    let mut bins = 0;
    while flow.bin(1_000, 0).is_none() {
        bins += 1;
    }
    // Ten bins of the window, two whole ones of the round trip, one for the rest.
    assert_eq!(bins + 1, 13);
}

#[test]
fn slow_start_ends_when_26_percent_of_what_was_sent_is_missing() {
    for (acked, ends) in [(7_401, false), (7_400, true)] {
        let mut flow = Flow::new();
        flow.rtt = ms(70);
        for _ in 0..12 {
            flow.bin(1_000, 1_000);
        }
        let timeline = flow.search.timeline.as_mut().unwrap();
        let last = timeline.acked_by(2);
        timeline.acked[12 % ACKED] = last + acked;
        // With two whole bins of round trip the windows are those that end at bins 12 and 10.
        timeline.ended = 13;
        timeline.acked[13 % ACKED] = timeline.acked_by(3) + acked;
        timeline.sent[13 % SENT] = timeline.sent_by(12) + 1_000;
        assert_eq!(timeline.is_full(), ends, "{acked} of 10000");
    }
}

#[test]
fn earlier_window_is_interpolated_between_bins() {
    let mut flow = Flow::new();
    for n in 0..13 {
        flow.bin(1_000 * (n + 1), 0);
    }
    let timeline = flow.search.timeline.as_mut().unwrap();
    // 100 ms are 2 bins and 30/35 of one: mostly the window that ends at bin 10.
    let (late, early) = (timeline.sent_until(11), timeline.sent_until(10));
    assert_eq!((late, early), (65_000, 55_000));
    let sent = (late * 5 + early * 30) / 35;
    let enough = u64::try_from(sent * 74 / 100 + 1).unwrap();
    timeline.acked[13 % ACKED] = timeline.acked_by(3) + enough;
    assert!(!timeline.is_full());
    timeline.acked[13 % ACKED] -= 1;
    assert!(timeline.is_full());
}

#[test]
fn bottleneck_ends_slow_start_within_four_round_trips_of_being_full() {
    let mut flow = Flow::new();
    let sent = flow.slow_start(20);
    // From now on no more arrives than in the last bin, and the sender sends twice that.
    let rate = sent[19];
    let mut target = None;
    let mut bins = 0;
    while target.is_none() {
        bins += 1;
        // The queue grows: half of what is sent waits.
        flow.rtt += ms(17);
        target = flow.bin(2 * rate, rate);
        assert!(bins < 30, "never");
    }
    assert!((3..=11).contains(&bins), "{bins} bins of 0.35 round trips");
    // Three bins are 105 ms, a round trip 100.
    assert_eq!(target, Some(3 * rate * 100 / 105));
}

#[test]
fn varying_round_trip_without_a_bottleneck_does_not_end_slow_start() {
    let mut flow = Flow::new();
    let mut sent = vec![1_000, 1_000, 1_000];
    for bin in 0..60 {
        let acked = sent[bin];
        sent.push(acked + acked / 4);
        flow.rtt = ms(if bin % 7 < 3 { 140 } else { 90 });
        assert_eq!(flow.bin(acked + acked / 4, acked), None, "in bin {bin}");
    }
}

#[test]
fn application_limited_flow_does_not_end_slow_start() {
    let mut flow = Flow::new();
    // A message every fifth bin for a while, acknowledged three bins later.
    let message = |bin: usize| {
        if bin.is_multiple_of(5) && bin < 60 {
            1_000
        } else {
            0
        }
    };
    for bin in 0..80_usize {
        let acked = bin.checked_sub(3).map_or(0, message);
        assert_eq!(flow.bin(message(bin), acked), None, "in bin {bin}");
    }
}

#[test]
fn round_trip_too_long_to_look_back_is_not_judged() {
    let mut flow = Flow::new();
    for _ in 0..40 {
        flow.bin(1_000, 1_000);
    }
    flow.rtt = ms(BIN * 15);
    assert_eq!(flow.bin(1_000, 0), None);
    for _ in 0..9 {
        assert_eq!(flow.bin(1_000, 0), None);
    }
    flow.rtt = ms(BIN * 15 - 1);
    assert!(flow.bin(1_000, 0).is_some());
}

#[test]
fn bins_without_ack_are_empty() {
    let mut flow = Flow::new();
    flow.bin(1_000, 500);
    flow.now += 2 * BIN;
    flow.bin(300, 200);
    let timeline = flow.timeline();
    assert_eq!(timeline.ended, 4);
    assert_eq!(timeline.end, at(5 * BIN));
    let sent: Vec<_> = (0..5).map(|bin| timeline.sent_by(bin)).collect();
    let acked: Vec<_> = (0..5).map(|bin| timeline.acked_by(bin)).collect();
    assert_eq!(sent, [0, 1_000, 1_000, 1_000, 1_300]);
    assert_eq!(acked, [0, 500, 500, 500, 700]);
}

#[test]
fn more_than_a_window_of_missed_bins_starts_again_with_the_present_round_trip() {
    for (missed, again) in [(9, false), (10, true)] {
        let mut flow = Flow::new();
        for _ in 0..20 {
            flow.bin(1_000, 1_000);
        }
        flow.rtt = ms(200);
        flow.now += missed * BIN;
        flow.bin(1_000, 1_000);
        let timeline = flow.timeline();
        let bins = if again { 0 } else { 20 + 1 + missed };
        assert_eq!(timeline.ended as u64, bins, "{missed} missed");
        let bin = if again { 2 * BIN } else { BIN };
        assert_eq!(timeline.bin, bin * 1_000_000, "{missed} missed");
    }
}

#[test]
fn target_is_what_arrives_in_the_smallest_round_trip() {
    let mut flow = Flow::new();
    for _ in 0..13 {
        flow.bin(1_050, 1_050);
    }
    assert_eq!(flow.timeline().capacity(ms(100)), 3_000);
    assert_eq!(flow.timeline().capacity(ms(50)), 1_500);
}

#[test]
fn zero_and_endless_round_trips_are_survived() {
    for rtt in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        let mut search = Search::default();
        for step in 0..100 {
            search.on_sent(u64::MAX / 8);
            search.on_acked(1);
            search.on_ack(Instant::from_nanos(step), Some(rtt), rtt);
        }
    }
}
