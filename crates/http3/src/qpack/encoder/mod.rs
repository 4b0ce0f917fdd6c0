//! The encoding side: fields go in, field sections and our encoder stream come
//! out (RFC 9204 §2.1).

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
use policy::{History, Worth};
use table::{Hashes, Pins, Table};

/// Encoder instructions kept for a peer that gives no credit to send them,
/// bytes: beyond this nothing is inserted (RFC 9204 §2.1.3, §7.3).
const MAX_UNSENT: usize = 16 << 10;

/// An entry takes no more than this share of the table.
const LARGEST_SHARE: usize = 2;

/// An entry for its name alone takes no more than this share.
const LARGEST_NAME_SHARE: usize = 8;

/// Encodes field sections with a table it builds in the peer's decoder.
#[derive(Debug)]
pub struct Encoder {
    /// What we would use of a table, bytes.
    wanted: usize,
    /// The peer's `SETTINGS_QPACK_MAX_TABLE_CAPACITY`, bytes.
    max_capacity: u64,
    table: Table,
    history: History,
    outstanding: Outstanding,
    /// The Known Received Count (RFC 9204 §2.1.4).
    known: u64,
    instructions: BytesMut,
    /// The beginning of a decoder instruction.
    unread: [u8; integer::MAX_LEN],
    unread_len: u8,
    /// Cancellations received and not counted by anybody.
    cancellations: u32,
}

/// A section being encoded.
#[derive(Debug)]
struct Draft {
    stream: u64,
    base: u64,
    /// The Required Insert Count so far.
    required: u64,
    /// The smallest absolute index referred to so far.
    lowest: u64,
    /// References to the dynamic table are allowed at all.
    may_refer: bool,
    /// Those to entries the decoder may not have too, once that was asked.
    may_risk: Option<bool>,
}

impl Encoder {
    /// An encoder that uses the static table alone, until the peer's SETTINGS
    /// allow a dynamic one; of that it will use `max_capacity_wanted` bytes.
    #[must_use]
    pub fn new(max_capacity_wanted: usize) -> Self {
        Self {
            wanted: max_capacity_wanted,
            max_capacity: 0,
            table: Table::new(),
            history: History::new(),
            outstanding: Outstanding::default(),
            known: 0,
            instructions: BytesMut::new(),
            unread: [0; integer::MAX_LEN],
            unread_len: 0,
            cancellations: 0,
        }
    }

    /// The peer's settings (RFC 9204 §5), remembered or received: how large a
    /// table its decoder keeps, in bytes, and how many streams may be blocked.
    ///
    /// # Errors
    ///
    /// `QPACK_DECODER_STREAM_ERROR` if a capacity was remembered for 0-RTT and
    /// the one received is another (RFC 9204 §3.2.3).
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
            return Err(ErrorCode::DecoderStreamError.because(Reason::CapacityChanged));
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

