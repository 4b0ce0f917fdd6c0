//! The stream frames of a sent packet, kept until the packet is acknowledged or lost.

use super::{Directionality, StreamId};

/// One frame that [`fill`](super::Streams::fill) wrote. The caller keeps it with the
/// packet and gives it back to [`on_acked`](super::Streams::on_acked) or
/// [`on_lost`](super::Streams::on_lost).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamContent {
    /// STREAM.
    Data {
        /// The stream.
        id: StreamId,
        /// Offset of the first byte.
        offset: u64,
        /// Bytes of data.
        len: u16,
        /// Whether the FIN bit was set.
        fin: bool,
    },
    /// RESET_STREAM.
    Reset(StreamId),
    /// STOP_SENDING.
    StopSending(StreamId),
    /// MAX_DATA with this limit in bytes.
    MaxData(u64),
    /// MAX_STREAM_DATA with this limit in bytes.
    MaxStreamData(StreamId, u64),
    /// MAX_STREAMS with this count.
    MaxStreams(Directionality, u64),
    /// DATA_BLOCKED at this limit.
    DataBlocked(u64),
    /// STREAM_DATA_BLOCKED at this limit.
    StreamDataBlocked(StreamId, u64),
    /// STREAMS_BLOCKED at this limit.
    StreamsBlocked(Directionality, u64),
}

const _: () = assert!(
    size_of::<StreamContent>() <= 32,
    "kept for every packet in flight"
);
