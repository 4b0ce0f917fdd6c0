//! The tests of the public runner.

use std::time::Duration;

use super::{
    checks,
    network::{Conditions, Rebinding},
    test::{Bar, Test},
};

/// The path that all tests without one of their own have: 10 Mbit/s, 15 ms, 25 packets.
const S0: &str = "rate=10M delay=15ms queue=25";

/// The same path as the public runner's simulator has it, for figures beside those on its page: 30
/// bytes of headers take time on the link (2 of PPP, 20 of IPv4, 8 of UDP), and behind the queue of 25
/// packets the device has one for another packet (`quic-point-to-point-helper.cc`).
const S0_SIMULATED: &str = "rate=10M delay=15ms queue=26 overhead=30";

/// The links of a TCP connection and QUIC: packets have their headers of IP, and 2 bytes of PPP
/// beside them.
const S0_WITH_PPP: &str = "rate=10M delay=15ms queue=25 overhead=2";

/// The goodput in kbit/s beside a TCP connection with CUBIC: a fair share, and what the stacks on the
/// public runner's page have.
const SHARE: Bar = Bar {
    least: 4_000,
    most: Some(6_600),
};

/// The median goodput in kbit/s that Clearway's server has to reach: what the best stacks have on
/// the public runner's page.
const GOODPUT: Bar = Bar {
    least: 9_430,
    most: None,
};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

const SYMMETRIC_S0: Conditions = both_ways(S0);

/// The same link in both directions.
const fn both_ways(link: &'static str) -> Conditions {
    Conditions {
        up: link,
        down: link,
        rebinding: Rebinding::Never,
        ipv6: false,
    }
}

const PLAIN: Test = Test {
    name: "",
    slow: false,
    case: "transfer",
    files: &[(1, KIB)],
    name_len: 10,
    server_case: None,
    conditions: SYMMETRIC_S0,
    chain: 1,
    checks: &[checks::one_handshake],
    patience: Duration::from_secs(60),
    measured_runs: 0,
    bar: None,
    beside_tcp: false,
    controller: None,
};

const MEASURED_GOODPUT: Test = Test {
    name: "goodput",
    slow: true,
    files: &[(1, 10 * MIB)],
    conditions: both_ways(S0_SIMULATED),
    measured_runs: 5,
    bar: Some(GOODPUT),
    ..PLAIN
};

/// Beside a TCP connection of the kernel.
pub(super) const BESIDE_TCP: Test = Test {
    name: "crosstraffic",
    slow: true,
    files: &[(1, 25 * MIB)],
    conditions: both_ways(S0_WITH_PPP),
    patience: Duration::from_secs(180),
    measured_runs: 5,
    bar: Some(SHARE),
    beside_tcp: true,
    ..PLAIN
};

