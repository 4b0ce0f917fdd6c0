//! Errors of QPACK: the error code, and the reason.

use std::fmt;

/// The error code with which a QPACK error closes the connection (RFC 9204 §6, RFC 9114 §8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// `QPACK_DECOMPRESSION_FAILED`: a field section cannot be interpreted.
    DecompressionFailed,
    /// `QPACK_ENCODER_STREAM_ERROR`: an instruction on the peer's encoder stream is invalid.
    EncoderStreamError,
    /// `QPACK_DECODER_STREAM_ERROR`: an instruction on the peer's decoder stream is invalid.
    DecoderStreamError,
    /// `H3_EXCESSIVE_LOAD`: the peer does not read the instructions that we have to send.
    ExcessiveLoad,
}

impl ErrorCode {
    /// Returns the code on the wire.
    #[must_use]
    pub const fn code(self) -> u64 {
        match self {
            Self::DecompressionFailed => 0x0200,
            Self::EncoderStreamError => 0x0201,
            Self::DecoderStreamError => 0x0202,
            Self::ExcessiveLoad => 0x0107,
        }
    }

    pub(super) const fn with_reason(self, reason: Reason) -> QpackError {
        QpackError { code: self, reason }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DecompressionFailed => "QPACK_DECOMPRESSION_FAILED",
            Self::EncoderStreamError => "QPACK_ENCODER_STREAM_ERROR",
            Self::DecoderStreamError => "QPACK_DECODER_STREAM_ERROR",
            Self::ExcessiveLoad => "H3_EXCESSIVE_LOAD",
        })
    }
}

/// A connection error: nothing that depends on the dynamic table can be trusted after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}")]
pub struct QpackError {
    /// The code with which the connection is closed.
    pub code: ErrorCode,
    /// The reason.
    pub reason: Reason,
}

/// The reason of a QPACK error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The field section ends within a field line or its prefix.
    #[error("field section ends within a field line or its prefix")]
    Truncated,
    /// An integer is above 2^62 - 1, or is encoded in too many bytes (RFC 7541 §5.1).
    #[error("integer exceeds 2^62 - 1 or is encoded in too many bytes")]
    IntegerTooLarge,
    /// A Huffman string contains the end-of-string symbol (RFC 7541 §5.2).
    #[error("Huffman string contains the EOS symbol")]
    HuffmanEos,
    /// A Huffman string has more than 7 bits of padding, or padding that is not all ones (RFC 7541
    /// §5.2).
    #[error("Huffman string has more than 7 bits of padding, or padding other than ones")]
    HuffmanPadding,
    /// A static table index is above 98 (RFC 9204 §3.1).
    #[error("static table index exceeds 98")]
    StaticIndex,
    /// A dynamic table index refers to an entry that was never inserted, not inserted yet, or
    /// evicted (RFC 9204 §2.2.3).
    #[error("dynamic table index refers to an entry that does not exist or was evicted")]
    DynamicIndex,
    /// A field line refers to an entry at or beyond the section's Required Insert Count (RFC 9204
    /// §2.2.3).
    #[error("field line refers to an entry beyond the Required Insert Count")]
    PastRequiredInsertCount,
    /// The Required Insert Count is not one that a conformant encoder produces (RFC 9204 §4.5.1.1).
    #[error("invalid Required Insert Count")]
    RequiredInsertCount,
    /// The Base is negative (RFC 9204 §4.5.1.2).
    #[error("negative Base in a field section prefix")]
    NegativeBase,
    /// More streams are blocked than we allow (RFC 9204 §2.1.2).
    #[error("blocked streams exceed SETTINGS_QPACK_BLOCKED_STREAMS")]
    BlockedStreams,
    /// The capacity is above `SETTINGS_QPACK_MAX_TABLE_CAPACITY` (RFC 9204 §4.3.1).
    #[error("dynamic table capacity exceeds SETTINGS_QPACK_MAX_TABLE_CAPACITY")]
    Capacity,
    /// An inserted entry is larger than the table (RFC 9204 §3.2.2).
    #[error("inserted entry is larger than the dynamic table")]
    EntryTooLarge,
    /// An Insert Count Increment is zero (RFC 9204 §4.4.3).
    #[error("Insert Count Increment is zero")]
    ZeroIncrement,
    /// An Insert Count Increment exceeds the insertions that were sent (RFC 9204 §4.4.3).
    #[error("Insert Count Increment exceeds the insertions that were sent")]
    IncrementPastInserted,
    /// A Section Acknowledgment is for a stream without unacknowledged sections (RFC 9204 §4.4.1).
    #[error("Section Acknowledgment for a stream without unacknowledged sections")]
    NothingToAcknowledge,
    /// The capacity differs from the one remembered for 0-RTT (RFC 9204 §3.2.3).
    #[error("SETTINGS_QPACK_MAX_TABLE_CAPACITY differs from the value remembered for 0-RTT")]
    CapacityChanged,
    /// The peer gives the decoder stream no credit while field sections keep arriving (RFC 9204
    /// §7.3).
    #[error("too many decoder instructions that the peer has not read")]
    UnreadInstructions,
}
