//! The decoder: reads the peer's encoder stream and field sections, and returns fields and
//! instructions for our decoder stream (RFC 9204 §2.2).

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};

use super::dynamic_table::{DynamicTable, Entry};
use super::error::{ErrorCode, QpackError, Reason};
use super::field::{FIELD_OVERHEAD, Field};
use super::instruction::{DecoderInstruction, EncoderInstruction, NameReference};
use super::integer;
use super::prefix::Prefix;
use super::section::EncodedSection;
use super::static_table;
use super::string::StringLiteral;

/// Maximum bytes of decoder instructions kept for a peer that does not read them; beyond this the
/// connection fails (RFC 9204 §7.3).
const MAX_UNSENT_INSTRUCTIONS: usize = 64 << 10;

/// The result of decoding a field section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// The fields, in order.
    Fields(Vec<Field>),
    /// The section is blocked on insertions and is kept. Read nothing more from its stream until
    /// [`Decoder::next_unblocked`] returns it (RFC 9204 §2.1.2).
    Blocked,
    /// The section exceeds the given limit (RFC 9114 §4.2.2). It was read to its end and
    /// acknowledged, so the stream can go on, for example with a 431 response.
    TooLarge,
}

/// A blocked section, and its size limit.
#[derive(Debug)]
struct BlockedSection {
    section: EncodedSection,
    max_size: u64,
}

/// A blocked stream, with its sections in order.
#[derive(Debug, Default)]
struct BlockedStream {
    sections: VecDeque<BlockedSection>,
    /// The largest Required Insert Count of the sections.
    required: u64,
    /// Whether all of that was inserted, and the stream was returned as unblocked or is queued for
    /// it.
    ready: bool,
}

/// Decodes field sections with the dynamic table that the peer's encoder builds.
#[derive(Debug)]
pub struct Decoder {
    max_capacity: u64,
    max_blocked: u64,
    table: DynamicTable<()>,
    /// An incomplete encoder instruction. It is shorter than four times the table's capacity, since
    /// lengths are checked before the data is buffered.
    unread: Vec<u8>,
    waiting: BTreeMap<u64, BlockedStream>,
    /// How many of those streams are not ready.
    blocked: u32,
    /// The ready streams that were not returned yet.
    ready: VecDeque<u64>,
    /// The Known Received Count once `instructions` are read (RFC 9204 §2.1.4).
    acknowledged: u64,
    instructions: BytesMut,
    /// A buffer in which strings are decoded.
    scratch: BytesMut,
    /// Instructions processed since they were last taken.
    updates: u32,
}

