//! Tests of what is not asked, because no sender could do it in that network.

use super::*;

/// Returns what an oracle asks of a controller in a network, if it asks for anything.
fn limit_of(controller: &str, oracle: Oracle, genome: &Genome) -> Option<f64> {
    let demands = Envelopes::default().of(controller).unwrap().demands(genome);
    let found = demands.iter().find(|it| it.oracle == oracle);
    found.map(|it| it.limit)
}

/// Cases that the search found although no sender could do better.
#[test]
fn demands_leave_out_what_the_network_forbids() {
    let limit = |oracle, genome: &Genome| limit_of("bbr", oracle, genome);
    let plain = Genome {
        seconds: 60,
        ..Genome::default()
    };
    let policed = Genome {
        policer: Some(PolicerGene {
            rate: 52,
            bucket: 36,
        }),
        ..plain.clone()
    };
    assert!(limit(Oracle::Loss, &plain).is_some());
    assert_eq!(limit(Oracle::Loss, &policed), None, "two packets, no queue");
    let late = |by| Genome {
        late: Some(LatePackets { ppm: 60_000, by }),
        ..plain.clone()
    };
    assert!(limit(Oracle::Utilisation, &late(100_000)).is_some());
    assert_eq!(limit(Oracle::Utilisation, &late(180_000)), None, "lost");
    let pauses = |seconds| Genome {
        seconds,
        application: Application::OnOff {
            kilobytes: 27,
            gap: 6_700,
        },
        ..plain.clone()
    };
    assert_eq!(limit(Oracle::Transfer, &pauses(10)), None, "too short");
    assert!(limit(Oracle::Transfer, &pauses(60)).is_some());
    let rise = Genome {
        rate: 600,
        uplink: 100,
        rate_steps: vec![Step {
            at: 200,
            to: 30_000,
        }],
        ..plain.clone()
    };
    let util = limit(Oracle::Utilisation, &rise).unwrap();
    assert!(util < 0.08, "60 kbit/s carry few acknowledgements: {util}");
    let crowd = |seconds| Genome {
        rate: 1_100,
        queue: QueueLimitGene::Millis(2_000),
        seconds,
        neighbours: vec![Neighbours {
            controller: None,
            count: 42,
            start: 80,
        }],
        ..plain.clone()
    };
    assert_eq!(limit(Oracle::Utilisation, &crowd(10)), None, "handshakes");
    assert!(limit(Oracle::Utilisation, &crowd(60)).is_some());
    let jitter = Genome {
        rtt: 6_700,
        jitter: Some(JitterGene {
            max: 110_000,
            reorders: true,
        }),
        ..plain.clone()
    };
    let util = limit(Oracle::Utilisation, &jitter).unwrap();
    assert!(
        util < 0.12,
        "two products of 6.7 ms in a mean of 62: {util}"
    );
    let managed = Genome {
        rate: 400,
        management: QueueManagement::Pie,
        ..plain.clone()
    };
    assert_eq!(limit(Oracle::Loss, &managed), None, "a packet of queue");
    let fall = |seconds| Genome {
        seconds,
        queue: QueueLimitGene::Millis(80),
        rate_steps: vec![Step { at: 100, to: 26 }],
        ..plain.clone()
    };
    assert_eq!(limit(Oracle::Loss, &fall(27)), None, "3 s of queue");
    assert!(limit(Oracle::Loss, &fall(120)).is_some());
}

/// Slots that are longer than the path release a window at once. What the pacer does not spread
/// has to fit into the queue.
#[test]
fn demands_leave_out_what_slots_longer_than_the_path_forbid() {
    let limit = |controller: &str, queue, ack_slots| {
        let genome = Genome {
            rtt: 2_000,
            seconds: 60,
            queue: QueueLimitGene::Packets(queue),
            ack_slots,
            ..Genome::default()
        };
        limit_of(controller, Oracle::Utilisation, &genome).unwrap()
    };
    let plain = limit("newreno", 10, 0);
    assert!(
        limit("newreno", 10, 1_000) == plain,
        "shorter than the path"
    );
    // Of 34 ms, 14.4 are paced, and ten packets are 11.8 ms of the link.
    let held = limit("newreno", 10, 32_000) / plain;
    assert!((0.7..0.8).contains(&held), "{held}");
    assert!(
        limit("newreno", 20, 32_000) == plain,
        "a queue that is long enough"
    );
    assert!(
        limit("bbr", 10, 32_000) / limit("bbr", 10, 0) < 0.25,
        "a model"
    );
}

/// RFC 9438's curve is one of time: over seconds it passes its plateau before it hears of a loss.
#[test]
fn loss_of_a_cubic_is_not_asked_where_its_plateau_is_short() {
    let asked = |controller: &str, queue| {
        let genome = Genome {
            rate: 270,
            seconds: 120,
            queue: QueueLimitGene::Packets(queue),
            ..Genome::default()
        };
        limit_of(controller, Oracle::Loss, &genome).is_some()
    };
    assert!(asked("cubic", 25), "1.1 s, a plateau after 2.7 s");
    assert!(!asked("cubic", 45), "2 s, a plateau after 3.3 s");
    assert!(asked("newreno", 45));
}

#[test]
fn utilisation_is_not_asked_where_minimum_windows_do_not_fit() {
    let asked = |controller, count| {
        let genome = Genome {
            rate: 256,
            queue: QueueLimitGene::Packets(40),
            seconds: 120,
            neighbours: vec![Neighbours {
                controller: None,
                count,
                start: 0,
            }],
            ..Genome::default()
        };
        limit_of(controller, Oracle::Utilisation, &genome).is_some()
    };
    assert!(asked("cubic", 10));
    assert!(!asked("cubic", 24));
    assert!(asked("bbr", 8));
    assert!(!asked("bbr", 10), "four packets each");
}

