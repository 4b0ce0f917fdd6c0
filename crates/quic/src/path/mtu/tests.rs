use super::*;
use proptest::prelude::*;

fn at(secs: u64) -> Instant {
    Instant::from_nanos(secs * 1_000_000_000)
}

fn started(cap: u16) -> MtuDiscovery {
    let mut mtu = MtuDiscovery::new(cap);
    mtu.start(at(0));
    mtu
}

/// Probes a path that carries `path` bytes. Returns the sizes tried.
fn run(mtu: &mut MtuDiscovery, now: Instant, path: u16) -> Vec<u16> {
    let mut tried = Vec::new();
    while let Some(size) = mtu.next_probe(now) {
        mtu.on_probe_sent();
        assert_eq!(mtu.next_probe(now), None, "one at a time");
        tried.push(size);
        if size <= path {
            assert_eq!(mtu.on_probe_acked(now, size), Some(size));
        } else {
            mtu.on_probe_lost(now, size);
        }
        assert!(tried.len() < 200, "the search does not end");
    }
    tried
}

#[test]
fn no_mtu_probe_before_handshake_is_confirmed() {
    let mut mtu = MtuDiscovery::new(DEFAULT_MAX_MTU);
    assert_eq!(mtu.next_probe(at(0)), None);
    assert_eq!(mtu.current(), MIN_MTU);
    mtu.start(at(0));
    assert_eq!(mtu.next_probe(at(0)), Some(1452));
}

#[test]
fn ethernet_mtu_is_found_with_one_probe() {
    let mut mtu = started(DEFAULT_MAX_MTU);
    assert_eq!(run(&mut mtu, at(0), 1472), [1452]);
    assert_eq!(mtu.current(), 1452);
    assert_eq!(mtu.next_timeout(), None, "nothing larger to hope for");
}

#[test]
fn large_mtu_is_found_through_the_common_sizes() {
    let mut mtu = started(MAX_SIZE);
    assert_eq!(
        run(&mut mtu, at(0), MAX_SIZE),
        [1452, 1472, 8952, 8972, MAX_SIZE]
    );
}

#[test]
fn size_is_too_large_after_three_lost_probes() {
    let mut mtu = started(DEFAULT_MAX_MTU);
    let tried = run(&mut mtu, at(0), 1392);
    assert_eq!(tried[..3], [1452, 1452, 1452]);
    assert!((1392 - GRANULARITY..=1392).contains(&mtu.current()));
    assert_eq!(mtu.next_timeout(), Some(at(600)));
}

#[test]
fn size_is_found_despite_two_lost_probes() {
    let mut mtu = started(DEFAULT_MAX_MTU);
    for _ in 0..2 {
        mtu.next_probe(at(0));
        mtu.on_probe_sent();
        mtu.on_probe_lost(at(0), 1452);
    }
    assert_eq!(run(&mut mtu, at(0), 1500), [1452]);
}

#[test]
fn raise_timer_finds_a_larger_mtu() {
    let mut mtu = started(DEFAULT_MAX_MTU);
    run(&mut mtu, at(0), 1300);
    assert_eq!(mtu.next_probe(at(599)), None);
    assert_eq!(run(&mut mtu, at(600), 1472), [1452]);
    assert_eq!(mtu.current(), 1452);
}

/// A timer in the past that is not cleared would cause a busy loop.
#[test]
fn raise_timer_is_cleared_once_it_fired() {
    let mut mtu = started(DEFAULT_MAX_MTU);
    run(&mut mtu, at(0), 1300);
    assert!(mtu.next_probe(at(600)).is_some());
    assert_eq!(mtu.next_timeout(), None);
}

#[test]
fn peer_limit_bounds_the_search() {
    let mut mtu = MtuDiscovery::new(MAX_SIZE);
    mtu.set_peer_limit(1_350);
    mtu.start(at(0));
    assert_eq!(run(&mut mtu, at(0), MAX_SIZE), [1350]);
    let mut mtu = started(DEFAULT_MAX_MTU);
    run(&mut mtu, at(0), 1452);
    mtu.set_peer_limit(1_200);
    assert_eq!(mtu.current(), 1200);
    mtu.set_peer_limit(u64::MAX);
    assert_eq!(mtu.current(), 1200);
}

#[test]
fn three_loss_bursts_are_a_black_hole_and_one_is_not() {
    let mut mtu = started(DEFAULT_MAX_MTU);
    run(&mut mtu, at(0), 1452);
    for _ in 0..50 {
        assert_eq!(mtu.on_packet_lost(at(2), 1452, at(1)), None);
    }
    assert_eq!(mtu.on_packet_lost(at(4), 1452, at(3)), None);
    let mut lucky = mtu;
    lucky.on_packet_acked(1452);
    assert_eq!(lucky.on_packet_lost(at(6), 1452, at(5)), None);

    mtu.on_packet_acked(1200); // small ones get through: proves nothing
    assert_eq!(mtu.on_packet_lost(at(6), 1200, at(5)), None);
    assert_eq!(mtu.on_packet_lost(at(6), 1452, at(5)), Some(MIN_MTU));
    assert_eq!(mtu.current(), MIN_MTU);
    let tried = run(&mut mtu, at(6), 1280);
    assert_eq!(tried[0], 1452, "it may have been congestion after all");
    assert!((1264..=1280).contains(&mtu.current()));
}

