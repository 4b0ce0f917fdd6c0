//! Splits a file into records, holding only one at a time.

use std::io::{self, Read};

use super::ReadError;

/// Maximum size of one record, in bytes; a longer one is skipped and counted.
pub(super) const MAX_RECORD: usize = 4 << 20;

/// Maximum size of all headers in one document, in bytes. Each trace in it is returned with
/// everything that precedes its events, so that a long text followed by many empty traces would
/// take forever. Further ones count as bad records.
const MAX_HEADERS: usize = 64 * MAX_RECORD;

/// Maximum nesting depth of containers; more than any trace has.
const MAX_DEPTH: usize = 64;

/// Number of bytes read from the input at a time.
const CHUNK: usize = 64 << 10;

/// A piece of JSON from the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// The offset at which it begins.
    pub(crate) offset: u64,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
    /// Whether it is an event or a header.
    pub(crate) event: bool,
    /// Whether it was truncated or too long: `bytes` is not all of it.
    pub(crate) damaged: bool,
}

/// What remains of a file after its header, in a framing with separators.
#[derive(Debug)]
pub(super) struct Rest<R> {
    pub(super) input: R,
    /// The byte between records.
    pub(super) separator: u8,
    /// A record that has been looked at.
    pub(super) first: Option<Record>,
    /// Bytes read after it.
    pub(super) bytes: Vec<u8>,
    /// Their offset.
    pub(super) offset: u64,
}

/// The framing of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// A record separator before each (RFC 7464).
    Sequence,
    /// One record per line.
    Lines,
    /// One document, with the events in arrays of this name.
    Contained,
}

/// Splits a file.
#[derive(Debug)]
pub(crate) struct Splitter<R> {
    input: R,
    chunk: Vec<u8>,
    at: usize,
    /// Bytes consumed in chunks so far.
    offset: u64,
    shape: Framing,
    /// Records found so far; the first is the header.
    count: u64,
    next: Option<Record>,
    scan: Scan,
    ended: bool,
}

/// The state of the scanner of contained JSON.
#[derive(Debug, Default)]
struct Scan {
    /// Open containers, `{` or `[`.
    stack: Vec<u8>,
    in_string: bool,
    escaped: bool,
    /// The string being read, or the last one: perhaps a key.
    word: Vec<u8>,
    /// The key of the value that follows.
    key: Option<Vec<u8>>,
    /// The depth of the current events array.
    events_at: Option<usize>,
    /// Everything outside of events: the header.
    header: Record,
    header_told: bool,
    /// Size of the headers returned so far, in bytes.
    told: usize,
}

impl<R: Read> Splitter<R> {
    pub(crate) fn new(input: R) -> Result<Self, ReadError> {
        let mut this = Self {
            input,
            chunk: Vec::new(),
            at: 0,
            offset: 0,
            shape: Framing::Contained,
            count: 0,
            next: None,
            scan: Scan::default(),
            ended: false,
        };
        this.detect()?;
        Ok(this)
    }

    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    /// The next record, without consuming it.
    pub(crate) fn peek(&mut self) -> io::Result<Option<&Record>> {
        if self.next.is_none() {
            self.next = self.read()?;
        }
        Ok(self.next.as_ref())
    }

    /// The next record.
    pub(crate) fn next(&mut self) -> io::Result<Option<Record>> {
        self.peek()?;
        Ok(self.next.take())
    }

    /// The byte that separates records; `None` in contained JSON, and before the header has been
    /// read.
    pub(super) const fn separator(&self) -> Option<u8> {
        match self.shape {
            Framing::Sequence if self.count > 0 => Some(0x1e),
            Framing::Lines if self.count > 0 => Some(b'\n'),
            Framing::Sequence | Framing::Lines | Framing::Contained => None,
        }
    }

    /// What remains after the header, of records that end with this byte.
    pub(super) fn into_rest(mut self, separator: u8) -> Rest<R> {
        self.chunk.drain(..self.at.min(self.chunk.len()));
        Rest {
            input: self.input,
            separator,
            first: self.next,
            bytes: self.chunk,
            offset: self.offset,
        }
    }

