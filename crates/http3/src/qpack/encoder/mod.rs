//! The encoder: turns fields into field sections and instructions for our encoder stream (RFC 9204
//! §2.1).

mod outstanding;
mod policy;
mod table;

use bytes::{Bytes, BytesMut};

use super::error::{ErrorCode, QpackError, Reason};
use super::field::{self, FIELD_OVERHEAD, FieldRef};
use super::instruction::{self, DecoderInstruction, NameReference};
use super::integer;
use super::line::{self, Reference};
use super::prefix::Prefix;
use super::static_table::{self, Match};
use outstanding::{Outstanding, SentSection};
use policy::{History, IndexingPolicy};
use table::{EncoderTable, EvictionBounds, FieldHashes};

/// Maximum bytes of encoder instructions kept for a peer that gives no credit to send them; beyond
/// this nothing is inserted (RFC 9204 §2.1.3, §7.3).
const MAX_UNSENT_INSTRUCTIONS: usize = 16 << 10;

/// An entry may take at most this fraction of the table: a half.
const LARGEST_SHARE: usize = 2;

/// An entry for its name alone may take at most this fraction of the table: an eighth.
const LARGEST_NAME_SHARE: usize = 8;

/// Encodes field sections, and builds the dynamic table of the peer's decoder.
#[derive(Debug)]
pub struct Encoder {
    /// The largest table that we want to use, in bytes.
    wanted: usize,
    /// The peer's `SETTINGS_QPACK_MAX_TABLE_CAPACITY`, in bytes.
    max_capacity: u64,
    table: EncoderTable,
    history: History,
    outstanding: Outstanding,
    /// The Known Received Count (RFC 9204 §2.1.4).
    known: u64,
    instructions: BytesMut,
    /// An incomplete decoder instruction.
    unread: [u8; integer::MAX_LEN],
    unread_len: u8,
    /// Stream cancellations received since they were last taken.
    cancellations: u32,
}

/// A section being encoded.
#[derive(Debug)]
struct SectionState {
    stream: u64,
    base: u64,
    /// The Required Insert Count so far.
    required: u64,
    /// The smallest absolute index that was referred to so far.
    lowest: u64,
    /// Whether references to the dynamic table are allowed.
    may_reference: bool,
    /// Whether the section may refer to entries that may not have arrived, once that is known.
    may_block: Option<bool>,
}

impl Encoder {
    /// Creates an encoder. It uses only the static table until the peer's SETTINGS allow a dynamic
    /// table, of which it uses at most `max_capacity_wanted` bytes.
    #[must_use]
    pub fn new(max_capacity_wanted: usize) -> Self {
        Self {
            wanted: max_capacity_wanted,
            max_capacity: 0,
            table: EncoderTable::new(),
            history: History::new(),
            outstanding: Outstanding::default(),
            known: 0,
            instructions: BytesMut::new(),
            unread: [0; integer::MAX_LEN],
            unread_len: 0,
            cancellations: 0,
        }
    }

    /// Sets the peer's limits from its SETTINGS, remembered or received (RFC 9204 §5): the maximum
    /// size of its decoder's table, in bytes, and how many streams may be blocked.
    ///
    /// # Errors
    ///
    /// `QPACK_DECODER_STREAM_ERROR` if the capacity differs from the one remembered for 0-RTT (RFC
    /// 9204 §3.2.3).
    pub fn set_peer_limits(
        &mut self,
        max_table_capacity: u64,
        blocked_streams: u64,
    ) -> Result<(), QpackError> {
        self.outstanding.set_blocked_streams(blocked_streams);
        if self.max_capacity == max_table_capacity {
            return Ok(());
        }
        if self.max_capacity > 0 {
            return Err(ErrorCode::DecoderStreamError.with_reason(Reason::CapacityChanged));
        }
        self.max_capacity = max_table_capacity;
        let capacity = usize::try_from(max_table_capacity)
            .unwrap_or(usize::MAX)
            .min(self.wanted);
        if capacity >= FIELD_OVERHEAD {
            self.table.set_capacity(capacity);
            instruction::encode_set_capacity(&mut self.instructions, capacity as u64);
        }
        Ok(())
    }

