use core::ops::Range;

use super::super::carry::Carry;
use super::super::testing::{MDS, acked, at_ms, lost, marked, persistent, sent, spurious};
use super::super::window_adjustment::{Growth, WindowAdjustment as _};
use super::*;

fn prague() -> Prague {
    Prague::new(SlowStart::Standard, MDS)
}

fn send(controller: &mut Prague, range: Range<SendIndex>, in_flight: u64) {
    for (ahead, index) in range.enumerate() {
        controller.on_sent(&sent(index, (in_flight + ahead as u64) * MDS));
    }
}

/// Sends a window, which is acknowledged with `marks` marks by one ACK after `rtt_ms`.
/// Returns the next index.
fn round(prague: &mut Prague, first: SendIndex, now_ms: u64, rtt_ms: u64, marks: u64) -> SendIndex {
    let packets = prague.window() / MDS;
    send(prague, first..first + packets, 0);
    let next = first + packets;
    let now = at_ms(now_ms + rtt_ms);
    prague.on_ack(&Ack {
        now,
        largest_sent_time: at_ms(now_ms),
        next_index: next,
        mean_age: Duration::from_millis(rtt_ms),
        smoothed_rtt: Duration::from_millis(rtt_ms),
        ..acked(next - 1, packets, 0)
    });
    if marks > 0 {
        prague.on_congestion(&Congestion {
            now,
            packets: marks,
            ..marked(next - 1, next)
        });
    }
    next
}

/// α as a thousandth.
fn permille(prague: &Prague) -> u64 {
    prague.alpha.value * 1_000 / ONE
}

#[test]
fn packets_are_marked_ect1() {
    assert_eq!(prague().ecn(), Ect::Ect1);
}

#[test]
fn first_mark_ends_slow_start_and_halves_the_window() {
    let mut prague = prague();
    let next = round(&mut prague, 0, 0, 30, 0);
    assert_eq!(prague.window(), 20 * MDS);
    assert_eq!(prague.state(), State::SlowStart);
    round(&mut prague, next, 30, 30, 1);
    assert_eq!(
        prague.window(),
        20 * MDS,
        "40 after the ACK, halved by the mark"
    );
    assert_eq!(prague.state(), State::CongestionAvoidance);
}

#[test]
fn alpha_moves_a_sixteenth_towards_the_share_of_marks_each_round() {
    let mut prague = prague();
    let (mut next, mut now) = (0, 0);
    next = round(&mut prague, next, now, 30, 1);
    assert_eq!(
        permille(&prague),
        62,
        "a sixteenth after the first response"
    );
    // Rounds without marks: 15/16 each; the one with the first mark still
    // counts it (1 of 10).
    let mut expected = ONE / 256 * 15 + ONE / 160;
    for _ in 0..20 {
        now += 30;
        next = round(&mut prague, next, now, 30, 0);
        let off = prague.alpha.value.abs_diff(expected);
        assert!(off <= 20, "{off} from {expected}");
        expected = expected * 15 / 16;
    }
    // All marked: back up to one, never beyond.
    for _ in 0..200 {
        now += 30;
        let packets = prague.window() / MDS;
        next = round(&mut prague, next, now, 30, packets);
    }
    assert!(
        (990..=1_000).contains(&permille(&prague)),
        "{}",
        permille(&prague)
    );
}

/// The fixed point of the moving average is the share itself.
#[test]
fn steady_share_of_marks_is_measured_exactly() {
    for share in [1_u64, 2, 5, 10, 20] {
        let mut alpha = Alpha {
            seen: true,
            ..Alpha::new()
        };
        for _ in 0..400 {
            (alpha.acked, alpha.marked) = (20, share);
            alpha.average();
        }
        let exact = ONE * share / 20;
        assert!(
            alpha.value.abs_diff(exact) <= 16,
            "{} for {exact}",
            alpha.value
        );
    }
}