#[test]
fn smaller_packets_count_towards_a_black_hole_and_larger_ones_do_not() {
    let mut mtu = started(DEFAULT_MAX_MTU);
    run(&mut mtu, at(0), 1452);
    for secs in [2, 4] {
        let sent = at(secs - 1);
        assert_eq!(mtu.on_packet_lost(at(secs), 1300, sent), None);
    }
    // One that was sent before the size was lowered says nothing about the size.
    assert_eq!(mtu.on_packet_lost(at(6), 1453, at(5)), None);
    assert_eq!(mtu.current(), 1452);
    assert_eq!(mtu.on_packet_lost(at(6), 1300, at(5)), Some(MIN_MTU));
}

/// When only large packets vanish, nothing is acknowledged, so nothing is declared lost;
/// only the PTO reveals it.
#[test]
fn three_consecutive_ptos_are_a_black_hole() {
    let mut mtu = started(DEFAULT_MAX_MTU);
    assert_eq!(mtu.on_pto(at(0), 5), None, "already at the base");
    run(&mut mtu, at(0), 1452);
    assert_eq!(mtu.on_pto(at(1), 2), None);
    assert_eq!(mtu.on_pto(at(2), 3), Some(MIN_MTU));
}

#[test]
fn send_rejected_by_the_host_lowers_the_size_at_once() {
    let mut mtu = started(DEFAULT_MAX_MTU);
    assert_eq!(mtu.next_probe(at(0)), Some(1452));
    assert_eq!(mtu.on_send_refused(at(0), 1452), None);
    let tried = run(&mut mtu, at(0), 1400);
    assert!(tried.iter().all(|&size| size < 1452));
    // The interface changed under a size that worked.
    let mut mtu = started(DEFAULT_MAX_MTU);
    run(&mut mtu, at(0), 1452);
    assert_eq!(mtu.on_send_refused(at(1), 1452), Some(MIN_MTU));
    assert_eq!(mtu.next_probe(at(1)), Some(1451));
}

#[derive(Clone, Debug)]
enum Step {
    Probe,
    Acked(bool),
    Lost(u16),
    Pto(u32),
    Refused(u16),
    Peer(u64),
    Wait(u64),
}

proptest! {
    /// Every search ends within a step of the path's MTU.
    #[test]
    fn search_finds_the_mtu_of_any_path(path in MIN_MTU..=MAX_SIZE, cap in MIN_MTU..=MAX_SIZE) {
        let mut mtu = started(cap);
        let tried = run(&mut mtu, at(0), path);
        let best = path.min(cap);
        prop_assert!(mtu.current() <= best);
        prop_assert!(best - mtu.current() < GRANULARITY);
        prop_assert!(tried.len() <= 5 + 3 * 13);
    }

    /// No order of events leads outside the bounds, or to a search with nothing to do.
    #[test]
    fn size_stays_within_bounds_for_any_event_order(steps in proptest::collection::vec(prop_oneof![
        4 => Just(Step::Probe),
        4 => any::<bool>().prop_map(Step::Acked),
        2 => (1_100..=MAX_SIZE).prop_map(Step::Lost),
        1 => (0..5_u32).prop_map(Step::Pto),
        1 => (1_100..9_100_u16).prop_map(Step::Refused),
        1 => (1_200..70_000_u64).prop_map(Step::Peer),
        1 => (0..700_u64).prop_map(Step::Wait),
    ], 0..150)) {
        let mut mtu = started(9_000);
        let (mut now, mut probe, mut limit) = (0, None, 9_000);
        for step in steps {
            match step {
                Step::Probe => if let Some(size) = mtu.next_probe(at(now)) {
                    prop_assert!(size > mtu.current() && size <= limit);
                    mtu.on_probe_sent();
                    probe = Some(size);
                },
                Step::Acked(acked) => if let Some(size) = probe.take() {
                    if acked {
                        mtu.on_probe_acked(at(now), size);
                    } else {
                        mtu.on_probe_lost(at(now), size);
                    }
                },
                Step::Lost(size) => { mtu.on_packet_lost(at(now), size, at(now)); }
                Step::Pto(n) => { mtu.on_pto(at(now), n); }
                Step::Refused(size) => { mtu.on_send_refused(at(now), size); }
                Step::Peer(size) => {
                    limit = limit.min(u16::try_from(size).unwrap_or(MAX_SIZE));
                    mtu.set_peer_limit(size);
                }
                Step::Wait(secs) => now += secs,
            }
            prop_assert!((MIN_MTU..=limit).contains(&mtu.current()));
            // It never waits for a probe that is not in flight.
            if let Phase::Searching { in_flight: Some(size), .. } = mtu.phase {
                prop_assert_eq!(probe, Some(size));
            } else if mtu.next_probe(at(now)).is_none() {
                let complete = matches!(mtu.phase, Phase::Complete { .. });
                prop_assert!(complete);
                prop_assert!(mtu.current() == limit || mtu.next_timeout().is_some());
            }
        }
    }
}
