//! Changes of a ClientHello (RFC 8446 §4.1.2) after TLS has written it.
//!
//! The handshake that follows cannot succeed, because the two ends then hash different
//! messages. What is tested is the answer to the ClientHello itself.

use clearway_quic::wire::cursor::Reader;

/// Names of extensions, as scripts write them, and their types (RFC 8446 §4.2, RFC 9001 §8.2).
pub(crate) const EXTENSIONS: &[(&str, u16)] = &[
    ("server_name", 0),
    ("supported_groups", 10),
    ("signature_algorithms", 13),
    ("alpn", 16),
    ("supported_versions", 43),
    ("psk_key_exchange_modes", 45),
    ("key_share", 51),
    ("quic_transport_parameters", 57),
];

/// A change of the ClientHello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HelloEdit {
    /// Leaves an extension out.
    Remove(u16),
    /// Replaces an extension's content, or adds the extension.
    Set(u16, Vec<u8>),
    /// Sends an extension twice.
    Duplicate(u16),
    /// Sets `legacy_session_id`.
    SessionId(Vec<u8>),
    /// Sets `legacy_compression_methods`.
    Compression(Vec<u8>),
    /// Sets the cipher suites.
    Suites(Vec<u8>),
    /// Sends these bytes behind the message.
    Append(Vec<u8>),
    /// Replaces the handshake message's type.
    MessageType(u8),
}

struct ClientHello {
    message_type: u8,
    version_and_random: Vec<u8>,
    session_id: Vec<u8>,
    suites: Vec<u8>,
    compression: Vec<u8>,
    extensions: Vec<(u16, Vec<u8>)>,
    behind: Vec<u8>,
}

/// Returns the message with the changes. `None` if it is not a ClientHello.
pub(crate) fn edit(message: &[u8], edits: &[HelloEdit]) -> Option<Vec<u8>> {
    let mut hello = ClientHello::read(message)?;
    for edit in edits {
        hello.apply(edit);
    }
    Some(hello.write())
}

fn u16_of(reader: &mut Reader<'_>) -> Option<u16> {
    reader.array().map(u16::from_be_bytes)
}

impl ClientHello {
    fn read(message: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(message);
        let message_type = reader.u8()?;
        reader.bytes(3)?;
        let version_and_random = reader.bytes(34)?.to_vec();
        let len = usize::from(reader.u8()?);
        let session_id = reader.bytes(len)?.to_vec();
        let len = usize::from(u16_of(&mut reader)?);
        let suites = reader.bytes(len)?.to_vec();
        let len = usize::from(reader.u8()?);
        let compression = reader.bytes(len)?.to_vec();
        let len = usize::from(u16_of(&mut reader)?);
        let mut inner = Reader::new(reader.bytes(len)?);
        let mut extensions = Vec::new();
        while !inner.is_empty() {
            let kind = u16_of(&mut inner)?;
            let len = usize::from(u16_of(&mut inner)?);
            extensions.push((kind, inner.bytes(len)?.to_vec()));
        }
        Some(Self {
            message_type,
            version_and_random,
            session_id,
            suites,
            compression,
            extensions,
            behind: reader.rest().to_vec(),
        })
    }

    fn apply(&mut self, edit: &HelloEdit) {
        match edit {
            HelloEdit::Remove(kind) => self.extensions.retain(|(other, _)| other != kind),
            HelloEdit::Set(kind, content) => {
                match self.extensions.iter_mut().find(|(other, _)| other == kind) {
                    Some((_, old)) => old.clone_from(content),
                    // In front: a pre_shared_key has to stay the last.
                    None => self.extensions.insert(0, (*kind, content.clone())),
                }
            }
            HelloEdit::Duplicate(kind) => {
                let twice = self.extensions.iter().find(|(other, _)| other == kind);
                if let Some(twice) = twice.cloned() {
                    self.extensions.insert(0, twice);
                }
            }
            HelloEdit::SessionId(id) => self.session_id.clone_from(id),
            HelloEdit::Compression(methods) => self.compression.clone_from(methods),
            HelloEdit::Suites(suites) => self.suites.clone_from(suites),
            HelloEdit::Append(bytes) => self.behind.extend_from_slice(bytes),
            HelloEdit::MessageType(kind) => self.message_type = *kind,
        }
    }

    fn write(&self) -> Vec<u8> {
        let mut body = self.version_and_random.clone();
        body.push(self.session_id.len() as u8);
        body.extend_from_slice(&self.session_id);
        body.extend((self.suites.len() as u16).to_be_bytes());
        body.extend_from_slice(&self.suites);
        body.push(self.compression.len() as u8);
        body.extend_from_slice(&self.compression);
        let mut extensions = Vec::new();
        for (kind, content) in &self.extensions {
            extensions.extend(kind.to_be_bytes());
            extensions.extend((content.len() as u16).to_be_bytes());
            extensions.extend_from_slice(content);
        }
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend_from_slice(&extensions);
        let mut out = vec![self.message_type];
        out.extend_from_slice(&(body.len() as u32).to_be_bytes()[1..]);
        out.extend_from_slice(&body);
        out.extend_from_slice(&self.behind);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Vec<u8> {
        ClientHello {
            message_type: 1,
            version_and_random: vec![3; 34],
            session_id: vec![],
            suites: vec![0x13, 0x01],
            compression: vec![0],
            extensions: vec![(43, vec![2, 3, 4]), (57, vec![9; 20])],
            behind: vec![],
        }
        .write()
    }

    #[test]
    fn unchanged_message_is_written_as_read() {
        assert_eq!(edit(&message(), &[]).unwrap(), message());
        assert_eq!(edit(&message()[..50], &[]), None);
    }

    #[test]
    fn every_edit_changes_the_message() {
        for change in [
            HelloEdit::Remove(57),
            HelloEdit::Set(57, vec![1]),
            HelloEdit::Set(16, vec![1]),
            HelloEdit::Duplicate(43),
            HelloEdit::SessionId(vec![5; 32]),
            HelloEdit::Compression(vec![1]),
            HelloEdit::Suites(vec![0x13, 0x02]),
            HelloEdit::Append(vec![24, 0, 0, 1, 0]),
            HelloEdit::MessageType(2),
        ] {
            let edited = edit(&message(), std::slice::from_ref(&change)).unwrap();
            assert_ne!(edited, message(), "{change:?}");
            assert!(ClientHello::read(&edited).is_some(), "{change:?}");
        }
    }
}
