use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

fn control(limits: Limits) -> Arc<AdmissionControl> {
    Arc::new(AdmissionControl::new(limits, &mut Rng::from_seed([1; 32])))
}

fn ip(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn v6(network: u16, site: u8, host: u16) -> IpAddr {
    Ipv6Addr::new(0x2001, 0xdb8, network, u16::from(site) << 8, 0, 0, 0, host).into()
}

/// Returns the answer to a client that is not admitted.
fn judge(
    control: &Arc<AdmissionControl>,
    ip: IpAddr,
    validated: bool,
    always_retry: bool,
) -> Result<(), Denial> {
    control.admit(ip, validated, always_retry).map(drop)
}

/// Admits `count` clients that never complete their handshakes, without validated addresses
/// and without a Retry for that.
fn begin(control: &Arc<AdmissionControl>, ip: IpAddr, count: usize) -> Vec<AdmissionGuard> {
    let one = |_| {
        let mut admitted = control.admit(ip, true, false).expect("within the limits");
        admitted.validated = false;
        if let Some(source) = admitted.source {
            control.sources.end(source, false, true);
        }
        admitted
    };
    (0..count).map(one).collect()
}

/// Admits `count` clients whose handshakes are complete.
fn establish(control: &Arc<AdmissionControl>, ip: IpAddr, count: usize) -> Vec<AdmissionGuard> {
    let one = |_| {
        let mut admitted = control.admit(ip, false, false).expect("within the limits");
        admitted.complete_handshake();
        admitted
    };
    (0..count).map(one).collect()
}

fn assert_nothing_counts(control: &AdmissionControl) {
    assert!(control.sources.is_empty());
    assert_eq!((control.connections(), control.handshakes()), (0, 0));
    assert_eq!(control.in_time.load(Relaxed), 0);
}

const OF_SOURCE: Result<(), Denial> = Err(Denial::Refuse(Refusal::ConnectionsOfSource));

#[test]
fn handshakes_of_one_source_do_not_exhaust_those_of_others() {
    let control = control(Limits::default());
    let mut open = begin(&control, ip(1), 256);
    assert_eq!(judge(&control, ip(1), false, false), Err(Denial::Retry));
    assert_eq!(judge(&control, ip(1), true, false), Ok(()));
    assert_eq!(judge(&control, ip(2), false, false), Ok(()));
    // The total is too small for a Retry to everybody.
    open.truncate(0);
    open.extend(begin(&control, ip(1), 8 * 256));
    let refused = Err(Denial::Refuse(Refusal::HandshakesOfSource));
    assert_eq!(judge(&control, ip(1), true, false), refused);
    assert_eq!(judge(&control, ip(2), true, false), Ok(()));
    drop(open);
    assert_nothing_counts(&control);
}

#[test]
fn handshakes_above_the_limits_get_retry_then_refusal() {
    let control = control(Limits {
        retry_above: 10,
        refuse_above: 20,
        ..Limits::default()
    });
    let mut open = begin(&control, ip(9), 9);
    assert_eq!(judge(&control, ip(9), false, false), Ok(()));
    assert_eq!(judge(&control, ip(9), false, true), Err(Denial::Retry));
    open.extend(begin(&control, ip(9), 1));
    assert_eq!(judge(&control, ip(9), false, false), Err(Denial::Retry));
    open.extend(begin(&control, ip(9), 9));
    assert_eq!(judge(&control, ip(9), true, false), Ok(()));
    open.extend(begin(&control, ip(9), 1));
    let refused = Err(Denial::Refuse(Refusal::Handshakes));
    assert_eq!(judge(&control, ip(9), true, false), refused);
    // Established connections do not count as handshakes.
    open.iter_mut().for_each(AdmissionGuard::complete_handshake);
    assert_eq!(judge(&control, ip(9), false, false), Ok(()));
    assert_eq!((control.connections(), control.handshakes()), (20, 0));
}

#[test]
fn overdue_handshakes_count_but_are_not_load() {
    let control = control(Limits {
        retry_above: 3,
        ..Limits::default()
    });
    let mut open = begin(&control, ip(1), 3);
    assert!(control.is_under_load());
    open[0].set_overdue();
    open[0].set_overdue();
    assert!(!control.is_under_load());
    assert_eq!(control.handshakes(), 3);
    open[0].complete_handshake();
    open[0].complete_handshake();
    assert_eq!((control.connections(), control.handshakes()), (3, 2));
    drop(open);
    assert_nothing_counts(&control);
}

#[test]
fn connections_are_bounded_in_total_and_by_source() {
    let control = control(Limits {
        connections: 30,
        connections_per_source: 10,
        ..Limits::default()
    });
    let first = establish(&control, ip(1), 10);
    assert_eq!(judge(&control, ip(1), true, false), OF_SOURCE);
    assert_eq!(judge(&control, ip(1), false, true), OF_SOURCE);
    assert_eq!(judge(&control, ip(2), false, false), Ok(()));
    let second = establish(&control, ip(2), 10);
    let third = begin(&control, ip(3), 10);
    let refused = Err(Denial::Refuse(Refusal::Connections));
    assert_eq!(judge(&control, ip(4), true, false), refused);
    drop((first, second, third));
    assert_eq!(judge(&control, ip(1), false, false), Ok(()));
    assert_nothing_counts(&control);
}

/// Spoofing an address must not use up its owner's share.
#[test]
fn handshakes_of_unvalidated_addresses_do_not_count_as_connections_of_a_source() {
    let control = control(Limits {
        connections_per_source: 10,
        ..Limits::default()
    });
    let mut open = begin(&control, ip(1), 200);
    assert_eq!(judge(&control, ip(1), false, false), Ok(()));
    for _ in 0..10 {
        open.push(control.admit(ip(1), true, false).expect("a place"));
    }
    assert_eq!(judge(&control, ip(1), true, false), OF_SOURCE);
}

#[test]
fn ipv6_source_is_a_56_bit_prefix_with_a_16_fold_limit_per_48_bits() {
    let control = control(Limits {
        connections_per_source: 10,
        ..Limits::default()
    });
    let mut open = Vec::new();
    for host in 0..10 {
        open.extend(establish(&control, v6(1, 1, host), 1));
    }
    assert_eq!(judge(&control, v6(1, 1, 99), false, false), OF_SOURCE);
    assert_eq!(judge(&control, v6(1, 2, 99), false, false), Ok(()));
    for site in 2..=16 {
        open.extend(establish(&control, v6(1, site, 0), 10));
    }
    assert_eq!(judge(&control, v6(1, 99, 0), false, false), OF_SOURCE);
    assert_eq!(judge(&control, v6(2, 99, 0), false, false), Ok(()));
}

#[test]
fn ipv4_mapped_ipv6_address_is_the_ipv4_source() {
    let control = control(Limits {
        connections_per_source: 1,
        ..Limits::default()
    });
    let _open = establish(&control, ip(1), 1);
    let mapped = Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped();
    assert_eq!(judge(&control, mapped.into(), false, false), OF_SOURCE);
}

#[test]
fn trusted_sources_are_bounded_by_totals_only() {
    let control = control(Limits {
        connections: 5_000,
        connections_per_source: 10,
        retry_above: 5_000,
        trusted: vec![
            "192.0.2.0/28".parse().expect("a prefix"),
            "2001:db8:7::/48".parse().expect("a prefix"),
        ],
        ..Limits::default()
    });
    let mapped = Ipv4Addr::new(192, 0, 2, 3).to_ipv6_mapped();
    let mut open = Vec::new();
    for address in [ip(1), mapped.into(), v6(7, 1, 1)] {
        open.extend(establish(&control, address, 100));
        open.extend(begin(&control, address, 1_000));
        assert_eq!(judge(&control, address, false, false), Ok(()));
    }
    assert!(control.sources.is_empty());
    open.extend(establish(&control, ip(17), 10));
    assert_eq!(judge(&control, ip(17), false, false), OF_SOURCE);
    open.extend(begin(&control, ip(1), 5_000 - open.len()));
    let refused = Err(Denial::Refuse(Refusal::Connections));
    assert_eq!(judge(&control, ip(1), true, false), refused);
}

#[test]
fn resets_and_refusals_are_rate_limited() {
    let control = control(Limits::default());
    let count = |allowed: &dyn Fn() -> bool| (0..5_000).filter(|_| allowed()).count();
    assert_eq!(count(&|| control.may_reset(Instant::ZERO)), 1_000);
    assert_eq!(count(&|| control.may_refuse(Instant::ZERO)), 1_000);
    let later = Instant::from_nanos(100_000_000);
    assert_eq!(count(&|| control.may_reset(later)), 100);
    assert!(control.can_refuse(later));
    assert_eq!(count(&|| control.may_refuse(later)), 100);
    assert!(!control.can_refuse(later));
}

/// Threads compete for the last places: the limit is never exceeded, and every place is
/// given out.
#[test]
fn concurrent_admissions_never_exceed_the_limit() {
    let control = control(Limits {
        connections: 100,
        connections_per_source: 40,
        ..Limits::default()
    });
    let taken: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4_u8)
            .map(|n| {
                let control = &control;
                scope.spawn(move || {
                    let mut held = Vec::new();
                    // Each thread admits from every source, and drops some.
                    for round in 0..2_000_usize {
                        let source = ip(((round + usize::from(n)) % 4) as u8);
                        held.extend(control.admit(source, true, false));
                        assert!(control.connections() <= 100);
                        if round % 7 == 0 && round < 1_500 {
                            held.pop();
                        }
                    }
                    held
                })
            })
            .collect();
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        let held: Vec<Vec<AdmissionGuard>> = joined.map(|held| held.expect("no panic")).collect();
        held.iter().map(Vec::len).collect()
    });
    assert_eq!(taken.iter().sum::<usize>(), 100, "{taken:?}");
    assert_nothing_counts(&control);
}
