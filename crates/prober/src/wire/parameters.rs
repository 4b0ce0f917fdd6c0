//! Transport parameters as a list of identifiers and values, right or wrong (RFC 9000 §18).

use clearway_quic::wire::cursor::Reader;

use super::{put_prefixed, put_varint};

/// Names of the parameters, as scripts write them, and their identifiers.
pub(crate) const NAMES: &[(&str, u64)] = &[
    ("original_destination_connection_id", 0x00),
    ("max_idle_timeout", 0x01),
    ("stateless_reset_token", 0x02),
    ("max_udp_payload_size", 0x03),
    ("initial_max_data", 0x04),
    ("initial_max_stream_data_bidi_local", 0x05),
    ("initial_max_stream_data_bidi_remote", 0x06),
    ("initial_max_stream_data_uni", 0x07),
    ("initial_max_streams_bidi", 0x08),
    ("initial_max_streams_uni", 0x09),
    ("ack_delay_exponent", 0x0a),
    ("max_ack_delay", 0x0b),
    ("disable_active_migration", 0x0c),
    ("preferred_address", 0x0d),
    ("active_connection_id_limit", 0x0e),
    ("initial_source_connection_id", 0x0f),
    ("retry_source_connection_id", 0x10),
    ("version_information", 0x11),
    ("max_datagram_frame_size", 0x20),
];

/// A change of the parameters that a client sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ParameterEdit {
    /// Replaces the value, or adds the parameter.
    Set(u64, Vec<u8>),
    /// Leaves the parameter out.
    Remove(u64),
    /// Sends the parameter twice.
    Duplicate(u64),
    /// Appends bytes behind the last parameter.
    Trailing(Vec<u8>),
}

/// The parameters of one end, in the order in which they are sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters {
    list: Vec<(u64, Vec<u8>)>,
    trailing: Vec<u8>,
}

/// Returns a variable-length integer as a parameter's value.
pub(crate) fn integer(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, value);
    out
}

impl Parameters {
    /// Returns what an ordinary client sends: windows of 1 MiB a stream and 16 MiB in all, which
    /// no answer to a case exceeds.
    pub(crate) fn ordinary(source_cid: &[u8]) -> Self {
        let numbers = [
            (0x01, 30_000),
            (0x03, 1_472),
            (0x04, 16 << 20),
            (0x05, 1 << 20),
            (0x06, 1 << 20),
            (0x07, 1 << 20),
            (0x08, 16),
            (0x09, 16),
            (0x0e, 4),
            (0x20, 65_535),
        ];
        let mut list: Vec<_> = numbers.map(|(id, value)| (id, integer(value))).into();
        list.push((0x0f, source_cid.to_vec()));
        Self {
            list,
            trailing: Vec::new(),
        }
    }

    /// Applies a change.
    pub(crate) fn edit(&mut self, edit: &ParameterEdit) {
        match edit {
            ParameterEdit::Set(id, value) => self.set(*id, value.clone()),
            ParameterEdit::Remove(id) => self.list.retain(|(other, _)| other != id),
            ParameterEdit::Duplicate(id) => {
                let twice = self.list.iter().find(|(other, _)| other == id).cloned();
                self.list.push(twice.unwrap_or((*id, Vec::new())));
            }
            ParameterEdit::Trailing(bytes) => self.trailing.extend_from_slice(bytes),
        }
    }

    /// Sets a parameter.
    pub(crate) fn set(&mut self, id: u64, value: Vec<u8>) {
        match self.list.iter_mut().find(|(other, _)| *other == id) {
            Some((_, old)) => *old = value,
            None => self.list.push((id, value)),
        }
    }

    /// Returns the wire form.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (id, value) in &self.list {
            put_varint(&mut out, *id);
            put_prefixed(&mut out, value);
        }
        out.extend_from_slice(&self.trailing);
        out
    }

    /// Reads the peer's parameters, as far as they are well-formed.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let mut reader = Reader::new(bytes);
        let mut list = Vec::new();
        let mut next = || {
            let id = reader.varint()?;
            let len = usize::try_from(reader.varint()?).ok()?;
            Some((id, reader.bytes(len)?.to_vec()))
        };
        while let Some(parameter) = next() {
            list.push(parameter);
        }
        Self {
            list,
            trailing: Vec::new(),
        }
    }

    /// Returns a parameter's bytes.
    pub(crate) fn get(&self, id: u64) -> Option<&[u8]> {
        let found = self.list.iter().find(|(other, _)| *other == id);
        found.map(|(_, value)| value.as_slice())
    }

    /// Returns a parameter that is an integer, or its default 0.
    pub(crate) fn integer(&self, id: u64) -> u64 {
        let value = self.get(id).unwrap_or_default();
        Reader::new(value).varint().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_edit_changes_what_is_sent() {
        let plain = Parameters::ordinary(b"12345678");
        let edits = [
            ParameterEdit::Set(0x03, integer(1_199)),
            ParameterEdit::Set(0x77, vec![]),
            ParameterEdit::Remove(0x0f),
            ParameterEdit::Duplicate(0x01),
            ParameterEdit::Trailing(vec![0x40]),
        ];
        for edit in edits {
            let mut changed = plain.clone();
            changed.edit(&edit);
            assert_ne!(changed.encode(), plain.encode(), "{edit:?}");
        }
        let read = Parameters::decode(&plain.encode());
        assert_eq!(
            (read.integer(0x04), read.get(0x0f)),
            (16 << 20, Some(&b"12345678"[..]))
        );
        assert_eq!(read.integer(0x0c), 0);
    }
}