#[test]
fn window_is_reduced_by_half_of_alpha_once_per_round() {
    let mut prague = prague();
    prague.classic.reduce_to(100 * MDS);
    (prague.alpha.seen, prague.alpha.responded) = (true, true);
    prague.alpha.value = ONE / 4;
    prague.alpha.round = Round::begin(1_000, at_ms(0));
    send(&mut prague, 0..100, 0);
    for largest in 10..100 {
        prague.on_congestion(&Congestion {
            now: at_ms(100),
            ..marked(largest, 100)
        });
    }
    assert_eq!(prague.window(), 100 * MDS * 7 / 8);
    let events = prague.metrics().congestion_events;
    // A packet sent since, a virtual round trip later.
    prague.on_congestion(&Congestion {
        now: at_ms(124),
        ..marked(100, 130)
    });
    assert_eq!(prague.metrics().congestion_events, events, "24 ms: not yet");
    prague.on_congestion(&Congestion {
        now: at_ms(125),
        ..marked(101, 131)
    });
    assert_eq!(prague.metrics().congestion_events, events + 1);
    assert_eq!(prague.window(), 100 * MDS * 49 / 64);
}

#[test]
fn marked_packets_do_not_grow_the_window() {
    let grown = |marks: u64| {
        let mut prague = prague();
        prague.classic.reduce_to(100 * MDS);
        // No response to marks for now; the test looks at growth only.
        prague.response = Round::begin(10_000, at_ms(0));
        prague.alpha.seen = true;
        prague.classic.adjustment_mut().set_shared(true);
        let next = round(&mut prague, 0, 0, 30, marks);
        let before = prague.window();
        round(&mut prague, next, 30, 30, 0);
        prague.window() - before
    };
    assert!(grown(0).abs_diff(MDS) < MDS / 50, "{}", grown(0));
    assert!(grown(50).abs_diff(MDS / 2) < MDS / 50, "{}", grown(50));
    assert_eq!(grown(101), 0);
}

/// After a loss, and until the next mark, a short path does not scale the growth down: at 2 ms a
/// datagram would take 156 rounds.
#[test]
fn growth_after_a_loss_is_not_scaled_until_there_are_marks_again() {
    let mut prague = prague();
    prague.classic.reduce_to(10 * MDS);
    let (mut next, mut now) = (round(&mut prague, 0, 0, 2, 1), 2);
    let grown = |prague: &mut Prague, next: &mut SendIndex, now: &mut u64| {
        let before = prague.window();
        for _ in 0..100 {
            *next = round(prague, *next, *now, 2, 0);
            *now += 2;
        }
        prague.window() - before
    };
    let scaled = grown(&mut prague, &mut next, &mut now);
    assert!(scaled < 2 * MDS, "{scaled}");
    prague.on_congestion(&Congestion {
        now: at_ms(now),
        ..lost(next - 1..next, next)
    });
    let alone = grown(&mut prague, &mut next, &mut now);
    assert!(alone > 20 * MDS, "{alone}");
    next = round(&mut prague, next, now, 2, 1);
    let scaled = grown(&mut prague, &mut next, &mut now);
    assert!(scaled < 2 * MDS, "{scaled}");
}

/// A flow of a short path grows, in datagrams per second squared, as one of
/// 25 ms does.
#[test]
fn growth_does_not_depend_on_the_rtt_below_25_ms() {
    let rate_gained = |rtt_ms: u64| {
        let mut prague = prague();
        prague.classic.reduce_to(1_000 * MDS);
        prague.alpha.seen = true;
        prague.classic.adjustment_mut().set_shared(true);
        let start = prague.window();
        let (mut next, mut now) = (0, 0);
        while now < 10_000 {
            next = round(&mut prague, next, now, rtt_ms, 0);
            now += rtt_ms;
        }
        // Datagrams a second.
        (prague.window() - start) * 1_000 / rtt_ms / MDS
    };
    // 1 / (25 ms)² = 1600 datagrams/s per second, ten seconds long; less what the
    // bound on growth takes off where a whole window is one ACK.
    for rtt_ms in [1, 2, 5, 10, 25] {
        let gained = rate_gained(rtt_ms);
        assert!(
            (14_000..=16_100).contains(&gained),
            "{gained} at {rtt_ms} ms"
        );
    }
    // Above, a datagram a round.
    let gained = rate_gained(50);
    assert!((3_500..=4_010).contains(&gained), "{gained}");
}

