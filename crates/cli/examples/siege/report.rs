//! The summary of a step: a line for people, an object for scripts, a verdict.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use crate::attack::Traffic;
use crate::honest::{Class, Tally};
use crate::plan::Step;
use crate::slice::Slice;

/// Largest allowed ratio of a median to its baseline.
const MAX_RATIO: f64 = 2.0;

/// What the server may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bars {
    /// Largest allowed resident set, bytes.
    pub(crate) memory: u64,
    /// Its limit of open descriptors; reaching it is a failure.
    pub(crate) descriptors: u64,
    /// Medians up to this are never too long, whatever the baseline.
    pub(crate) brief: Duration,
}

/// The summary of a step.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    /// The names of the attackers.
    pub(crate) kind: String,
    packets: u64,
    bytes: u64,
    packets_per_second: u64,
    /// Most connections or handshakes that attackers kept open at once.
    held: usize,
    /// Requests of well-behaved clients.
    done: u64,
    failed: u64,
    median_ms: f64,
    p95_ms: f64,
    /// Median divided by the baseline's, for the worst class.
    ratio: Option<f64>,
    classes: Vec<ClassSummary>,
    victims_done: u64,
    victims_failed: u64,
    /// Handshakes of victims that a forgery made fail, which is not a defect.
    handshakes_failed: u64,
    peak_memory: u64,
    descriptors: usize,
    /// Shares of a core that the server and the attackers used.
    server_load: f64,
    attackers_load: f64,
    alive: bool,
    notes: Vec<String>,
    skipped: Vec<String>,
    /// Requirements that were missed.
    missed: Vec<String>,
    /// Those of them that are about times.
    slow: Vec<String>,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Every requirement was met.
    Passed,
    /// At least one was missed.
    Failed,
    /// This machine does not allow the attack.
    Skipped,
}

/// One class of requests and its baseline.
#[derive(Debug, Serialize)]
struct ClassSummary {
    class: &'static str,
    done: u64,
    failed: u64,
    median_ms: f64,
    p95_ms: f64,
    baseline_ms: Option<f64>,
    ratio: Option<f64>,
}

impl Summary {
    /// Summarises a step.
    pub(crate) fn new(step: &Step, baseline: Option<&Slice>, slice: &Slice, bars: Bars) -> Self {
        let classes: Vec<_> = Class::ALL
            .into_iter()
            .filter_map(|class| ClassSummary::new(class, baseline.map(|b| &b.tally), &slice.tally))
            .collect();
        let all = slice.tally.all();
        let traffic = slice
            .outcomes
            .iter()
            .fold(Traffic::default(), |sum, one| Traffic {
                packets: sum.packets + one.traffic.packets,
                bytes: sum.bytes + one.traffic.bytes,
            });
        let seconds = slice.elapsed.as_secs_f64();
        let processor: Duration = slice.outcomes.iter().map(|one| one.processor).sum();
        let mut summary = Self {
            kind: step.name.clone(),
            packets: traffic.packets,
            bytes: traffic.bytes,
            packets_per_second: (traffic.packets as f64 / seconds) as u64,
            held: slice.outcomes.iter().map(|one| one.held).sum(),
            done: all.done(),
            failed: all.failed,
            median_ms: millis(all.median()),
            p95_ms: millis(all.quantile(950)),
            ratio: classes
                .iter()
                .filter_map(|class| class.ratio)
                .reduce(f64::max),
            classes,
            victims_done: slice.tally.victims.done(),
            victims_failed: slice.tally.victims.failed,
            handshakes_failed: slice.tally.handshakes_failed,
            peak_memory: slice.usage.peak_memory,
            descriptors: slice.usage.descriptors,
            server_load: slice.usage.processor.as_secs_f64() / slice.watched.as_secs_f64(),
            attackers_load: processor.as_secs_f64() / seconds,
            alive: slice.failure.is_none(),
            notes: notes(slice),
            skipped: slice.skipped.clone(),
            missed: Vec::new(),
            slow: Vec::new(),
        };
        summary.missed = summary.judge(slice, bars);
        summary.slow = summary.judge_times(bars);
        summary
    }

    /// Lists the requirements that were missed.
    fn judge(&self, slice: &Slice, bars: Bars) -> Vec<String> {
        let mut missed = Vec::new();
        missed.extend(slice.defects.iter().chain(&slice.failure).cloned());
        missed.extend(
            slice
                .panics
                .iter()
                .map(|line| format!("the server panicked: {line}")),
        );
        if self.failed > 0 {
            missed.push(format!(
                "{} requests of well-behaved clients failed",
                self.failed
            ));
        }
        if self.victims_failed > 0 {
            missed.push(format!(
                "{} attacked clients did not survive",
                self.victims_failed
            ));
        }
        if self.failed + self.victims_failed > 0 {
            missed.extend(slice.tally.failures.iter().cloned());
        }
        if self.peak_memory > bars.memory {
            missed.push(format!(
                "the server used {} MiB, {} are allowed",
                self.peak_memory >> 20,
                bars.memory >> 20
            ));
        }
        if self.descriptors as u64 >= bars.descriptors {
            missed.push(format!(
                "the server used all of its {} descriptors",
                bars.descriptors
            ));
        }
        missed
    }

    /// Lists the classes of requests that took too long.
    fn judge_times(&self, bars: Bars) -> Vec<String> {
        let mut slow = Vec::new();
        for class in &self.classes {
            if let (Some(ratio), Some(baseline)) = (class.ratio, class.baseline_ms)
                && ratio > MAX_RATIO
                && class.median_ms > millis(Some(bars.brief))
            {
                slow.push(format!(
                    "median of {} requests is {ratio:.1} times the baseline: {:.2} ms instead of \
                     {baseline:.2} ms",
                    class.class, class.median_ms
                ));
            }
        }
        slow
    }