#[test]
fn stall_is_not_asked_where_initial_windows_do_not_fit() {
    let asked = |count| {
        let genome = Genome {
            rtt: 2_000,
            queue: QueueLimitGene::Packets(200),
            neighbours: vec![Neighbours {
                controller: None,
                count,
                start: 120,
            }],
            ..Genome::default()
        };
        limit_of("cubic", Oracle::Stall, &genome).is_some()
    };
    assert!(asked(15));
    assert!(!asked(49));
}

/// Each server's first flight is three packets, and they come at once.
#[test]
fn stall_is_not_asked_where_first_flights_do_not_fit_into_the_queue() {
    let asked = |count, packets| {
        let genome = Genome {
            rate: 30_000,
            rtt: 200_000,
            queue: QueueLimitGene::Packets(packets),
            neighbours: vec![Neighbours {
                controller: None,
                count,
                start: 60,
            }],
            ..Genome::default()
        };
        limit_of("newreno", Oracle::Stall, &genome).is_some()
    };
    assert!(!asked(22, 10), "66 packets");
    assert!(asked(22, 66));
    assert!(asked(3, 10));
}

/// BBR keeps the least round trip of the last ten seconds, 3 ms of 45 here, and its window is twice the
/// product with that.
#[test]
fn model_is_asked_for_nothing_while_it_keeps_the_round_trip_of_a_shorter_path() {
    let limit = |controller, seconds, to| {
        let genome = Genome {
            rate: 20_000,
            rtt: 5_000,
            queue: QueueLimitGene::Packets(10),
            seconds,
            rtt_steps: vec![Step { at: 240, to }],
            ..Genome::default()
        };
        limit_of(controller, Oracle::Utilisation, &genome)
    };
    assert_eq!(limit("bbr", 20, 9_000), None);
    assert!(limit("bbr", 60, 9_000).is_some());
    assert!(limit("bbr", 20, 400).is_some(), "a shorter path");
}

/// NewReno's windows of five to fifteen packets: 27 ms for each round of less than ten, 2 to 6 ms for
/// the others.
#[test]
fn window_that_is_less_than_the_peer_waits_for_takes_its_delay_each_round() {
    let limit = |controller, rtt, acks| {
        let genome = Genome {
            rate: 30_000,
            rtt,
            queue: QueueLimitGene::Packets(10),
            seconds: 60,
            acks,
            ..Genome::default()
        };
        limit_of(controller, Oracle::Utilisation, &genome).unwrap()
    };
    for controller in ["newreno", "prague"] {
        let asked = limit(controller, 2_000, AckPolicy::Asked);
        let tenth = limit(controller, 2_000, AckPolicy::EveryTenth);
        assert!((0.15..0.4).contains(&tenth), "{controller}: {tenth}");
        assert_eq!(asked, 0.46, "{controller}");
        let long = limit(controller, 40_000, AckPolicy::EveryTenth);
        assert_eq!(
            long, 0.46,
            "{controller}: windows of thirty packets and more"
        );
    }
    let cubic = limit("cubic", 2_000, AckPolicy::EveryTenth);
    assert_eq!(cubic, 0.46, "ten packets remain of fifteen");
    assert_eq!(limit("bbr", 2_000, AckPolicy::EveryTenth), 0.46);
}

/// A packet that is more than three round trips late counts as lost, and holds the window as a loss.
#[test]
fn packets_that_are_late_enough_count_as_random_loss() {
    let limit = |by, to| {
        let genome = Genome {
            rate: 15_000,
            seconds: 60,
            late: Some(LatePackets { ppm: 14_000, by }),
            rtt_steps: vec![Step { at: 200, to }],
            ..Genome::default()
        };
        limit_of("newreno", Oracle::Utilisation, &genome).unwrap()
    };
    let (early, late) = (limit(100_000, 1_000), limit(180_000, 1_000));
    // √(1.5 / 0.014) = 10 packets of the 52 that the path holds.
    assert!(
        late < early * 0.25 && late > early * 0.15,
        "{late} of {early}"
    );
    let shorter = limit(100_000, 500);
    assert!(
        shorter < early * 0.5,
        "{shorter}: the round trip is 20 ms at last"
    );
}

#[test]
fn slots_are_measured_by_what_a_queue_takes_without_marks() {
    let limit = |management| {
        let genome = Genome {
            rate: 10_000,
            rtt: 2_000,
            queue: QueueLimitGene::Millis(40),
            ack_slots: 22_000,
            management,
            ..Genome::default()
        };
        limit_of("prague", Oracle::Utilisation, &genome).unwrap()
    };
    let (marked, dropped) = (QueueManagement::StepMarking(1), QueueManagement::DropTail);
    // Of 24 ms, 10.4 are paced, and the queue marks after one more.
    let held = limit(marked) / limit(dropped);
    assert!((0.45..0.5).contains(&held), "{held}");
}

#[test]
fn queueing_is_counted_from_where_a_step_marks() {
    let limit = |millis| {
        let genome = Genome {
            rate: 10_000,
            rtt: 2_000,
            queue: QueueLimitGene::Millis(60),
            management: QueueManagement::StepMarking(millis),
            ..Genome::default()
        };
        limit_of("prague", Oracle::Queueing, &genome).unwrap()
    };
    assert!((limit(47) - limit(3) - 0.044).abs() < 1e-9);
}
