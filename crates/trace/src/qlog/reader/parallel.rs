//! Parsing on several threads: the file is cut into blocks of whole records, which are decoded in
//! any order and returned in theirs.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::num::NonZero;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::vec;

use super::header::Header;
use super::record::{Decoded, decode};
use super::split::{MAX_RECORD, Rest};
use super::value::Tape;

/// Size of a block in bytes: small enough that its events stay in the cache until they are used.
pub(super) const BLOCK: usize = 256 << 10;

/// Maximum number of blocks that are read, being decoded or decoded, for each thread.
const BLOCKS_PER_THREAD: usize = 3;

/// A record that has been decoded.
#[derive(Debug)]
pub(super) struct DecodedRecord {
    /// Where it begins in the file.
    pub(super) offset: u64,
    /// Where the next one begins.
    pub(super) end: u64,
    pub(super) decoded: Decoded,
}

/// Whole records of a file.
#[derive(Debug)]
struct Block {
    /// Where it begins in the file.
    offset: u64,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// Records, each with its separator, which may be missing at the end of the file.
    Records(Vec<u8>),
    /// One record of this length, too long to be kept.
    Overlong(u64),
}

/// Cuts the rest of a file into blocks.
#[derive(Debug)]
struct Blocks<R> {
    input: R,
    /// The byte that ends each record.
    separator: u8,
    /// Number of bytes that are read at a time.
    size: usize,
    /// Bytes read that belong to no block yet.
    rest: Vec<u8>,
    /// Where `rest` begins in the file.
    offset: u64,
    ended: bool,
    error: Option<io::Error>,
}

impl<R: Read> Blocks<R> {
    /// The next block; `None` at the end of the file, or where reading failed: what then remains is
    /// the beginning of a record.
    fn next(&mut self) -> Option<Block> {
        loop {
            self.fill();
            if let Some(last) = memchr::memrchr(self.separator, &self.rest) {
                return Some(self.cut(last.saturating_add(1)));
            }
            if self.rest.len() > MAX_RECORD {
                return self.skip();
            }
            if self.ended {
                let whole = self.error.is_none() && !self.rest.is_empty();
                return whole.then(|| self.cut(self.rest.len()));
            }
        }
    }

    /// Reads one block more.
    fn fill(&mut self) {
        if self.ended {
            return;
        }
        self.rest.reserve(self.size);
        // Retries interrupted reads, and keeps what was read before a failure.
        let block = self.input.by_ref().take(self.size as u64);
        match { block }.read_to_end(&mut self.rest) {
            Ok(len) => self.ended = len < self.size,
            Err(error) => {
                self.ended = true;
                self.error = Some(error);
            }
        }
    }

    fn cut(&mut self, len: usize) -> Block {
        let after = self.rest.split_off(len);
        let records = core::mem::replace(&mut self.rest, after);
        let offset = self.offset;
        self.offset = offset.saturating_add(len as u64);
        Block {
            offset,
            content: Content::Records(records),
        }
    }

    /// Skips a record of which more than the maximum is read.
    fn skip(&mut self) -> Option<Block> {
        let offset = self.offset;
        let mut len = 0_u64;
        loop {
            let end = memchr::memchr(self.separator, &self.rest);
            let part = end.map_or(self.rest.len(), |end| end.saturating_add(1));
            self.rest.drain(..part);
            len = len.saturating_add(part as u64);
            self.offset = self.offset.saturating_add(part as u64);
            if end.is_some() {
                break;
            }
            if self.ended && self.error.is_some() {
                return None;
            }
            if self.ended {
                break;
            }
            self.fill();
        }
        Some(Block {
            offset,
            content: Content::Overlong(len),
        })
    }

    /// Bytes read so far.
    fn read(&self) -> u64 {
        self.offset.saturating_add(self.rest.len() as u64)
    }
}

