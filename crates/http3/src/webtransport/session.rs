//! The sessions of a connection, and the streams that came before theirs.

use std::collections::VecDeque;

use clearway_quic::stream::{Directionality, StreamId};
use rustc_hash::FxHashMap;

use super::capsule::CloseSession;
use super::flow::SessionFlow;
use super::stream::{IncomingStream, StreamHeaderReader};
use crate::capsule::CapsuleReader;
use crate::error::{Code, StreamError};
use crate::memory;

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// The application of this endpoint closed it.
    Local,
    /// The peer closed it. The end of its stream means code 0 and an empty reason.
    Closed(CloseSession),
    /// The peer reset its stream, with this code.
    Reset(Code),
    /// What the peer sent on its stream is malformed.
    Failed(StreamError),
    /// The request was refused or cancelled.
    Refused,
}

/// How far a session is.
#[derive(Debug)]
pub(crate) enum SessionState {
    /// The request has no answer.
    Requested,
    /// Its streams and capsules are read.
    Open(CapsuleReader),
    /// It is over, and only its stream is not.
    Ended,
}

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) state: SessionState,
    pub(crate) draining: bool,
    /// Its flow control, if both ends want it and it was accepted.
    pub(crate) flow: Option<Box<SessionFlow>>,
    /// How many of its streams were rejected before, bidirectional and unidirectional ones.
    pub(crate) rejected: [u64; 2],
    /// Streams of the peer that the application has not accepted.
    uni: VecDeque<IncomingStream>,
    bidi: VecDeque<IncomingStream>,
}

impl Session {
    pub(crate) fn requested() -> Self {
        Self {
            state: SessionState::Requested,
            draining: false,
            flow: None,
            rejected: [0; 2],
            uni: VecDeque::new(),
            bidi: VecDeque::new(),
        }
    }

    /// Returns whether a capsule has arrived in part.
    pub(crate) fn is_within_capsule(&self) -> bool {
        match &self.state {
            SessionState::Open(reader) => !reader.is_at_boundary(),
            SessionState::Requested | SessionState::Ended => false,
        }
    }

    /// A stream was rejected before the session was accepted.
    pub(crate) fn count_rejected(&mut self, directionality: Directionality) {
        let [bidi, uni] = &mut self.rejected;
        let counter = match directionality {
            Directionality::Bidirectional => bidi,
            Directionality::Unidirectional => uni,
        };
        *counter = counter.saturating_add(1);
    }

    pub(crate) fn incoming(
        &mut self,
        directionality: Directionality,
    ) -> &mut VecDeque<IncomingStream> {
        match directionality {
            Directionality::Unidirectional => &mut self.uni,
            Directionality::Bidirectional => &mut self.bidi,
        }
    }
}

/// The sessions of a connection and their streams. How many streams of the peer there are is
/// limited by the transport.
#[derive(Debug, Default)]
pub(crate) struct WebTransport {
    pub(crate) sessions: FxHashMap<StreamId, Session>,
    /// The session of each stream that the application has, or can accept.
    pub(crate) streams: FxHashMap<StreamId, StreamId>,
    /// Streams whose session was not accepted yet, with its ID, in the order of their arrival.
    pub(crate) early: Vec<(StreamId, IncomingStream)>,
    /// Streams whose header is incomplete.
    pub(crate) headers: Vec<(StreamId, StreamHeaderReader)>,
    /// Sessions that were accepted, whose capsules the next flush reads.
    pub(crate) answered: Vec<StreamId>,
    /// Sessions of which the next flush looks at the limits.
    pub(crate) flow_due: Vec<StreamId>,
    /// Sessions with flow control that have ended, until the next flush.
    pub(crate) flow_over: Vec<StreamId>,
    /// Streams that the next flush resets, with the code.
    pub(crate) rejected: Vec<(StreamId, Code)>,
}

impl WebTransport {
    /// Returns how many sessions are not over.
    pub(crate) fn open_sessions(&self) -> usize {
        let open = |session: &&Session| !matches!(session.state, SessionState::Ended);
        self.sessions.values().filter(open).count()
    }

    /// Removes the streams of a session, and returns them in order.
    pub(crate) fn take_streams(&mut self, session: StreamId) -> Vec<StreamId> {
        let of_session = self.streams.iter().filter(|(_, of)| **of == session);
        let mut ended: Vec<StreamId> = of_session.map(|(&id, _)| id).collect();
        self.streams.retain(|_, of| *of != session);
        // The order must not depend on that of a hash table.
        ended.sort_unstable();
        ended
    }

    /// Removes the streams that came before a session, and returns them in order.
    pub(crate) fn take_early(&mut self, session: StreamId) -> Vec<IncomingStream> {
        let mut taken = Vec::new();
        for (of, stream) in core::mem::take(&mut self.early) {
            if of == session {
                taken.push(stream);
            } else {
                self.early.push((of, stream));
            }
        }
        taken
    }

    /// Returns the memory in use, in bytes.
    #[expect(clippy::arithmetic_side_effects, reason = "sums of sizes in memory")]
    pub(crate) fn memory(&self) -> usize {
        let queues = |session: &Session| {
            let flow = session
                .flow
                .as_ref()
                .map_or(0, |_| size_of::<SessionFlow>());
            let waiting = session.uni.iter().chain(&session.bidi);
            flow + (session.uni.capacity() + session.bidi.capacity()) * size_of::<IncomingStream>()
                + waiting.map(|stream| stream.buffered.len()).sum::<usize>()
        };
        let early = self.early.iter().map(|(_, stream)| stream.buffered.len());
        size_of::<Self>()
            + memory::hash_table(&self.sessions)
            + self.sessions.values().map(queues).sum::<usize>()
            + memory::hash_table(&self.streams)
            + self.early.capacity() * size_of::<(StreamId, IncomingStream)>()
            + early.sum::<usize>()
            + self.headers.capacity() * size_of::<(StreamId, StreamHeaderReader)>()
            + (self.flow_due.capacity() + self.flow_over.capacity()) * size_of::<StreamId>()
            + self.rejected.capacity() * size_of::<(StreamId, Code)>()
    }
}
