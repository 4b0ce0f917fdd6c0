use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

fn control(limits: Limits) -> AdmissionControl {
    AdmissionControl::new(limits, &mut Rng::from_seed([1; 32]))
}

fn ip(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn v6(network: u16, site: u8, host: u16) -> IpAddr {
    Ipv6Addr::new(0x2001, 0xdb8, network, u16::from(site) << 8, 0, 0, 0, host).into()
}

/// Lets `count` clients in that never finish; answers what they count as.
fn begin(control: &mut AdmissionControl, ip: IpAddr, count: usize) -> Vec<Counted> {
    (0..count).map(|_| control.begin(ip, false)).collect()
}

/// Lets `count` clients in whose handshakes are complete.
fn establish(control: &mut AdmissionControl, ip: IpAddr, count: usize) -> Vec<Counted> {
    let mut all = begin(control, ip, count);
    for counted in &mut all {
        control.end_handshake(counted, true);
    }
    all
}

#[test]
fn one_source_cannot_use_up_the_handshakes_of_others() {
    let mut control = control(Limits::default());
    for open in 0..256 {
        assert_eq!(control.judge(ip(1), false, false, open), Verdict::Accept);
        control.begin(ip(1), false);
    }
    assert_eq!(control.judge(ip(1), false, false, 256), Verdict::Retry);
    assert_eq!(control.judge(ip(1), true, false, 256), Verdict::Accept);
    assert_eq!(control.judge(ip(2), false, false, 256), Verdict::Accept);
    let mut counted = control.begin(ip(2), false);
    control.end_handshake(&mut counted, false);
    control.end(counted);
    begin(&mut control, ip(1), 7 * 256);
    let refused = Verdict::Refuse(Refusal::HandshakesOfSource);
    assert_eq!(control.judge(ip(1), true, false, 500), refused);
}

#[test]
fn above_the_budget_addresses_are_validated_then_refused() {
    let control = control(Limits {
        retry_above: 10,
        refuse_above: 20,
        ..Limits::default()
    });
    assert_eq!(control.judge(ip(9), false, false, 9), Verdict::Accept);
    assert_eq!(control.judge(ip(9), false, true, 9), Verdict::Retry);
    assert_eq!(control.judge(ip(9), false, false, 10), Verdict::Retry);
    assert_eq!(control.judge(ip(9), true, false, 19), Verdict::Accept);
    let refused = Verdict::Refuse(Refusal::Handshakes);
    assert_eq!(control.judge(ip(9), true, false, 20), refused);
}

#[test]
fn connections_are_bounded_in_all_and_by_source() {
    let mut control = control(Limits {
        connections: 30,
        connections_per_source: 10,
        ..Limits::default()
    });
    let first = establish(&mut control, ip(1), 10);
    let refused = Verdict::Refuse(Refusal::ConnectionsOfSource);
    assert_eq!(control.judge(ip(1), true, false, 0), refused);
    assert_eq!(control.judge(ip(1), false, true, 0), refused);
    assert_eq!(control.judge(ip(2), false, false, 0), Verdict::Accept);
    let second = establish(&mut control, ip(2), 10);
    let third = begin(&mut control, ip(3), 10);
    let refused = Verdict::Refuse(Refusal::Connections);
    assert_eq!(control.judge(ip(4), true, false, 0), refused);
    for counted in first.into_iter().chain(second) {
        control.end(counted);
    }
    for mut counted in third {
        control.end_handshake(&mut counted, false);
        control.end(counted);
    }
    assert_eq!(control.judge(ip(1), false, false, 0), Verdict::Accept);
    assert!(control.sources.is_empty());
    assert_eq!(control.connections, 0);
}

/// Whoever spoofs an address must not use up what its owner may have.
#[test]
fn handshakes_without_proof_do_not_count_as_connections_of_a_source() {
    let mut control = control(Limits {
        connections_per_source: 10,
        ..Limits::default()
    });
    begin(&mut control, ip(1), 200);
    assert_eq!(control.judge(ip(1), false, false, 200), Verdict::Accept);
    for _ in 0..10 {
        control.begin(ip(1), true);
    }
    let refused = Verdict::Refuse(Refusal::ConnectionsOfSource);
    assert_eq!(control.judge(ip(1), true, false, 210), refused);
}

#[test]
fn ipv6_counts_by_56_bits_and_sixteenfold_by_48() {
    let mut control = control(Limits {
        connections_per_source: 10,
        ..Limits::default()
    });
    let refused = Verdict::Refuse(Refusal::ConnectionsOfSource);
    for host in 0..10 {
        establish(&mut control, v6(1, 1, host), 1);
    }
    assert_eq!(control.judge(v6(1, 1, 99), false, false, 0), refused);
    assert_eq!(
        control.judge(v6(1, 2, 99), false, false, 0),
        Verdict::Accept
    );
    for site in 2..=16 {
        establish(&mut control, v6(1, site, 0), 10);
    }
    assert_eq!(control.judge(v6(1, 99, 0), false, false, 0), refused);
    assert_eq!(
        control.judge(v6(2, 99, 0), false, false, 0),
        Verdict::Accept
    );
}

#[test]
fn an_ipv4_address_mapped_into_ipv6_is_the_same_source() {
    let mut control = control(Limits {
        connections_per_source: 1,
        ..Limits::default()
    });
    establish(&mut control, ip(1), 1);
    let mapped = Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped();
    let verdict = control.judge(mapped.into(), false, false, 0);
    assert_eq!(verdict, Verdict::Refuse(Refusal::ConnectionsOfSource));
}

#[test]
fn trusted_sources_are_bound_by_the_totals_only() {
    let mut control = control(Limits {
        connections: 5_000,
        connections_per_source: 10,
        trusted: vec![
            "192.0.2.0/28".parse().expect("a prefix"),
            "2001:db8:7::/48".parse().expect("a prefix"),
        ],
        ..Limits::default()
    });
    let mapped = Ipv4Addr::new(192, 0, 2, 3).to_ipv6_mapped();
    for address in [ip(1), mapped.into(), v6(7, 1, 1)] {
        establish(&mut control, address, 100);
        begin(&mut control, address, 1_000);
        assert_eq!(control.judge(address, false, false, 0), Verdict::Accept);
    }
    assert!(control.sources.is_empty());
    establish(&mut control, ip(17), 10);
    let refused = Verdict::Refuse(Refusal::ConnectionsOfSource);
    assert_eq!(control.judge(ip(17), false, false, 0), refused);
    begin(&mut control, ip(1), 5_000);
    let refused = Verdict::Refuse(Refusal::Connections);
    assert_eq!(control.judge(ip(1), true, false, 0), refused);
}

#[test]
fn resets_and_refusals_have_rates() {
    let mut control = control(Limits::default());
    let count = |allowed: &mut dyn FnMut() -> bool| (0..5_000).filter(|_| allowed()).count();
    assert_eq!(count(&mut || control.may_reset(Instant::ZERO)), 1_000);
    assert_eq!(count(&mut || control.may_refuse(Instant::ZERO)), 1_000);
    let later = Instant::from_nanos(100_000_000);
    assert_eq!(count(&mut || control.may_reset(later)), 100);
    assert!(control.could_refuse(later));
    assert_eq!(count(&mut || control.may_refuse(later)), 100);
    assert!(!control.could_refuse(later));
}