    /// Continues with what remains after the header.
    pub(super) fn from_rest(rest: Rest<R>) -> Self {
        Self {
            input: rest.input,
            chunk: rest.bytes,
            at: 0,
            offset: rest.offset,
            shape: match rest.separator {
                b'\n' => Framing::Lines,
                _ => Framing::Sequence,
            },
            count: 2,
            next: rest.first,
            scan: Scan::default(),
            ended: false,
        }
    }

    fn read(&mut self) -> io::Result<Option<Record>> {
        match self.shape {
            Framing::Sequence => self.read_until(0x1e),
            Framing::Lines => self.read_until(b'\n'),
            Framing::Contained => self.read_contained(),
        }
    }

    /// Determines the framing from the first bytes.
    fn detect(&mut self) -> Result<(), ReadError> {
        while matches!(self.peek_byte()?, Some(byte) if byte.is_ascii_whitespace() || byte == 0xef || byte == 0xbb || byte == 0xbf)
        {
            self.take_byte();
        }
        match self.peek_byte()? {
            Some(0x1e) => {
                self.take_byte();
                self.shape = Framing::Sequence;
                Ok(())
            }
            Some(b'{') => {
                self.shape = self.lines_or_contained()?;
                Ok(())
            }
            Some(found) => Err(ReadError::NotQlog {
                offset: self.offset,
                found,
            }),
            None => Err(ReadError::Empty {
                offset: self.offset,
            }),
        }
    }

    /// Lines, if the first line is a whole object and another follows.
    fn lines_or_contained(&mut self) -> io::Result<Framing> {
        // A header fits; a contained file's first line rarely ends so soon.
        while self.rest().len() < 4 * CHUNK && self.more()? {}
        let rest = self.rest();
        let Some(end) = rest.iter().position(|&byte| byte == b'\n') else {
            return Ok(Framing::Contained);
        };
        let (line, after) = rest.split_at(end);
        let follows = after.iter().find(|byte| !byte.is_ascii_whitespace());
        let whole = serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok();
        Ok(if whole && follows == Some(&b'{') {
            Framing::Lines
        } else {
            Framing::Contained
        })
    }

    /// Reads another chunk after the existing bytes; false at the end of the input.
    fn more(&mut self) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        self.chunk.drain(..self.at.min(self.chunk.len()));
        self.at = 0;
        let before = self.chunk.len();
        self.chunk.resize(before.saturating_add(CHUNK), 0);
        loop {
            let room = self.chunk.get_mut(before..).unwrap_or_default();
            match self.input.read(room) {
                Ok(len) => {
                    self.chunk.truncate(before.saturating_add(len));
                    self.ended = len == 0;
                    return Ok(len > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.chunk.truncate(before);
                    return Err(error);
                }
            }
        }
    }

    fn peek_byte(&mut self) -> io::Result<Option<u8>> {
        if self.at == self.chunk.len() && !self.more()? {
            return Ok(None);
        }
        Ok(self.chunk.get(self.at).copied())
    }

    fn take_byte(&mut self) {
        self.take(1);
    }

    fn take(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes);
        self.offset = self.offset.saturating_add(bytes as u64);
    }

    /// The bytes read and not consumed.
    fn rest(&self) -> &[u8] {
        self.chunk.get(self.at..).unwrap_or_default()
    }

    /// The record that ends with this byte. The first one is the header.
    fn read_until(&mut self, end: u8) -> io::Result<Option<Record>> {
        loop {
            let mut record = Record {
                offset: self.offset,
                ..Record::default()
            };
            let mut found = false;
            while !found && (self.at < self.chunk.len() || self.more()?) {
                let rest = self.rest();
                let len = rest.iter().position(|&byte| byte == end);
                found = len.is_some();
                let part = len.and_then(|len| rest.get(..len)).unwrap_or(rest);
                extend(&mut record, part);
                let taken = part.len().saturating_add(found.into());
                self.take(taken);
            }
            if !found && record.bytes.is_empty() {
                return Ok(None);
            }
            if record.bytes.iter().all(u8::is_ascii_whitespace) && !record.damaged {
                continue;
            }
            record.event = self.count > 0;
            self.count = self.count.saturating_add(1);
            return Ok(Some(record));
        }
    }

    /// The next event of a contained document, or the header before it.
    fn read_contained(&mut self) -> io::Result<Option<Record>> {
        while let Some(byte) = self.peek_byte()? {
            let starts = self.scan.starts_event(byte);
            if starts && !self.scan.header_told {
                self.scan.header_told = true;
                return Ok(Some(self.scan.header_so_far(self.offset)));
            }
            if starts {
                return self.read_element().map(Some);
            }
            self.take_byte();
            self.scan.step(byte);
        }
        if self.scan.header_told || self.scan.header.bytes.is_empty() {
            return Ok(None);
        }
        self.scan.header_told = true;
        let mut header = core::mem::take(&mut self.scan.header);
        header.damaged |= !self.scan.stack.is_empty();
        Ok(Some(header))
    }

    /// One element of an events array, with balanced brackets.
    fn read_element(&mut self) -> io::Result<Record> {
        let mut record = Record {
            offset: self.offset,
            event: true,
            ..Record::default()
        };
        let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
        while let Some(byte) = self.peek_byte()? {
            self.take_byte();
            extend(&mut record, &[byte]);
            if in_string {
                match byte {
                    _ if escaped => escaped = false,
                    b'\\' => escaped = true,
                    b'"' => in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => in_string = true,
                b'{' | b'[' => depth = depth.saturating_add(1),
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return Ok(record);
                    }
                }
                _ => {}
            }
        }
        record.damaged = true;
        Ok(record)
    }
}

