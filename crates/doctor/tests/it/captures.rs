//! What six kernels write, and what is said about it. `tests/captures/README.md` tells where it is
//! from.

use std::path::PathBuf;
use std::time::Duration;

use clearway_doctor::collector::{Depth, sample};
use clearway_doctor::path::{Stage, State, classify};
use clearway_doctor::source::{Capture, Place, Source};
use clearway_doctor::{Diagnosis, Focus, Health, Recording, Sample, render};

const KERNELS: [&str; 6] = ["3.10", "4.19", "5.15", "6.1", "6.12", "6.18"];

fn capture(kernel: &str) -> Capture {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/captures");
    Capture::new(folder.join(kernel))
}

fn load(kernel: &str) -> Sample {
    sample(&mut capture(kernel), Duration::ZERO, Depth::Full).unwrap()
}

/// Ten seconds after a capture, with these counters grown.
fn diagnose(kernel: &str, grown: &[(&str, u64)], change: impl FnOnce(&mut Sample)) -> Diagnosis {
    let first = load(kernel);
    let mut last = first.clone();
    last.at = Duration::from_secs(10);
    for (name, by) in grown {
        last.counters.add(*name, *by);
    }
    change(&mut last);
    let recording = Recording {
        kernel: kernel.to_owned(),
        namespace: "a capture".to_owned(),
        samples: vec![first, last],
    };
    Diagnosis::new(&recording, &Focus::default())
}

#[test]
fn every_kernels_format_parses() {
    for kernel in KERNELS {
        let sample = load(kernel);
        let counters = &sample.counters;
        for name in [
            "Udp.InDatagrams",
            "Udp.NoPorts",
            "Udp.RcvbufErrors",
            "Udp6.InDatagrams",
            "Ip.InReceives",
            "IpExt.InOctets",
            "softnet.processed",
            "softnet.time_squeeze",
            "conntrack.drop",
            "conntrack.insert_failed",
        ] {
            assert!(
                counters.find(name).is_some(),
                "Linux {kernel} has no {name}"
            );
        }
        assert!(counters.get("softnet.processed") > 0, "{kernel}");
        assert_eq!(
            counters.find("Udp.MemErrors").is_some(),
            !["3.10", "4.19"].contains(&kernel)
        );
        assert!(!sample.sockets.is_empty(), "{kernel}");
        assert!(sample.levels.udp_pages.is_some(), "{kernel}");
        assert_eq!(
            diagnose(kernel, &[], |_| ()).health,
            Health::Healthy,
            "{kernel}"
        );
    }
}

#[test]
fn every_counter_of_udp_and_ip_in_these_kernels_is_known() {
    for kernel in KERNELS {
        for (name, _) in load(kernel).counters.iter() {
            // What has nothing to do with UDP, such as TCP's counters, is not classified at all.
            let known = classify(name);
            assert!(
                known.is_none_or(|known| known.meaning.is_some() || name.starts_with("UdpLite")),
                "Linux {kernel} has {name}"
            );
        }
    }
}

#[test]
fn columns_that_kernels_have_added_are_read_where_they_are() {
    let since = [
        ("IpExt.InNoECTPkts", 1),
        ("Udp.IgnoredMulti", 1),
        ("softnet.flow_limit_count", 1),
        ("Udp.MemErrors", 2),
        ("conntrack.clashres", 2),
        ("Icmp.OutRateLimitHost", 3),
        ("Ip.OutTransmits", 4),
        ("Ip6.OutTransmits", 4),
    ];
    for (name, first) in since {
        for (number, kernel) in KERNELS.iter().enumerate() {
            let found = load(kernel).counters.find(name).is_some();
            assert_eq!(found, number >= first, "{name} in Linux {kernel}");
        }
    }
}

