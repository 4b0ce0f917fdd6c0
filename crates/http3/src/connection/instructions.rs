//! When QPACK's instructions are written.
//!
//! Those of the encoder leave with the field sections that need them. Those of the decoder tell the
//! peer only what it may reuse, so they wait a little for something that leaves anyway: a client that
//! makes one request after the other would otherwise acknowledge each response in a datagram of its own.

use core::time::Duration;

use bytes::{Buf, BytesMut};
use clearway_quic::Instant;
use clearway_quic::stream::WriteError;

use super::{Connection, CriticalStream};
use crate::transport::Transport;

/// How long instructions of the decoder wait. RFC 9204 §2.2.2 asks for them without a time; it is
/// less than QUIC's default for acknowledgements (25 ms, RFC 9000 §18.2), for which the peer's
/// encoder waits as well.
const DELAY: Duration = Duration::from_millis(10);

/// How many bytes of them wait at most: each section takes a byte or two, so this is some fifty
/// sections.
const MAX_WAITING: usize = 64;

/// What instructions of the decoder wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Wait {
    /// There are none.
    #[default]
    Nothing,
    /// Something that leaves anyway, until then.
    Until(Instant),
    /// The stream, which has no credit.
    Credit,
}

impl Connection {
    /// Returns when instructions of the decoder are written at the latest.
    pub(super) fn instructions_due_at(&self) -> Option<Instant> {
        match self.instructions_wait {
            Wait::Until(at) => Some(at),
            Wait::Nothing | Wait::Credit => None,
        }
    }

    /// Returns whether there are instructions whose time is not set yet.
    pub(super) fn has_new_instructions(&self) -> bool {
        let decoder = self.decoder.has_instructions() && self.instructions_wait == Wait::Nothing;
        decoder || self.encoder.has_instructions()
    }

    /// Writes the QPACK instructions that are due, as far as the streams accept them. The rest stays
    /// in the encoder and the decoder, which limit it.
    pub(super) fn flush_instructions<T: Transport>(&mut self, now: Instant, quic: &mut T) {
        let stream = &mut self.local_streams.encoder;
        let encoder = stream.drain(quic, self.encoder.instructions());
        let in_company = core::mem::take(&mut self.has_written);
        let instructions = self.decoder.instructions();
        self.instructions_wait = match self.instructions_wait {
            _ if instructions.is_empty() => Wait::Nothing,
            Wait::Nothing if !in_company && instructions.len() < MAX_WAITING => {
                Wait::Until(now + DELAY)
            }
            Wait::Until(at) if !in_company && now < at && instructions.len() < MAX_WAITING => {
                Wait::Until(at)
            }
            Wait::Nothing | Wait::Until(_) | Wait::Credit => {
                let stream = &mut self.local_streams.decoder;
                let decoder = stream.drain(quic, instructions);
                let wait = if instructions.is_empty() {
                    Wait::Nothing
                } else {
                    Wait::Credit
                };
                self.check_critical_write(decoder);
                wait
            }
        };
        self.check_critical_write(encoder);
    }
}

impl CriticalStream {
    /// Writes the front of `bytes`, as far as the stream accepts it.
    fn drain<T: Transport>(
        &mut self,
        quic: &mut T,
        bytes: &mut BytesMut,
    ) -> Result<(), WriteError> {
        let Some(id) = self.id else { return Ok(()) };
        while !bytes.is_empty() && self.send_buffer.is_empty() {
            let written = quic.write(id, bytes)?;
            bytes.advance(written);
        }
        Ok(())
    }
}
