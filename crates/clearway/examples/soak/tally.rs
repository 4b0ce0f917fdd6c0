//! Counts of requests and their results, and the verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How a request ended as expected.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// Complete and correct, with this number of bytes checked.
    Whole(u64),
    /// With an error that the soak caused, after this number of bytes.
    Caused(String, u64),
}

/// Counts of one kind of traffic.
#[derive(Debug, Default)]
pub(crate) struct Count {
    pub(crate) asked: u64,
    pub(crate) whole: u64,
    pub(crate) bytes: u64,
    /// Ends that the soak caused, by name.
    pub(crate) caused: BTreeMap<String, u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) kinds: BTreeMap<&'static str, Count>,
    /// Descriptions of what went wrong.
    pub(crate) lost: Vec<String>,
    pub(crate) connections: u64,
    /// Of clients that keep theirs.
    kept: BTreeSet<(String, u64)>,
}

/// Everything that was counted.
#[derive(Debug)]
pub(crate) struct Tally {
    counts: Mutex<Counts>,
    started: Instant,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            counts: Mutex::default(),
            started: Instant::now(),
        }
    }

    pub(crate) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn elapsed(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    pub(crate) fn asked(&self, kind: &'static str) {
        self.counts().kinds.entry(kind).or_default().asked += 1;
    }

    pub(crate) fn ended(&self, kind: &'static str, result: Result<Outcome, String>) {
        match result {
            Ok(outcome) => self.count(kind, outcome),
            Err(why) => self.lost(format!("{kind}: {why}")),
        }
    }

    fn count(&self, kind: &'static str, outcome: Outcome) {
        let mut counts = self.counts();
        let count = counts.kinds.entry(kind).or_default();
        match outcome {
            Outcome::Whole(bytes) => {
                count.whole += 1;
                count.bytes += bytes;
            }
            Outcome::Caused(name, bytes) => {
                *count.caused.entry(name).or_default() += 1;
                count.bytes += bytes;
            }
        }
    }

    /// Something that should not have happened.
    pub(crate) fn lost(&self, what: String) {
        eprintln!("{:9.3} LOST {what}", self.elapsed());
        self.counts().lost.push(what);
    }

    /// A client that keeps its connection was answered on this one.
    pub(crate) fn seen(&self, client: &str, connection: u64) {
        let mut counts = self.counts();
        if counts.kept.insert((client.to_owned(), connection)) {
            counts.connections += 1;
            let more = counts.kept.iter().filter(|(who, _)| who == client).count() > 1;
            drop(counts);
            if more {
                self.lost(format!("{client}: another connection than before"));
            }
        }
    }
}

impl Counts {
    pub(crate) fn asked(&self) -> u64 {
        self.kinds.values().map(|count| count.asked).sum()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.kinds.values().map(|count| count.bytes).sum()
    }

    /// Returns requests that were neither answered nor ended on purpose.
    pub(crate) fn unanswered(&self) -> u64 {
        let ended = |count: &Count| count.whole + count.caused.values().sum::<u64>();
        let ended: u64 = self.kinds.values().map(ended).sum();
        self.asked() - ended
    }
}

/// Resident memory over time, in bytes.
#[derive(Debug)]
pub(crate) struct Memory {
    process: u32,
    /// Seconds since the start, bytes.
    samples: Vec<(f64, u64)>,
}

/// What resident memory may grow by from the second sixth of the run to the last,
/// in hundredths.
const GROWTH: f64 = 5.0;

/// Runs of fewer seconds are still warming up in their second sixth.
const JUDGED_FROM: f64 = 300.0;

impl Memory {
    pub(crate) fn of(process: u32) -> Self {
        Self {
            process,
            samples: Vec::new(),
        }
    }

    /// Takes a sample. Returns it.
    pub(crate) fn sample(&mut self, at: f64) -> u64 {
        let path = format!("/proc/{}/status", self.process);
        let status = std::fs::read_to_string(path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        let bytes = kilobytes.unwrap_or(0_u64) * 1024;
        self.samples.push((at, bytes));
        bytes
    }

    /// Median of the samples in a part of the run.
    fn during(&self, from: f64, to: f64) -> u64 {
        let end = self.samples.last().map_or(0.0, |last| last.0);
        let part = |&&(at, _): &&(f64, u64)| (from * end..=to * end).contains(&at);
        let mut bytes: Vec<u64> = self.samples.iter().filter(part).map(|s| s.1).collect();
        bytes.sort_unstable();
        bytes.get(bytes.len() / 2).copied().unwrap_or(0)
    }

    /// Growth from the second sixth to the last, in hundredths.
    fn growth(&self) -> f64 {
        let (before, after) = (
            self.during(1.0 / 6.0, 2.0 / 6.0),
            self.during(5.0 / 6.0, 1.0),
        );
        (after as f64 / before.max(1) as f64 - 1.0) * 100.0
    }

    /// Bytes an hour from 10 % of the run on: least squares.
    fn slope(&self) -> f64 {
        let end = self.samples.last().map_or(0.0, |last| last.0);
        let late: Vec<_> = self.samples.iter().filter(|s| s.0 >= end / 10.0).collect();
        let n = late.len().max(1) as f64;
        let mean_at = late.iter().map(|s| s.0).sum::<f64>() / n;
        let mean = late.iter().map(|s| s.1 as f64).sum::<f64>() / n;
        let above: f64 = late
            .iter()
            .map(|s| (s.0 - mean_at) * (s.1 as f64 - mean))
            .sum();
        let below: f64 = late.iter().map(|s| (s.0 - mean_at).powi(2)).sum();
        above / below.max(f64::MIN_POSITIVE) * 3600.0
    }

    /// Whether it does not grow; `true` if the run is too short to tell.
    pub(crate) fn is_flat(&self) -> bool {
        let end = self.samples.last().map_or(0.0, |last| last.0);
        end < JUDGED_FROM || self.growth() <= GROWTH
    }

    pub(crate) fn json(&self) -> String {
        format!(
            "{{\"kib_at_10_percent\":{},\"kib_at_end\":{},\"growth_percent\":{:.2},\
             \"kib_per_hour\":{:.0},\"flat\":{}}}",
            self.during(0.08, 0.12) / 1024,
            self.samples.last().map_or(0, |last| last.1) / 1024,
            self.growth(),
            self.slope() / 1024.0,
            self.is_flat()
        )
    }
}

/// One line of JSON with what was counted.
pub(crate) fn json(counts: &Counts) -> String {
    let mut line = String::new();
    for (kind, count) in &counts.kinds {
        let mut caused = String::new();
        for (name, times) in &count.caused {
            let _ = write!(caused, "{}{name:?}:{times}", comma(&caused));
        }
        let _ = write!(
            line,
            "{}{kind:?}:{{\"asked\":{},\"whole\":{},\"bytes\":{},\"caused\":{{{caused}}}}}",
            comma(&line),
            count.asked,
            count.whole,
            count.bytes
        );
    }
    format!("{{{line}}}")
}

fn comma(before: &str) -> &'static str {
    if before.is_empty() { "" } else { "," }
}