/// Decodes all records of a block.
fn decode_block(block: &Block, separator: u8, header: &Header) -> Vec<DecodedRecord> {
    let records = match &block.content {
        Content::Records(records) => records,
        Content::Overlong(len) => {
            return vec![DecodedRecord {
                offset: block.offset,
                end: block.offset.saturating_add(*len),
                decoded: Decoded::Bad,
            }];
        }
    };
    let mut decoded = Vec::new();
    let mut tape = Tape::new();
    let (mut rest, mut offset) = (records.as_slice(), block.offset);
    while !rest.is_empty() {
        let len = memchr::memchr(separator, rest).unwrap_or(rest.len());
        let record = rest.get(..len).unwrap_or_default();
        let after = rest.get(len.saturating_add(1)..).unwrap_or_default();
        let end = offset.saturating_add((rest.len().saturating_sub(after.len())) as u64);
        let overlong = record.len() > MAX_RECORD;
        if overlong || !record.iter().all(u8::is_ascii_whitespace) {
            let told = match overlong {
                true => Decoded::Bad,
                false => decode(&mut tape, record, header),
            };
            decoded.push(DecodedRecord {
                offset,
                end,
                decoded: told,
            });
        }
        (rest, offset) = (after, end);
    }
    decoded
}

/// A block, and where its records are expected.
type Job = (Block, SyncSender<Vec<DecodedRecord>>);

/// Decodes records on several threads, and returns them in their order.
#[derive(Debug)]
pub(super) struct Pipeline<R> {
    blocks: Blocks<R>,
    /// The records of the current block.
    current: vec::IntoIter<DecodedRecord>,
    /// Those of the blocks after it, in their order.
    pending: VecDeque<Receiver<Vec<DecodedRecord>>>,
    /// `None` once the threads have to end.
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
    /// Where the next record begins.
    offset: u64,
}

impl<R: Read> Pipeline<R> {
    /// Decodes the rest of a file, of which `block` bytes are read at a time.
    ///
    /// # Errors
    /// If no thread can be started: then `rest` is returned.
    pub(super) fn new(
        rest: Rest<R>,
        header: &Header,
        threads: NonZero<usize>,
        block: usize,
    ) -> Result<Self, Rest<R>> {
        let (jobs, queue) = channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        let header = Arc::new(header.clone());
        let separator = rest.separator;
        let start = |_| {
            let (queue, header) = (Arc::clone(&queue), Arc::clone(&header));
            let work = move || work(&queue, separator, &header);
            let name = "qlog-reader".to_owned();
            thread::Builder::new().name(name).spawn(work).ok()
        };
        let threads: Vec<JoinHandle<()>> = (0..threads.get()).filter_map(start).collect();
        if threads.is_empty() {
            return Err(rest);
        }
        let first = rest.first.map(|record| DecodedRecord {
            offset: record.offset,
            end: rest.offset,
            decoded: match record.damaged {
                true => Decoded::Bad,
                false => decode(&mut Tape::new(), &record.bytes, &header),
            },
        });
        Ok(Self {
            blocks: Blocks {
                input: rest.input,
                separator,
                size: block,
                rest: rest.bytes,
                offset: rest.offset,
                ended: false,
                error: None,
            },
            current: first.into_iter().collect::<Vec<_>>().into_iter(),
            pending: VecDeque::new(),
            jobs: Some(jobs),
            threads,
            offset: rest.offset,
        })
    }

    /// The next record; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<DecodedRecord>> {
        loop {
            if let Some(record) = self.current.next() {
                self.offset = record.end;
                return Ok(Some(record));
            }
            self.request();
            let Some(next) = self.pending.pop_front() else {
                self.offset = self.blocks.read();
                return self.blocks.error.take().map_or(Ok(None), Err);
            };
            let gone = |_| io::Error::other("a thread that decodes records has ended");
            self.current = next.recv().map_err(gone)?.into_iter();
        }
    }

    /// Where the next record begins.
    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads blocks for the threads, as many as may be on their way.
    fn request(&mut self) {
        let most = self.threads.len().saturating_mul(BLOCKS_PER_THREAD);
        while self.pending.len() < most
            && let Some(jobs) = &self.jobs
            && let Some(block) = self.blocks.next()
        {
            let (sender, receiver) = sync_channel(1);
            self.pending.push_back(receiver);
            // Without a thread that takes it, the receiver says so.
            let _ = jobs.send((block, sender));
        }
    }
}

/// Decodes blocks until there are no more.
fn work(queue: &Mutex<Receiver<Job>>, separator: u8, header: &Header) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((block, records)) = job else { return };
        // The reader may have been dropped.
        let _ = records.send(decode_block(&block, separator, header));
    }
}

impl<R> Drop for Pipeline<R> {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
