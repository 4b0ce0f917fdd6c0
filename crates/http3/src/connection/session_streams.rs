//! Streams of WebTransport sessions (draft-ietf-webtrans-http3 §4.2, §4.3, §4.6).

use bytes::{Buf, Bytes};
use clearway_quic::Role;
use clearway_quic::stream::{Directionality, ReadError, StreamId};

use super::Connection;
use crate::count::Count;
use crate::error::{Code, ConnectionError};
use crate::event::Event;
use crate::message_state::MessageState;
use crate::transport::Transport;
use crate::webtransport::{
    BIDI_STREAM, IncomingStream, SessionState, StreamHeader, StreamHeaderReader, UNI_STREAM,
};

/// What becomes of a stream of the peer.
enum StreamDestination {
    /// Its session is open.
    Open,
    /// Its session was not accepted yet.
    Early,
    /// Its session is over, or is none.
    Gone,
}

impl Connection {
    /// Whether streams of sessions may arrive: on a client only once it has asked for a session.
    pub(super) fn takes_session_streams(&self) -> bool {
        match self.role {
            Role::Server => self.config.webtransport_sessions > 0,
            Role::Client => self.webtransport.is_some(),
        }
    }

    /// Whether the header of this stream is incomplete.
    pub(super) fn awaits_session(&self, id: StreamId) -> bool {
        let webtransport = self.webtransport.as_deref();
        webtransport.is_some_and(|it| it.headers.iter().any(|(other, _)| *other == id))
    }

