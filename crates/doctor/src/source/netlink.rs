//! Messages and attributes of netlink.
//!
//! Only what is read here: headers, and attributes (type, length, value, padded to four bytes;
//! include/uapi/linux/netlink.h). Everything is taken from slices with bounds checked.

use crate::error::ParseError;

/// Message type: the last of an answer in several parts.
const DONE: u16 = 3;
/// Message type: an error, or an acknowledgement.
const ERROR: u16 = 2;
/// Length of a message's header.
pub const HEADER: usize = 16;

/// A message of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// What it is, in the numbering of its protocol.
    pub kind: u16,
    /// What follows the header.
    pub body: &'a [u8],
}

/// What a datagram of netlink ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// More is to come.
    More,
    /// The answer is complete.
    Done,
    /// The kernel refused with this errno.
    Refused(i32),
}

/// Splits a datagram, or several in sequence, into messages.
///
/// # Errors
/// If a header's length does not fit.
pub fn messages(mut bytes: &[u8]) -> Result<(Vec<Message<'_>>, End), ParseError> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let wrong = || ParseError::new("a netlink message", &format!("{} bytes", bytes.len()));
        let length = u32_at(bytes, 0).ok_or_else(wrong)? as usize;
        let kind = u16_at(bytes, 4).ok_or_else(wrong)?;
        let body = bytes.get(HEADER..length).ok_or_else(wrong)?;
        match kind {
            DONE => return Ok((found, End::Done)),
            ERROR => {
                let errno = u32_at(body, 0).map_or(0, u32::cast_signed);
                return Ok((found, End::Refused(errno.saturating_neg())));
            }
            kind => found.push(Message { kind, body }),
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok((found, End::More))
}

/// Iterates over the attributes in these bytes. It ends where the rest is not an attribute.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        // The two highest bits are flags: nested, network byte order.
        let kind = u16_at(bytes, 2)? & 0x3fff;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Returns the first attribute of a type.
pub fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find_map(|(found, value)| (found == kind).then_some(value))
}

/// Reads text that ends with a zero byte or with the bytes, made safe for terminals.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    super::clean(&String::from_utf8_lossy(
        bytes.get(..end).unwrap_or_default(),
    ))
}

/// Reads a number of 16 bits in the host's byte order.
#[must_use]
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Reads a number of 32 bits in the host's byte order.
#[must_use]
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Reads a number of 64 bits in the host's byte order.
#[must_use]
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Reads a number of 32 bits in network byte order.
#[must_use]
pub fn be32(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.first_chunk()?))
}

/// Reads a number of 64 bits in network byte order.
#[must_use]
pub fn be64(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.first_chunk()?))
}

/// Writes a request for a dump: all objects of a kind.
#[must_use]
pub fn dump_request(kind: u16, body: &[u8]) -> Vec<u8> {
    /// `NLM_F_REQUEST | NLM_F_DUMP`
    const FLAGS: u16 = 0x301;
    let length = HEADER.saturating_add(body.len());
    let mut request = Vec::with_capacity(length);
    request.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    request.extend_from_slice(&kind.to_ne_bytes());
    request.extend_from_slice(&FLAGS.to_ne_bytes());
    request.extend_from_slice(&1_u32.to_ne_bytes());
    request.extend_from_slice(&0_u32.to_ne_bytes());
    request.extend_from_slice(body);
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_with_done_or_with_an_errno() {
        let mut bytes = dump_request(20, &[1, 2, 3, 4]);
        bytes.extend(dump_request(DONE, &[0; 4]));
        let (found, end) = messages(&bytes).unwrap();
        assert_eq!(
            found,
            [Message {
                kind: 20,
                body: &[1, 2, 3, 4]
            }]
        );
        assert_eq!(end, End::Done);
        let refusal = dump_request(ERROR, &(-1_i32).to_ne_bytes());
        assert_eq!(messages(&refusal).unwrap().1, End::Refused(1));
    }

    #[test]
    fn truncated_messages_are_errors_and_truncated_attributes_are_left_out() {
        let bytes = dump_request(20, &[0; 8]);
        assert!(messages(&bytes[..20]).is_err());
        assert!(messages(&[0; 16]).is_err());
        let value = [8, 0, 1, 0, 9, 9, 9, 9, 200, 0, 2, 0, 1];
        assert_eq!(attributes(&value).count(), 1);
        assert_eq!(attributes(&[0; 8]).count(), 0);
    }
}
