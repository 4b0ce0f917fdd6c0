//! The peer's unidirectional streams (RFC 9114 §6.2).

use bytes::{Buf, Bytes};
use clearway_quic::Role;
use clearway_quic::stream::{ReadError, StreamId};

use super::Connection;
use crate::defects::Quirk;
use crate::error::{Code, ConnectionError};
use crate::frame_reader::FrameReader;
use crate::message_state::MessageState;
use crate::qpack::QpackError;
use crate::stream_kind::{StreamKind, UntypedStream};
use crate::transport::Transport;

/// Maximum bytes of instructions read at once.
const READ_SIZE: usize = 16 << 10;

/// Maximum bytes read at once of a stream that may belong to a session: its header has up to 10.
const SESSION_READ_SIZE: usize = 16;

/// The unidirectional streams that the peer opened. Their number is limited by the transport; all
/// but the critical ones are dropped once their type is known.
#[derive(Debug, Default)]
pub(super) struct PeerStreams {
    pub(super) control: Option<StreamId>,
    /// The reader of the control stream; `None` while it has no state.
    reader: Option<Box<FrameReader>>,
    encoder: Option<StreamId>,
    decoder: Option<StreamId>,
    untyped: Vec<(StreamId, UntypedStream)>,
}

impl PeerStreams {
    pub(super) fn on_opened(&mut self, id: StreamId) {
        self.untyped.push((id, UntypedStream::default()));
    }

    /// Returns the reader of the control stream.
    pub(super) fn reader(&mut self) -> &mut FrameReader {
        self.reader.get_or_insert_default()
    }

    /// Releases the reader if it has no state.
    pub(super) fn release(&mut self) {
        self.reader.take_if(|reader| reader.is_idle());
    }

    #[expect(clippy::arithmetic_side_effects, reason = "sums of sizes in memory")]
    pub(super) fn memory(&self) -> usize {
        let reader = self.reader.as_deref();
        reader.map_or(0, |reader| size_of_val(reader) + reader.memory())
            + self.untyped.capacity() * size_of::<(StreamId, UntypedStream)>()
    }

    fn forget(&mut self, id: StreamId) {
        self.untyped.retain(|(untyped, _)| *untyped != id);
        if self.untyped.is_empty() {
            self.untyped = Vec::new();
        }
    }

    /// Stores which stream has this type. Returns false if there is one already.
    fn assign(&mut self, id: StreamId, kind: StreamKind) -> bool {
        let slot = match kind {
            StreamKind::Control => &mut self.control,
            StreamKind::QpackEncoder => &mut self.encoder,
            StreamKind::QpackDecoder => &mut self.decoder,
            StreamKind::Push | StreamKind::WebTransport | StreamKind::Unknown(_) => return true,
        };
        slot.replace(id).is_none()
    }
}

impl Connection {
    /// Handles data on a unidirectional stream of the peer.
    pub(super) fn on_peer_stream<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        let result = if self.peer_streams.control == Some(id) {
            self.on_control_stream(quic, id)
        } else if self.peer_streams.encoder == Some(id) || self.peer_streams.decoder == Some(id) {
            self.read_instructions(quic, id)
        } else {
            self.identify(quic, id)
        };
        if let Err(error) = result {
            self.fail(error);
        }
    }

    /// Reads until the type of the stream is known.
    fn identify<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
    ) -> Result<(), ConnectionError> {
        // What is read of a session's stream is copied.
        let read_size = match self.takes_session_streams() {
            true => SESSION_READ_SIZE,
            false => READ_SIZE,
        };
        loop {
            let streams = &mut self.peer_streams.untyped;
            let Some((_, stream)) = streams.iter_mut().find(|(other, _)| *other == id) else {
                return Ok(());
            };
            let mut bytes = match quic.read_chunk(id, read_size) {
                Ok(Some(bytes)) => bytes,
                Err(ReadError::Blocked) => return Ok(()),
                // A stream without a type has no meaning (RFC 9114 §6.2).
                Ok(None) | Err(ReadError::Reset(_) | ReadError::Unknown) => {
                    self.peer_streams.forget(id);
                    return self.count_useless();
                }
            };
            if let Some((kind, used)) = stream.push(&bytes) {
                bytes.advance(used);
                self.peer_streams.forget(id);
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
        if !self.peer_streams.assign(id, kind) {
            return Err(ConnectionError::new(
                Code::STREAM_CREATION_ERROR,
                "the peer opened a second stream of a type that may exist only once",
            ));
        }
        match kind {
            StreamKind::Control => {
                *self.peer_streams.reader() = FrameReader::with_buffered(rest);
                self.on_control_stream(quic, id)
            }
            StreamKind::QpackEncoder | StreamKind::QpackDecoder => {
                self.on_instructions(quic, id, &rest)?;
                self.read_instructions(quic, id)
            }
            StreamKind::Push => Err(push_not_allowed(self.role)),
            StreamKind::WebTransport if self.takes_session_streams() => {
                self.on_session_uni_stream(quic, id, &rest);
                Ok(())
            }
            StreamKind::WebTransport | StreamKind::Unknown(_) => {
                self.config.refuse_if(Quirk::RefusesUnknownStreams)?;
                // The stream may have ended meanwhile.
                let _ = quic.stop(id, Code::STREAM_CREATION_ERROR.0);
                self.count_useless()
            }
        }
    }

    fn read_instructions<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
    ) -> Result<(), ConnectionError> {
        loop {
            match quic.read_chunk(id, READ_SIZE) {
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
        if self.peer_streams.decoder == Some(id) {
            self.encoder.on_decoder_stream(bytes)?;
            return self.count_cancellations();
        }
        self.decoder.on_encoder_stream(bytes)?;
        self.count_table_updates()?;
        while let Some(id) = self.decoder.next_unblocked() {
            self.on_unblocked(quic, StreamId::from_wire(id));
        }
        Ok(())
    }

    /// Handles a stream whose field section is no longer blocked on the dynamic table.
    fn on_unblocked<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        match self
            .requests
            .get(&id)
            .map(|exchange| exchange.receiving.state)
        {
            Some(MessageState::Header) => self.read_header_section(quic, id),
            Some(MessageState::Body) => self.on_body_data(quic, id),
            Some(MessageState::Done) | None => self.discard(quic, id),
            // No field section is allowed there, so none is blocked.
            Some(MessageState::Tunnel | MessageState::AfterTrailers) => {}
        }
    }
}

/// The error for a push stream: RFC 9114 §6.2.2 for servers, §4.6 for clients, which never allow
/// pushes here.
fn push_not_allowed(role: Role) -> ConnectionError {
    match role {
        Role::Server => {
            let reason = "the client opened a push stream";
            ConnectionError::new(Code::STREAM_CREATION_ERROR, reason)
        }
        Role::Client => {
            let reason = "push stream without MAX_PUSH_ID: server push is not allowed";
            ConnectionError::new(Code::ID_ERROR, reason)
        }
    }
}

/// The error for a critical stream that ended (RFC 9114 §6.2.1, RFC 9204 §4.2).
pub(super) fn closed_critical_stream() -> ConnectionError {
    ConnectionError::new(
        Code::CLOSED_CRITICAL_STREAM,
        "the peer closed or stopped a critical stream (control or QPACK)",
    )
}

impl From<QpackError> for ConnectionError {
    fn from(error: QpackError) -> Self {
        Self::new(Code(error.code.code()), error.reason.to_string())
    }
}
