//! Capsules read from the receiving half of a tunnel (RFC 9297 §3).

use bytes::Bytes;
pub use clearway_http3::capsule::Capsule;
use clearway_http3::{StreamError, capsule};

use super::TunnelReceiver;
use crate::http::error::Error;

/// Reads capsules from the receiving half of a tunnel
/// ([`TunnelReceiver::into_capsules`]).
#[derive(Debug)]
pub struct CapsuleReader {
    receiver: TunnelReceiver,
    reader: capsule::CapsuleReader,
    /// Data that is not read yet.
    left: Bytes,
}

impl TunnelReceiver {
    /// Reads capsules from it (RFC 9297 §3.2), whose values have at most `max_value` bytes. Those
    /// of types that are not asked for are skipped, whatever their length.
    #[must_use]
    pub fn into_capsules(self, max_value: usize) -> CapsuleReader {
        CapsuleReader::new(self, max_value)
    }
}

impl CapsuleReader {
    fn new(receiver: TunnelReceiver, max_value: usize) -> Self {
        Self {
            receiver,
            reader: capsule::CapsuleReader::new(max_value),
            left: Bytes::new(),
        }
    }

    /// Returns the next capsule of a type that `knows` accepts, or `None` at the end of the
    /// tunnel. Cancel-safe.
    ///
    /// # Errors
    /// If a capsule is longer than allowed, or incomplete at the end: then the peer is asked to
    /// stop. Otherwise as [`TunnelReceiver::chunk`].
    pub async fn next(&mut self, knows: impl Fn(u64) -> bool) -> Result<Option<Capsule>, Error> {
        loop {
            match self.reader.next(&mut self.left, &knows) {
                Ok(Some(capsule)) => return Ok(Some(capsule)),
                Ok(None) => {}
                Err(error) => return Err(self.fail(error)),
            }
            let Some(data) = self.receiver.chunk().await? else {
                if self.reader.is_at_boundary() {
                    return Ok(None);
                }
                // RFC 9297 §3.3.
                let truncated = StreamError::malformed("incomplete capsule");
                return Err(self.fail(truncated));
            };
            self.left = data;
        }
    }

    /// Returns how many bytes of capsules were skipped because their type is unknown.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.reader.skipped()
    }

    fn fail(&mut self, error: StreamError) -> Error {
        self.receiver.stop(error.code);
        Error::Malformed(error)
    }
}