/// All tests, in the order of the table.
pub(crate) static ALL: &[Test] = &[
    Test {
        name: "handshake",
        case: "handshake",
        checks: &[checks::version_1, checks::one_handshake, checks::no_retry],
        ..PLAIN
    },
    Test {
        name: "transfer",
        files: &[(1, 2 * MIB), (1, 3 * MIB), (1, 5 * MIB)],
        ..PLAIN
    },
    Test {
        name: "longrtt",
        case: "longrtt",
        conditions: both_ways("rate=10M delay=750ms queue=25"),
        checks: &[checks::one_handshake, checks::repeated_hello],
        ..PLAIN
    },
    Test {
        name: "chacha20",
        case: "chacha20",
        files: &[(1, 3 * MIB)],
        checks: &[checks::one_handshake, checks::only_chacha20],
        ..PLAIN
    },
    Test {
        name: "multiplexing",
        case: "multiplexing",
        files: &[(1999, 32)],
        checks: &[checks::one_handshake, checks::stream_limit],
        ..PLAIN
    },
    Test {
        name: "retry",
        case: "retry",
        files: &[(1, 10 * KIB)],
        checks: &[checks::one_handshake, checks::retry],
        ..PLAIN
    },
    Test {
        name: "resumption",
        case: "resumption",
        files: &[(1, 5 * KIB), (1, 10 * KIB)],
        checks: &[checks::two_handshakes, checks::certificate_once],
        ..PLAIN
    },
    Test {
        name: "zerortt",
        case: "zerortt",
        files: &[(40, 32)],
        name_len: 250,
        checks: &[checks::two_handshakes, checks::early_data],
        ..PLAIN
    },
    Test {
        name: "http3",
        case: "http3",
        files: &[(1, 5 * KIB), (1, 10 * KIB), (1, 500 * KIB)],
        ..PLAIN
    },
    Test {
        name: "blackhole",
        files: &[(1, 10 * MIB)],
        conditions: both_ways("clock=first-packet rate=10M delay=15ms queue=25 blackhole=5s-7s"),
        ..PLAIN
    },
    Test {
        name: "keyupdate",
        case: "keyupdate",
        files: &[(1, 3 * MIB)],
        checks: &[checks::one_handshake, checks::key_update],
        ..PLAIN
    },
    Test {
        name: "amplificationlimit",
        files: &[(1, 5 * KIB)],
        conditions: Conditions {
            up: "rate=10M delay=15ms queue=25 drop=2-7",
            ..SYMMETRIC_S0
        },
        chain: 9,
        checks: &[checks::one_handshake, checks::amplification],
        ..PLAIN
    },
    Test {
        name: "handshakeloss",
        slow: true,
        case: "multiconnect",
        files: &[(50, KIB)],
        conditions: both_ways("rate=10M delay=15ms queue=25 loss=30% burst=3"),
        checks: &[checks::fifty_handshakes],
        patience: Duration::from_secs(300),
        ..PLAIN
    },
    Test {
        name: "transferloss",
        files: &[(1, 2 * MIB)],
        conditions: both_ways("rate=10M delay=15ms queue=25 loss=2% burst=3"),
        ..PLAIN
    },
    Test {
        name: "handshakecorruption",
        slow: true,
        case: "multiconnect",
        files: &[(50, KIB)],
        conditions: both_ways("rate=10M delay=15ms queue=25 corrupt=30%"),
        checks: &[checks::fifty_handshakes],
        patience: Duration::from_secs(300),
        ..PLAIN
    },
    Test {
        name: "transfercorruption",
        files: &[(1, 2 * MIB)],
        conditions: both_ways("rate=10M delay=15ms queue=25 corrupt=2%"),
        checks: &[],
        ..PLAIN
    },
    Test {
        name: "v2",
        case: "v2",
        checks: &[checks::one_handshake, checks::version_2, checks::no_retry],
        ..PLAIN
    },
    Test {
        name: "rebind-port",
        files: &[(1, 10 * MIB)],
        conditions: Conditions {
            rebinding: Rebinding::Port,
            ..SYMMETRIC_S0
        },
        checks: &[checks::one_handshake, checks::challenged_by_server],
        ..PLAIN
    },
    Test {
        name: "rebind-addr",
        files: &[(1, 10 * MIB)],
        conditions: Conditions {
            rebinding: Rebinding::Address,
            ..SYMMETRIC_S0
        },
        checks: &[checks::one_handshake, checks::challenged_by_server],
        ..PLAIN
    },
    Test {
        name: "ecn",
        case: "ecn",
        files: &[(1, 100 * KIB)],
        checks: &[checks::one_handshake, checks::ecn],
        ..PLAIN
    },
    Test {
        name: "ipv6",
        case: "ipv6",
        files: &[(1, 5 * KIB), (1, 10 * KIB)],
        conditions: Conditions {
            ipv6: true,
            ..SYMMETRIC_S0
        },
        checks: &[checks::one_handshake, checks::only_ipv6],
        ..PLAIN
    },
    Test {
        name: "connectionmigration",
        server_case: Some("connectionmigration"),
        files: &[(1, 2 * MIB)],
        checks: &[checks::one_handshake, checks::moved_by_client],
        ..PLAIN
    },
    MEASURED_GOODPUT,
    Test {
        name: "goodput-newreno",
        controller: Some("newreno"),
        ..MEASURED_GOODPUT
    },
    Test {
        name: "goodput-bbr",
        controller: Some("bbr"),
        ..MEASURED_GOODPUT
    },
    Test {
        name: "goodput-prague",
        controller: Some("prague"),
        bar: None,
        ..MEASURED_GOODPUT
    },
    BESIDE_TCP,
    Test {
        name: "crosstraffic-newreno",
        controller: Some("newreno"),
        ..BESIDE_TCP
    },
    Test {
        name: "crosstraffic-bbr",
        controller: Some("bbr"),
        ..BESIDE_TCP
    },
];