/// Slow start, a loss, recovery, and then thirty rounds of avoidance.
#[test]
fn behaves_as_cubic_before_the_first_mark() {
    let windows = |controller: &mut dyn Controller| {
        let mut windows = Vec::new();
        controller.on_limit(Limit::Congestion, at_ms(0));
        let mut next = 0;
        for round in 1..40 {
            let packets = controller.window() / MDS;
            for ahead in 0..packets {
                controller.on_sent(&sent(next + ahead, ahead * MDS));
            }
            if round == 6 {
                controller.on_congestion(&lost(next..next + 1, next + packets));
            }
            next += packets;
            controller.on_ack(&Ack {
                now: at_ms(100 * round),
                ..acked(next - 1, packets, 0)
            });
            windows.push(controller.window());
        }
        windows
    };
    let mut cubic = Classic::new(
        super::super::cubic::Cubic::default(),
        SlowStart::Standard,
        MDS,
    );
    let expected = windows(&mut cubic);
    assert!(expected[38] > expected[8], "{expected:?}");
    assert_eq!(windows(&mut prague()), expected);
}

/// Half of a window of 2,000 datagrams, at 80 ms: a datagram a round makes 375 of them in half a
/// minute, CUBIC's curve reaches the old window after K = 13.6 s.
#[test]
fn window_regrows_by_the_curve_of_cubic_when_marks_stop() {
    let mut prague = prague();
    prague.on_limit(Limit::Congestion, at_ms(0));
    prague.classic.reduce_to(2_000 * MDS);
    prague.alpha.value = ONE;
    let mut next = round(&mut prague, 0, 0, 80, 1);
    assert!(prague.window() <= 1_001 * MDS, "{}", prague.window() / MDS);
    let mut now = 80;
    while now < 14_000 {
        next = round(&mut prague, next, now, 80, 0);
        now += 80;
    }
    assert!(prague.window() > 1_950 * MDS, "{}", prague.window() / MDS);
}

/// Rounds with a mark each, at this queueing delay over a path of 10 ms.
fn marked_rounds(prague: &mut Prague, rounds: u64, queue_ms: u64) -> SendIndex {
    let rtt = 10 + queue_ms;
    let mut next = 0;
    for each in 0..rounds {
        let packets = prague.window() / MDS;
        send(prague, next..next + packets, 0);
        next += packets;
        let now = at_ms(1_000 + each * 30);
        prague.on_ack(&Ack {
            now,
            largest_sent_time: at_ms(1_000 + each * 30 - rtt),
            mean_age: Duration::from_millis(rtt),
            smoothed_rtt: Duration::from_millis(rtt),
            rtt_sample: Some(Duration::from_millis(rtt)),
            ..acked(next - 1, packets, 0)
        });
        prague.on_congestion(&Congestion {
            now,
            packets: 1,
            ..marked(next - 1, next)
        });
    }
    next
}

#[test]
fn marks_of_a_classic_queue_reduce_as_cubic_does() {
    for (queue_ms, classic) in [(1, false), (20, true)] {
        let mut prague = prague();
        prague.classic.reduce_to(100 * MDS);
        prague.alpha.value = ONE / 100;
        let next = marked_rounds(&mut prague, 12, queue_ms);
        assert_eq!(prague.queue.is_classic(), classic, "{queue_ms} ms");
        let every = prague.acks_needed() == AcksNeeded::EveryPacket;
        assert_eq!(every, !classic);
        assert_eq!(prague.pacing_rate().is_none(), classic);
        prague.classic.reduce_to(100 * MDS);
        prague.alpha.value = ONE / 100;
        send(&mut prague, next..next + 100, 0);
        prague.on_congestion(&Congestion {
            now: at_ms(5_000),
            ..marked(next + 99, next + 100)
        });
        // RFC 8511 §4.1: 0.85; or less α/2.
        let expected = if classic { 850 } else { 995 };
        let window = prague.classic.settled_window();
        assert!(
            window.abs_diff(expected * MDS / 10) <= 1,
            "{window} at {queue_ms} ms"
        );
    }
}

