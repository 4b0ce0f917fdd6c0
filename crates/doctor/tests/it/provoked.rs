//! Every other stage that can be provoked in a network namespace, provoked.

use std::time::Duration;

use clearway_doctor::path::{Stage, StageReport, State};
use clearway_doctor::{Diagnosis, Focus, Health};

use super::host::{Host, Program, RECEIVER, assert_close, has, run};

const INTERVAL: Duration = Duration::from_millis(1_800);

fn stage(diagnosis: &Diagnosis, stage: Stage) -> &StageReport {
    &diagnosis.path[stage.number()]
}

/// The verdict names this stage and, if a program is to be named, this one.
#[track_caller]
fn assert_verdict(diagnosis: &Diagnosis, stage: Stage, pid: Option<u32>) {
    assert_eq!(diagnosis.health, Health::Losing);
    assert_eq!(diagnosis.stage, Some(stage), "{:?}", diagnosis.verdict);
    let process = diagnosis
        .culprit
        .as_ref()
        .and_then(|culprit| culprit.process.as_ref());
    assert_eq!(process.map(|process| process.pid), pid);
}

/// Examines the receiving namespace while a sender counts. Returns what it sent meanwhile, too.
fn examine(host: &Host, sender: &mut Program) -> (Diagnosis, f64) {
    examine_in(host, &host.receiving, sender)
}

fn examine_in(host: &Host, namespace: &str, sender: &mut Program) -> (Diagnosis, f64) {
    let (diagnosis, counted) = host.examine_counting(namespace, INTERVAL, &mut [sender]);
    (diagnosis, counted[0])
}

/// What the stage lost is what was sent.
#[track_caller]
fn assert_all_lost(diagnosis: &Diagnosis, stage_lost: Stage, sent: f64) {
    assert_close("lost", stage(diagnosis, stage_lost).lost as f64, sent);
}

#[test]
fn wrong_checksums_are_found_with_the_socket_they_were_for() {
    let Some(host) = Host::new() else { return };
    let reader = host.start(&host.receiving, "sink 0.0.0.0:4433 0 none");
    let mut sender = host.start(&host.sending, &format!("damaged {RECEIVER}:4433 checksum"));
    let (diagnosis, sent) = examine(&host, &mut sender);
    assert_verdict(&diagnosis, Stage::Checksum, Some(reader.pid()));
    assert_eq!(port(&diagnosis), 4_433);
    assert_all_lost(&diagnosis, Stage::Checksum, sent);
    assert!(
        diagnosis.verdict[0].contains("checksum is wrong"),
        "{:?}",
        diagnosis.verdict
    );
}

#[test]
fn datagrams_shorter_than_their_header_says_are_deduced() {
    let Some(host) = Host::new() else { return };
    let _reader = host.start(&host.receiving, "sink 0.0.0.0:4433 0 none");
    let mut sender = host.start(&host.sending, &format!("damaged {RECEIVER}:4433 short"));
    let (diagnosis, sent) = examine(&host, &mut sender);
    assert_verdict(&diagnosis, Stage::Checksum, None);
    assert!(
        diagnosis.verdict[0].contains("shorter than their UDP header"),
        "{:?}",
        diagnosis.verdict
    );
    assert_all_lost(&diagnosis, Stage::Checksum, sent);
}

#[test]
fn socket_filter_is_named_with_its_program() {
    let Some(host) = Host::new() else { return };
    let reader = host.start(&host.receiving, "refuse 0.0.0.0:4433");
    let mut sender = host.send(4433, 500, 200);
    let (diagnosis, sent) = examine(&host, &mut sender);
    assert_verdict(&diagnosis, Stage::SocketFilter, Some(reader.pid()));
    assert_eq!(port(&diagnosis), 4_433);
    assert_all_lost(&diagnosis, Stage::SocketFilter, sent);
}

#[test]
fn port_without_a_listener_blames_no_program() {
    let Some(host) = Host::new() else { return };
    let _reader = host.start(&host.receiving, "sink 0.0.0.0:4433 0 none");
    let mut sender = host.send(5_555, 500, 200);
    let (diagnosis, sent) = examine(&host, &mut sender);
    assert_verdict(&diagnosis, Stage::NoPort, None);
    assert_all_lost(&diagnosis, Stage::NoPort, sent);
    // Asked for the port on which nobody listens, the same.
    let focus = Focus {
        port: Some(5_555),
        ..Focus::default()
    };
    let (_, diagnosis) = host.record(&host.receiving, &focus, INTERVAL);
    assert_verdict(&diagnosis, Stage::NoPort, None);
}

