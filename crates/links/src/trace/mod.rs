//! Delivery opportunities recorded from a real link, in mahimahi's format.

mod random;

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::fs;
use std::path::Path;

pub use random::RandomTrace;

use crate::spec::SpecError;
use crate::time::nanos;
use crate::{Rate, Time};

/// Bytes that leave at one opportunity, headers included, as mahimahi
/// records them: one full Ethernet payload.
pub const OPPORTUNITY_BYTES: u32 = 1500;

/// Maximum size of a trace file, in bytes: days of a fast link.
const LARGEST_FILE: u64 = 256 << 20;

/// The delivery opportunities of a link, repeated forever.
///
/// mahimahi's format is a line per opportunity with its time in milliseconds, in order; after the
/// last the trace starts over from there. At each opportunity [`OPPORTUNITY_BYTES`] leave: several
/// small packets, or a part of a large one. An opportunity at which nothing waits is lost.
///
/// Written as the path of such a file, or as `random:…` for one that [`RandomTrace`] generates.
#[derive(Clone, PartialEq, Eq)]
pub struct Trace {
    /// What it was parsed from.
    source: String,
    /// Times in nanoseconds from the start of a round, above zero and rising, with the number of
    /// opportunities at each. The last one is the length of the round.
    moments: Vec<(u64, u32)>,
}

const EXPECTED: &str = "the path of a file with a millisecond per line, or random:… such as \
                     random:mean=12M:swing=10:outage=500ms:length=120s:seed=1";

impl Trace {
    /// Parses mahimahi's format. Such a trace displays as `inline`, which does not parse; use
    /// [`Trace::load`] or [`RandomTrace`] where that is needed.
    ///
    /// # Errors
    /// Names the line that is not a time or is earlier than the line before; rejects
    /// traces without an opportunity after time zero.
    pub fn from_lines(lines: &str) -> Result<Self, SpecError> {
        Self::read("inline", lines)
    }