    /// Handles a unidirectional stream with the type of a session's, and what was read behind the
    /// type.
    pub(super) fn on_session_uni_stream<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        rest: &[u8],
    ) {
        let mut reader = StreamHeaderReader::after_kind(UNI_STREAM);
        if let Some((header, used)) = reader.push(rest) {
            let rest = rest.get(used..).unwrap_or_default();
            let buffered = Bytes::copy_from_slice(rest);
            return self.on_stream_header(quic, header, IncomingStream { id, buffered });
        }
        let webtransport = self.webtransport.get_or_insert_default();
        webtransport.headers.push((id, reader));
        self.read_session_header(quic, id);
    }

    /// Handles a bidirectional stream that the server opened.
    pub(super) fn on_session_stream(&mut self, id: StreamId) {
        let webtransport = self.webtransport.get_or_insert_default();
        webtransport
            .headers
            .push((id, StreamHeaderReader::default()));
    }

    /// Handles a bidirectional stream of a client, whose header was read as one of a frame.
    pub(super) fn on_session_bidi_stream<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        session: u64,
    ) {
        let Some(mut exchange) = self.requests.remove(&id) else {
            return;
        };
        // A copy, because it may wait for long and refers to a larger block.
        let buffered = Bytes::copy_from_slice(&exchange.receiving.reader.take_buffered());
        let header = StreamHeader {
            kind: BIDI_STREAM,
            session,
        };
        self.on_stream_header(quic, header, IncomingStream { id, buffered });
    }

    /// Reads the rest of a header, byte by byte: what follows stays in the transport.
    pub(super) fn read_session_header<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        loop {
            let Some(webtransport) = self.webtransport.as_deref_mut() else {
                return;
            };
            let mut headers = webtransport.headers.iter_mut();
            let Some((_, reader)) = headers.find(|(other, _)| *other == id) else {
                return;
            };
            let byte = match quic.read_chunk(id, 1) {
                Ok(Some(byte)) => byte,
                Err(ReadError::Blocked) => return,
                // Nobody can know what it was for.
                Ok(None) | Err(ReadError::Reset(_) | ReadError::Unknown) => {
                    webtransport.headers.retain(|(other, _)| *other != id);
                    let code = Code::WEBTRANSPORT_BUFFERED_STREAM_REJECTED;
                    webtransport.rejected.push((id, code));
                    if let Err(error) = self.count_useless() {
                        self.fail(error);
                    }
                    return;
                }
            };
            if let Some((header, _)) = reader.push(&byte) {
                webtransport.headers.retain(|(other, _)| *other != id);
                let buffered = Bytes::new();
                return self.on_stream_header(quic, header, IncomingStream { id, buffered });
            }
        }
    }

    fn on_stream_header<T: Transport>(
        &mut self,
        quic: &mut T,
        header: StreamHeader,
        stream: IncomingStream,
    ) {
        let expected = StreamHeader::new(stream.id.directionality(), stream.id).kind;
        if header.kind != expected {
            return self.fail(ConnectionError::new(
                Code::STREAM_CREATION_ERROR,
                "the server opened a bidirectional stream that is not of a WebTransport session",
            ));
        }
        let session = StreamId::from_wire(header.session);
        match self.stream_destination(quic, session) {
            Ok(StreamDestination::Open) => self.deliver(quic, session, stream),
            Ok(StreamDestination::Early) => self.keep_early(session, stream),
            Ok(StreamDestination::Gone) => {
                self.reject_stream(stream.id, Code::WEBTRANSPORT_SESSION_GONE);
            }
            Err(error) => self.fail(error),
        }
    }

    fn stream_destination<T: Transport>(
        &self,
        quic: &T,
        session: StreamId,
    ) -> Result<StreamDestination, ConnectionError> {
        let is_request = session.initiator() == Role::Client
            && session.directionality() == Directionality::Bidirectional;
        if !is_request {
            // §4: "session IDs that do not correspond to client-initiated bidirectional streams".
            let reason = format!("session ID {session} is not a request stream");
            return Err(ConnectionError::new(Code::ID_ERROR, reason));
        }
        self.check_request_id(quic, session)?;
        let webtransport = self.webtransport.as_deref();
        if let Some(session) = webtransport.and_then(|it| it.sessions.get(&session)) {
            return Ok(match session.state {
                SessionState::Open(_) => StreamDestination::Open,
                SessionState::Requested => StreamDestination::Early,
                SessionState::Ended => StreamDestination::Gone,
            });
        }
        let arrives = match self.requests.get(&session) {
            Some(exchange) => exchange.receiving.state == MessageState::Header,
            None => session.index() >= self.next_request,
        };
        Ok(match self.role {
            Role::Server if arrives => StreamDestination::Early,
            Role::Server | Role::Client => StreamDestination::Gone,
        })
    }

    /// Keeps a stream until its session is accepted (§4.6).
    fn keep_early(&mut self, session: StreamId, stream: IncomingStream) {
        let most = usize::from(self.config.limits.max_early_session_streams);
        let webtransport = self.webtransport.get_or_insert_default();
        if webtransport.early.len() >= most {
            if let Some(asked) = webtransport.sessions.get_mut(&session) {
                asked.count_rejected(stream.id.directionality());
            }
            let code = Code::WEBTRANSPORT_BUFFERED_STREAM_REJECTED;
            return self.reject_stream(stream.id, code);
        }
        webtransport.early.push((session, stream));
    }

    /// Lets the application accept a stream.
    pub(super) fn deliver<T: Transport>(
        &mut self,
        quic: &mut T,
        session: StreamId,
        stream: IncomingStream,
    ) {
        let directionality = stream.id.directionality();
        if !self.count_arrived_stream(quic, session, stream.id) {
            return;
        }
        let webtransport = self.webtransport.get_or_insert_default();
        webtransport.streams.insert(stream.id, session);
        if let Some(open) = webtransport.sessions.get_mut(&session) {
            open.incoming(directionality).push_back(stream);
        }
        self.events.push_back(Event::SessionStream {
            session,
            directionality,
        });
    }

    pub(super) fn reject_stream(&mut self, id: StreamId, code: Code) {
        self.counters.session_streams_rejected.count_one();
        let webtransport = self.webtransport.get_or_insert_default();
        webtransport.rejected.push((id, code));
        self.charge();
    }

    /// Rejects the streams that came before a session, which there will not be.
    pub(super) fn reject_early_streams(&mut self, session: StreamId, code: Code) {
        let Some(webtransport) = self.webtransport.as_deref_mut() else {
            return;
        };
        if webtransport.early.is_empty() {
            return;
        }
        for stream in webtransport.take_early(session) {
            self.reject_stream(stream.id, code);
        }
    }

    /// Reads the capsules of sessions that were just accepted. Resets the streams that were rejected,
    /// and those of sessions that have ended. Part of every flush.
    pub(super) fn flush_sessions<T: Transport>(&mut self, quic: &mut T) {
        let answered = self.webtransport.as_deref_mut().map(|it| &mut it.answered);
        for id in answered.map(core::mem::take).unwrap_or_default() {
            if let Err(error) = self.look_ahead(quic, id) {
                return self.fail(error);
            }
            self.read_capsules(quic, id);
        }
        self.flush_session_flow(quic);
        let Some(webtransport) = self.webtransport.as_deref_mut() else {
            return;
        };
        for (id, code) in webtransport.rejected.drain(..) {
            // One of these fails if the stream has one direction only, or is over.
            let _ = quic.reset(id, code.0);
            let _ = quic.stop(id, code.0);
        }
    }

    /// Returns the next stream of a session that the peer opened. The application reads and writes
    /// it on the transport, and [forgets](Self::forget_session_stream) it afterwards.
    pub fn accept_session_stream(
        &mut self,
        session: StreamId,
        directionality: Directionality,
    ) -> Option<IncomingStream> {
        let session = self.session_mut(session)?;
        session.incoming(directionality).pop_front()
    }

    /// Opens a stream of a session. Returns it with the rest of its header that the transport has
    /// not accepted, which has to be written first; it is empty almost always. Returns `None` if the
    /// session is not open, or while a limit of the peer on streams is reached, the connection's or the
    /// session's.
    pub fn open_session_stream<T: Transport>(
        &mut self,
        quic: &mut T,
        session: StreamId,
        directionality: Directionality,
    ) -> Option<(StreamId, Bytes)> {
        if !self.is_open() || !self.is_session_open(session) {
            return None;
        }
        if !self.may_open_session_stream(quic, session, directionality) {
            return None;
        }
        let id = quic.open(directionality)?;
        self.count_opened_stream(quic, session, id);
        let webtransport = self.webtransport.get_or_insert_default();
        webtransport.streams.insert(id, session);
        let mut header = Bytes::from(StreamHeader::new(directionality, session).encode());
        while !header.is_empty() {
            match quic.write(id, &header) {
                Ok(written) => header.advance(written),
                Err(_) => break,
            }
        }
        Some((id, header))
    }

    /// Forgets a stream of a session, with which the application is done: it is not reset when the
    /// session ends.
    pub fn forget_session_stream(&mut self, id: StreamId) {
        let webtransport = self.webtransport.as_deref_mut();
        let session = webtransport.and_then(|it| it.streams.remove(&id));
        if let Some(session) = session {
            self.count_closed_stream(session, id);
        }
    }
}
