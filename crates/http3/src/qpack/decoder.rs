//! The decoding side: the peer's encoder stream and field sections come in,
//! fields and our decoder stream go out (RFC 9204 §2.2).

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};

use super::dynamic_table::{DynamicTable, Entry};
use super::error::{ErrorCode, QpackError, Reason};
use super::field::{FIELD_OVERHEAD, Field};
use super::instruction::{DecoderInstruction, EncoderInstruction, NameReference};
use super::integer;
use super::prefix::Prefix;
use super::section::Section;
use super::static_table;
use super::string::Literal;

/// Decoder instructions kept for a peer that does not read them, bytes: beyond
/// this it is at fault (RFC 9204 §7.3).
const MAX_UNREAD: usize = 64 << 10;

/// What became of a field section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// Its field lines, in order.
    Fields(Vec<Field>),
    /// It waits for insertions and is kept: read nothing more from its stream
    /// until [`Decoder::unblocked`] names it (RFC 9204 §2.1.2).
    Blocked,
    /// It is larger than the limit given (RFC 9114 §4.2.2). It was read to its
    /// end and acknowledged, so the stream can go on, with a 431 for example.
    TooLarge,
}

/// A section that waits, and the limit it came with.
#[derive(Debug)]
struct Kept {
    section: Section,
    max_size: u64,
}

/// A stream that waits: its sections, the earliest first.
#[derive(Debug, Default)]
struct Waiting {
    sections: VecDeque<Kept>,
    /// What the most demanding of them requires.
    required: u64,
    /// All of that was inserted, and the stream named or put in line for it.
    ready: bool,
}

/// Decodes field sections with the table the peer's encoder builds.
#[derive(Debug)]
pub struct Decoder {
    max_capacity: u64,
    max_blocked: u64,
    table: DynamicTable<()>,
    /// The beginning of an encoder instruction: below four times the table's
    /// capacity, since lengths are refused before what has them is kept.
    unread: Vec<u8>,
    waiting: BTreeMap<u64, Waiting>,
    /// How many of those are not ready.
    blocked: u32,
    /// Those ready that were not named yet.
    ready: VecDeque<u64>,
    /// The Known Received Count once `instructions` are read (RFC 9204 §2.1.4).
    acknowledged: u64,
    instructions: BytesMut,
    /// Texts on their way into the table.
    scratch: BytesMut,
    /// Instructions carried out and not counted by anybody.
    updates: u32,
}

impl Decoder {
    /// `max_table_capacity`, in bytes, and `max_blocked_streams` are what our
    /// SETTINGS say (RFC 9204 §5).
    #[must_use]
    pub fn new(max_table_capacity: u64, max_blocked_streams: u64) -> Self {
        Self {
            // A setting says no more.
            max_capacity: max_table_capacity.min(integer::MAX),
            max_blocked: max_blocked_streams,
            table: DynamicTable::new(),
            unread: Vec::new(),
            waiting: BTreeMap::new(),
            blocked: 0,
            ready: VecDeque::new(),
            acknowledged: 0,
            instructions: BytesMut::new(),
            scratch: BytesMut::new(),
            updates: 0,
        }
    }

    /// Takes what came next on the peer's encoder stream, cut anywhere. It may
    /// unblock streams: see [`Self::unblocked`].
    ///
    /// # Errors
    ///
    /// `QPACK_ENCODER_STREAM_ERROR` if an instruction cannot be carried out.
    pub fn on_encoder_stream(&mut self, bytes: &[u8]) -> Result<(), QpackError> {
        let before = self.table.insert_count();
        let outcome = if self.unread.is_empty() {
            self.instruct(bytes).map(|used| {
                let rest = bytes.get(used..).unwrap_or_default();
                self.unread.extend_from_slice(rest);
            })
        } else {
            let mut unread = std::mem::take(&mut self.unread);
            unread.extend_from_slice(bytes);
            self.instruct(&unread).map(|used| {
                unread.drain(..used);
                if !unread.is_empty() {
                    self.unread = unread;
                }
            })
        };
        if self.table.insert_count() > before {
            self.announce();
        }
        outcome.map_err(|reason| ErrorCode::EncoderStreamError.because(reason))
    }

