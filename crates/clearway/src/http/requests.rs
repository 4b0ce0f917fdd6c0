//! The requests in progress on a connection.

use std::collections::VecDeque;
use std::task::Waker;

use clearway_http3::error as protocol;
use clearway_http3::{Code, Deadline, Field, Request, Response};
use clearway_quic::stream::StreamId;
use rustc_hash::FxHashMap;

use super::datagram_queue::DatagramQueue;
use super::error::Error;
use super::webtransport::SessionState;
use crate::connection::wakeups::Wakeups;

/// The requests in progress on a connection.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Requests that no task has taken yet (server).
    pub(super) arrived: VecDeque<ArrivedRequest>,
    /// Exchanges that have a handle, and tunnels that have arrived.
    pub(super) exchanges: FxHashMap<StreamId, ExchangeState>,
    /// The bytes of received datagrams, over all tunnels.
    pub(super) datagram_bytes: usize,
    /// Streams of WebTransport sessions that have ended, whose tasks have to be woken.
    pub(super) ended_streams: Vec<StreamId>,
}

impl Requests {
    pub(super) fn is_done(&self) -> bool {
        self.arrived.is_empty() && self.exchanges.is_empty()
    }

    /// Returns the memory allocated, in bytes.
    pub(super) fn memory(&self) -> usize {
        let arrived: usize = self.arrived.iter().map(ArrivedRequest::memory).sum();
        let exchanges =
            size_of::<(StreamId, ExchangeState)>().saturating_mul(self.exchanges.capacity());
        let queues = (self.exchanges.values()).filter_map(|exchange| exchange.datagrams.as_ref());
        let queues: usize = queues.map(|queue| queue.overhead()).sum();
        size_of::<Self>()
            .saturating_add(arrived)
            .saturating_add(exchanges)
            .saturating_add(queues)
            .saturating_add(self.datagram_bytes)
    }

    /// Removes an exchange, with the datagrams that nobody read.
    pub(super) fn remove(&mut self, id: StreamId) {
        if let Some(exchange) = self.exchanges.remove(&id)
            && let Some(queue) = exchange.datagrams
        {
            self.datagram_bytes = self.datagram_bytes.saturating_sub(queue.bytes());
        }
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.arrived.shrink_to_fit();
        self.exchanges.shrink_to_fit();
    }
}

impl ArrivedRequest {
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

/// A request that has arrived (server).
#[derive(Debug)]
pub(crate) struct ArrivedRequest {
    pub(crate) id: StreamId,
    pub(crate) head: Request,
    /// No body follows.
    pub(crate) end: bool,
    /// It arrived as early data.
    pub(crate) early: bool,
}

/// A batch of requests that have arrived (server).
#[derive(Debug)]
pub(crate) struct ArrivedRequests {
    pub(crate) requests: VecDeque<ArrivedRequest>,
    /// Requests of the connection that were in progress before.
    pub(crate) held: usize,
    /// More requests wait to be taken.
    pub(crate) more: bool,
}

/// The state of a request and its response that have a handle.
#[derive(Debug, Default)]
pub(super) struct ExchangeState {
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    /// The response until it is taken, and whether it has no body (client).
    pub(super) response: Option<(Response, bool)>,
    pub(super) informational: VecDeque<Response>,
    pub(super) failure: Option<ExchangeFailure>,
    pub(super) stopped: Option<Code>,
    /// Received datagrams, once there are any or a task waits for one (tunnels).
    pub(super) datagrams: Option<Box<DatagramQueue>>,
    /// Who waits for what of a WebTransport session.
    pub(super) session: Option<Box<SessionState>>,
}

impl ExchangeState {
    /// Wakes whoever waits for something of the exchange.
    pub(super) fn wake(&mut self, wakeups: &mut Wakeups) {
        wakeups.wake(self.reader.take());
        wakeups.wake(self.writer.take());
        self.wake_datagram_reader(wakeups);
        if let Some(session) = &mut self.session {
            session.wake(wakeups);
        }
    }

    pub(super) fn wake_datagram_reader(&mut self, wakeups: &mut Wakeups) {
        if let Some(queue) = &mut self.datagrams {
            wakeups.wake(queue.reader.take());
        }
    }
}

/// Why an exchange failed.
#[derive(Clone, Copy, Debug)]
pub(super) enum ExchangeFailure {
    Reset(Code),
    Failed(protocol::StreamError),
    TimedOut(Deadline),
    Rejected,
}

impl From<ExchangeFailure> for Error {
    fn from(failure: ExchangeFailure) -> Self {
        match failure {
            ExchangeFailure::Reset(code) => Self::Reset(code),
            ExchangeFailure::Failed(error) => Self::Malformed(error),
            ExchangeFailure::TimedOut(deadline) => Self::TimedOut(deadline),
            ExchangeFailure::Rejected => Self::Rejected,
        }
    }
}
