//! Flow control of WebTransport sessions (draft-ietf-webtrans-http3-16 §5). The transport counts the
//! data of their streams, as groups.

use clearway_quic::stream::{Directionality, StreamId};

use super::Connection;
use crate::capsule::Capsule;
use crate::error::StreamError;
use crate::event::Event;
use crate::transport::Transport;
use crate::webtransport::{FlowUpdate, SessionFlow, SessionLimits, StreamHeader};

const BOTH: [Directionality; 2] = [
    Directionality::Bidirectional,
    Directionality::Unidirectional,
];

impl Connection {
    /// Passes a request on to the application. One for a session waits for the client's SETTINGS,
    /// which say whether it has flow control (§7.1).
    pub(super) fn announce(&mut self, id: StreamId, request: Event) {
        if self.peer.is_none() && self.is_session(id) {
            self.lingering().held_sessions.push(request);
        } else {
            self.events.push_back(request);
            self.release_early_datagrams(id);
        }
    }

    /// SETTINGS have arrived. They may allow fewer sessions than are held.
    pub(super) fn release_held_sessions<T: Transport>(&mut self, quic: &mut T) {
        let lingering = self.lingering.as_deref_mut();
        let held = lingering.map_or_else(Vec::new, |it| core::mem::take(&mut it.held_sessions));
        // Every session that has come is held.
        let mut admitted = 0;
        for event in held {
            if let Event::Request {
                stream, request, ..
            } = &event
                && admitted >= self.most_sessions(request)
            {
                self.reject_session(quic, *stream);
                continue;
            }
            admitted = admitted.saturating_add(1);
            let stream = request_stream(&event);
            self.events.push_back(event);
            if let Some(id) = stream {
                self.release_early_datagrams(id);
            }
        }
    }

    /// Returns whether the request of a session waits for SETTINGS.
    pub(super) fn is_held_session(&self, id: StreamId) -> bool {
        let lingering = self.lingering.as_deref();
        lingering.is_some_and(|it| {
            let mut held = it.held_sessions.iter();
            held.any(|event| request_stream(event) == Some(id))
        })
    }

    /// Returns the requests of sessions that wait for SETTINGS.
    pub(super) fn held_session_ids(&self) -> Vec<StreamId> {
        let held = self.lingering.iter().flat_map(|it| &it.held_sessions);
        held.filter_map(request_stream).collect()
    }

    /// The request of a session that may wait for SETTINGS is over.
    pub(super) fn drop_held_session(&mut self, id: StreamId) {
        if let Some(lingering) = self.lingering.as_deref_mut() {
            lingering
                .held_sessions
                .retain(|event| request_stream(event) != Some(id));
        }
    }