    /// Whether requests took too long, and nothing else was missed: more samples may
    /// show that it was something else on the machine.
    pub(crate) fn is_only_slow(&self) -> bool {
        self.missed.is_empty() && !self.slow.is_empty()
    }

    /// The outcome.
    pub(crate) fn verdict(&self) -> Verdict {
        if !self.missed.is_empty() || !self.slow.is_empty() {
            Verdict::Failed
        } else if self.packets == 0 {
            Verdict::Skipped
        } else {
            Verdict::Passed
        }
    }

    /// The requirements that were missed, those about times last.
    pub(crate) fn misses(&self) -> impl Iterator<Item = &String> {
        self.missed.iter().chain(&self.slow)
    }

    /// The row of a Markdown table.
    pub(crate) fn row(&self) -> String {
        let verdict = match self.verdict() {
            Verdict::Passed => "yes",
            Verdict::Failed => "**no**",
            Verdict::Skipped => "skipped",
        };
        format!(
            "| {} | {} | {} | {} | {} | {:.2} | {:.2} | {} | {} | {} | {:.0}% | {verdict} |\n",
            self.kind.replace('+', ", "),
            grouped(self.packets_per_second),
            grouped(self.held as u64),
            grouped(self.done),
            self.failed,
            self.median_ms,
            self.p95_ms,
            self.worst_ratio(),
            self.peak_memory >> 20,
            self.descriptors,
            100.0 * self.server_load,
        )
    }

    /// The ratio of the worst class, or a dash without a baseline.
    fn worst_ratio(&self) -> String {
        self.ratio
            .map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.1}"))
    }

    /// The line for people.
    pub(crate) fn line(&self) -> String {
        let verdict = match self.verdict() {
            Verdict::Passed => "passed",
            Verdict::Failed => "FAILED",
            Verdict::Skipped => "skipped",
        };
        let mut line = format!(
            "{:20} {:>9} {:>8} {:>7} {:>6} {:>6} {:>6} {:>8.2} {:>8.2} {:>6} {:>5} {:>5} {:>4.0}% \
             {:>4.0}%  {verdict}",
            shortened(&self.kind),
            self.packets,
            size(self.bytes),
            self.packets_per_second,
            self.held,
            self.done,
            self.failed,
            self.median_ms,
            self.p95_ms,
            self.worst_ratio(),
            self.peak_memory >> 20,
            self.descriptors,
            100.0 * self.server_load,
            100.0 * self.attackers_load,
        );
        let each = self
            .notes
            .iter()
            .chain(&self.skipped)
            .map(|note| format!("  {note}"));
        let missed = self.misses().map(|missed| format!("  ! {missed}"));
        for more in each.chain(missed) {
            // Writing to a String cannot fail.
            let _ = write!(line, "\n{more}");
        }
        line
    }
}

impl ClassSummary {
    fn new(class: Class, baseline: Option<&Tally>, tally: &Tally) -> Option<Self> {
        let requests = tally.class(class)?;
        let before = baseline.and_then(|baseline| baseline.class(class)?.median());
        let ratio = requests
            .median()
            .zip(before)
            .map(|(now, before)| now.as_secs_f64() / before.as_secs_f64());
        Some(Self {
            class: class.name(),
            done: requests.done(),
            failed: requests.failed,
            median_ms: millis(requests.median()),
            p95_ms: millis(requests.quantile(950)),
            baseline_ms: before.map(|before| millis(Some(before))),
            ratio,
        })
    }
}

/// The heading above the lines for people.
pub(crate) fn heading() -> String {
    format!(
        "{:20} {:>9} {:>8} {:>7} {:>6} {:>6} {:>6} {:>8} {:>8} {:>6} {:>5} {:>5} {:>5} {:>5}",
        "attackers",
        "packets",
        "bytes",
        "pkt/s",
        "held",
        "done",
        "failed",
        "median",
        "p95 ms",
        "ratio",
        "MiB",
        "fds",
        "serv",
        "att"
    )
}

fn notes(slice: &Slice) -> Vec<String> {
    let said = slice.outcomes.iter().filter(|one| !one.note.is_empty());
    let mut notes: Vec<_> = said
        .map(|one| format!("{}: {}", one.kind, one.note))
        .collect();
    let victims = &slice.tally.victims;
    if victims.done() + victims.failed > 0 {
        notes.push(format!(
            "attacked clients: {} requests done, {} failed, {} handshakes foiled, median {:.2} ms",
            victims.done(),
            victims.failed,
            slice.tally.handshakes_failed,
            millis(victims.median())
        ));
    }
    notes
}

fn millis(time: Option<Duration>) -> f64 {
    // To the microsecond.
    time.map_or(0.0, |time| time.as_micros() as f64 / 1e3)
}

/// A number with commas between thousands.
fn grouped(number: u64) -> String {
    match number {
        0..=999 => number.to_string(),
        _ => format!("{},{:03}", grouped(number / 1000), number % 1000),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..=9_999_999 => format!("{} kB", bytes / 1_000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

/// The first name of a group, and how many more there are.
fn shortened(name: &str) -> String {
    match name.split_once('+') {
        None => name.to_owned(),
        Some((first, rest)) => format!("{first} +{}", rest.split('+').count()),
    }
}