#[test]
fn loss_reduces_the_window_by_beta() {
    let mut prague = prague();
    prague.classic.reduce_to(100 * MDS);
    prague.alpha.value = ONE / 64;
    send(&mut prague, 0..100, 0);
    prague.on_congestion(&lost(0..1, 100));
    assert_eq!(prague.metrics().ssthresh, Some(70 * MDS));
    assert_eq!(prague.state(), State::Recovery);
}

/// A window of 100 datagrams, half of which were marked in the round of packets 0 to 99.
fn after_marks() -> Prague {
    let mut prague = prague();
    prague.classic.reduce_to(100 * MDS);
    prague.alpha.value = ONE / 2;
    send(&mut prague, 0..100, 0);
    prague.on_congestion(&Congestion {
        now: at_ms(100),
        ..marked(20, 100)
    });
    assert_eq!(prague.window(), 75 * MDS);
    prague
}

#[test]
fn loss_and_marks_of_one_round_reduce_by_beta_at_most() {
    let mut prague = after_marks();
    prague.on_congestion(&lost(30..31, 100));
    assert_eq!(prague.metrics().ssthresh, Some(70 * MDS), "not 52.5");
    // The other order: the marks of that flight are answered already.
    prague.on_congestion(&Congestion {
        now: at_ms(200),
        ..marked(60, 100)
    });
    assert_eq!(prague.metrics().ssthresh, Some(70 * MDS));
    // A loss of a later round counts in full.
    send(&mut prague, 100..140, 10);
    prague.on_ack(&acked(101, 1, 38));
    prague.on_congestion(&lost(110..111, 140));
    assert_eq!(prague.metrics().ssthresh, Some(49 * MDS));
}

/// Only a loss in the round of the response is answered from the window before it.
#[test]
fn loss_after_the_round_of_a_response_reduces_the_window_that_there_is() {
    for (lost_at, ssthresh) in [(30, 70), (110, 52)] {
        let mut prague = after_marks();
        send(&mut prague, 100..140, 0);
        prague.on_congestion(&lost(lost_at..lost_at + 1, 140));
        let found = prague.metrics().ssthresh.map(|bytes| bytes / MDS);
        assert_eq!(found, Some(ssthresh), "packet {lost_at}");
    }
}

#[test]
fn ecn_marks_prevent_undo_of_a_loss() {
    let undone = |with_mark: bool| {
        let mut prague = prague();
        prague.classic.reduce_to(100 * MDS);
        send(&mut prague, 0..100, 0);
        prague.on_congestion(&lost(0..1, 100));
        if with_mark {
            prague.on_congestion(&marked(50, 100));
        }
        prague.on_spurious(&spurious(100));
        prague.metrics().spurious_events
    };
    assert_eq!((undone(false), undone(true)), (1, 0));
}

#[test]
fn persistent_congestion_collapses_the_window() {
    let mut prague = prague();
    prague.classic.reduce_to(100 * MDS);
    send(&mut prague, 0..100, 0);
    prague.on_congestion(&persistent(0..90, 100));
    assert_eq!(prague.window(), 2 * MDS);
}

#[test]
fn window_never_falls_below_two_datagrams() {
    let mut prague = prague();
    let (mut next, mut now) = (0, 0);
    for _ in 0..100 {
        next = round(&mut prague, next, now, 30, 100);
        now += 30;
    }
    assert_eq!(prague.window(), 2 * MDS);
}

/// Only once marks are seen; before, the pacer derives the rate.
#[test]
fn marks_start_window_over_rtt_pacing_and_per_packet_acks() {
    let mut prague = prague();
    assert_eq!(prague.trains_per_second(), 4_000);
    let next = round(&mut prague, 0, 0, 30, 0);
    assert_eq!(prague.pacing_rate(), None);
    assert_eq!(prague.acks_needed(), AcksNeeded::SMOOTH);
    round(&mut prague, next, 30, 30, 1);
    assert_eq!(prague.acks_needed(), AcksNeeded::EveryPacket);
    let rate = prague.window() * 1_000 / 30;
    assert!(prague.pacing_rate().unwrap().abs_diff(rate) <= 2);
}

