//! The fields of a header that can be read once header protection has been removed.

use super::{KEY_PHASE, LONG_RESERVED, NUMBER_LEN, SHORT_RESERVED};
use crate::error::{Code, TransportError};
use crate::wire::packet::LONG;
use crate::wire::{Reader, TruncatedNumber};

/// The fields of a header that header protection hides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnprotectedHeader {
    /// The low bytes of the packet number.
    pub number: TruncatedNumber,
    /// The key phase bit (RFC 9001 §6); false in long headers.
    pub key_phase: bool,
    /// Bytes of the header with the packet number: the associated data of the
    /// AEAD, after which the protected payload starts.
    pub header_len: usize,
    reserved: u8,
}

impl UnprotectedHeader {
    /// Reads the fields from `packet` after header protection has been removed. The packet number
    /// starts at `number_at`. Returns `None` if the packet ends before that.
    #[must_use]
    pub fn read(packet: &[u8], number_at: usize) -> Option<Self> {
        let first = *packet.first()?;
        let len = usize::from(first & NUMBER_LEN).saturating_add(1);
        let number = TruncatedNumber::read(&mut Reader::new(packet.get(number_at..)?), len)?;
        let long = first & LONG != 0;
        Some(Self {
            number,
            key_phase: !long && first & KEY_PHASE != 0,
            header_len: number_at.saturating_add(len),
            reserved: first & if long { LONG_RESERVED } else { SHORT_RESERVED },
        })
    }

    /// Checks that the reserved bits are zero. Call it only after the packet has been
    /// authenticated; an earlier check would let an attacker probe header protection
    /// (RFC 9001 §9.5).
    ///
    /// # Errors
    /// PROTOCOL_VIOLATION (RFC 9000 §17.2, §17.3.1).
    pub fn check_reserved(&self) -> Result<(), TransportError> {
        if self.reserved == 0 {
            Ok(())
        } else {
            Err(TransportError::new(
                Code::PROTOCOL_VIOLATION,
                "reserved header bits are not zero",
            ))
        }
    }
}
