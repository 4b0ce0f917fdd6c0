//! The event loop on modelled cores.

use std::time::Duration;

use clearway_sim::closed_loop::{ClosedLoop, Report, run};
use clearway_sim::costs::Costs;
use clearway_sim::socket::Faults;

fn report(setup: &ClosedLoop) -> Report {
    run(setup).expect("a valid link")
}

/// Jain's index of what connections got, of a thousand.
fn fairness_per_mille(answered: &[u64]) -> u64 {
    let sum: u64 = answered.iter().sum();
    let squares: u64 = answered.iter().map(|n| n * n).sum();
    sum * sum * 1000 / (squares * answered.len() as u64).max(1)
}

#[test]
fn busier_end_is_busy_while_requests_wait() {
    for (connections, in_flight) in [
        (1, 100),
        (1, 1000),
        (10, 10),
        (10, 100),
        (100, 1),
        (100, 10),
    ] {
        let report = report(&ClosedLoop {
            connections,
            in_flight,
            ..ClosedLoop::default()
        });
        let busy = report.busy_per_mille();
        let least = if in_flight == 1 { 900 } else { 950 };
        assert!(
            busy.into_iter().max() >= Some(least),
            "{connections} connections with {in_flight} requests each: {busy:?} of 1000 busy"
        );
    }
}

/// A few requests arrive in one datagram. If all were answered before anything is sent, the ends
/// would take turns.
#[test]
fn both_ends_work_at_the_same_time_on_few_requests() {
    let report = report(&ClosedLoop {
        in_flight: 16,
        ..ClosedLoop::default()
    });
    let [server, client] = report.busy_per_mille();
    // Without slices both are half as busy.
    assert!(
        server > 950 && client > 950,
        "{server} and {client} of 1000 busy"
    );
}

#[test]
fn idle_endpoints_take_no_time() {
    let report = report(&ClosedLoop {
        in_flight: 0,
        duration: Duration::from_secs(5),
        ..ClosedLoop::default()
    });
    let busy = report.busy_per_mille();
    assert_eq!(busy, [0, 0], "{:?} and {:?}", report.server, report.client);
}

#[test]
fn thousand_connections_get_equal_shares() {
    let report = report(&ClosedLoop {
        connections: if cfg!(debug_assertions) { 300 } else { 1000 },
        in_flight: 1,
        duration: Duration::from_millis(100),
        ..ClosedLoop::default()
    });
    let fairness = fairness_per_mille(&report.answered);
    assert!(fairness > 990, "Jain's index is {fairness} of 1000");
    assert!(
        report.p99 < report.p50 * 2,
        "{:?} {:?}",
        report.p50,
        report.p99
    );
}

#[test]
fn flood_of_handshakes_leaves_live_connections_their_share() {
    let live = ClosedLoop {
        connections: 4,
        in_flight: 4,
        duration: Duration::from_millis(100),
        ..ClosedLoop::default()
    };
    let alone = report(&live);
    // More handshakes than the server could do, if it did nothing else.
    let beside = report(&ClosedLoop {
        strangers: Some(Duration::from_micros(200)),
        ..live
    });
    // They take half of the time at most, and no request waits for more than two of them.
    assert!(beside.strangers > 200, "{} handshakes", beside.strangers);
    assert!(
        beside.total() > alone.total() * 4 / 10,
        "{} requests instead of {}",
        beside.total(),
        alone.total()
    );
    assert!(
        beside.p50 < alone.p50 * 2,
        "{:?} instead of {:?}",
        beside.p50,
        alone.p50
    );
    assert!(beside.p99 < Duration::from_micros(500), "{:?}", beside.p99);
}

#[test]
fn full_send_buffer_delays_requests_but_loses_none() {
    let free = report(&ClosedLoop::default());
    let full = report(&ClosedLoop {
        server_faults: Faults {
            full: Some((Duration::from_micros(500), Duration::from_millis(2))),
            ..Faults::default()
        },
        ..ClosedLoop::default()
    });
    // A quarter of the time is lost, and the event loop does not ask again and again.
    assert!(full.total() > free.total() * 6 / 10);
    assert!(full.server.polls < free.server.polls * 2);
}

#[test]
fn storm_of_errors_slows_requests_and_stops_none() {
    for faults in [
        Faults {
            drops_per_mille: 100,
            ..Faults::default()
        },
        Faults {
            unavailable_per_mille: 100,
            ..Faults::default()
        },
        Faults {
            no_offload: true,
            ..Faults::default()
        },
        Faults {
            full: Some((Duration::from_millis(1), Duration::from_millis(3))),
            drops_per_mille: 50,
            unavailable_per_mille: 50,
            no_offload: true,
        },
    ] {
        let report = report(&ClosedLoop {
            connections: 20,
            in_flight: 5,
            server_faults: faults,
            duration: Duration::from_millis(500),
            ..ClosedLoop::default()
        });
        assert!(
            report.answered.iter().all(|&n| n > 50),
            "{faults:?}: {:?}",
            report.answered
        );
    }
}

#[test]
fn runs_are_equal_one_after_the_other_and_at_the_same_time() {
    let setup = ClosedLoop {
        connections: 5,
        in_flight: 10,
        link: "rate=1G delay=100us queue=1000 loss=1%".to_owned(),
        strangers: Some(Duration::from_millis(1)),
        ..ClosedLoop::default()
    };
    let first = report(&setup);
    assert_eq!(report(&setup), first);
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let setup = setup.clone();
            std::thread::spawn(move || report(&setup))
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().expect("a report"), first);
    }
    let other = report(&ClosedLoop { seed: 2, ..setup });
    assert_ne!(other.network.digest, first.network.digest);
}

#[test]
fn calls_without_costs_leave_the_network_alone_to_decide() {
    let report = report(&ClosedLoop {
        costs: Costs::FREE,
        application: Duration::ZERO,
        in_flight: 1,
        link: "rate=1G delay=1ms queue=1000".to_owned(),
        duration: Duration::from_secs(1),
        ..ClosedLoop::default()
    });
    assert_eq!(report.busy_per_mille(), [0, 0]);
    assert!(report.p50 >= Duration::from_millis(2) && report.p50 < Duration::from_micros(2100));
}
