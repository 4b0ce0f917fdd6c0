//! Reading qlog of any stack, one record at a time.
//!
//! Accepted are JSON text sequences (the newest draft and 0.3), JSON lines without separators, and
//! contained JSON, whose events are found without holding the whole file. Names of 0.3 and older
//! drafts, the array events of the first drafts, and the spellings of quiche, quinn, noq, quic-go,
//! picoquic, neqo and aioquic become one schema. A record that is not JSON is counted, with its
//! offset, and reading continues.

mod decode;
mod fields;
mod frames;
mod header;
mod reconstruct;
mod split;

use std::collections::VecDeque;
use std::io::{self, Read};

pub use self::header::Header;
use self::reconstruct::EventReconstructor;
use self::split::Record;
pub(crate) use self::split::Splitter;
use crate::event::Event;

/// Maximum number of offsets of bad records that are remembered.
const MAX_OFFSETS: usize = 100;

/// Problems found in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    /// Records that are not JSON, are truncated or too long.
    pub bad_records: u64,
    /// The offsets at which they begin, in bytes; the first hundred.
    pub offsets: Vec<u64>,
    /// Events that are JSON but invalid: without time, name or required fields.
    pub senseless_events: u64,
    /// Events of other schemas or kinds.
    pub other_events: u64,
    /// Events that are earlier than one before them. They are returned in the file's order: a
    /// caller that needs the order of time has to sort.
    pub earlier_events: u64,
}

impl Problems {
    /// Records that could not be returned as events, for whatever reason.
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

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Reading the input failed.
    #[error("reading failed: {0}")]
    Io(#[from] io::Error),
    /// The file has no content but white space.
    #[error("the file is empty: found nothing in {offset} bytes")]
    Empty {
        /// Its length in bytes.
        offset: u64,
    },
    /// The file does not look like qlog.
    #[error(
        "not a qlog file: found the byte {found:#04x} at offset {offset}, expected a JSON object \
         or a record separator (0x1e)"
    )]
    NotQlog {
        /// Where it stops looking like qlog.
        offset: u64,
        /// What is there.
        found: u8,
    },
}

/// Reads a trace. Iterate over it for the events; times count from the trace's reference time, or
/// from its first event if that is a calendar time.
///
/// Memory is bounded by the largest record accepted, whatever the file.
#[derive(Debug)]
pub struct Reader<R> {
    splitter: Splitter<R>,
    header: Header,
    problems: Problems,
    times: TimeFormat,
    counted: EventReconstructor,
    /// Events that were decoded but not returned yet.
    ahead: VecDeque<Event>,
    failed: bool,
}

/// Converts `time` to nanoseconds of the trace.
#[derive(Clone, Copy, Debug, Default)]
struct TimeFormat {
    /// Subtracted from every time: set by a first event with a calendar time.
    base: Option<u64>,
    /// The last time, for traces with relative times.
    last: u64,
    /// The latest time so far.
    latest: u64,
}

/// Times beyond this are calendar times, not durations of connections: a year.
const DATE: u64 = 365 * 86_400 * 1_000_000_000;

impl TimeFormat {
    /// The event's time, and whether it is earlier than that of an event before.
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
    /// Opens a trace and determines its format.
    ///
    /// # Errors
    /// If reading fails, or the file is not qlog.
    pub fn new(input: R) -> Result<Self, ReadError> {
        let mut this = Self {
            splitter: Splitter::new(input)?,
            header: Header::default(),
            problems: Problems::default(),
            times: TimeFormat::default(),
            counted: EventReconstructor::default(),
            ahead: VecDeque::new(),
            failed: false,
        };
        this.read_header()?;
        Ok(this)
    }

    /// The header, as far as it has been read.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// The problems found so far.
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
                self.times = TimeFormat::default();
                self.counted = EventReconstructor::default();
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

/// Parses a record as JSON; `None` for truncated and overlong ones.
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