    /// Carries out the whole instructions at the beginning of `bytes`, and says
    /// how long those are.
    fn instruct(&mut self, bytes: &[u8]) -> Result<usize, Reason> {
        let mut at = 0;
        while at < bytes.len() {
            let (instruction, end) = match EncoderInstruction::decode(bytes, at) {
                Ok(decoded) => decoded,
                Err(Reason::Truncated) => break,
                Err(reason) => return Err(reason),
            };
            self.check_lengths(instruction)?;
            let Some(end) = end else { break };
            self.carry_out(instruction, bytes)?;
            self.updates = self.updates.saturating_add(1);
            at = end;
        }
        Ok(at)
    }

    /// Refuses an entry as soon as its lengths say that it does not fit.
    fn check_lengths(&self, instruction: EncoderInstruction) -> Result<(), Reason> {
        let text = match instruction {
            EncoderInstruction::SetCapacity(_) | EncoderInstruction::Duplicate(_) => return Ok(()),
            EncoderInstruction::InsertNamed { value, .. } => value.min_text(),
            EncoderInstruction::InsertLiteral { name, value } => name
                .min_text()
                .saturating_add(value.map_or(0, Literal::min_text)),
        };
        self.room(text).map(|_| ())
    }

    /// What an entry has room for besides `text` bytes.
    fn room(&self, text: usize) -> Result<usize, Reason> {
        let taken = text.saturating_add(FIELD_OVERHEAD);
        self.table
            .capacity()
            .checked_sub(taken)
            .ok_or(Reason::EntryTooLarge)
    }

    fn carry_out(&mut self, instruction: EncoderInstruction, bytes: &[u8]) -> Result<(), Reason> {
        let (name, value) = match instruction {
            EncoderInstruction::SetCapacity(capacity) => return self.set_capacity(capacity),
            EncoderInstruction::Duplicate(index) => {
                let entry = self.entry(index)?;
                (entry.name.clone(), entry.value.clone())
            }
            EncoderInstruction::InsertNamed { name, value } => {
                let name = match name {
                    NameReference::Static(index) => {
                        static_table::name(index).ok_or(Reason::StaticIndex)?
                    }
                    NameReference::FromNewest(index) => self.entry(index)?.name.clone(),
                };
                let room = self.room(name.len())?;
                (name, self.text(value, bytes, room)?)
            }
            EncoderInstruction::InsertLiteral { name, value } => {
                // Without a value there is no end, and this is not called.
                let value = value.ok_or(Reason::Truncated)?;
                let name = self.text(name, bytes, self.room(0)?)?;
                let room = self.room(name.len())?;
                (name, self.text(value, bytes, room)?)
            }
        };
        // RFC 9204 §3.2.2: name and value are held here while what they were
        // copied from may be evicted.
        if self.table.insert(Entry {
            name,
            value,
            note: (),
        }) {
            Ok(())
        } else {
            Err(Reason::EntryTooLarge)
        }
    }

    fn set_capacity(&mut self, capacity: u64) -> Result<(), Reason> {
        if capacity > self.max_capacity {
            return Err(Reason::Capacity);
        }
        let capacity = usize::try_from(capacity).map_err(|_| Reason::Capacity)?;
        self.table.set_capacity(capacity);
        Ok(())
    }

    fn entry(&self, from_newest: u64) -> Result<&Entry<()>, Reason> {
        let absolute = self.table.absolute(from_newest);
        absolute
            .and_then(|absolute| self.table.get(absolute))
            .ok_or(Reason::DynamicIndex)
    }

