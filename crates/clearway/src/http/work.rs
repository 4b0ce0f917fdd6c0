//! What HTTP/3 has to do on a connection, and who waits for it.

use std::collections::VecDeque;
use std::task::Waker;

use clearway_http3::error as protocol;
use clearway_http3::{Code, Deadline, Field, Request, Response};
use clearway_quic::stream::StreamId;
use rustc_hash::FxHashMap;

use super::error::Error;

/// What there is to do, and for whom.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Requests that no task has taken yet (server).
    pub(super) arrived: VecDeque<Arrived>,
    /// Exchanges that somebody holds.
    pub(super) exchanges: FxHashMap<StreamId, Exchange>,
}

impl Work {
    pub(super) fn is_done(&self) -> bool {
        self.arrived.is_empty() && self.exchanges.is_empty()
    }

    /// Bytes allocated.
    pub(super) fn memory(&self) -> usize {
        let arrived: usize = self.arrived.iter().map(Arrived::memory).sum();
        let exchanges = size_of::<(StreamId, Exchange)>().saturating_mul(self.exchanges.capacity());
        size_of::<Self>()
            .saturating_add(arrived)
            .saturating_add(exchanges)
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.arrived.shrink_to_fit();
        self.exchanges.shrink_to_fit();
    }
}

impl Arrived {
    fn memory(&self) -> usize {
        let Request {
            method,
            scheme,
            authority,
            path,
            protocol,
            fields,
        } = &self.head;
        let pseudo = [method, scheme, authority, path, protocol];
        let pseudo: usize = pseudo.into_iter().map(bytes::Bytes::len).sum();
        let field = |field: &Field| {
            size_of::<Field>()
                .saturating_add(field.name.len())
                .saturating_add(field.value.len())
        };
        let fields: usize = fields.iter().map(field).sum();
        size_of::<Self>()
            .saturating_add(pseudo)
            .saturating_add(fields)
    }
}

/// A request that arrived.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) id: StreamId,
    pub(crate) head: Request,
    /// No body follows.
    pub(crate) end: bool,
    /// It came before the handshake was complete.
    pub(crate) early: bool,
}

/// Requests that arrived.
#[derive(Debug)]
pub(crate) struct Arrivals {
    pub(crate) requests: VecDeque<Arrived>,
    /// Requests of the connection that were under way before.
    pub(crate) held: usize,
    /// Others wait to be taken.
    pub(crate) more: bool,
}

/// One request and its response, while somebody holds it.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    /// The response, until it is taken (client), and whether it has no body.
    pub(super) response: Option<(Response, bool)>,
    pub(super) informational: VecDeque<Response>,
    pub(super) fate: Option<Fate>,
    pub(super) stopped: Option<Code>,
}

/// How an exchange ended before its time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Reset(Code),
    Failed(protocol::StreamError),
    TimedOut(Deadline),
    Rejected,
}

impl From<Fate> for Error {
    fn from(fate: Fate) -> Self {
        match fate {
            Fate::Reset(code) => Self::Reset(code),
            Fate::Failed(error) => Self::Malformed(error),
            Fate::TimedOut(deadline) => Self::TimedOut(deadline),
            Fate::Rejected => Self::Rejected,
        }
    }
}
