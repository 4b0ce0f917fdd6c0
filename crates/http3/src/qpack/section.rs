//! An encoded field section on its way to fields (RFC 9204 §4.5).

use bytes::{Bytes, BytesMut};

use super::dynamic_table::{DynamicTable, Entry};
use super::error::Reason;
use super::field::{FIELD_OVERHEAD, Field};
use super::line::{Line, Reference};
use super::prefix::Prefix;
use super::string::Literal;
use super::{huffman, static_table};

/// Fields a list has room for from the start.
const USUAL_FIELDS: usize = 16;

/// A section whose prefix was read.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) bytes: Bytes,
    pub(super) prefix: Prefix,
    /// Where the prefix ends.
    pub(super) lines_at: usize,
}

impl Section {
    /// Its fields, or `None` if they are larger than `max_size` (RFC 9114
    /// §4.2.2). All references are checked either way.
    pub(super) fn read(
        &self,
        table: &DynamicTable<()>,
        max_size: u64,
    ) -> Result<Option<Vec<Field>>, Reason> {
        let mut reader = Reader {
            section: self,
            table,
            left: usize::try_from(max_size).unwrap_or(usize::MAX),
            texts: BytesMut::new(),
        };
        // A line has a byte at least.
        let lines = self.bytes.len().saturating_sub(self.lines_at);
        let mut fields = Some(Vec::with_capacity(lines.min(USUAL_FIELDS)));
        let mut at = self.lines_at;
        while at < self.bytes.len() {
            let (line, end) = Line::decode(&self.bytes, at)?;
            at = end;
            match &mut fields {
                Some(list) => match reader.field(line, at)? {
                    Some(field) => list.push(field),
                    // Nothing is gathered from here on.
                    None => fields = None,
                },
                None => reader.check(line)?,
            }
        }
        Ok(fields)
    }
}

struct Reader<'a> {
    section: &'a Section,
    table: &'a DynamicTable<()>,
    /// What more the fields may count.
    left: usize,
    /// Room for texts that were Huffman coded, one piece of memory for all.
    texts: BytesMut,
}

impl Reader<'_> {
    /// The field of a line, or `None` if it does not fit the limit; then no
    /// memory was taken for it.
    fn field(&mut self, line: Line, end: usize) -> Result<Option<Field>, Reason> {
        let field = match line {
            Line::Indexed(Reference::Static(index)) => {
                static_table::get(index).ok_or(Reason::StaticIndex)?
            }
            Line::Indexed(reference @ (Reference::Relative(_) | Reference::PostBase(_))) => {
                let entry = self.entry(reference)?;
                Field {
                    name: entry.name.clone(),
                    value: entry.value.clone(),
                    sensitive: false,
                }
            }
            Line::NamedValue {
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
            Line::Literal {
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

    /// The same checks of the table, without a field.
    fn check(&self, line: Line) -> Result<(), Reason> {
        match line {
            Line::Indexed(name) | Line::NamedValue { name, .. } => self.name(name).map(|_| ()),
            Line::Literal { .. } => Ok(()),
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

    /// RFC 9204 §2.2.3: an entry that is there, below the Required Insert Count.
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

    /// A text of a field that has `name` bytes besides, or `None` if it is past
    /// the limit.
    fn text(&mut self, literal: Literal, name: usize, end: usize) -> Result<Option<Bytes>, Reason> {
        let Some(limit) = self.left.checked_sub(name.saturating_add(FIELD_OVERHEAD)) else {
            return Ok(None);
        };
        let bytes = &self.section.bytes;
        if !literal.huffman {
            let range = literal.range(bytes)?;
            return Ok((literal.len <= limit).then(|| bytes.slice(range)));
        }
        if self.texts.capacity() == 0 {
            // For this one and all that can follow.
            let follows = bytes.len().saturating_sub(end);
            let coded = literal.len.saturating_add(follows);
            let text = huffman::decoded_len(coded).1.min(limit);
            self.texts.reserve(text.saturating_add(2));
        }
        let whole = literal.append(bytes, limit, &mut self.texts)?;
        Ok(whole.then(|| self.texts.split().freeze()))
    }
}