    /// Appends the encoded field section of `fields` for `stream_id`, to be sent
    /// whole on that stream; what it inserts is in [`Self::instructions`].
    pub fn encode<'a>(
        &mut self,
        stream_id: u64,
        fields: impl IntoIterator<Item = FieldRef<'a>>,
        out: &mut Vec<u8>,
    ) {
        let mut draft = Draft {
            stream: stream_id,
            base: self.table.insert_count(),
            required: 0,
            lowest: u64::MAX,
            may_refer: !self.outstanding.is_full(),
            may_risk: None,
        };
        let begin = out.len();
        // The prefix comes first, is known last, and mostly has two bytes.
        out.extend_from_slice(&[0; 2]);
        for field in fields {
            self.line(&field, &mut draft, out);
        }
        let Draft {
            base,
            required,
            lowest,
            ..
        } = draft;
        Prefix { required, base }.encode_over(begin, self.max_capacity, out);
        if required > 0 {
            self.table.hold(lowest);
            self.outstanding
                .sent(stream_id, SentSection { required, lowest }, self.known);
        }
    }

    /// One field line: from the static table, from the dynamic one, inserted
    /// there, or as a literal.
    fn line(&mut self, field: &FieldRef<'_>, draft: &mut Draft, lines: &mut Vec<u8>) {
        let static_name = match static_table::find(field.name, field.value) {
            Match::Field(index) if !field.sensitive => {
                line::encode_indexed(lines, Reference::Static(index.into()));
                return;
            }
            Match::Field(index) | Match::Name(index) => Some(index),
            Match::None => None,
        };
        let worth = policy::worth(static_name, field);
        let mut name = static_name.map(|index| Reference::Static(index.into()));
        if self.table.capacity() > 0 {
            let hashes = Hashes::of(field.name, field.value);
            if worth != Worth::Never
                && let Some(absolute) = self.indexed(field, static_name, hashes, worth, draft)
            {
                line::encode_indexed(lines, Reference::dynamic(absolute, draft.base));
                return;
            }
            name = name.or_else(|| self.named(field, hashes, draft));
        }
        let sensitive = worth == Worth::Never;
        match name {
            Some(name) => line::encode_named(lines, name, field.value, sensitive),
            None => line::encode_literal(lines, field.name, field.value, sensitive),
        }
    }

    /// An entry that is this field and may be referred to, inserted if it is
    /// worth it.
    fn indexed(
        &mut self,
        field: &FieldRef<'_>,
        static_name: Option<u8>,
        hashes: Hashes,
        worth: Worth,
        draft: &mut Draft,
    ) -> Option<u64> {
        let absolute = match self.table.find(hashes, field.name, field.value) {
            Some(absolute) if self.table.is_draining(absolute) => {
                self.duplicate(absolute, draft).unwrap_or(absolute)
            }
            Some(absolute) => absolute,
            None => {
                let repeated = worth == Worth::AtOnce || self.history.note(hashes.field);
                if !repeated {
                    return None;
                }
                self.insert(
                    field.name,
                    field.value,
                    static_name,
                    hashes,
                    self.table.capacity() / LARGEST_SHARE,
                    draft,
                )?
            }
        };
        self.refer(absolute, draft)
    }

    /// An entry that has this name and may be referred to. A name that came
    /// before, with another value, gets one of its own.
    fn named(
        &mut self,
        field: &FieldRef<'_>,
        hashes: Hashes,
        draft: &mut Draft,
    ) -> Option<Reference> {
        let found = self.table.find_name(hashes, field.name);
        let absolute = match found.filter(|&absolute| !self.table.is_draining(absolute)) {
            Some(absolute) => absolute,
            None if self.history.note(hashes.name) => {
                let hashes = Hashes::of(field.name, b"");
                let largest = self.table.capacity() / LARGEST_NAME_SHARE;
                self.insert(field.name, b"", None, hashes, largest, draft)?
            }
            None => return None,
        };
        let absolute = self.refer(absolute, draft)?;
        Some(Reference::dynamic(absolute, draft.base))
    }

    /// Notes a reference to this entry if one may be made: without risk, or
    /// where it may be taken (RFC 9204 §2.1.2).
    fn refer(&self, absolute: u64, draft: &mut Draft) -> Option<u64> {
        let outstanding = &self.outstanding;
        let allowed = draft.may_refer
            && (absolute < self.known
                || *draft
                    .may_risk
                    .get_or_insert_with(|| outstanding.may_risk(draft.stream)));
        if !allowed {
            return None;
        }
        draft.required = draft.required.max(absolute.saturating_add(1));
        draft.lowest = draft.lowest.min(absolute);
        Some(absolute)
    }

    /// Whether an entry of this size can be inserted now.
    fn may_insert(&self, size: usize, draft: &Draft) -> bool {
        let pins = Pins {
            known: self.known,
            lowest: draft.lowest,
        };
        self.instructions.len() < MAX_UNSENT && self.table.has_room(size, pins)
    }

    fn insert(
        &mut self,
        name: &[u8],
        value: &[u8],
        static_name: Option<u8>,
        hashes: Hashes,
        largest: usize,
        draft: &Draft,
    ) -> Option<u64> {
        let size = field::size(name, value);
        if size > largest || !self.may_insert(size, draft) {
            return None;
        }
        let out = &mut self.instructions;
        let held = if let Some(index) = static_name {
            instruction::encode_insert_named(out, NameReference::Static(index.into()), value);
            static_table::name(index.into())?
        } else if let Some(absolute) = self.table.find_name(hashes, name) {
            // The entry may leave for this one (RFC 9204 §3.2.2).
            let from_newest = self.table.below_newest(absolute)?;
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

    /// A fresh copy of an entry that is to leave (RFC 9204 §2.1.1.1).
    fn duplicate(&mut self, absolute: u64, draft: &Draft) -> Option<u64> {
        let (name, value, hashes) = self.table.get(absolute)?;
        if !self.may_insert(field::size(name, value), draft) {
            return None;
        }
        let (name, value) = (name.clone(), value.clone());
        let from_newest = self.table.below_newest(absolute)?;
        instruction::encode_duplicate(&mut self.instructions, from_newest);
        Some(self.table.insert(name, value, hashes))
    }

    /// What is to be written on our encoder stream, whole instructions, in
    /// order. Before the peer's SETTINGS allow a table it is empty.
    pub fn instructions(&mut self) -> &mut BytesMut {
        &mut self.instructions
    }

    /// Takes what came next on the peer's decoder stream, cut anywhere.
    ///
    /// # Errors
    ///
    /// `QPACK_DECODER_STREAM_ERROR` if it acknowledges what was never sent.
    pub fn on_decoder_stream(&mut self, bytes: &[u8]) -> Result<(), QpackError> {
        self.acknowledgments(bytes)
            .map_err(|reason| ErrorCode::DecoderStreamError.because(reason))
    }

    fn acknowledgments(&mut self, mut bytes: &[u8]) -> Result<(), Reason> {
        while self.unread_len > 0 {
            let Some((&next, rest)) = bytes.split_first() else {
                return Ok(());
            };
            bytes = rest;
            // An integer is whole or refused before this is full.
            let Some(slot) = self.unread.get_mut(usize::from(self.unread_len)) else {
                return Err(Reason::IntegerTooLarge);
            };
            *slot = next;
            self.unread_len = self.unread_len.saturating_add(1);
            let unread = self.unread.get(..usize::from(self.unread_len));
            match DecoderInstruction::decode(unread.unwrap_or_default(), 0) {
                Ok((instruction, _)) => {
                    self.unread_len = 0;
                    self.obey(instruction)?;
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
                    self.obey(instruction)?;
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

    fn obey(&mut self, instruction: DecoderInstruction) -> Result<(), Reason> {
        match instruction {
            DecoderInstruction::SectionAcknowledgment(stream) => {
                let section = self
                    .outstanding
                    .acknowledged(stream)
                    .ok_or(Reason::NothingToAcknowledge)?;
                self.table.release(section.lowest);
                self.received(section.required);
            }
            DecoderInstruction::StreamCancellation(stream) => {
                self.cancellations = self.cancellations.saturating_add(1);
                self.forget(stream);
            }
            DecoderInstruction::InsertCountIncrement(0) => return Err(Reason::ZeroIncrement),
            DecoderInstruction::InsertCountIncrement(more) => {
                let known = self.known.saturating_add(more);
                if known > self.table.insert_count() {
                    return Err(Reason::IncrementPastInserted);
                }
                self.received(known);
            }
        }
        Ok(())
    }

    fn received(&mut self, known: u64) {
        if known > self.known {
            self.known = known;
            self.outstanding.received(known);
        }
    }

    fn forget(&mut self, stream: u64) {
        for section in self.outstanding.cancelled(stream) {
            self.table.release(section.lowest);
        }
    }

    /// Forgets the sections of a stream of which the peer will never see a byte,
    /// nor a reset. One it saw anything of is its to acknowledge or cancel, also
    /// if we reset it (RFC 9204 §2.2.2.2).
    pub fn cancel(&mut self, stream_id: u64) {
        self.forget(stream_id);
    }

    /// Cancellations on the decoder stream since the last call: any stream may be
    /// cancelled at any time (RFC 9204 §2.2.2.2).
    pub fn take_cancellations(&mut self) -> u64 {
        std::mem::take(&mut self.cancellations).into()
    }

    /// Bytes held: the table and its indices, unacknowledged sections, unsent
    /// instructions.
    #[must_use]
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "sizes of what is in memory together"
    )]
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + self.table.memory()
            + self.history.memory()
            + self.outstanding.memory()
            + self.instructions.capacity()
    }

    /// Gives back room that holds nothing, and forgets which fields were sent
    /// lately: what is in the table stays.
    pub fn release(&mut self) {
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
    pub(super) fn known_received(&self) -> u64 {
        self.known
    }
}