#[test]
fn firewall_rule_with_a_counter_is_named() {
    let Some(host) = Host::new() else { return };
    if !has("nft") {
        return;
    }
    let rules = "table inet guard {
        chain input {
            type filter hook input priority 0; policy accept;
            tcp dport 22 counter drop
            udp dport 4433 counter drop
        }
    }";
    nft(&host, &host.receiving, rules);
    let _reader = host.start(&host.receiving, "sink 0.0.0.0:4433 0 none");
    let mut sender = host.send(4433, 500, 200);
    let (diagnosis, sent) = examine(&host, &mut sender);
    assert_verdict(&diagnosis, Stage::Firewall, None);
    assert_all_lost(&diagnosis, Stage::Firewall, sent);
    assert!(
        diagnosis.verdict[1].contains("inet guard input handle 3"),
        "{:?}",
        diagnosis.verdict
    );
    // Its advice works as it stands.
    let delete = diagnosis.advice[1].command.as_ref().unwrap();
    let words: Vec<&str> = delete.split(' ').collect();
    assert!(
        host.run_in(&host.receiving, words[0], &words[1..]),
        "{delete}"
    );
    assert_eq!(host.examine(INTERVAL).health, Health::Healthy);
}

#[test]
fn firewall_without_a_counter_is_deduced() {
    let Some(host) = Host::new() else { return };
    if !has("nft") {
        return;
    }
    let rules = "table inet guard {
        chain input { type filter hook input priority 0; policy drop; icmp type echo-request accept; }
    }";
    nft(&host, &host.receiving, rules);
    let _reader = host.start(&host.receiving, "sink 0.0.0.0:4433 0 none");
    let mut sender = host.send(4433, 1_000, 200);
    let (diagnosis, sent) = examine(&host, &mut sender);
    assert_verdict(&diagnosis, Stage::Firewall, None);
    assert_all_lost(&diagnosis, Stage::Firewall, sent);
    assert!(
        diagnosis.verdict[1].contains("deduced"),
        "{:?}",
        diagnosis.verdict
    );
}

#[test]
fn iptables_rule_is_named() {
    let Some(host) = Host::new() else { return };
    if !has("iptables") {
        return;
    }
    let rule = ["-A", "INPUT", "-p", "udp", "--dport", "4433", "-j", "DROP"];
    if !host.run_in(&host.receiving, "iptables", &rule) {
        println!("skipped: iptables does not work here");
        return;
    }
    let _reader = host.start(&host.receiving, "sink 0.0.0.0:4433 0 none");
    let _sender = host.send(4433, 1_000, 200);
    // The legacy variant's counters cannot be read, but what it drops is deduced.
    assert_verdict(&host.examine(INTERVAL), Stage::Firewall, None);
}

#[test]
fn full_queue_of_a_device_is_found_where_the_sender_is() {
    let Some(host) = Host::new() else { return };
    if !has("tc") {
        return;
    }
    let shaper = [
        "qdisc", "add", "dev", "out", "root", "tbf", "rate", "1mbit", "burst", "4k", "limit", "20k",
    ];
    if !host.run_in(&host.sending, "tc", &shaper) {
        println!("skipped: the kernel has no token bucket (sch_tbf)");
        return;
    }
    let _reader = host.start(&host.receiving, "sink 0.0.0.0:4433 0 none");
    // Of 9.8 Mbit/s it lets 1 Mbit/s through. In bursts, because a sender that others keep from the
    // processors wakes up rarely.
    let program = format!("send {RECEIVER}:4433 1000 1200 20");
    let mut sender = host.start(&host.sending, &program);
    let (diagnosis, sent) = examine_in(&host, &host.sending, &mut sender);
    assert_verdict(&diagnosis, Stage::Sender, None);
    assert_all_lost(&diagnosis, Stage::Sender, sent - 100.0 * diagnosis.seconds);
    assert!(
        diagnosis.verdict[1].contains("qdisc out tbf"),
        "{:?}",
        diagnosis.verdict
    );
    // The receiver has nothing to complain about.
    assert_eq!(host.examine(INTERVAL).health, Health::Healthy);
}