    /// A session was accepted: it has flow control if both ends have announced limits (§5.1).
    pub(super) fn begin_session_flow<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        let own = self.config.session_limits;
        let peer = (self.peer).map_or(SessionLimits::default(), |it| it.session_limits);
        if !own.is_enabled() || !peer.is_enabled() {
            return;
        }
        let Some(session) = self.session_mut(id) else {
            return;
        };
        let flow = SessionFlow::new(own, peer, session.rejected);
        quic.open_group(id, flow.limit(), flow.marks());
        session.flow = Some(Box::new(flow));
        self.check_session_flow(id);
    }

    /// Looks at the limits of a session with the next flush.
    pub(super) fn check_session_flow(&mut self, id: StreamId) {
        if self.flow_mut(id).is_some()
            && let Some(webtransport) = self.webtransport.as_deref_mut()
            && !webtransport.flow_due.contains(&id)
        {
            webtransport.flow_due.push(id);
        }
    }

    /// Counts a stream that the peer has opened. Returns false if it was one too many, and the session
    /// has ended.
    pub(super) fn count_arrived_stream<T: Transport>(
        &mut self,
        quic: &mut T,
        session: StreamId,
        id: StreamId,
    ) -> bool {
        let kind = id.directionality();
        let Some(flow) = self.flow_mut(session) else {
            return true;
        };
        if let Err(error) = flow.on_arrived(kind) {
            self.reject_stream(id, error.code);
            self.fail_session(quic, session, error);
            return false;
        }
        quic.join_group(id, session, header_len(kind, session));
        true
    }

    /// A stream of a session is over for the application.
    pub(super) fn count_closed_stream(&mut self, session: StreamId, id: StreamId) {
        if id.initiator() == self.role {
            return;
        }
        if let Some(flow) = self.flow_mut(session) {
            flow.on_closed(id.directionality());
            self.check_session_flow(session);
        }
    }

    /// Returns whether the session may open another stream. If not, the peer is told.
    pub(super) fn may_open_session_stream<T: Transport>(
        &mut self,
        quic: &mut T,
        session: StreamId,
        kind: Directionality,
    ) -> bool {
        let Some(flow) = self.flow_mut(session) else {
            return true;
        };
        if flow.may_open(kind) {
            return true;
        }
        if self.is_capsule_stream_free(session)
            && let Some(capsule) = (self.flow_mut(session)).and_then(|it| it.streams_blocked(kind))
        {
            self.send_capsule(quic, session, &capsule);
        }
        false
    }

    pub(super) fn count_opened_stream<T: Transport>(
        &mut self,
        quic: &mut T,
        session: StreamId,
        id: StreamId,
    ) {
        let kind = id.directionality();
        if let Some(flow) = self.flow_mut(session) {
            flow.on_opened(kind);
            quic.join_group(id, session, header_len(kind, session));
        }
    }

    /// Handles a capsule of flow control.
    pub(super) fn on_flow_capsule<T: Transport>(
        &mut self,
        quic: &mut T,
        session: StreamId,
        capsule: &Capsule,
    ) {
        let Some(flow) = self.flow_mut(session) else {
            return;
        };
        match flow.on_capsule(capsule.kind, &capsule.value) {
            Ok(FlowUpdate::Data(limit)) => {
                let before = quic.group_account(session).unwrap_or_default();
                quic.raise_group_limit(session, limit);
                // A limit that rises again and again while nothing uses it has no effect.
                if before.written < before.limit / 2 {
                    self.count_useless_capsule();
                }
            }
            Ok(FlowUpdate::Streams { kind, needed }) => {
                self.events.push_back(Event::SessionStreamsAvailable(kind));
                if !needed {
                    self.count_useless_capsule();
                }
            }
            Ok(FlowUpdate::Blocked { is_new: true }) => {}
            Ok(FlowUpdate::Blocked { is_new: false }) => self.count_useless_capsule(),
            Err(error) => self.fail_session(quic, session, error),
        }
    }

    fn count_useless_capsule(&mut self) {
        if let Err(error) = self.count_useless() {
            self.fail(error);
        }
    }

    /// Tells the peers of sessions their new limits, and ends the sessions that exceed theirs. Part of
    /// every flush.
    pub(super) fn flush_session_flow<T: Transport>(&mut self, quic: &mut T) {
        while let Some(session) = quic.next_group_news() {
            self.update_session_flow(quic, session);
        }
        let Some(webtransport) = self.webtransport.as_deref_mut() else {
            return;
        };
        let (due, over) = (
            core::mem::take(&mut webtransport.flow_due),
            core::mem::take(&mut webtransport.flow_over),
        );
        for session in due {
            self.update_session_flow(quic, session);
        }
        for session in over {
            quic.close_group(session);
        }
    }

    fn update_session_flow<T: Transport>(&mut self, quic: &mut T, session: StreamId) {
        if let Err(error) = self.check_session_data(quic, session) {
            return self.fail_session(quic, session, error);
        }
        // One capsule waits at most; the stream's `Writable` brings back here.
        while self.is_capsule_stream_free(session)
            && let Some(capsule) = self.next_flow_capsule(quic, session)
        {
            self.send_capsule(quic, session, &capsule);
        }
    }

    fn check_session_data<T: Transport>(
        &mut self,
        quic: &T,
        session: StreamId,
    ) -> Result<(), StreamError> {
        let account = quic.group_account(session).unwrap_or_default();
        self.flow_mut(session)
            .map_or(Ok(()), |flow| flow.check_received(account.received))
    }

    /// Returns the next capsule of flow control that is due.
    fn next_flow_capsule<T: Transport>(
        &mut self,
        quic: &mut T,
        session: StreamId,
    ) -> Option<Capsule> {
        let account = quic.group_account(session)?;
        let flow = self.flow_mut(session)?;
        // The other half is left to other sessions and requests (§8).
        let granted = flow.grant_data(account.consumed, quic.receive_window() / 2);
        quic.set_group_marks(session, flow.marks());
        granted
            .or_else(|| BOTH.into_iter().find_map(|kind| flow.grant_streams(kind)))
            .or_else(|| (account.blocked).then(|| flow.data_blocked()).flatten())
    }

    /// Returns whether a capsule would be written on the session's stream without being buffered here.
    fn is_capsule_stream_free(&self, session: StreamId) -> bool {
        let exchange = self.requests.get(&session);
        exchange.is_some_and(|it| it.send_buffer.is_empty())
    }

    fn flow_mut(&mut self, session: StreamId) -> Option<&mut SessionFlow> {
        self.session_mut(session)?.flow.as_deref_mut()
    }
}

/// Returns whether an event is the request on this stream.
/// Returns the stream of a request that has arrived.
fn request_stream(event: &Event) -> Option<StreamId> {
    match event {
        Event::Request { stream, .. } => Some(*stream),
        _ => None,
    }
}

/// Returns the length of the header of a session's stream, in bytes.
fn header_len(kind: Directionality, session: StreamId) -> u64 {
    StreamHeader::new(kind, session).encode().len() as u64
}