    /// Appends the encoded field section of `fields` for the stream `stream_id`, on which it must
    /// be sent completely. What it inserts is in [`Self::instructions`].
    pub fn encode<'a>(
        &mut self,
        stream_id: u64,
        fields: impl IntoIterator<Item = FieldRef<'a>>,
        out: &mut Vec<u8>,
    ) {
        let mut section = SectionState {
            stream: stream_id,
            base: self.table.insert_count(),
            required: 0,
            lowest: u64::MAX,
            may_reference: !self.outstanding.is_full(),
            may_block: None,
        };
        let begin = out.len();
        // The prefix comes first, but is known last; it usually has two bytes.
        out.extend_from_slice(&[0; 2]);
        for field in fields {
            self.line(&field, &mut section, out);
        }
        let SectionState {
            base,
            required,
            lowest,
            ..
        } = section;
        Prefix { required, base }.encode_over(begin, self.max_capacity, out);
        if required > 0 {
            self.table.add_reference(lowest);
            self.outstanding
                .on_sent(stream_id, SentSection { required, lowest }, self.known);
        }
    }

    /// Encodes a field line: as an entry of the static or dynamic table, which may be inserted for
    /// it, or as a literal.
    fn line(&mut self, field: &FieldRef<'_>, section: &mut SectionState, lines: &mut Vec<u8>) {
        let static_name = match static_table::find(field.name, field.value) {
            Match::Field(index) if !field.sensitive => {
                line::encode_indexed(lines, Reference::Static(index.into()));
                return;
            }
            Match::Field(index) | Match::Name(index) => Some(index),
            Match::None => None,
        };
        let policy = policy::indexing_policy(static_name, field);
        let mut name = static_name.map(|index| Reference::Static(index.into()));
        if self.table.capacity() > 0 {
            let hashes = FieldHashes::of(field.name, field.value);
            if policy != IndexingPolicy::Never
                && let Some(absolute) = self.indexed(field, static_name, hashes, policy, section)
            {
                line::encode_indexed(lines, Reference::dynamic(absolute, section.base));
                return;
            }
            name = name.or_else(|| self.named(field, hashes, section));
        }
        let sensitive = policy == IndexingPolicy::Never;
        match name {
            Some(name) => line::encode_named(lines, name, field.value, sensitive),
            None => line::encode_literal(lines, field.name, field.value, sensitive),
        }
    }

    /// Returns an entry with this name and value that may be referred to, and inserts it if the
    /// policy allows.
    fn indexed(
        &mut self,
        field: &FieldRef<'_>,
        static_name: Option<u8>,
        hashes: FieldHashes,
        policy: IndexingPolicy,
        section: &mut SectionState,
    ) -> Option<u64> {
        let absolute = match self.table.find(hashes, field.name, field.value) {
            Some(absolute) if self.table.is_draining(absolute) => {
                self.duplicate(absolute, section).unwrap_or(absolute)
            }
            Some(absolute) => absolute,
            None => {
                let repeated =
                    policy == IndexingPolicy::Immediate || self.history.insert(hashes.field);
                if !repeated {
                    return None;
                }
                self.insert(
                    field.name,
                    field.value,
                    static_name,
                    hashes,
                    self.table.capacity() / LARGEST_SHARE,
                    section,
                )?
            }
        };
        self.reference(absolute, section)
    }

    /// Returns an entry with this name that may be referred to. A name that was sent before with
    /// another value gets an entry of its own.
    fn named(
        &mut self,
        field: &FieldRef<'_>,
        hashes: FieldHashes,
        section: &mut SectionState,
    ) -> Option<Reference> {
        let found = self.table.find_name(hashes, field.name);
        let absolute = match found.filter(|&absolute| !self.table.is_draining(absolute)) {
            Some(absolute) => absolute,
            None if self.history.insert(hashes.name) => {
                let hashes = FieldHashes::of(field.name, b"");
                let largest = self.table.capacity() / LARGEST_NAME_SHARE;
                self.insert(field.name, b"", None, hashes, largest, section)?
            }
            None => return None,
        };
        let absolute = self.reference(absolute, section)?;
        Some(Reference::dynamic(absolute, section.base))
    }

    /// Adds a reference to this entry if that is allowed: if it cannot block the stream, or may
    /// (RFC 9204 §2.1.2).
    fn reference(&self, absolute: u64, section: &mut SectionState) -> Option<u64> {
        let outstanding = &self.outstanding;
        let allowed = section.may_reference
            && (absolute < self.known
                || *section
                    .may_block
                    .get_or_insert_with(|| outstanding.may_block(section.stream)));
        if !allowed {
            return None;
        }
        section.required = section.required.max(absolute.saturating_add(1));
        section.lowest = section.lowest.min(absolute);
        Some(absolute)
    }

    /// Returns whether an entry of this size can be inserted now.
    fn may_insert(&self, size: usize, section: &SectionState) -> bool {
        let bounds = EvictionBounds {
            known: self.known,
            lowest: section.lowest,
        };
        self.instructions.len() < MAX_UNSENT_INSTRUCTIONS && self.table.has_room(size, bounds)
    }

    fn insert(
        &mut self,
        name: &[u8],
        value: &[u8],
        static_name: Option<u8>,
        hashes: FieldHashes,
        largest: usize,
        section: &SectionState,
    ) -> Option<u64> {
        let size = field::size(name, value);
        if size > largest || !self.may_insert(size, section) {
            return None;
        }
        let out = &mut self.instructions;
        let held = if let Some(index) = static_name {
            instruction::encode_insert_named(out, NameReference::Static(index.into()), value);
            static_table::name(index.into())?
        } else if let Some(absolute) = self.table.find_name(hashes, name) {
            // The referenced entry may be evicted for this one (RFC 9204 §3.2.2).
            let from_newest = self.table.relative_index(absolute)?;
            instruction::encode_insert_named(out, NameReference::FromNewest(from_newest), value);
            self.table.get(absolute)?.0.clone()
        } else {
            instruction::encode_insert_literal(out, name, value);
            Bytes::copy_from_slice(name)
        };
        Some(
            self.table
                .insert(held, Bytes::copy_from_slice(value), hashes),
        )
    }

    /// Inserts a duplicate of an entry that will be evicted soon (RFC 9204 §2.1.1.1).
    fn duplicate(&mut self, absolute: u64, section: &SectionState) -> Option<u64> {
        let (name, value, hashes) = self.table.get(absolute)?;
        if !self.may_insert(field::size(name, value), section) {
            return None;
        }
        let (name, value) = (name.clone(), value.clone());
        let from_newest = self.table.relative_index(absolute)?;
        instruction::encode_duplicate(&mut self.instructions, from_newest);
        Some(self.table.insert(name, value, hashes))
    }

    /// Returns the bytes to write on our encoder stream: complete instructions, in order. Empty
    /// until the peer's SETTINGS allow a table.
    pub fn instructions(&mut self) -> &mut BytesMut {
        &mut self.instructions
    }

    /// Returns whether there are [`instructions`](Self::instructions) to write.
    #[must_use]
    pub fn has_instructions(&self) -> bool {
        !self.instructions.is_empty()
    }

    /// Processes the next bytes of the peer's decoder stream, split anywhere.
    ///
    /// # Errors
    ///
    /// `QPACK_DECODER_STREAM_ERROR` if it acknowledges what was not sent.
    pub fn on_decoder_stream(&mut self, bytes: &[u8]) -> Result<(), QpackError> {
        self.acknowledgments(bytes)
            .map_err(|reason| ErrorCode::DecoderStreamError.with_reason(reason))
    }

    fn acknowledgments(&mut self, mut bytes: &[u8]) -> Result<(), Reason> {
        while self.unread_len > 0 {
            let Some((&next, rest)) = bytes.split_first() else {
                return Ok(());
            };
            bytes = rest;
            // An integer is complete or rejected before this is full.
            let Some(slot) = self.unread.get_mut(usize::from(self.unread_len)) else {
                return Err(Reason::IntegerTooLarge);
            };
            *slot = next;
            self.unread_len = self.unread_len.saturating_add(1);
            let unread = self.unread.get(..usize::from(self.unread_len));
            match DecoderInstruction::decode(unread.unwrap_or_default(), 0) {
                Ok((instruction, _)) => {
                    self.unread_len = 0;
                    self.process_instruction(instruction)?;
                }
                Err(Reason::Truncated) => {}
                Err(reason) => return Err(reason),
            }
        }
        let mut at = 0;
        while at < bytes.len() {
            match DecoderInstruction::decode(bytes, at) {
                Ok((instruction, end)) => {
                    at = end;
                    self.process_instruction(instruction)?;
                }
                Err(Reason::Truncated) => {
                    let rest = bytes.get(at..).unwrap_or_default();
                    for (slot, &byte) in self.unread.iter_mut().zip(rest) {
                        *slot = byte;
                        self.unread_len = self.unread_len.saturating_add(1);
                    }
                    return Ok(());
                }
                Err(reason) => return Err(reason),
            }
        }
        Ok(())
    }

    fn process_instruction(&mut self, instruction: DecoderInstruction) -> Result<(), Reason> {
        match instruction {
            DecoderInstruction::SectionAcknowledgment(stream) => {
                let section = self
                    .outstanding
                    .on_acknowledged(stream)
                    .ok_or(Reason::NothingToAcknowledge)?;
                self.table.remove_reference(section.lowest);
                self.on_received(section.required);
            }
            DecoderInstruction::StreamCancellation(stream) => {
                self.cancellations = self.cancellations.saturating_add(1);
                self.on_cancelled(stream);
            }
            DecoderInstruction::InsertCountIncrement(0) => return Err(Reason::ZeroIncrement),
            DecoderInstruction::InsertCountIncrement(more) => {
                let known = self.known.saturating_add(more);
                if known > self.table.insert_count() {
                    return Err(Reason::IncrementPastInserted);
                }
                self.on_received(known);
            }
        }
        Ok(())
    }

    fn on_received(&mut self, known: u64) {
        if known > self.known {
            self.known = known;
            self.outstanding.on_received(known);
        }
    }

    fn on_cancelled(&mut self, stream: u64) {
        for section in self.outstanding.on_cancelled(stream) {
            self.table.remove_reference(section.lowest);
        }
    }

    /// Drops the sections of a stream of which the peer will never see a byte, nor a reset. If it
    /// saw anything of the stream, the peer acknowledges or cancels it, even if we reset it (RFC
    /// 9204 §2.2.2.2).
    pub fn cancel(&mut self, stream_id: u64) {
        self.on_cancelled(stream_id);
    }

    /// Returns how many stream cancellations were received since the last call. Any stream may be
    /// cancelled at any time (RFC 9204 §2.2.2.2).
    pub(crate) fn take_cancellations(&mut self) -> u64 {
        std::mem::take(&mut self.cancellations).into()
    }

    /// Returns the memory in use, in bytes: the table and its indices, unacknowledged sections,
    /// unsent instructions.
    #[must_use]
    #[expect(clippy::arithmetic_side_effects, reason = "sums of sizes in memory")]
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + self.table.memory()
            + self.history.memory()
            + self.outstanding.memory()
            + self.instructions.capacity()
    }

    /// Releases unused capacity, and forgets which fields were sent recently. Entries in the table
    /// stay.
    pub(crate) fn release(&mut self) {
        self.table.shrink();
        self.history = History::new();
        if self.instructions.is_empty() {
            self.instructions = BytesMut::new();
        }
        self.outstanding.release();
    }

    #[cfg(test)]
    pub(super) fn fields(&self) -> Vec<(u64, Bytes, Bytes)> {
        self.table.fields()
    }

    #[cfg(test)]
    pub(super) fn outstanding(&self) -> usize {
        self.outstanding.sections()
    }

    #[cfg(test)]
    pub(super) fn known_received_count(&self) -> u64 {
        self.known
    }
}
