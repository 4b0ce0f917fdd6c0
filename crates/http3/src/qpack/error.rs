//! What goes wrong, and on which of the three kinds of stream it did.

use std::fmt;

/// The error code a QPACK failure closes the connection with
/// (RFC 9204 §6, RFC 9114 §8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// `QPACK_DECOMPRESSION_FAILED`: a field section cannot be interpreted.
    DecompressionFailed,
    /// `QPACK_ENCODER_STREAM_ERROR`: the peer's encoder stream is at fault.
    EncoderStreamError,
    /// `QPACK_DECODER_STREAM_ERROR`: the peer's decoder stream is at fault.
    DecoderStreamError,
    /// `H3_EXCESSIVE_LOAD`: the peer has us owe it more than we keep.
    ExcessiveLoad,
}

impl ErrorCode {
    /// The code as it goes on the wire.
    #[must_use]
    pub const fn code(self) -> u64 {
        match self {
            Self::DecompressionFailed => 0x0200,
            Self::EncoderStreamError => 0x0201,
            Self::DecoderStreamError => 0x0202,
            Self::ExcessiveLoad => 0x0107,
        }
    }

    pub(super) const fn because(self, reason: Reason) -> QpackError {
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

/// A connection error: nothing that depends on the dynamic table can be
/// trusted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}")]
pub struct QpackError {
    /// What the connection is closed with.
    pub code: ErrorCode,
    /// What the peer did.
    pub reason: Reason,
}

/// What the peer did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The section ends inside a field line or its prefix.
    #[error("it ends in the middle")]
    Truncated,
    /// An integer above 2^62 - 1, or in more bytes than one needs (RFC 7541 §5.1).
    #[error("an integer is above 2^62 - 1 or longer than that takes")]
    IntegerTooLarge,
    /// The end-of-string symbol inside a string (RFC 7541 §5.2).
    #[error("a Huffman string contains EOS")]
    HuffmanEos,
    /// More than 7 bits of padding, or padding that is not all ones.
    #[error("a Huffman string is padded with more than 7 bits or with zeros")]
    HuffmanPadding,
    /// The static table ends at index 98 (RFC 9204 §3.1).
    #[error("no static table entry has this index")]
    StaticIndex,
    /// Before the first entry, not inserted yet, or evicted (RFC 9204 §2.2.3).
    #[error("no dynamic table entry has this index, or no longer")]
    DynamicIndex,
    /// An entry at or past the section's Required Insert Count (RFC 9204 §2.2.3).
    #[error("a field line refers past the Required Insert Count")]
    PastRequiredInsertCount,
    /// Not one a conformant encoder produces (RFC 9204 §4.5.1.1).
    #[error("the Required Insert Count is impossible")]
    RequiredInsertCount,
    /// The Base would be negative (RFC 9204 §4.5.1.2).
    #[error("the Base is negative")]
    NegativeBase,
    /// More streams wait for insertions than allowed (RFC 9204 §2.1.2).
    #[error("more streams are blocked than SETTINGS_QPACK_BLOCKED_STREAMS")]
    BlockedStreams,
    /// Above `SETTINGS_QPACK_MAX_TABLE_CAPACITY` (RFC 9204 §4.3.1).
    #[error("the table capacity is above SETTINGS_QPACK_MAX_TABLE_CAPACITY")]
    Capacity,
    /// The entry does not fit the whole table (RFC 9204 §3.2.2).
    #[error("an entry is larger than the dynamic table")]
    EntryTooLarge,
    /// An Insert Count Increment of zero (RFC 9204 §4.4.3).
    #[error("an Insert Count Increment is zero")]
    ZeroIncrement,
    /// An Insert Count Increment past what was inserted (RFC 9204 §4.4.3).
    #[error("an Insert Count Increment acknowledges insertions never made")]
    IncrementPastInserted,
    /// A Section Acknowledgment with nothing outstanding (RFC 9204 §4.4.1).
    #[error("a Section Acknowledgment for a stream that waits for none")]
    NothingToAcknowledge,
    /// The remembered capacity of 0-RTT was taken back (RFC 9204 §3.2.3).
    #[error("SETTINGS_QPACK_MAX_TABLE_CAPACITY differs from the remembered one")]
    CapacityChanged,
    /// The decoder stream is not given credit while sections keep coming
    /// (RFC 9204 §7.3).
    #[error("too many decoder instructions wait for the peer to read them")]
    UnreadInstructions,
}