#[test]
fn full_send_buffer_is_found_where_the_sender_is() {
    let Some(host) = Host::new() else { return };
    // A slow device with room for much more than the program's send buffer.
    let shaper = [
        "qdisc", "add", "dev", "out", "root", "tbf", "rate", "1mbit", "burst", "4k", "limit", "10m",
    ];
    if !has("tc") || !host.run_in(&host.sending, "tc", &shaper) {
        println!("skipped: the kernel has no token bucket (sch_tbf)");
        return;
    }
    let _reader = host.start(&host.receiving, "sink 0.0.0.0:4433 0 none");
    let mut sender = host.start(&host.sending, &format!("crowd {RECEIVER}:4433"));
    let (diagnosis, refused) = examine_in(&host, &host.sending, &mut sender);
    assert_verdict(&diagnosis, Stage::Sender, None);
    assert_all_lost(&diagnosis, Stage::Sender, refused);
    assert!(
        diagnosis.verdict[1].contains("Udp.SndbufErrors"),
        "{:?}",
        diagnosis.verdict
    );
}

#[test]
fn full_connection_table_is_named() {
    let Some(host) = Host::new() else { return };
    if !has("nft") || !has("conntrack") || !fill_connection_table(&host) {
        return;
    }
    let _reader = host.start(&host.receiving, "sink 0.0.0.0:4433 0 none");
    let mut sender = host.start(&host.sending, &format!("flows {RECEIVER}:4433"));
    let (diagnosis, sent) = examine(&host, &mut sender);
    assert_verdict(&diagnosis, Stage::Firewall, None);
    assert_all_lost(&diagnosis, Stage::Firewall, sent);
    assert!(
        diagnosis.verdict[1].contains("table is full"),
        "{:?}",
        diagnosis.verdict
    );
}

/// Fills the namespace's table with connections that must not be evicted. The limit is the host's and
/// is not touched.
fn fill_connection_table(host: &Host) -> bool {
    use std::fmt::Write as _;
    let limit = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_max");
    let Some(limit) = limit.ok().and_then(|text| text.trim().parse::<u32>().ok()) else {
        println!("skipped: the kernel has no connection tracking");
        return false;
    };
    if limit > 300_000 {
        println!("skipped: the host's connection table has {limit} entries, too many to fill");
        return false;
    }
    // Connections are tracked as soon as a rule asks for it.
    nft(
        host,
        &host.receiving,
        "table inet t {\n chain input {\n type filter hook input priority 0;\n ct state new accept\n }\n}",
    );
    let mut entries = String::new();
    for number in 0..limit {
        let [_, a, b, c] = number.to_be_bytes();
        writeln!(
            entries,
            "-I -p udp -s 11.{a}.{b}.{c} -d 12.0.0.1 --sport 1000 --dport 2000 -t 600 -u SEEN_REPLY,ASSURED"
        )
        .unwrap();
    }
    let file = std::env::temp_dir().join(format!("doctor-conntrack-{}", std::process::id()));
    std::fs::write(&file, entries).unwrap();
    let filled = host.run_in(
        &host.receiving,
        "conntrack",
        &["-R", file.to_str().unwrap()],
    );
    let _ = std::fs::remove_file(&file);
    if !filled {
        println!("skipped: the connection table could not be filled");
    }
    filled
}

fn port(diagnosis: &Diagnosis) -> u16 {
    diagnosis.culprit.as_ref().unwrap().socket.local.port()
}

#[test]
fn losses_of_the_past_are_reported_as_past() {
    let Some(host) = Host::new() else { return };
    let reader = host.start(&host.receiving, "sink 0.0.0.0:4433 0 none");
    let mut sender = host.send(5_555, 1_000, 100);
    while sender.count() < 100 {
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(sender);
    // The last datagrams may still be under way on a machine whose processors others have.
    let mut recordings = (0..5).map(|_| host.examine(INTERVAL));
    let healthy = recordings.find(|diagnosis| diagnosis.health == Health::Healthy);
    let diagnosis = healthy.unwrap();
    let report = stage(&diagnosis, Stage::NoPort);
    assert_eq!(report.state, State::Past);
    assert!(report.lost_before >= 100);
    drop(reader);
}

fn nft(host: &Host, namespace: &str, rules: &str) {
    let file = std::env::temp_dir().join(format!("{namespace}.nft"));
    std::fs::write(&file, rules).unwrap();
    let done = run(
        "ip",
        &[
            "netns",
            "exec",
            namespace,
            "nft",
            "-f",
            file.to_str().unwrap(),
        ],
    );
    let _ = std::fs::remove_file(&file);
    assert!(done);
    let _ = host;
}