impl Decoder {
    /// Creates a decoder. `max_table_capacity`, in bytes, and `max_blocked_streams` are the values
    /// in our SETTINGS (RFC 9204 §5).
    #[must_use]
    pub fn new(max_table_capacity: u64, max_blocked_streams: u64) -> Self {
        Self {
            // A setting cannot be larger.
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

    /// Processes the next bytes of the peer's encoder stream, split anywhere. They may unblock
    /// streams: see [`Self::next_unblocked`].
    ///
    /// # Errors
    ///
    /// `QPACK_ENCODER_STREAM_ERROR` if an instruction is invalid.
    pub fn on_encoder_stream(&mut self, bytes: &[u8]) -> Result<(), QpackError> {
        let before = self.table.insert_count();
        let outcome = if self.unread.is_empty() {
            self.process_instructions(bytes).map(|used| {
                let rest = bytes.get(used..).unwrap_or_default();
                self.unread.extend_from_slice(rest);
            })
        } else {
            let mut unread = std::mem::take(&mut self.unread);
            unread.extend_from_slice(bytes);
            self.process_instructions(&unread).map(|used| {
                unread.drain(..used);
                if !unread.is_empty() {
                    self.unread = unread;
                }
            })
        };
        if self.table.insert_count() > before {
            self.mark_unblocked();
        }
        outcome.map_err(|reason| ErrorCode::EncoderStreamError.with_reason(reason))
    }

    /// Processes the complete instructions at the front of `bytes`, and returns their length.
    fn process_instructions(&mut self, bytes: &[u8]) -> Result<usize, Reason> {
        let mut at = 0;
        while at < bytes.len() {
            let (instruction, end) = match EncoderInstruction::decode(bytes, at) {
                Ok(decoded) => decoded,
                Err(Reason::Truncated) => break,
                Err(reason) => return Err(reason),
            };
            self.check_lengths(instruction)?;
            let Some(end) = end else { break };
            self.execute(instruction, bytes)?;
            self.updates = self.updates.saturating_add(1);
            at = end;
        }
        Ok(at)
    }

    /// Rejects an entry as soon as its lengths show that it does not fit.
    fn check_lengths(&self, instruction: EncoderInstruction) -> Result<(), Reason> {
        let text = match instruction {
            EncoderInstruction::SetCapacity(_) | EncoderInstruction::Duplicate(_) => return Ok(()),
            EncoderInstruction::InsertNamed { value, .. } => value.min_decoded_len(),
            EncoderInstruction::InsertLiteral { name, value } => name
                .min_decoded_len()
                .saturating_add(value.map_or(0, StringLiteral::min_decoded_len)),
        };
        self.remaining_room(text).map(|_| ())
    }

    /// Returns how much room an entry has besides `text` bytes.
    fn remaining_room(&self, text: usize) -> Result<usize, Reason> {
        let taken = text.saturating_add(FIELD_OVERHEAD);
        self.table
            .capacity()
            .checked_sub(taken)
            .ok_or(Reason::EntryTooLarge)
    }

    fn execute(&mut self, instruction: EncoderInstruction, bytes: &[u8]) -> Result<(), Reason> {
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
                let room = self.remaining_room(name.len())?;
                (name, self.text(value, bytes, room)?)
            }
            EncoderInstruction::InsertLiteral { name, value } => {
                // Only complete instructions, which have a value, are executed.
                let value = value.ok_or(Reason::Truncated)?;
                let name = self.text(name, bytes, self.remaining_room(0)?)?;
                let room = self.remaining_room(name.len())?;
                (name, self.text(value, bytes, room)?)
            }
        };
        // RFC 9204 §3.2.2: the entry that name and value were copied from may be evicted here.
        if self.table.insert(Entry {
            name,
            value,
            meta: (),
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

    /// Decodes a string to memory of its own: an entry must not keep its instruction's buffer
    /// alive.
    fn text(&mut self, literal: StringLiteral, bytes: &[u8], room: usize) -> Result<Bytes, Reason> {
        self.scratch.clear();
        if literal.decode_into(bytes, room, &mut self.scratch)? {
            Ok(Bytes::copy_from_slice(&self.scratch))
        } else {
            Err(Reason::EntryTooLarge)
        }
    }

    /// Queues the streams that insertions have unblocked.
    fn mark_unblocked(&mut self) {
        let inserts = self.table.insert_count();
        for (&stream, waiting) in &mut self.waiting {
            if !waiting.ready && waiting.required <= inserts {
                waiting.ready = true;
                self.blocked = self.blocked.saturating_sub(1);
                self.ready.push_back(stream);
            }
        }
    }

    /// Returns a stream that is no longer blocked, each once: call [`Self::resume`] for it.
    pub fn next_unblocked(&mut self) -> Option<u64> {
        self.ready.pop_front()
    }

    /// Decodes a complete field section of `stream_id`, to fields of at most `max_section_size`
    /// bytes. A field counts its name, its value and 32 (RFC 9114 §4.2.2).
    ///
    /// Values that are not Huffman coded are slices of `section`, and keep it in memory; the caller
    /// has limited its length.
    ///
    /// # Errors
    ///
    /// `QPACK_DECOMPRESSION_FAILED` if the section is malformed, refers to an entry that is not in
    /// the table, or is blocked while no more streams may be; `H3_EXCESSIVE_LOAD` if the peer does
    /// not read our decoder stream.
    pub fn decode(
        &mut self,
        stream_id: u64,
        section: Bytes,
        max_section_size: u64,
    ) -> Result<Decoded, QpackError> {
        let inserts = self.table.insert_count();
        let section = Prefix::decode(&section, self.max_capacity, inserts)
            .map(|(prefix, lines_at)| EncodedSection {
                bytes: section,
                prefix,
                lines_at,
            })
            .map_err(|reason| ErrorCode::DecompressionFailed.with_reason(reason))?;
        let kept = BlockedSection {
            section,
            max_size: max_section_size,
        };
        let behind = !self.waiting.is_empty() && self.waiting.contains_key(&stream_id);
        if behind || kept.section.prefix.required > inserts {
            self.block(stream_id, kept)?;
            return Ok(Decoded::Blocked);
        }
        self.finish(stream_id, &kept)
    }

    fn block(&mut self, stream: u64, kept: BlockedSection) -> Result<(), QpackError> {
        let required = kept.section.prefix.required;
        let blocked = required > self.table.insert_count();
        let known = self.waiting.get(&stream);
        if blocked && known.is_none_or(|waiting| waiting.ready) {
            if u64::from(self.blocked) >= self.max_blocked {
                return Err(ErrorCode::DecompressionFailed.with_reason(Reason::BlockedStreams));
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

    /// Decodes the first kept section of a stream that [`Self::next_unblocked`] returned, or
    /// returns `None` if there is none or it is still blocked. If there are more, the stream is
    /// returned again for each.
    ///
    /// # Errors
    ///
    /// See [`Self::decode`].
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

    /// Decodes a section whose insertions have arrived, and acknowledges it.
    fn finish(&mut self, stream: u64, kept: &BlockedSection) -> Result<Decoded, QpackError> {
        let fields = kept
            .section
            .read(&self.table, kept.max_size)
            .map_err(|reason| ErrorCode::DecompressionFailed.with_reason(reason))?;
        let required = kept.section.prefix.required;
        if required > 0 {
            if self.instructions.len() > MAX_UNSENT_INSTRUCTIONS {
                return Err(ErrorCode::ExcessiveLoad.with_reason(Reason::UnreadInstructions));
            }
            DecoderInstruction::SectionAcknowledgment(stream).encode(&mut self.instructions);
            self.acknowledged = self.acknowledged.max(required);
        }
        Ok(fields.map_or(Decoded::TooLarge, Decoded::Fields))
    }

    /// Handles a stream that was reset or is no longer read before all its sections were decoded:
    /// drops them and tells the peer's encoder (RFC 9204 §2.2.2.2).
    pub fn cancel(&mut self, stream_id: u64) {
        if let Some(waiting) = self.waiting.remove(&stream_id) {
            self.blocked = self.blocked.saturating_sub(u32::from(!waiting.ready));
            self.ready.retain(|&ready| ready != stream_id);
        }
        // Without a table there is nothing to cancel. A peer that leaves too much unread fails with
        // the next section.
        if self.max_capacity > 0 && self.instructions.len() <= MAX_UNSENT_INSTRUCTIONS {
            DecoderInstruction::StreamCancellation(stream_id).encode(&mut self.instructions);
        }
    }

    /// Returns the bytes to write on our decoder stream. Take only as many as the stream accepts,
    /// because what the peer does not read is limited here. If this is called after a batch of
    /// input, one Insert Count Increment, or none, stands for many insertions (RFC 9204 §2.2.2.3).
    pub fn instructions(&mut self) -> &mut BytesMut {
        let inserts = self.table.insert_count();
        let news = inserts.saturating_sub(self.acknowledged);
        if news > 0 && self.instructions.len() <= MAX_UNSENT_INSTRUCTIONS {
            DecoderInstruction::InsertCountIncrement(news).encode(&mut self.instructions);
            self.acknowledged = inserts;
        }
        &mut self.instructions
    }

    /// Returns whether there are [`instructions`](Self::instructions) to write.
    #[must_use]
    pub fn has_instructions(&self) -> bool {
        !self.instructions.is_empty() || self.table.insert_count() > self.acknowledged
    }

    /// Returns how many encoder instructions were processed since the last call. An instruction may
    /// take a single byte.
    pub(crate) fn take_table_updates(&mut self) -> u64 {
        std::mem::take(&mut self.updates).into()
    }

    /// Returns the number of streams that are blocked.
    #[must_use]
    pub fn blocked_streams(&self) -> u64 {
        self.blocked.into()
    }

    /// Releases unused capacity.
    pub(crate) fn release(&mut self) {
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

    /// Returns the memory in use, in bytes: the table, blocked sections, incomplete and unsent
    /// instructions.
    #[must_use]
    #[expect(clippy::arithmetic_side_effects, reason = "sums of sizes in memory")]
    pub fn memory(&self) -> usize {
        let kept: usize = (self.waiting.values())
            .map(|waiting| {
                let texts: usize = waiting.sections.iter().map(|k| k.section.bytes.len()).sum();
                texts
                    + size_of::<BlockedStream>()
                    + waiting.sections.capacity() * size_of::<BlockedSection>()
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
