//! The server's side of a raw request.

use clearway::{RecvStream, SendStream, WriteError};

use super::pattern;
use super::request::Reader;
use crate::failure::{Failure, Kind};

/// Maximum number of bytes read from a stream at once.
const MOST: usize = 1 << 20;

/// The error code for a client whose request is too short (application-defined, RFC 9000 §20.2).
const BAD_REQUEST: u64 = 1;

/// The result of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServedRequest {
    /// Bytes of content handed to the transport.
    pub(crate) bytes: u64,
    /// Bytes uploaded after the request.
    pub(crate) uploaded: u64,
    /// Whether the client stopped reading before the end.
    pub(crate) stopped: bool,
}

/// Reads a request to its end and responds.
///
/// # Errors
/// If the request is invalid, or the connection ends first.
pub(crate) async fn answer(
    mut send: SendStream,
    mut recv: RecvStream,
) -> Result<ServedRequest, Failure> {
    let mut reader = Reader::default();
    let broken = |error: &dyn std::error::Error| Failure::caused(Kind::Connection, "stream", error);
    while let Some(chunk) = recv.read_chunk(MOST).await.map_err(|e| broken(&e))? {
        reader.push(&chunk);
    }
    let Some((request, uploaded)) = reader.finish() else {
        // If the connection is lost the client learns more than this.
        let _ = send.reset(BAD_REQUEST);
        return Err(Failure::new(
            Kind::Content,
            "request truncated: expected 8 bytes",
        ));
    };
    let (bytes, stopped) = match content(&mut send, request.bytes).await {
        Ok(()) => (request.bytes, false),
        Err((sent, error)) if had_enough(&error) => (sent, true),
        Err((_, error)) => return Err(broken(&error)),
    };
    Ok(ServedRequest {
        bytes,
        uploaded,
        stopped,
    })
}

/// Writes `bytes` of content and ends the stream; an error says how many were accepted.
async fn content(send: &mut SendStream, bytes: u64) -> Result<(), (u64, WriteError)> {
    let mut offset = 0;
    while offset < bytes {
        let chunk = pattern::chunk(offset, bytes - offset);
        let len = chunk.len() as u64;
        send.write_chunk(chunk)
            .await
            .map_err(|error| (offset, error))?;
        offset += len;
    }
    send.finish().map_err(|error| (offset, error))
}

/// Whether a write failed because the client stopped reading: it stopped the stream, or closed the
/// connection without an error, which may arrive first.
fn had_enough(error: &WriteError) -> bool {
    use clearway::ConnectionError::PeerApplication;
    matches!(
        error,
        WriteError::Stopped(_) | WriteError::ConnectionLost(PeerApplication { code: 0, .. })
    )
}