    /// Reads a file in mahimahi's format.
    ///
    /// # Errors
    /// If the file cannot be read or is larger than 256 MiB, or like
    /// [`Trace::from_lines`].
    pub fn load(path: &Path) -> Result<Self, SpecError> {
        let name = path.display().to_string();
        let error = |problem: String| SpecError::new("trace", &name, problem, EXPECTED);
        let unreadable = |cause: std::io::Error| error(format!("cannot read the file: {cause}"));
        let metadata = fs::metadata(path).map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(error("not a regular file".to_owned()));
        }
        if metadata.len() > LARGEST_FILE {
            return Err(error(format!(
                "the file is larger than {LARGEST_FILE} bytes"
            )));
        }
        Self::read(&name, &fs::read_to_string(path).map_err(unreadable)?)
    }

    fn read(source: &str, lines: &str) -> Result<Self, SpecError> {
        let mut millis = Vec::new();
        for (number, line) in (1u64..).zip(lines.lines()) {
            let error = |problem: &str| {
                let problem = format!("line {number} ({line:?}) {problem}");
                SpecError::new("trace", source, problem, EXPECTED)
            };
            let text = line.trim();
            if text.is_empty() {
                continue;
            }
            let at: u64 = text
                .parse()
                .map_err(|_| error("is not a number of milliseconds"))?;
            if at > u64::from(u32::MAX) {
                return Err(error("is more than 49 days"));
            }
            if millis.last().is_some_and(|&(last, _)| last > at) {
                return Err(error("is earlier than the line before"));
            }
            add(&mut millis, at, 1);
        }
        Self::from_millis(source.to_owned(), millis).ok_or_else(|| {
            SpecError::new(
                "trace",
                source,
                "the trace never delivers a packet",
                EXPECTED,
            )
        })
    }

    /// From (millisecond, opportunities), in order; `None` if there is none
    /// after time zero.
    fn from_millis(source: String, mut millis: Vec<(u64, u32)>) -> Option<Self> {
        // A round's opportunities at its very start are those at the end of
        // the one before.
        if let Some(&(0, early)) = millis.first() {
            millis.remove(0);
            let (_, count) = millis.last_mut()?;
            *count = count.saturating_add(early);
        }
        let moments: Vec<_> = millis
            .into_iter()
            .map(|(at, count)| (at * 1_000_000, count))
            .collect();
        (!moments.is_empty()).then_some(Self { source, moments })
    }

    /// How long a round takes.
    #[must_use]
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.round())
    }

    fn round(&self) -> u64 {
        self.moments.last().map_or(1, |&(at, _)| at)
    }

    /// Opportunities in a round.
    #[must_use]
    pub fn opportunities(&self) -> u64 {
        self.moments
            .iter()
            .map(|&(_, count)| u64::from(count))
            .sum()
    }

    /// Bits per second over a round.
    #[must_use]
    pub fn mean(&self) -> Rate {
        let bits = u128::from(self.opportunities()) * u128::from(OPPORTUNITY_BYTES) * 8;
        let rate = bits * 1_000_000_000 / u128::from(self.round());
        Rate::from_bits(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// The longest time without an opportunity.
    #[must_use]
    pub fn longest_gap(&self) -> Duration {
        let mut last = 0;
        let gap = self.moments.iter().map(|&(at, _)| {
            let gap = at - last;
            last = at;
            gap
        });
        Duration::from_nanos(gap.max().unwrap_or(0))
    }

    /// Bytes that can leave from `from` until just before `until`, in
    /// nanoseconds from the start.
    #[must_use]
    pub fn capacity(&self, from: Duration, until: Duration) -> u64 {
        let until = nanos(until);
        let (mut at, mut count) = self.next(nanos(from));
        let mut opportunities = 0u64;
        while at < until {
            opportunities += u64::from(count);
            (at, count) = self.next(at.saturating_add(1));
        }
        opportunities.saturating_mul(u64::from(OPPORTUNITY_BYTES))
    }

    /// The trace in mahimahi's format.
    #[must_use]
    pub fn to_lines(&self) -> String {
        let mut lines = String::new();
        for &(at, count) in &self.moments {
            let line = format!("{}\n", at / 1_000_000);
            for _ in 0..count {
                lines.push_str(&line);
            }
        }
        lines
    }

    /// The first moment with opportunities at or after `elapsed` nanoseconds,
    /// and how many.
    fn next(&self, elapsed: u64) -> (u64, u32) {
        let round = self.round();
        let passed = elapsed.saturating_sub(1) / round * round;
        let within = elapsed - passed;
        let index = self.moments.partition_point(|&(at, _)| at < within);
        let (at, count) = self.moments.get(index).copied().unwrap_or((round, 1));
        (passed.saturating_add(at), count)
    }
}

/// Adds `count` opportunities at `at`, which is not before the last.
fn add(millis: &mut Vec<(u64, u32)>, at: u64, count: u32) {
    match millis.last_mut() {
        Some((last, opportunities)) if *last == at => {
            *opportunities = opportunities.saturating_add(count);
        }
        Some(_) | None => millis.push((at, count)),
    }
}

impl FromStr for Trace {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        if text.is_empty() {
            return Err(SpecError::new("trace", text, "value is empty", EXPECTED));
        }
        match text.split_once(':') {
            Some(("random", _)) => text.parse::<RandomTrace>().map(|random| random.generate()),
            Some(_) | None => Self::load(Path::new(text)),
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("source", &self.source)
            .field("opportunities", &self.opportunities())
            .field("period", &self.period())
            .finish()
    }
}

/// The position of a transmitter in a trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cursor {
    /// The opportunity in use, past or future.
    at: Time,
    /// Bytes of it that may still leave.
    left: u64,
}

impl Cursor {
    /// When the next packet can start, from `from` on.
    pub(crate) fn next_start(&self, trace: &Trace, origin: Time, from: Time) -> Time {
        if self.at < from {
            look_up(trace, origin, from).0
        } else if self.left > 0 {
            self.at
        } else {
            look_up(trace, origin, Time(self.at.0.saturating_add(1))).0
        }
    }

    /// Starts `size` bytes at `at`, which [`Cursor::next_start`] gave, and
    /// returns when the last of them has left.
    pub(crate) fn start(&mut self, trace: &Trace, origin: Time, at: Time, size: u32) -> Time {
        let mut wanted = u64::from(size);
        if self.at != at || self.left == 0 {
            (self.at, self.left) = look_up(trace, origin, at);
        }
        while wanted > self.left {
            wanted -= self.left;
            let next = Time(self.at.0.saturating_add(1));
            (self.at, self.left) = look_up(trace, origin, next);
        }
        self.left -= wanted;
        self.at
    }
}

/// The first opportunity at or after `from`, and the bytes of that moment.
fn look_up(trace: &Trace, origin: Time, from: Time) -> (Time, u64) {
    let (at, count) = trace.next(nanos(from - origin));
    let at = Time(origin.0.saturating_add(at));
    (at, u64::from(count) * u64::from(OPPORTUNITY_BYTES))
}

#[cfg(test)]
mod tests;
