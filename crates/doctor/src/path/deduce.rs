//! Losses that no counter counts, deduced from those that do.

use super::{CounterReport, Role, Stage};
use crate::counters::Counters;
use crate::sample::Recording;
use crate::track::Track;

/// Packets that may be under way between two counters while they are read.
const IN_FLIGHT: u64 = 16;
/// The same, as a share of what arrives: one in this many.
const IN_FLIGHT_SHARE: u64 = 5_000;

/// Returns the deduced losses of a recording.
pub(super) fn deduce(
    recording: &Recording,
    grown: &Counters,
    tracks: &[Track],
) -> Vec<(Stage, CounterReport)> {
    let mut found = residue(recording, grown, tracks);
    for ip in ["Ip", "Ip6"] {
        let lost = vanished(grown, ip);
        if lost > 0 {
            found.push((
                Stage::Firewall,
                report(
                    format!("{ip}.InReceives without {ip}.InDelivers"),
                    "IP packets that no counter of IP explains: dropped by a firewall rule without a counter",
                    lost,
                    lost,
                ),
            ));
        }
    }
    found
}

fn report(name: String, meaning: &'static str, grown: u64, total: u64) -> CounterReport {
    CounterReport {
        name,
        meaning: Some(meaning),
        role: Role::Loss,
        total,
        grown,
        deduced: true,
    }
}

/// `InErrors` counts more than has counters of its own: what a socket's filter refused, and datagrams
/// whose length is wrong. The first are lost at a socket and counted there, too.
fn residue(
    recording: &Recording,
    grown: &Counters,
    tracks: &[Track],
) -> Vec<(Stage, CounterReport)> {
    let total = recording.samples.last().map(|sample| &sample.counters);
    let now = unexplained(grown);
    let ever = total.map_or(0, unexplained);
    let at_sockets: u64 = tracks.iter().map(Track::lost).sum();
    let explained = sum(grown, "RcvbufErrors") + sum(grown, "MemErrors");
    let surplus = at_sockets.saturating_sub(explained);
    // A wrong checksum is counted at the socket, too, if there is one.
    let checksums = sum(grown, "InCsumErrors");
    let filtered = if surplus >= now.saturating_add(checksums) {
        now
    } else {
        surplus.saturating_sub(checksums).min(now)
    };
    let short = now.saturating_sub(filtered);
    let mut found = Vec::new();
    if filtered > 0 {
        found.push((
            Stage::SocketFilter,
            report(
                "Udp.InErrors without a reason, at a socket".to_owned(),
                "refused by a filter that the program attached to its socket",
                filtered,
                filtered,
            ),
        ));
    }
    if short > 0 || ever > now {
        found.push((
            Stage::Checksum,
            report(
                "Udp.InErrors without a reason".to_owned(),
                "shorter than their UDP header says",
                short,
                ever.saturating_sub(filtered),
            ),
        ));
    }
    found
}

fn unexplained(counters: &Counters) -> u64 {
    let explained = ["RcvbufErrors", "MemErrors", "InCsumErrors"];
    let explained: u64 = explained.iter().map(|name| sum(counters, name)).sum();
    sum(counters, "InErrors").saturating_sub(explained)
}

/// A counter of UDP, over IPv4 and IPv6.
fn sum(counters: &Counters, name: &str) -> u64 {
    ["Udp", "Udp6"]
        .iter()
        .map(|group| counters.get(&format!("{group}.{name}")))
        .sum()
}

/// What IP received and neither delivered, nor forwarded, nor counted as an error.
fn vanished(grown: &Counters, ip: &str) -> u64 {
    let get = |name: &str| grown.get(&format!("{ip}.{name}"));
    let mut explained = get("InDelivers")
        + get("InHdrErrors")
        + get("InAddrErrors")
        + get("InDiscards")
        + get("InUnknownProtos")
        + get("InNoRoutes")
        + get("InTruncatedPkts")
        + get("InTooBigErrors")
        + get("ReasmReqds").saturating_sub(get("ReasmOKs"));
    explained += if ip == "Ip" {
        get("ForwDatagrams")
            + grown.get("IpExt.InNoRoutes")
            + grown.get("IpExt.InTruncatedPkts")
            + grown.get("TcpExt.IPReversePathFilter")
    } else {
        get("OutForwDatagrams")
    };
    // Both families share the firewall's counters.
    explained += grown
        .iter()
        .filter(|(name, _)| name.starts_with("nft ") || *name == "conntrack.drop")
        .map(|(_, packets)| packets)
        .sum::<u64>();
    let received = get("InReceives");
    let lost = received.saturating_sub(explained);
    let noise = IN_FLIGHT.max(received / IN_FLIGHT_SHARE);
    if lost > noise { lost } else { 0 }
}