/// A host without some places, such as a container that hides files of `/proc`.
struct Without(Capture, &'static [Place]);

impl Source for Without {
    fn read(&mut self, place: Place) -> std::io::Result<Vec<u8>> {
        if self.1.contains(&place) {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        self.0.read(place)
    }
}

#[test]
fn host_without_some_files_is_diagnosed_and_they_are_named() {
    const HIDDEN: [Place; 4] = [
        Place::Netstat,
        Place::Softnet,
        Place::Sockstat,
        Place::Snmp6,
    ];
    let mut source = Without(capture("6.18"), &HIDDEN);
    let first = sample(&mut source, Duration::ZERO, Depth::Full).unwrap();
    let missing: Vec<&str> = first
        .missing
        .iter()
        .map(|missing| &missing.what[..])
        .collect();
    // A host may have no IPv6.
    assert_eq!(
        missing,
        HIDDEN[..3]
            .iter()
            .map(|place| place.subject())
            .collect::<Vec<_>>()
    );
    let mut last = first.clone();
    last.at = Duration::from_secs(10);
    last.counters.add("Udp.RcvbufErrors", 900);
    last.counters.add("Udp.InErrors", 900);
    last.sockets[0].drops += 900;
    let samples = vec![first, last];
    let recording = Recording {
        samples,
        ..Recording::default()
    };
    let diagnosis = Diagnosis::new(&recording, &Focus::default());
    assert_eq!(diagnosis.stage, Some(Stage::ReceiveBuffer));
    let text = render::text::text(&diagnosis, false);
    assert!(text.contains("/proc/net/netstat"), "{text}");
    // Without the counters of UDP there is nothing to say.
    let mut blind = Without(capture("6.18"), &[Place::Snmp]);
    let error = sample(&mut blind, Duration::ZERO, Depth::Full).unwrap_err();
    assert!(error.to_string().contains("/proc/net/snmp"), "{error}");
}

#[test]
fn full_buffer_is_found_in_every_format() {
    for kernel in KERNELS {
        let grown = [
            ("Udp.InDatagrams", 5_000),
            ("Udp.RcvbufErrors", 900),
            ("Udp.InErrors", 900),
        ];
        let diagnosis = diagnose(kernel, &grown, |last| {
            let mut sockets = last.sockets.iter_mut();
            let socket = sockets.find(|socket| socket.local.port() == 4_433);
            socket.unwrap().drops += 900;
        });
        assert_eq!(diagnosis.stage, Some(Stage::ReceiveBuffer), "{kernel}");
        let culprit = diagnosis.culprit.as_ref().unwrap();
        assert_eq!(culprit.socket.local.port(), 4_433, "{kernel}");
        assert_eq!(diagnosis.path[12].lost, 900, "{kernel}");
    }
}

#[test]
fn memory_pressure_is_named_from_recorded_counters() {
    let grown = [("Udp.MemErrors", 300), ("Udp.InErrors", 300)];
    let diagnosis = diagnose("6.1", &grown, |last| {
        last.sockets[0].drops += 300;
        last.levels.udp_pages = Some(1_151_610);
        last.levels.udp_limits = Some([575_805, 767_740, 1_151_610]);
    });
    assert_eq!(diagnosis.stage, Some(Stage::Memory));
    assert!(
        diagnosis.verdict[0].contains("now 4.4 GiB of at most 4.4 GiB"),
        "{:?}",
        diagnosis.verdict
    );
    assert!(diagnosis.verdict[1].contains("need not be the one that holds the memory"));
}

#[test]
fn stages_before_ip_are_named_from_recorded_counters() {
    for (counter, stage) in [
        ("dev eth0.rx_crc_errors", Stage::Wire),
        ("dev eth0.rx_missed_errors", Stage::Ring),
        ("softnet.dropped", Stage::Softnet),
        ("dev eth0.rx_dropped", Stage::Device),
        ("Ip.ReasmFails", Stage::Ip),
        ("TcpExt.IPReversePathFilter", Stage::Ip),
    ] {
        let first = {
            let mut first = load("6.1");
            first.counters.add(counter, 0);
            first
        };
        let mut last = first.clone();
        last.at = Duration::from_secs(10);
        last.counters.add(counter, 5_000);
        let recording = Recording {
            samples: vec![first, last],
            ..Recording::default()
        };
        let diagnosis = Diagnosis::new(&recording, &Focus::default());
        assert_eq!(diagnosis.stage, Some(stage), "{counter}");
        assert!(
            diagnosis.verdict[1].contains(counter),
            "{:?}",
            diagnosis.verdict
        );
        assert!(!diagnosis.advice.is_empty(), "{counter}");
    }
}

#[test]
fn unknown_counters_are_shown() {
    for name in [
        "Udp.QuantumErrors",
        "Ip.InTangled",
        "softnet.column_16",
        "conntrack.forgotten",
    ] {
        let mut first = load("6.18");
        first.counters.add(name, 7);
        let mut last = first.clone();
        last.at = Duration::from_secs(10);
        last.counters.add(name, 35);
        let recording = Recording {
            samples: vec![first, last],
            ..Recording::default()
        };
        let diagnosis = Diagnosis::new(&recording, &Focus::default());
        let text = render::text::text(&diagnosis, false);
        assert!(
            text.contains(&format!(
                "{name} +35: a counter that this program does not know"
            )),
            "{text}"
        );
        // It is not called a loss.
        assert_eq!(diagnosis.health, Health::Healthy);
    }
}

#[test]
fn report_page_shows_the_red_stage_and_escapes_names() {
    let first = load("6.1");
    let mut samples = vec![first.clone()];
    for second in 1..=10 {
        let mut next = first.clone();
        next.at = Duration::from_secs(second);
        next.counters.add("Udp.InDatagrams", 500 * second);
        next.counters.add("Udp.RcvbufErrors", 90 * second);
        next.counters.add("Udp.InErrors", 90 * second);
        next.sockets[0].drops += 90 * second;
        samples.push(next);
    }
    let recording = Recording {
        kernel: "<script>".to_owned(),
        namespace: "a & b".to_owned(),
        samples,
    };
    let diagnosis = Diagnosis::new(&recording, &Focus::default());
    let page = render::html::html(&recording, &diagnosis);
    assert!(page.contains("<div class=\"bad\">12 receive buffer of the socket</div>"));
    assert!(page.contains("<polyline"));
    assert!(page.contains("&lt;script&gt;") && !page.contains("<script>"));
    assert_eq!(diagnosis.path[0].state, State::Clear);
}