/// Appends, up to the maximum size.
fn extend(record: &mut Record, part: &[u8]) {
    let room = MAX_RECORD.saturating_sub(record.bytes.len());
    record.damaged |= part.len() > room;
    let kept = part.get(..room).unwrap_or(part);
    record.bytes.extend_from_slice(kept);
}

impl Scan {
    /// Whether `byte`, not consumed yet, begins an element of an events array.
    fn starts_event(&self, byte: u8) -> bool {
        !self.in_string && matches!(byte, b'{' | b'[') && self.events_at == Some(self.stack.len())
    }

    /// Consumes a byte that does not belong to an event.
    fn step(&mut self, byte: u8) {
        // Commas between events would corrupt the header.
        if self.events_at != Some(self.stack.len()) || matches!(byte, b']') {
            extend(&mut self.header, &[byte]);
        }
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ if self.word.len() < 32 => self.word.push(byte),
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.word.clear();
            }
            b':' => self.key = Some(core::mem::take(&mut self.word)),
            b'{' | b'[' => self.open(byte),
            b'}' | b']' => {
                if self.events_at == Some(self.stack.len()) {
                    self.events_at = None;
                    // Another trace has another header.
                    self.header_told = false;
                }
                self.stack.pop();
                self.key = None;
            }
            b',' => self.key = None,
            _ => {}
        }
    }

    fn open(&mut self, byte: u8) {
        let events = byte == b'[' && self.key.as_deref() == Some(b"events");
        if self.stack.len() < MAX_DEPTH {
            self.stack.push(byte);
        }
        if events && self.events_at.is_none() && self.stack.len() < MAX_DEPTH {
            self.events_at = Some(self.stack.len());
        }
        self.key = None;
    }

    /// The header so far, with open containers closed; without its bytes once there were too many
    /// headers.
    fn header_so_far(&mut self, offset: u64) -> Record {
        self.told = self.told.saturating_add(self.header.bytes.len());
        if self.told > MAX_HEADERS {
            return Record {
                offset,
                damaged: true,
                ..Record::default()
            };
        }
        let mut record = self.header.clone();
        for open in self.stack.iter().rev() {
            let close = if *open == b'{' { b'}' } else { b']' };
            extend(&mut record, &[close]);
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_many_empty_traces_are_returned_up_to_a_limit() {
        let title = "x".repeat(MAX_RECORD / 2);
        let traces = vec![r#"{"events":[{}]}"#; 200].join(",");
        let file = format!(r#"{{"title":"{title}","traces":[{traces}]}}"#);
        let mut splitter = Splitter::new(file.as_bytes()).unwrap();
        let (mut told, mut damaged, mut events) = (0, 0, 0);
        while let Some(record) = splitter.next().unwrap() {
            events += usize::from(record.event);
            damaged += usize::from(record.damaged);
            told += record.bytes.len();
        }
        assert_eq!(events, 200);
        assert!(told <= MAX_HEADERS + MAX_RECORD, "{told} bytes");
        assert!((70..80).contains(&damaged), "{damaged} headers not told");
    }
}
