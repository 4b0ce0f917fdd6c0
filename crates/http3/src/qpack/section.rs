//! Decoding of field sections (RFC 9204 §4.5).

use bytes::{Bytes, BytesMut};

use super::dynamic_table::{DynamicTable, Entry};
use super::error::Reason;
use super::field::{FIELD_OVERHEAD, Field};
use super::line::{FieldLine, Reference};
use super::prefix::Prefix;
use super::string::StringLiteral;
use super::{huffman, static_table};

/// The initial capacity of a list of fields.
const INITIAL_FIELDS: usize = 16;

/// An encoded field section whose prefix was decoded.
#[derive(Debug)]
pub(super) struct EncodedSection {
    pub(super) bytes: Bytes,
    pub(super) prefix: Prefix,
    /// Where the prefix ends.
    pub(super) lines_at: usize,
}

impl EncodedSection {
    /// Decodes the fields. Returns `None` if they exceed `max_size` bytes (RFC 9114 §4.2.2). All
    /// references are checked either way.
    pub(super) fn read(
        &self,
        table: &DynamicTable<()>,
        max_size: u64,
    ) -> Result<Option<Vec<Field>>, Reason> {
        let mut reader = SectionReader {
            section: self,
            table,
            left: usize::try_from(max_size).unwrap_or(usize::MAX),
            strings: BytesMut::new(),
        };
        // A field line has at least one byte.
        let lines = self.bytes.len().saturating_sub(self.lines_at);
        let mut fields = Some(Vec::with_capacity(lines.min(INITIAL_FIELDS)));
        let mut at = self.lines_at;
        while at < self.bytes.len() {
            let (line, end) = FieldLine::decode(&self.bytes, at)?;
            at = end;
            match &mut fields {
                Some(list) => match reader.field(line, at)? {
                    Some(field) => list.push(field),
                    // From here on, lines are only checked.
                    None => fields = None,
                },
                None => reader.check(line)?,
            }
        }
        Ok(fields)
    }
}

struct SectionReader<'a> {
    section: &'a EncodedSection,
    table: &'a DynamicTable<()>,
    /// How many more bytes the fields may count.
    left: usize,
    /// Memory for Huffman-coded strings, one allocation for all.
    strings: BytesMut,
}

impl SectionReader<'_> {
    /// Decodes the field of a line. Returns `None`, without allocating for it, if it exceeds the
    /// limit.
    fn field(&mut self, line: FieldLine, end: usize) -> Result<Option<Field>, Reason> {
        let field = match line {
            FieldLine::Indexed(Reference::Static(index)) => {
                static_table::get(index).ok_or(Reason::StaticIndex)?
            }
            FieldLine::Indexed(reference @ (Reference::Relative(_) | Reference::PostBase(_))) => {
                let entry = self.entry(reference)?;
                Field {
                    name: entry.name.clone(),
                    value: entry.value.clone(),
                    sensitive: false,
                }
            }
            FieldLine::NamedValue {
                name,
                value,
                sensitive,
            } => {
                let name = self.name(name)?;
                let Some(value) = self.text(value, name.len(), end)? else {
                    return Ok(None);
                };
                Field {
                    name,
                    value,
                    sensitive,
                }
            }
            FieldLine::Literal {
                name,
                value,
                sensitive,
            } => {
                let Some(name) = self.text(name, 0, end)? else {
                    return Ok(None);
                };
                let Some(value) = self.text(value, name.len(), end)? else {
                    return Ok(None);
                };
                Field {
                    name,
                    value,
                    sensitive,
                }
            }
        };
        let size = super::field::size(&field.name, &field.value);
        match self.left.checked_sub(size) {
            Some(left) => {
                self.left = left;
                Ok(Some(field))
            }
            None => Ok(None),
        }
    }

    /// Checks the references of a line without decoding the field.
    fn check(&self, line: FieldLine) -> Result<(), Reason> {
        match line {
            FieldLine::Indexed(name) | FieldLine::NamedValue { name, .. } => {
                self.name(name).map(|_| ())
            }
            FieldLine::Literal { .. } => Ok(()),
        }
    }

    fn name(&self, reference: Reference) -> Result<Bytes, Reason> {
        match reference {
            Reference::Static(index) => static_table::name(index).ok_or(Reason::StaticIndex),
            Reference::Relative(_) | Reference::PostBase(_) => {
                self.entry(reference).map(|entry| entry.name.clone())
            }
        }
    }

    /// Returns the entry that a reference means, which must exist and be below the Required Insert
    /// Count (RFC 9204 §2.2.3).
    fn entry(&self, reference: Reference) -> Result<&Entry<()>, Reason> {
        let Prefix { required, base } = self.section.prefix;
        let absolute = match reference {
            Reference::Static(_) => return Err(Reason::StaticIndex),
            Reference::Relative(index) => base
                .checked_sub(index)
                .and_then(|above| above.checked_sub(1)),
            Reference::PostBase(index) => base.checked_add(index),
        };
        let absolute = absolute.ok_or(Reason::DynamicIndex)?;
        if absolute >= required {
            return Err(Reason::PastRequiredInsertCount);
        }
        self.table.get(absolute).ok_or(Reason::DynamicIndex)
    }

    /// Decodes a string of a field whose name has `name` bytes. Returns `None` if it exceeds the
    /// limit.
    fn text(
        &mut self,
        literal: StringLiteral,
        name: usize,
        end: usize,
    ) -> Result<Option<Bytes>, Reason> {
        let Some(limit) = self.left.checked_sub(name.saturating_add(FIELD_OVERHEAD)) else {
            return Ok(None);
        };
        let bytes = &self.section.bytes;
        if !literal.huffman {
            let range = literal.range(bytes)?;
            return Ok((literal.len <= limit).then(|| bytes.slice(range)));
        }
        if self.strings.capacity() == 0 {
            // For this string and all that can follow.
            let follows = bytes.len().saturating_sub(end);
            let coded = literal.len.saturating_add(follows);
            let text = huffman::decoded_len(coded).1.min(limit);
            self.strings.reserve(text.saturating_add(2));
        }
        let whole = literal.decode_into(bytes, limit, &mut self.strings)?;
        Ok(whole.then(|| self.strings.split().freeze()))
    }
}