    /// A text in memory of its own: an entry must not keep alive what it came in.
    fn text(&mut self, literal: Literal, bytes: &[u8], room: usize) -> Result<Bytes, Reason> {
        self.scratch.clear();
        if literal.append(bytes, room, &mut self.scratch)? {
            Ok(Bytes::copy_from_slice(&self.scratch))
        } else {
            Err(Reason::EntryTooLarge)
        }
    }

    /// After insertions: whom to name.
    fn announce(&mut self) {
        let inserts = self.table.insert_count();
        for (&stream, waiting) in &mut self.waiting {
            if !waiting.ready && waiting.required <= inserts {
                waiting.ready = true;
                self.blocked = self.blocked.saturating_sub(1);
                self.ready.push_back(stream);
            }
        }
    }

    /// A stream that is no longer blocked, each named once: [`Self::resume`] it.
    pub fn unblocked(&mut self) -> Option<u64> {
        self.ready.pop_front()
    }

    /// Decodes a field section received whole on `stream_id`, to fields of
    /// `max_section_size` bytes at most, a field counting its name, its value
    /// and 32 (RFC 9114 §4.2.2).
    ///
    /// Values that came without Huffman code are slices of `section`, so they
    /// keep it in memory; the caller has bounded its length.
    ///
    /// # Errors
    ///
    /// `QPACK_DECOMPRESSION_FAILED` if it is malformed or refers to what is not
    /// in the table, or if it is blocked and no more streams may be;
    /// `H3_EXCESSIVE_LOAD` if the peer leaves our decoder stream unread.
    pub fn decode(
        &mut self,
        stream_id: u64,
        section: Bytes,
        max_section_size: u64,
    ) -> Result<Decoded, QpackError> {
        let inserts = self.table.insert_count();
        let section = Prefix::decode(&section, self.max_capacity, inserts)
            .map(|(prefix, lines_at)| Section {
                bytes: section,
                prefix,
                lines_at,
            })
            .map_err(|reason| ErrorCode::DecompressionFailed.because(reason))?;
        let kept = Kept {
            section,
            max_size: max_section_size,
        };
        let behind = !self.waiting.is_empty() && self.waiting.contains_key(&stream_id);
        if behind || kept.section.prefix.required > inserts {
            self.keep(stream_id, kept)?;
            return Ok(Decoded::Blocked);
        }
        self.finish(stream_id, &kept)
    }

    fn keep(&mut self, stream: u64, kept: Kept) -> Result<(), QpackError> {
        let required = kept.section.prefix.required;
        let blocked = required > self.table.insert_count();
        let known = self.waiting.get(&stream);
        if blocked && known.is_none_or(|waiting| waiting.ready) {
            if u64::from(self.blocked) >= self.max_blocked {
                return Err(ErrorCode::DecompressionFailed.because(Reason::BlockedStreams));
            }
            self.blocked = self.blocked.saturating_add(1);
            self.ready.retain(|&ready| ready != stream);
        }
        let waiting = self.waiting.entry(stream).or_default();
        waiting.ready &= !blocked;
        waiting.required = waiting.required.max(required);
        waiting.sections.push_back(kept);
        Ok(())
    }

    /// Decodes the earliest section kept of a stream that [`Self::unblocked`]
    /// named; `None` if there is none, or it still waits. Of several on one
    /// stream, the stream is named again for each.
    ///
    /// # Errors
    ///
    /// Those of [`Self::decode`].
    pub fn resume(&mut self, stream_id: u64) -> Result<Option<Decoded>, QpackError> {
        let inserts = self.table.insert_count();
        let Some(waiting) = self.waiting.get_mut(&stream_id) else {
            return Ok(None);
        };
        if waiting
            .sections
            .front()
            .is_none_or(|kept| kept.section.prefix.required > inserts)
        {
            return Ok(None);
        }
        let Some(kept) = waiting.sections.pop_front() else {
            return Ok(None);
        };
        let (last, ready) = (waiting.sections.is_empty(), waiting.ready);
        if last {
            self.waiting.remove(&stream_id);
            self.ready.retain(|&ready| ready != stream_id);
        } else if ready && !self.ready.contains(&stream_id) {
            self.ready.push_back(stream_id);
        }
        self.finish(stream_id, &kept).map(Some)
    }

