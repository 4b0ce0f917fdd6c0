//! Each bug shows its symptom, and the correct code does not.

use core::time::Duration;

use super::super::super::cubic::Cubic;
use super::super::super::sim::{Drops, Link, Sim};
use super::super::super::specimens::WithBug;
use super::super::super::testing::{MDS, acked, at_ms, lost, sent};
use super::super::super::{Algorithm, CongestionControl, NewPath, SlowStart};
use super::*;

/// No bug.
#[derive(Debug)]
struct NoBug;

impl Bug<Classic<Cubic>> for NoBug {}

/// CUBIC, with a bug or without.
fn cubic(specimen: Option<Specimen>) -> WithBug<Classic<Cubic>> {
    let bug = specimen.map_or_else(
        || Box::new(NoBug) as Box<dyn Bug<Classic<Cubic>>>,
        |specimen| bug(specimen).expect("a bug of CUBIC's"),
    );
    let right = Classic::new(Cubic::default(), SlowStart::Standard, MDS);
    let mut cubic = WithBug::new(right, bug);
    cubic.on_limit(Limit::Congestion, at_ms(0));
    cubic
}

fn send(
    cubic: &mut WithBug<Classic<Cubic>>,
    range: core::ops::Range<SendIndex>,
    in_flight: u64,
    ms: u64,
) {
    for (ahead, index) in range.enumerate() {
        cubic.on_sent(&Sent {
            now: at_ms(ms),
            ..sent(index, (in_flight + ahead as u64) * MDS)
        });
    }
}

/// Returns a controller in avoidance after a loss, whose window was `packets` before.
fn in_avoidance(specimen: Option<Specimen>, packets: u64) -> (WithBug<Classic<Cubic>>, SendIndex) {
    let mut cubic = cubic(specimen);
    cubic.inner.window = packets * MDS;
    send(&mut cubic, 0..packets, 0, 0);
    cubic.on_congestion(&lost(0..1, packets));
    send(&mut cubic, packets..packets + 1, packets - 1, 0);
    cubic.on_ack(&acked(packets, 1, 0));
    (cubic, packets + 1)
}

/// Returns the windows after each of `count` rounds of 100 ms; before every tenth the
/// application pauses.
fn rounds(specimen: Option<Specimen>, count: u64, pause_ms: u64) -> Vec<u64> {
    let (mut cubic, mut next) = in_avoidance(specimen, 300);
    let mut now = 0;
    (0..count)
        .map(|round| {
            if round % 10 == 9 && pause_ms > 0 {
                cubic.on_limit(Limit::Application, at_ms(now));
                now += pause_ms;
                cubic.restart_from_idle(at_ms(now));
            }
            cubic.on_limit(Limit::Congestion, at_ms(now));
            let packets = cubic.window() / MDS;
            send(&mut cubic, next..next + packets, 0, now);
            next += packets;
            now += 100;
            cubic.on_ack(&Ack {
                now: at_ms(now),
                largest_sent_time: at_ms(now - 100),
                smoothed_rtt: Duration::from_millis(100),
                ..acked(next - 1, packets, 0)
            });
            cubic.window()
        })
        .collect()
}

/// The largest distance of paused windows from unpaused ones, in datagrams.
fn off_the_curve(specimen: Option<Specimen>, pause_ms: u64) -> u64 {
    let (with, without) = (rounds(specimen, 60, pause_ms), rounds(None, 60, 0));
    let off = with.iter().zip(&without).map(|(a, b)| a.abs_diff(*b));
    off.max().unwrap() / MDS
}

#[test]
fn epoch_not_shifted_makes_the_window_jump_after_idle() {
    assert!(off_the_curve(Some(Specimen::EpochNotShifted), 60_000) > 100);
    assert!(off_the_curve(None, 60_000) <= 1);
    // Without a pause the bug hides.
    assert_eq!(off_the_curve(Some(Specimen::EpochNotShifted), 0), 0);
}

#[test]
fn epoch_reset_on_idle_makes_growth_too_fast_after_every_pause() {
    let after_pauses = *rounds(Some(Specimen::EpochResetOnIdle), 60, 200)
        .last()
        .unwrap();
    let right = *rounds(None, 60, 200).last().unwrap();
    assert!(after_pauses > right + 50 * MDS, "{after_pauses}, {right}");
    assert!(off_the_curve(None, 200) <= 1);
    assert_eq!(off_the_curve(Some(Specimen::EpochResetOnIdle), 0), 0);
}

#[test]
fn undo_on_light_loss_never_reduces_the_window() {
    let after_losses = |specimen| {
        let (mut cubic, mut next) = in_avoidance(specimen, 300);
        let start = cubic.window();
        for _ in 0..20 {
            let packets = cubic.window() / MDS;
            send(&mut cubic, next..next + packets, 0, 0);
            // One in fifty, every round.
            cubic.on_congestion(&lost(next..next + packets / 50 + 1, next + packets));
            next += packets;
            send(&mut cubic, next..next + 1, 0, 0);
            cubic.on_ack(&acked(next, 1, 0));
            next += 1;
        }
        (start, cubic.window())
    };
    let (start, window) = after_losses(Some(Specimen::UndoOnLightLoss));
    assert!(window >= start, "{window} after twenty losses");
    let (start, window) = after_losses(None);
    assert!(window < start / 20, "{window} of {start}");
}

#[test]
fn multi_cut_reduces_thousands_of_times() {
    let cuts = |specimen| {
        let (mut cubic, mut next) = in_avoidance(specimen, 300);
        for _ in 0..10 {
            send(&mut cubic, next..next + 400, 0, 0);
            cubic.on_congestion(&lost(next..next + 350, next + 400));
            next += 400;
            cubic.on_ack(&acked(next - 1, 1, 0));
        }
        cubic.metrics().congestion_events
    };
    assert!(cuts(Some(Specimen::MultiCut)) > 3_000);
    assert_eq!(cuts(None), 11, "one for each flight");
}

/// A path of 10 ms with 30 % loss for two seconds, where one ACK acknowledges both packets
/// of a burst. Returns for how many of 40 seeds the window stays below three packets for a
/// second after the loss.
fn pinned(specimen: Option<Specimen>) -> usize {
    let link = Link {
        rtt: Duration::from_millis(10),
        per_packet: Duration::from_micros(110),
        queue: 250,
        drops: Drops::PercentUntil(30, at_ms(2_000)),
        ack_every: 2,
    };
    let stuck = |seed: u64| {
        let cubic = CongestionControl::from(Algorithm::Cubic);
        let path = NewPath {
            mds: MDS,
            slow_start: SlowStart::HyStart,
            seed: 0,
        };
        let controller = match specimen {
            Some(specimen) => specimen.build(&cubic, &path),
            None => cubic.build(&path),
        };
        let mut sim = Sim::new(controller, link, seed);
        sim.run_until(at_ms(2_500), |_| {});
        let mut largest = 0;
        sim.run_until(at_ms(3_500), |sim| {
            largest = largest.max(sim.controller.window());
        });
        largest < 3 * MDS
    };
    (1..=40).filter(|&seed| stuck(seed)).count()
}

#[test]
fn idle_from_last_send_pins_the_window_at_the_minimum() {
    let stuck = pinned(Some(Specimen::IdleFromLastSend));
    assert!(stuck >= 10, "{stuck} of 40");
    assert_eq!(pinned(None), 0);
}

#[test]
fn epoch_clamped_to_now_pins_the_window_at_the_minimum() {
    let stuck = pinned(Some(Specimen::EpochClampedToNow));
    assert!(stuck >= 10, "{stuck} of 40");
}
