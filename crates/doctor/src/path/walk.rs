//! Walks the path and says what each stage lost.

use super::deduce::deduce;
use super::{CounterReport, Role, Stage, StageReport, State, classify};
use crate::sample::{Recording, Sample};
use crate::track::Track;

/// Below this rate a stage through which foreign traffic passes loses nothing that matters: stray
/// datagrams, frames of protocols that nobody speaks, a device's first words over IPv6. Per second.
const TRICKLE: f64 = 5.0;

/// Returns every stage in order, with what it lost during the recording.
#[must_use]
pub fn walk(recording: &Recording, tracks: &[Track]) -> Vec<StageReport> {
    let Some((first, last)) = recording.ends() else {
        return Vec::new();
    };
    let grown = last.counters.since(&first.counters);
    let mut counters = Vec::new();
    for (name, total) in last.counters.iter() {
        let Some(known) = classify(name) else {
            continue;
        };
        let report = CounterReport {
            name: name.to_owned(),
            meaning: known.meaning,
            role: known.role,
            total,
            grown: grown.get(name),
            deduced: false,
        };
        counters.push((known.stage, report));
    }
    counters.extend(deduce(recording, &grown, tracks));
    let seconds = last.at.saturating_sub(first.at).as_secs_f64().max(1e-9);
    let stages = Stage::ALL.iter();
    stages
        .map(|&stage| {
            let of_stage = counters.iter().filter(|(of, _)| *of == stage);
            let counters: Vec<CounterReport> = of_stage.map(|(_, c)| c.clone()).collect();
            report(stage, counters, seconds, last)
        })
        .collect()
}

fn report(
    stage: Stage,
    mut counters: Vec<CounterReport>,
    seconds: f64,
    last: &Sample,
) -> StageReport {
    let lost = lost(stage, &counters, |counter| counter.grown);
    let ever = lost_ever(stage, &counters);
    let lost_per_second = lost as f64 / seconds;
    let note = note(stage, last);
    let state = match (lost, ever) {
        (0, _) if is_unseen(stage, last) => State::Unseen,
        (0, 0) => State::Clear,
        (0, _) => State::Past,
        _ if lost_per_second < TRICKLE && meets_foreign_traffic(stage) => State::Trickle,
        _ => State::Losing,
    };
    counters.retain(|counter| match counter.role {
        Role::Loss => counter.total > 0,
        Role::Sign | Role::Unknown => counter.grown > 0,
        Role::Traffic => false,
    });
    counters.sort_by(|a, b| b.grown.cmp(&a.grown).then_with(|| a.name.cmp(&b.name)));
    StageReport {
        stage,
        state,
        lost,
        lost_per_second,
        lost_before: ever.saturating_sub(lost),
        counters,
        note,
    }
}

fn lost_ever(stage: Stage, counters: &[CounterReport]) -> u64 {
    lost(stage, counters, |counter| counter.total)
}

/// Adds up a stage's losses. When sending, one loss may show in several counters: a full queue of a
/// device counts there, in IP's `OutDiscards` and in UDP's `SndbufErrors`.
fn lost(stage: Stage, counters: &[CounterReport], value: impl Fn(&CounterReport) -> u64) -> u64 {
    let losses = || counters.iter().filter(|counter| counter.role == Role::Loss);
    if stage != Stage::Sender {
        return losses().map(value).sum();
    }
    let kinds: [fn(&str) -> bool; 4] = [
        |name| name.starts_with("Udp"),
        |name| name.starts_with("Ip"),
        |name| name.starts_with("qdisc") || name.starts_with("dev"),
        |name| name.starts_with("nft"),
    ];
    let of_kind = |is: fn(&str) -> bool| losses().filter(|c| is(&c.name)).map(&value).sum();
    kinds.into_iter().map(of_kind).max().unwrap_or(0)
}

/// Whether there is always a little that is lost there, and is nobody's loss.
const fn meets_foreign_traffic(stage: Stage) -> bool {
    match stage {
        Stage::Device | Stage::Ip | Stage::Firewall | Stage::NoPort => true,
        Stage::Sender
        | Stage::Wire
        | Stage::Ring
        | Stage::Xdp
        | Stage::Softnet
        | Stage::Checksum
        | Stage::SocketFilter
        | Stage::Memory
        | Stage::ReceiveBuffer
        | Stage::Application => false,
    }
}

fn is_unseen(stage: Stage, last: &Sample) -> bool {
    let group = match stage {
        Stage::Xdp => return last.devices.iter().any(|device| device.xdp),
        Stage::Wire | Stage::Ring | Stage::Device => "dev ",
        Stage::Softnet => "softnet.",
        Stage::Sender
        | Stage::Ip
        | Stage::Firewall
        | Stage::NoPort
        | Stage::Checksum
        | Stage::SocketFilter
        | Stage::Memory
        | Stage::ReceiveBuffer
        | Stage::Application => return false,
    };
    !last
        .counters
        .iter()
        .any(|(name, _)| name.starts_with(group))
}

fn note(stage: Stage, last: &Sample) -> Option<String> {
    match stage {
        Stage::Xdp => {
            let with_xdp = last.devices.iter().filter(|device| device.xdp);
            let names: Vec<&str> = with_xdp.map(|device| device.name.as_str()).collect();
            let names = names.join(", ");
            (!names.is_empty()).then(|| {
                format!(
                    "an XDP program is attached to {names}: what it drops is in no counter of the \
                     kernel's; `ethtool -S DEVICE` may show it"
                )
            })
        }
        Stage::Firewall => {
            let (count, max) = (last.levels.conntrack_count?, last.levels.conntrack_max?);
            (count > 0).then(|| format!("{count} of at most {max} connections are tracked"))
        }
        Stage::Memory => {
            let (pages, limits) = (last.levels.udp_pages?, last.levels.udp_limits?);
            let bytes = |pages: u64| crate::render::words::bytes(pages * last.levels.page_size);
            Some(format!(
                "the host's UDP sockets hold {} of at most {}",
                bytes(pages),
                bytes(limits[2])
            ))
        }
        Stage::Sender
        | Stage::Wire
        | Stage::Ring
        | Stage::Softnet
        | Stage::Device
        | Stage::Ip
        | Stage::NoPort
        | Stage::Checksum
        | Stage::SocketFilter
        | Stage::ReceiveBuffer
        | Stage::Application => None,
    }
}