    /// Decodes a section whose insertions have come, and acknowledges it.
    fn finish(&mut self, stream: u64, kept: &Kept) -> Result<Decoded, QpackError> {
        let fields = kept
            .section
            .read(&self.table, kept.max_size)
            .map_err(|reason| ErrorCode::DecompressionFailed.because(reason))?;
        let required = kept.section.prefix.required;
        if required > 0 {
            if self.instructions.len() > MAX_UNREAD {
                return Err(ErrorCode::ExcessiveLoad.because(Reason::UnreadInstructions));
            }
            DecoderInstruction::SectionAcknowledgment(stream).encode(&mut self.instructions);
            self.acknowledged = self.acknowledged.max(required);
        }
        Ok(fields.map_or(Decoded::TooLarge, Decoded::Fields))
    }

    /// The stream was reset, or is no longer read, before all its sections were
    /// decoded: forgets them and tells the encoder (RFC 9204 §2.2.2.2).
    pub fn cancel(&mut self, stream_id: u64) {
        if let Some(waiting) = self.waiting.remove(&stream_id) {
            self.blocked = self.blocked.saturating_sub(u32::from(!waiting.ready));
            self.ready.retain(|&ready| ready != stream_id);
        }
        // Without a table the encoder has nothing to forget. A peer that leaves
        // so much unread hears of it with the next section instead.
        if self.max_capacity > 0 && self.instructions.len() <= MAX_UNREAD {
            DecoderInstruction::StreamCancellation(stream_id).encode(&mut self.instructions);
        }
    }

    /// What is to be written on our decoder stream; take from it only as much as
    /// the stream accepts, so that what a peer does not read stays counted here.
    /// Calling this after a batch of input rather than within it lets one Insert
    /// Count Increment, or none, stand for many (RFC 9204 §2.2.2.3).
    pub fn instructions(&mut self) -> &mut BytesMut {
        let inserts = self.table.insert_count();
        let news = inserts.saturating_sub(self.acknowledged);
        if news > 0 && self.instructions.len() <= MAX_UNREAD {
            DecoderInstruction::InsertCountIncrement(news).encode(&mut self.instructions);
            self.acknowledged = inserts;
        }
        &mut self.instructions
    }

    /// Instructions on the encoder stream carried out since the last call: a duplicate
    /// of an entry is one byte there.
    pub fn take_updates(&mut self) -> u64 {
        std::mem::take(&mut self.updates).into()
    }

    /// Streams that are blocked now.
    #[must_use]
    pub fn blocked_streams(&self) -> u64 {
        self.blocked.into()
    }

    /// Gives back room that holds nothing.
    pub fn release(&mut self) {
        self.table.shrink();
        self.unread.shrink_to_fit();
        self.ready.shrink_to_fit();
        if self.instructions.is_empty() {
            self.instructions = BytesMut::new();
        }
        if self.scratch.is_empty() {
            self.scratch = BytesMut::new();
        }
    }

    /// Bytes held: the table, sections kept, unfinished and unsent instructions.
    #[must_use]
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "sizes of what is in memory together"
    )]
    pub fn memory(&self) -> usize {
        let kept: usize = (self.waiting.values())
            .map(|waiting| {
                let texts: usize = waiting.sections.iter().map(|k| k.section.bytes.len()).sum();
                texts + size_of::<Waiting>() + waiting.sections.capacity() * size_of::<Kept>()
            })
            .sum();
        size_of::<Self>()
            + self.table.memory()
            + self.unread.capacity()
            + kept
            + self.ready.capacity() * size_of::<u64>()
            + self.instructions.capacity()
            + self.scratch.capacity()
    }

    #[cfg(test)]
    pub(super) fn table(&self) -> &DynamicTable<()> {
        &self.table
    }
}
