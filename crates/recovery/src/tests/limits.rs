//! The reason for not sending, and what depends on it: the controller, the use of the
//! window, delivery-rate samples.

use super::harness::{BYTES, Bench, Call, Fixed, PATH, at};
use crate::PathId;
use crate::limit::Limit;
use core::time::Duration;

fn used(bench: &Bench) -> u64 {
    bench
        .controller
        .take()
        .into_iter()
        .filter_map(|told| match told {
            Call::Acked { used, .. } => Some(used),
            _ => None,
        })
        .sum()
}

#[test]
fn controller_is_told_of_limit_changes_only() {
    let mut bench = Bench::new();
    for limit in [
        Limit::Application,
        Limit::Application,
        Limit::Congestion,
        Limit::Congestion,
    ] {
        bench.recovery.set_limit(PATH, limit, at(1));
    }
    let told = bench.controller.take();
    assert_eq!(
        told,
        [
            Call::Limit(Limit::Application),
            Call::Limit(Limit::Congestion)
        ]
    );
}

/// RFC 9002 §7.8: packets count if their train was ended by window, pacer or host.
#[test]
fn only_trains_that_used_the_window_justify_growth() {
    let mut bench = Bench::new();
    let trains = [
        (Limit::Application, 3),
        (Limit::Congestion, 5),
        (Limit::StreamFlowControl, 2),
        (Limit::Pacing, 4),
        (Limit::Scheduling, 1),
        (Limit::ConnectionFlowControl, 7),
    ];
    for (limit, packets) in trains {
        bench.send_many(packets, 10);
        bench.recovery.set_limit(PATH, limit, at(11));
    }
    bench.ack(0..=21, 100);
    assert_eq!(used(&bench), (5 + 4 + 1) * BYTES);
}

#[test]
fn packets_of_an_unfinished_train_use_the_current_limit() {
    let mut bench = Bench::new();
    bench.recovery.set_limit(PATH, Limit::Congestion, at(0));
    bench.send(1);
    bench.ack(0..=0, 2);
    assert_eq!(used(&bench), BYTES);
    bench.recovery.set_limit(PATH, Limit::Application, at(3));
    bench.send(4);
    bench.ack(1..=1, 5);
    assert_eq!(used(&bench), 0);
}

/// BBR draft §4.1.1.4: only the application marks samples, and only until the
/// bubble has left the pipe.
#[test]
fn only_application_limit_marks_delivery_rate_samples() {
    for (limit, marked) in [
        (Limit::Application, true),
        (Limit::StreamFlowControl, false),
        (Limit::Congestion, false),
    ] {
        let mut bench = Bench::sampled(10);
        bench.recovery.set_limit(PATH, limit, at(99));
        bench.send(100);
        bench.ack(1..=1, 110);
        let sample = bench.recovery.path(PATH).unwrap().delivery_rate().copied();
        assert_eq!(sample.unwrap().app_limited, marked, "{limit:?}");
    }
}

#[test]
fn breakdown_sums_to_the_lifetime_of_path_and_connection() {
    let mut bench = Bench::new();
    bench.recovery.set_limit(PATH, Limit::Congestion, at(7));
    let new = PathId(1);
    let controller = Box::new(Fixed::new(1 << 20));
    bench.recovery.add_path(new, controller, BYTES, at(20));
    bench.recovery.set_limit(new, Limit::Application, at(30));
    let connection = |bench: &Bench, limit| bench.recovery.limits().spent(limit, at(100));
    assert_eq!(
        connection(&bench, Limit::Application),
        Duration::ZERO,
        "not the active path's"
    );
    bench.recovery.set_active_path(new, at(50));
    assert_eq!(connection(&bench, Limit::Handshake), at(7) - at(0));
    assert_eq!(connection(&bench, Limit::Congestion), at(50) - at(7));
    assert_eq!(connection(&bench, Limit::Application), at(100) - at(50));
    let life = |clock: &crate::limit::LimitClock| {
        let sum: Duration = clock.breakdown(at(100)).map(|(_, spent)| spent).sum();
        assert_eq!(sum, clock.elapsed(at(100)));
        sum
    };
    assert_eq!(life(bench.recovery.limits()), at(100) - at(0));
    let path = bench.recovery.path(new).unwrap();
    assert_eq!(life(path.limits()), at(100) - at(20));
}

#[test]
fn restart_from_idle_is_never_inferred() {
    let mut bench = Bench::sampled(100);
    bench.send(60_000);
    assert!(!bench.controller.take().contains(&Call::Restart));
    bench.recovery.restart_from_idle(PATH, at(60_001));
    assert_eq!(bench.controller.take(), [Call::Restart]);
}

/// draft-ietf-ccwg-bbr §4.1.2.4: with a full window the flow is not application-limited,
/// even if the application has no more data.
#[test]
fn full_window_is_not_application_limited() {
    for (window, limited) in [(3 * BYTES, false), (3 * BYTES + 1, true)] {
        let mut bench = Bench::new();
        bench.recovery.paths[0].controller = Box::new(Fixed::new(window));
        bench.send_many(3, 0);
        bench.recovery.set_limit(PATH, Limit::Application, at(0));
        let path = bench.recovery.path(PATH).unwrap();
        assert_eq!(path.rate.is_app_limited(), limited, "window {window}");
    }
}
