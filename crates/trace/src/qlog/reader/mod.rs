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
mod metrics;
mod parallel;
mod reconstruct;
mod record;
mod split;
mod value;

use std::collections::VecDeque;
use std::io::{self, Read};
use std::num::NonZero;

pub use self::header::Header;
use self::parallel::Pipeline;
use self::reconstruct::EventReconstructor;
use self::record::{Decoded, decode};
pub(crate) use self::split::Splitter;
use self::value::{Tape, parse};
use crate::event::{Event, EventData};

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
    source: Source<R>,
    header: Header,
    problems: Problems,
    times: TimeFormat,
    counted: EventReconstructor,
    /// Events that were decoded but not returned yet.
    ahead: VecDeque<Event>,
    failed: bool,
}

/// Where records come from.
#[derive(Debug)]
enum Source<R> {
    /// From the file, one by one.
    Splitter(Splitter<R>),
    /// From threads that decode them.
    Pipeline(Pipeline<R>),
    /// Nothing follows.
    Ended,
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
            source: Source::Splitter(Splitter::new(input)?),
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

    /// Decodes the rest of the trace on this many threads. The same events are returned in the same
    /// order, but the input is read ahead of them, by less than 1 MB for each thread: not for an
    /// input that waits for a connection. Contained JSON, and a trace for which no thread can be
    /// started, are decoded as before.
    #[must_use]
    pub fn in_parallel(self, threads: NonZero<usize>) -> Self {
        self.in_blocks(threads, parallel::BLOCK)
    }

    fn in_blocks(mut self, threads: NonZero<usize>, block: usize) -> Self {
        self.source = match core::mem::replace(&mut self.source, Source::Ended) {
            Source::Splitter(splitter) => match splitter.separator() {
                Some(separator) => {
                    let rest = splitter.into_rest(separator);
                    match Pipeline::new(rest, &self.header, threads, block) {
                        Ok(pipeline) => Source::Pipeline(pipeline),
                        Err(rest) => Source::Splitter(Splitter::from_rest(rest)),
                    }
                }
                None => Source::Splitter(splitter),
            },
            other => other,
        };
        self
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

    /// The offset in the file after the last record returned, or where reading failed or ended.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        match &self.source {
            Source::Splitter(splitter) => splitter.offset(),
            Source::Pipeline(pipeline) => pipeline.offset(),
            Source::Ended => 0,
        }
    }

    /// Everything up to the first event belongs to the header.
    fn read_header(&mut self) -> io::Result<()> {
        while let Source::Splitter(splitter) = &mut self.source
            && splitter.peek()?.is_some_and(|record| !record.event)
        {
            self.take_header()?;
        }
        Ok(())
    }

    fn take_header(&mut self) -> io::Result<()> {
        let Source::Splitter(splitter) = &mut self.source else {
            return Ok(());
        };
        let Some(record) = splitter.next()? else {
            return Ok(());
        };
        let mut tape = Tape::new();
        let value = (!record.damaged).then(|| parse(&mut tape, &record.bytes));
        match value.flatten() {
            Some(value) => {
                self.header.absorb(value);
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
            let (offset, decoded) = match &mut self.source {
                Source::Ended => return Ok(None),
                Source::Pipeline(pipeline) => match pipeline.next()? {
                    Some(record) => (record.offset, record.decoded),
                    None => return Ok(None),
                },
                Source::Splitter(splitter) => {
                    let Some(record) = splitter.peek()? else {
                        return Ok(None);
                    };
                    if !record.event {
                        // Another trace in the same file.
                        self.take_header()?;
                        continue;
                    }
                    let Some(record) = splitter.next()? else {
                        return Ok(None);
                    };
                    let decoded = match record.damaged {
                        true => Decoded::Bad,
                        false => decode(&mut Tape::new(), &record.bytes, &self.header),
                    };
                    (record.offset, decoded)
                }
            };
            if let Some(event) = self.take(offset, decoded) {
                return Ok(Some(event));
            }
        }
    }

    /// Counts a record, and returns its event, unless other events come before it.
    fn take(&mut self, offset: u64, decoded: Decoded) -> Option<Event> {
        let (mut event, hints) = match decoded {
            Decoded::Event(event, hints) => (event, hints),
            Decoded::Bad => {
                self.problems.bad(offset);
                return None;
            }
            Decoded::Senseless => {
                count(&mut self.problems.senseless_events, true);
                return None;
            }
        };
        let other = matches!(event.data, EventData::Other { .. });
        count(&mut self.problems.other_events, other);
        let (time, earlier) = self.times.place(&self.header, event.time);
        event.time = time;
        count(&mut self.problems.earlier_events, earlier);
        let before = self.counted.before(hints, &event);
        if before.is_empty() {
            return Some(event);
        }
        self.ahead.extend(before);
        self.ahead.push_back(event);
        None
    }
}

fn count(counter: &mut u64, one: bool) {
    *counter = counter.saturating_add(one.into());
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
