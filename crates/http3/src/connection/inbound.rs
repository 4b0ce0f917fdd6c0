//! The peer's unidirectional streams (RFC 9114 §6.2).

use bytes::{Buf, Bytes};
use clearway_quic::Role;
use clearway_quic::stream::{ReadError, StreamId};

use super::Connection;
use crate::error::{Code, ConnectionError};
use crate::qpack::QpackError;
use crate::reader::FrameReader;
use crate::request::Half;
use crate::stream_kind::{StreamKind, Unidentified};
use crate::transport::Transport;

/// Most bytes of instructions read at a time.
const PIECE: usize = 16 << 10;

/// The streams the peer has for itself. How many there can be is the transport's
/// limit; all but three are let go of once their type is known.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    pub(super) control: Option<StreamId>,
    /// Of the control stream; `None` while nothing of a frame is held.
    reader: Option<Box<FrameReader>>,
    encoder: Option<StreamId>,
    decoder: Option<StreamId>,
    unidentified: Vec<(StreamId, Unidentified)>,
}

impl Inbound {
    pub(super) fn on_opened(&mut self, id: StreamId) {
        self.unidentified.push((id, Unidentified::default()));
    }

    /// What reads frames off the control stream.
    pub(super) fn reader(&mut self) -> &mut FrameReader {
        self.reader.get_or_insert_default()
    }

    /// Gives back the reader if it is between frames.
    pub(super) fn release(&mut self) {
        self.reader.take_if(|reader| reader.is_idle());
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "sizes of what is in memory together"
    )]
    pub(super) fn memory(&self) -> usize {
        let reader = self.reader.as_deref();
        reader.map_or(0, |reader| size_of_val(reader) + reader.memory())
            + self.unidentified.capacity() * size_of::<(StreamId, Unidentified)>()
    }

    fn forget(&mut self, id: StreamId) {
        self.unidentified
            .retain(|(unidentified, _)| *unidentified != id);
        if self.unidentified.is_empty() {
            self.unidentified = Vec::new();
        }
    }

    /// Remembers which stream has this role; false if another has it.
    fn assign(&mut self, id: StreamId, kind: StreamKind) -> bool {
        let slot = match kind {
            StreamKind::Control => &mut self.control,
            StreamKind::QpackEncoder => &mut self.encoder,
            StreamKind::QpackDecoder => &mut self.decoder,
            StreamKind::Push | StreamKind::Unknown(_) => return true,
        };
        slot.replace(id).is_none()
    }
}

impl Connection {
    /// A unidirectional stream of the peer has something.
    pub(super) fn on_inbound<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        let done = if self.inbound.control == Some(id) {
            self.on_control_stream(quic, id)
        } else if self.inbound.encoder == Some(id) || self.inbound.decoder == Some(id) {
            self.read_instructions(quic, id)
        } else {
            self.identify(quic, id)
        };
        if let Err(error) = done {
            self.fail(error);
        }
    }

    /// Reads on until the type of the stream is known.
    fn identify<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
    ) -> Result<(), ConnectionError> {
        loop {
            let streams = &mut self.inbound.unidentified;
            let Some((_, stream)) = streams.iter_mut().find(|(other, _)| *other == id) else {
                return Ok(());
            };
            let mut bytes = match quic.read_chunk(id, PIECE) {
                Ok(Some(bytes)) => bytes,
                Err(ReadError::Blocked) => return Ok(()),
                // Without a type it had no meaning (RFC 9114 §6.2).
                Ok(None) | Err(ReadError::Reset(_) | ReadError::Unknown) => {
                    self.inbound.forget(id);
                    return self.note_idle_work();
                }
            };
            if let Some((kind, used)) = stream.push(&bytes) {
                bytes.advance(used);
                self.inbound.forget(id);
                return self.on_identified(quic, id, kind, bytes);
            }
        }
    }

    fn on_identified<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        kind: StreamKind,
        rest: Bytes,
    ) -> Result<(), ConnectionError> {
        if !self.inbound.assign(id, kind) {
            return Err(ConnectionError::new(
                Code::STREAM_CREATION_ERROR,
                "a second stream of a kind there is one of",
            ));
        }
        match kind {
            StreamKind::Control => {
                *self.inbound.reader() = FrameReader::starting_with(rest);
                self.on_control_stream(quic, id)
            }
            StreamKind::QpackEncoder | StreamKind::QpackDecoder => {
                self.on_instructions(quic, id, &rest)?;
                self.read_instructions(quic, id)
            }
            StreamKind::Push => Err(refuse_push(self.role)),
            StreamKind::Unknown(_) => {
                // It may have ended meanwhile.
                let _ = quic.stop(id, Code::STREAM_CREATION_ERROR.0);
                self.note_idle_work()
            }
        }
    }

    fn read_instructions<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
    ) -> Result<(), ConnectionError> {
        loop {
            match quic.read_chunk(id, PIECE) {
                Ok(Some(bytes)) => self.on_instructions(quic, id, &bytes)?,
                Err(ReadError::Blocked) => return Ok(()),
                Ok(None) | Err(ReadError::Reset(_) | ReadError::Unknown) => {
                    return Err(closed_critical_stream());
                }
            }
        }
    }

    fn on_instructions<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        bytes: &[u8],
    ) -> Result<(), ConnectionError> {
        if self.inbound.decoder == Some(id) {
            self.encoder.on_decoder_stream(bytes)?;
            return self.note_cancellations();
        }
        self.decoder.on_encoder_stream(bytes)?;
        self.note_table_updates()?;
        while let Some(id) = self.decoder.unblocked() {
            self.on_unblocked(quic, StreamId::from_wire(id));
        }
        Ok(())
    }

    /// The dynamic table has what a section of this stream waited for.
    fn on_unblocked<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        match self
            .requests
            .get(&id)
            .map(|exchange| exchange.receiving.half)
        {
            Some(Half::Header) => self.advance(quic, id),
            Some(Half::Body) => self.on_more(quic, id),
            Some(Half::Over) | None => self.discard(quic, id),
            // A section has no place there, so none waits.
            Some(Half::Tunnel | Half::Trailed) => {}
        }
    }
}

/// RFC 9114 §6.2.2 for servers, §4.6 for clients, which never allow pushes here.
fn refuse_push(role: Role) -> ConnectionError {
    match role {
        Role::Server => ConnectionError::new(Code::STREAM_CREATION_ERROR, "a client pushed"),
        Role::Client => ConnectionError::new(Code::ID_ERROR, "a push, and pushes were not allowed"),
    }
}

/// RFC 9114 §6.2.1, RFC 9204 §4.2.
pub(super) fn closed_critical_stream() -> ConnectionError {
    ConnectionError::new(
        Code::CLOSED_CRITICAL_STREAM,
        "a stream the connection cannot do without was closed",
    )
}

impl From<QpackError> for ConnectionError {
    fn from(error: QpackError) -> Self {
        Self::new(Code(error.code.code()), error.reason.to_string())
    }
}
