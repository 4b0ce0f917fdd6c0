//! WebTransport sessions: from the request to the end (draft-ietf-webtrans-http3 §3.2, §4.7, §6).

use bytes::Bytes;
use clearway_quic::Role;
use clearway_quic::stream::{Directionality, StreamId};

use super::Connection;
use crate::capsule::{Capsule, CapsuleReader};
use crate::count::Count;
use crate::error::{BodyError, Code, StreamError};
use crate::event::Event;
use crate::exchange::Body;
use crate::frame::HEADER_ROOM;
use crate::head::Request;
use crate::message_state::{MessageEvent, MessageState};
use crate::receive_half::{Ending, ReceiveHalf};
use crate::transport::Transport;
use crate::webtransport::{
    self, CLOSE_SESSION, CloseSession, DRAIN_SESSION, Session, SessionEnd, SessionState,
    WebTransport, is_flow_control,
};

impl Connection {
    /// Returns whether a request is a session that was accepted, whose stream is read here.
    pub(super) fn reads_capsules(&self, id: StreamId) -> bool {
        let session = (self.webtransport.as_deref()).and_then(|it| it.sessions.get(&id));
        session.is_some_and(|it| !matches!(it.state, SessionState::Requested))
    }

    /// Returns whether a request is a WebTransport session, open or not.
    pub(super) fn is_session(&self, id: StreamId) -> bool {
        let webtransport = self.webtransport.as_deref();
        webtransport.is_some_and(|it| it.sessions.contains_key(&id))
    }

    /// Returns whether a session is open: it was accepted and is not over.
    #[must_use]
    pub fn is_session_open(&self, id: StreamId) -> bool {
        let session = self
            .webtransport
            .as_deref()
            .and_then(|it| it.sessions.get(&id));
        session.is_some_and(|it| matches!(it.state, SessionState::Open(_)))
    }

    /// Returns whether a session is open or asked for.
    #[must_use]
    pub fn has_open_sessions(&self) -> bool {
        let webtransport = self.webtransport.as_deref();
        webtransport.is_some_and(|it| it.open_sessions() > 0)
    }

