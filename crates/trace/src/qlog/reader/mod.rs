//! qlog of any stack to events, one record at a time.
//!
//! What is understood: JSON text sequences (the newest draft and 0.3), lines of
//! JSON without separators, and contained JSON, whose events are found without
//! holding the file. Names of 0.3 and older drafts, the array events of the
//! first drafts, and the spellings of quiche, quinn, noq, quic-go, picoquic,
//! neqo and aioquic become one schema. A record that is no JSON is counted, with
//! its offset, and the rest is read.

mod counted;
mod decode;
mod fields;
mod frames;
mod header;
mod split;

use std::collections::VecDeque;
use std::io::{self, Read};

use self::counted::Counted;
pub use self::header::Header;
use self::split::{Record, Splitter};
use crate::event::Event;

/// Offsets of bad records that are remembered.
const MAX_OFFSETS: usize = 100;

/// What was wrong with a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    /// Records that are no JSON, are cut off or too long.
    pub bad_records: u64,
    /// Where they begin, in bytes; the first hundred.
    pub offsets: Vec<u64>,
    /// Events that are JSON but make no sense: without time, name or what
    /// their kind needs.
    pub senseless_events: u64,
    /// Events of other schemas or kinds.
    pub other_events: u64,
    /// Events that are earlier than one before them. They are told in the
    /// file's order all the same: who needs time's has to sort.
    pub earlier_events: u64,
}

impl Problems {
    /// Records that are no events that could be told: what is missing from the
    /// trace, whatever the reason.
    #[must_use]
    pub const fn unreadable(&self) -> u64 {
        self.bad_records.saturating_add(self.senseless_events)
    }

    fn bad(&mut self, offset: u64) {
        self.bad_records = self.bad_records.saturating_add(1);
        if self.offsets.len() < MAX_OFFSETS {
            self.offsets.push(offset);
        }
    }
}

/// A file that can't be read at all.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The input failed.
    #[error("reading failed: {0}")]
    Io(#[from] io::Error),
    /// Nothing in it looks like qlog.
    #[error("this is no qlog: it begins with neither a JSON object nor a record separator")]
    NotQlog,
}

/// Reads a trace. Iterate over it for the events; times count from the trace's
/// reference, or from its first event where that is a calendar time.
///
/// Memory is bounded by the largest record accepted, whatever the file.
#[derive(Debug)]
pub struct Reader<R> {
    splitter: Splitter<R>,
    header: Header,
    problems: Problems,
    times: Times,
    counted: Counted,
    /// Events that are read but not told yet.
    ahead: VecDeque<Event>,
    failed: bool,
}

/// How `time` becomes nanoseconds of the trace.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    /// Subtracted from every time: set by a first event at a calendar time.
    base: Option<u64>,
    /// The last time, for traces whose times are differences.
    last: u64,
    /// The latest so far.
    latest: u64,
}

/// Times beyond this are no durations of connections but dates: a year.
const DATE: u64 = 365 * 86_400 * 1_000_000_000;

impl Times {
    /// The event's time, and whether it is earlier than one before.
    fn place(&mut self, header: &Header, time: u64) -> (u64, bool) {
        let time = if header.relative_to_previous {
            self.last.saturating_add(time)
        } else {
            time
        };
        self.last = time;
        let earlier = time < self.latest;
        self.latest = time.max(self.latest);
        let base = *self.base.get_or_insert(if time > DATE { time } else { 0 });
        (time.saturating_sub(base), earlier)
    }
}

impl<R: Read> Reader<R> {
    /// Begins to read and finds out what it is.
    ///
    /// # Errors
    /// If reading fails, or it is no qlog.
    pub fn new(input: R) -> Result<Self, ReadError> {
        let mut this = Self {
            splitter: Splitter::new(input)?,
            header: Header::default(),
            problems: Problems::default(),
            times: Times::default(),
            counted: Counted::default(),
            ahead: VecDeque::new(),
            failed: false,
        };
        this.read_header()?;
        Ok(this)
    }

    /// What the file says of itself, as far as it was read.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// What was wrong so far.
    #[must_use]
    pub const fn problems(&self) -> &Problems {
        &self.problems
    }

    /// Bytes read so far.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.splitter.offset()
    }

    /// Everything up to the first event belongs to the header.
    fn read_header(&mut self) -> io::Result<()> {
        while let Some(record) = self.splitter.peek()? {
            if record.event {
                break;
            }
            self.take_header()?;
        }
        Ok(())
    }

    fn take_header(&mut self) -> io::Result<()> {
        let Some(record) = self.splitter.next()? else {
            return Ok(());
        };
        match parse(&record) {
            Some(value) => {
                self.header.absorb(&value);
                self.times = Times::default();
                self.counted = Counted::default();
            }
            None => self.problems.bad(record.offset),
        }
        Ok(())
    }

    /// The next event; `None` at the end.
    fn next_event(&mut self) -> io::Result<Option<Event>> {
        loop {
            if let Some(event) = self.ahead.pop_front() {
                return Ok(Some(event));
            }
            let Some(record) = self.splitter.peek()? else {
                return Ok(None);
            };
            if !record.event {
                // Another trace in the same file.
                self.take_header()?;
                continue;
            }
            let Some(record) = self.splitter.next()? else {
                return Ok(None);
            };
            let Some(value) = parse(&record) else {
                self.problems.bad(record.offset);
                continue;
            };
            let Some(mut event) = decode::event(&value, &self.header) else {
                count(&mut self.problems.senseless_events, true);
                continue;
            };
            let other = matches!(event.data, crate::event::EventData::Other { .. });
            count(&mut self.problems.other_events, other);
            let (time, earlier) = self.times.place(&self.header, event.time);
            event.time = time;
            count(&mut self.problems.earlier_events, earlier);
            self.ahead.extend(self.counted.before(&value, &event));
            self.ahead.push_back(event);
        }
    }
}

fn count(counter: &mut u64, one: bool) {
    *counter = counter.saturating_add(one.into());
}

/// A record as JSON; cut-off and overlong ones are none.
fn parse(record: &Record) -> Option<serde_json::Value> {
    if record.damaged {
        return None;
    }
    serde_json::from_slice(&record.bytes).ok()
}

impl<R: Read> Iterator for Reader<R> {
    type Item = io::Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.next_event();
        self.failed = next.is_err();
        next.transpose()
    }
}

#[cfg(test)]
mod tests;
