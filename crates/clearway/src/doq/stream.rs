//! Messages on a stream, and error codes (RFC 9250 §4.2, §4.3).

use super::message::MAX_MESSAGE;
use crate::error::{ReadExactError, WriteError};
use crate::stream::{RecvStream, SendStream};

/// An error code of DNS over QUIC (RFC 9250 §8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u64);

impl Code {
    /// DOQ_NO_ERROR: nothing went wrong.
    pub const NO_ERROR: Self = Self(0);
    /// DOQ_INTERNAL_ERROR: the end cannot go on.
    pub const INTERNAL_ERROR: Self = Self(1);
    /// DOQ_PROTOCOL_ERROR: the peer violated RFC 9250.
    pub const PROTOCOL_ERROR: Self = Self(2);
    /// DOQ_REQUEST_CANCELLED: the client does not want the answer any more.
    pub const REQUEST_CANCELLED: Self = Self(3);
    /// DOQ_EXCESSIVE_LOAD: the server has too much to do.
    pub const EXCESSIVE_LOAD: Self = Self(4);
    /// DOQ_UNSPECIFIED_ERROR: any other error.
    pub const UNSPECIFIED_ERROR: Self = Self(5);
}

/// Why a message was not read.
#[derive(Debug)]
pub(super) enum MessageError {
    /// The stream does not have the form of RFC 9250 §4.2.
    Malformed,
    /// The peer reset the stream, or the connection ended.
    Stream(ReadExactError),
}

impl From<ReadExactError> for MessageError {
    fn from(error: ReadExactError) -> Self {
        match error {
            ReadExactError::FinishedEarly(_) => Self::Malformed,
            other => Self::Stream(other),
        }
    }
}

/// Reads a message; `None` at the end of the stream.
pub(super) async fn read(recv: &mut RecvStream) -> Result<Option<Vec<u8>>, MessageError> {
    let mut length = [0; 2];
    match recv.read_exact(&mut length).await {
        Err(ReadExactError::FinishedEarly(0)) => return Ok(None),
        read => read?,
    }
    // Grows with what arrives, so that an announced length holds no memory.
    let mut left = usize::from(u16::from_be_bytes(length));
    let mut message = Vec::new();
    while left > 0 {
        let chunk = recv.read_chunk(left).await;
        let chunk = chunk.map_err(|error| MessageError::Stream(error.into()))?;
        let chunk = chunk.ok_or(MessageError::Malformed)?;
        left = left.saturating_sub(chunk.len());
        message.extend_from_slice(&chunk);
    }
    Ok(Some(message))
}

/// Writes a message, in one piece.
pub(super) async fn write(send: &mut SendStream, message: &[u8]) -> Result<(), WriteError> {
    let message = message
        .get(..message.len().min(MAX_MESSAGE))
        .unwrap_or_default();
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    let mut framed = Vec::with_capacity(message.len().saturating_add(2));
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(message);
    send.write_chunk(framed.into()).await
}