    /// A request has arrived. Returns false if it asks for one session too many, and was rejected
    /// (draft-ietf-webtrans-http3 §5.2).
    pub(super) fn admit_session<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        request: &Request,
    ) -> bool {
        if self.config.webtransport_sessions == 0 {
            return true;
        }
        if !webtransport::is_session(request) {
            self.reject_early_streams(id, Code::WEBTRANSPORT_SESSION_GONE);
            return true;
        }
        let most = self.most_sessions(request);
        let webtransport = self.webtransport.get_or_insert_default();
        if webtransport.open_sessions() >= most {
            self.reject_session(quic, id);
            return false;
        }
        webtransport.sessions.insert(id, Session::requested());
        true
    }

    /// Returns how many sessions may be open at once, as far as the client's SETTINGS tell.
    pub(super) fn most_sessions(&self, request: &Request) -> usize {
        let configured = self.config.webtransport_sessions.into();
        match &self.peer {
            // §5.1: there is one at most without flow control. Older drafts have no such rule.
            Some(peer) if request.protocol == "webtransport-h3" => {
                match peer.session_limits.is_enabled() && self.config.session_limits.is_enabled() {
                    true => configured,
                    false => 1,
                }
            }
            Some(_) | None => configured,
        }
    }

    /// Rejects the request for a session too many.
    pub(super) fn reject_session<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        self.reject_early_streams(id, Code::WEBTRANSPORT_SESSION_GONE);
        self.reject(quic, id);
        self.charge();
    }

    /// A request is about to be sent.
    pub(super) fn ask_for_session(&mut self, id: StreamId, request: &Request) {
        if self.config.webtransport_sessions > 0 && webtransport::is_session(request) {
            let webtransport = self.webtransport.get_or_insert_default();
            webtransport.sessions.insert(id, Session::requested());
        }
    }

    /// A final response was sent or has arrived.
    pub(super) fn on_session_answer<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        status: u16,
    ) {
        let Some(webtransport) = self.webtransport.as_deref_mut() else {
            return;
        };
        let Some(session) = webtransport.sessions.get_mut(&id) else {
            return;
        };
        if !(200..300).contains(&status) {
            webtransport.sessions.remove(&id);
            return self.reject_early_streams(id, Code::WEBTRANSPORT_SESSION_GONE);
        }
        session.state = SessionState::Open(CapsuleReader::new(CloseSession::MAX_LEN));
        // Capsules may have come already.
        webtransport.answered.push(id);
        let early = webtransport.take_early(id);
        self.begin_session_flow(quic, id);
        for stream in early {
            self.deliver(quic, id, stream);
        }
    }

    /// Reads what has arrived on the stream of a session. Nothing is read before it is accepted.
    pub(super) fn read_capsules<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        while self.is_session_open(id) {
            match self.read_body(quic, id) {
                Ok(Body::Data(data)) => self.on_capsules(quic, id, data),
                Ok(Body::Blocked) => return,
                Ok(Body::End | Body::Trailers(_)) => match self.end_of_stream(id) {
                    SessionEnd::Failed(error) => self.fail_session(quic, id, error),
                    end => self.on_session_closed(quic, id, end),
                },
                Err(BodyError::Reset(code)) => {
                    self.on_session_closed(quic, id, SessionEnd::Reset(code));
                }
                Err(BodyError::Failed(error)) => self.end_session(id, SessionEnd::Failed(error)),
                Err(BodyError::Unknown | BodyError::Closed) => return,
            }
        }
        let session = self.session_mut(id).map(|session| &session.state);
        if let Some(SessionState::Ended) = session
            && self.is_receiving(id)
        {
            self.read_after_close(quic, id);
        }
    }

    /// Returns how a session ends whose stream has ended: that alone is a close without an error (§6),
    /// but a capsule must be complete (RFC 9297 §3.3).
    fn end_of_stream(&self, id: StreamId) -> SessionEnd {
        let webtransport = self.webtransport.as_deref();
        match webtransport.and_then(|it| it.sessions.get(&id)) {
            Some(session) if session.is_within_capsule() => {
                SessionEnd::Failed(StreamError::malformed("incomplete capsule"))
            }
            Some(_) | None => SessionEnd::Closed(CloseSession::default()),
        }
    }

    /// Reads what arrived for sessions together with the end of the connection: a close tells more than
    /// that (§6).
    pub(super) fn read_last_capsules<T: Transport>(&mut self, quic: &mut T) {
        let sessions = self.webtransport.iter().flat_map(|it| it.sessions.keys());
        let mut sessions: Vec<StreamId> = sessions.copied().collect();
        // The order must not depend on that of a hash table.
        sessions.sort_unstable();
        for id in sessions {
            self.read_capsules(quic, id);
        }
    }

    fn on_capsules<T: Transport>(&mut self, quic: &mut T, id: StreamId, mut data: Bytes) {
        while let Some(session) = self.session_mut(id) {
            let SessionState::Open(reader) = &mut session.state else {
                break;
            };
            let before = reader.skipped();
            let flow = session.flow.is_some();
            let next = reader.next(&mut data, |kind| {
                kind == CLOSE_SESSION || kind == DRAIN_SESSION || flow && is_flow_control(kind)
            });
            let skipped = reader.skipped().saturating_sub(before);
            self.counters.skipped.count(skipped);
            match next {
                Ok(Some(capsule)) => self.on_capsule(quic, id, capsule),
                Ok(None) => return,
                Err(_) => {
                    let reason = "a capsule of the session is longer than 1,028 bytes";
                    return self.fail_session(quic, id, StreamError::malformed(reason));
                }
            }
        }
        if !data.is_empty() {
            self.reject_data_after_close(quic, id);
        }
    }

    fn on_capsule<T: Transport>(&mut self, quic: &mut T, id: StreamId, capsule: Capsule) {
        if is_flow_control(capsule.kind) {
            return self.on_flow_capsule(quic, id, &capsule);
        }
        if capsule.kind == CLOSE_SESSION {
            return match CloseSession::decode(capsule.value) {
                Ok(close) => self.on_session_closed(quic, id, SessionEnd::Closed(close)),
                Err(error) => self.fail_session(quic, id, error),
            };
        }
        if let Err(error) = self.count_useless() {
            return self.fail(error);
        }
        if let Some(session) = self.session_mut(id)
            && !core::mem::replace(&mut session.draining, true)
        {
            self.events.push_back(Event::SessionDraining(id));
        }
    }

    /// The peer has closed the session: this side ends too (§6).
    fn on_session_closed<T: Transport>(&mut self, quic: &mut T, id: StreamId, end: SessionEnd) {
        self.end_session(id, end);
        // It may have ended or been stopped before.
        let _ = self.finish(quic, id);
    }

    /// Reads up to the end of a session's stream, on which nothing may follow the close (§6).
    fn read_after_close<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        if let Ok(Body::Data(_)) = self.read_body(quic, id) {
            self.reject_data_after_close(quic, id);
        }
    }

    fn reject_data_after_close<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        self.counters.malformed.count_one();
        self.abandon(quic, id, Code::MESSAGE_ERROR);
        self.charge();
    }

    pub(super) fn fail_session<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        error: StreamError,
    ) {
        self.counters.malformed.count_one();
        self.end_session(id, SessionEnd::Failed(error));
        self.abandon(quic, id, error.code);
        self.charge();
    }

    /// Closes a session with an application error code and a reason, of which at most
    /// [`MAX_REASON`](webtransport::MAX_REASON) bytes are sent. Its streams are reset. Does nothing
    /// if the session is over.
    pub fn close_session<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        code: u32,
        reason: &str,
    ) {
        if !self.is_open() {
            return;
        }
        if !self.is_session_open(id) {
            if self.is_session(id) {
                // It has no answer, or only the end of its stream is missing.
                self.cancel(quic, id);
            }
            return;
        }
        self.send_capsule(quic, id, &CloseSession::new(code, reason).capsule());
        let _ = self.finish(quic, id);
        self.end_session(id, SessionEnd::Local);
        match self.role {
            // The client's end follows soon.
            Role::Server => self.discard_rest(quic, id),
            Role::Client => self.stop_immediately(quic, id, Code::WEBTRANSPORT_SESSION_GONE),
        }
    }

    /// Asks the peer to end a session soon (§4.7).
    pub fn drain_session<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        if self.is_open() && self.is_session_open(id) {
            let capsule = Capsule {
                kind: DRAIN_SESSION,
                value: Bytes::new(),
            };
            self.send_capsule(quic, id, &capsule);
        }
    }

    /// Sends a capsule, or buffers it: there are two at most of each session. Those of flow control
    /// are sent only while none is buffered.
    pub(super) fn send_capsule<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        capsule: &Capsule,
    ) {
        let exchange = self.requests.get(&id);
        if exchange.is_none_or(|it| it.sending.after(MessageEvent::Data).is_none()) {
            return;
        }
        let mut encoded = Vec::with_capacity(capsule.value.len().saturating_add(HEADER_ROOM));
        capsule.encode(&mut encoded);
        self.scratch.clear();
        // The peer may have stopped reading.
        let _ = self.put_body(quic, id, encoded.into(), 0);
    }

    pub(super) fn session_mut(&mut self, id: StreamId) -> Option<&mut Session> {
        self.webtransport.as_deref_mut()?.sessions.get_mut(&id)
    }

    /// Ends a session, and its streams with the next flush.
    fn end_session(&mut self, session: StreamId, end: SessionEnd) {
        let Some(webtransport) = self.webtransport.as_deref_mut() else {
            return;
        };
        let Some(ended) = webtransport.sessions.get_mut(&session) else {
            return;
        };
        if let SessionState::Ended = ended.state {
            return;
        }
        for directionality in [
            Directionality::Unidirectional,
            Directionality::Bidirectional,
        ] {
            *ended.incoming(directionality) = std::collections::VecDeque::new();
        }
        ended.state = SessionState::Ended;
        if ended.flow.take().is_some() {
            webtransport.flow_over.push(session);
        }
        let streams = webtransport.take_streams(session);
        let gone = Code::WEBTRANSPORT_SESSION_GONE;
        (webtransport.rejected).extend(streams.iter().map(|&id| (id, gone)));
        self.events.push_back(Event::SessionEnded {
            session,
            end,
            streams,
        });
        self.reject_early_streams(session, gone);
    }

    /// The request of a session is removed.
    pub(super) fn lose_session(&mut self, id: StreamId, receiving: &ReceiveHalf) {
        if self.is_session(id) {
            let end = match receiving.ending {
                Some(Ending::Reset(code)) => SessionEnd::Reset(code),
                Some(Ending::Failed(error)) => SessionEnd::Failed(error),
                // The end was read.
                None if receiving.state == MessageState::Done => self.end_of_stream(id),
                Some(Ending::End | Ending::Gone) | None => SessionEnd::Refused,
            };
            self.end_session(id, end);
            let webtransport: Option<&mut WebTransport> = self.webtransport.as_deref_mut();
            webtransport.map(|it| it.sessions.remove(&id));
            self.drop_held_session(id);
        }
    }
}
