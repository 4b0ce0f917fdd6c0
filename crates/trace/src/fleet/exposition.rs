//! Counters in the text format of Prometheus, version 0.0.4.

use core::fmt::Write as _;

use clearway_recovery::limit::Limit;

use super::counters::Counters;
use crate::detect::Detector;

/// All metrics. Nothing in them comes from a peer, so that labels need no escaping.
pub(super) fn text(counters: &Counters, opened: u64, open: usize, unobserved: u64) -> String {
    let mut out = String::new();
    family(
        &mut out,
        "quic_findings_total",
        "counter",
        "Problems found by the detectors, by kind.",
    );
    for &detector in Detector::ALL {
        let count = counters.findings(detector);
        sample(
            &mut out,
            "quic_findings_total",
            Some(("kind", detector.name())),
            count,
        );
    }
    family(
        &mut out,
        "quic_limited_seconds_total",
        "counter",
        "Time for which connections could not send, by reason.",
    );
    for limit in Limit::ALL {
        let spent = counters.limited(limit);
        let (seconds, millis) = (spent / 1_000_000_000, spent / 1_000_000 % 1_000);
        let value = format_args!("{seconds}.{millis:03}");
        sample(
            &mut out,
            "quic_limited_seconds_total",
            Some(("reason", limit.name())),
            value,
        );
    }
    for (name, help, value) in [
        ("quic_connections_total", "Connections examined.", opened),
        (
            "quic_connections_unobserved_total",
            "Connections not examined, because too many were open.",
            unobserved,
        ),
        (
            "quic_packets_sent_total",
            "Packets sent.",
            counters.packets_sent,
        ),
        (
            "quic_packets_received_total",
            "Packets received.",
            counters.packets_received,
        ),
        (
            "quic_packets_lost_total",
            "Packets declared lost.",
            counters.packets_lost,
        ),
        (
            "quic_sent_bytes_total",
            "Bytes of packets sent.",
            counters.bytes_sent,
        ),
        (
            "quic_received_bytes_total",
            "Bytes of packets received.",
            counters.bytes_received,
        ),
        (
            "quic_probe_timeouts_total",
            "Probe timeouts.",
            counters.probe_timeouts,
        ),
    ] {
        family(&mut out, name, "counter", help);
        sample(&mut out, name, None, value);
    }
    for (name, help, value) in [
        (
            "quic_connections_open",
            "Connections examined and open.",
            open as u64,
        ),
        (
            "quic_connections_troubled",
            "Open connections with a problem that is there now.",
            counters.troubled,
        ),
    ] {
        family(&mut out, name, "gauge", help);
        sample(&mut out, name, None, value);
    }
    out
}

fn family(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string cannot fail.
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn sample(
    out: &mut String,
    name: &str,
    label: Option<(&str, &str)>,
    value: impl core::fmt::Display,
) {
    let _ = match label {
        Some((label, of)) => writeln!(out, "{name}{{{label}=\"{of}\"}} {value}"),
        None => writeln!(out, "{name} {value}"),
    };
}