/// For a mark in the flight of a loss the window was already reduced; for the first packet
/// sent after it, it was not.
#[test]
fn mark_before_the_boundary_of_a_loss_is_ignored() {
    for (largest, answered) in [(98, false), (99, false), (100, true)] {
        let mut prague = prague();
        prague.classic.reduce_to(100 * MDS);
        send(&mut prague, 0..100, 0);
        prague.on_congestion(&lost(0..1, 100));
        let events = prague.metrics().congestion_events;
        prague.on_congestion(&Congestion {
            now: at_ms(1_000),
            ..marked(largest, 150)
        });
        let more = prague.metrics().congestion_events - events;
        assert_eq!(more == 1, answered, "mark on {largest}");
    }
}

/// A mark costs the growth of one packet, once.
#[test]
fn growth_resumes_after_marked_bytes_are_skipped() {
    let mut prague = prague();
    prague.marked_bytes = 3 * MDS;
    send(&mut prague, 0..10, 0);
    prague.on_ack(&acked(1, 2, 8));
    assert_eq!((prague.marked_bytes, prague.window()), (MDS, 10 * MDS));
    prague.on_ack(&acked(3, 2, 6));
    assert_eq!((prague.marked_bytes, prague.window()), (0, 11 * MDS));
    prague.on_ack(&acked(5, 2, 4));
    assert_eq!(prague.window(), 13 * MDS);
}

/// After idle nothing is in flight that PRR could limit, so the window opens to ssthresh.
/// Paced over the smoothed RTT, a window whose ACKs come in bunches is sent faster than it is
/// delivered, and the end of what each bunch releases is marked.
#[test]
fn pacing_is_slower_where_acks_come_in_bunches() {
    let mut prague = prague();
    let next = marked_rounds(&mut prague, 20, 1);
    let packets = prague.window() / MDS;
    send(&mut prague, next..next + packets, 0);
    prague.on_ack(&Ack {
        now: at_ms(2_000),
        largest_sent_time: at_ms(1_988),
        mean_age: Duration::from_millis(14),
        smoothed_rtt: Duration::from_millis(12),
        ..acked(next + packets - 1, packets, 0)
    });
    assert_eq!(prague.pacing_rate(), Some(prague.window() * 1_000 / 14));
}

#[test]
fn restart_from_idle_in_recovery_opens_the_window_to_ssthresh() {
    let mut prague = prague();
    prague.classic.reduce_to(100 * MDS);
    send(&mut prague, 0..100, 0);
    prague.on_congestion(&lost(0..60, 100));
    assert!(prague.window() < 70 * MDS, "{}", prague.window());
    prague.restart_from_idle(at_ms(5_000));
    assert_eq!(prague.window(), 70 * MDS);
}

#[test]
fn undo_restores_fractions_of_a_byte() {
    let half = Growth {
        now: at_ms(0),
        window: 2 * MDS,
        acked: 1,
        largest_flight: 2 * MDS,
        min_rtt: Duration::from_millis(30),
        mds: MDS,
    };
    let mut adjustment = PragueGrowth::default();
    adjustment.on_ack(&Ack {
        smoothed_rtt: Duration::from_millis(30),
        ..acked(0, 1, 0)
    });
    adjustment.set_shared(true);
    assert_eq!(adjustment.grow(&half), 2 * MDS);
    let saved = adjustment.save();
    adjustment.on_persistent_congestion();
    assert_eq!(adjustment.grow(&half), 2 * MDS, "forgotten");
    adjustment.restore((saved.0, Carry::default()));
    assert_eq!(adjustment.grow(&half), 2 * MDS);
    adjustment.restore(saved);
    assert_eq!(adjustment.grow(&half), 2 * MDS + 1, "restored");
}

#[test]
fn alpha_is_shown_once_it_is_measured() {
    let alpha = |prague: &Prague| {
        let mut alpha = None;
        prague.internals(at_ms(0), &mut |name, value| {
            if name == "alpha" {
                alpha = Some(value);
            }
        });
        alpha
    };
    let mut prague = prague();
    assert_eq!(alpha(&prague), None);
    prague.alpha.seen = true;
    prague.alpha.value = ONE / 4;
    assert_eq!(alpha(&prague), Some(250));
}
