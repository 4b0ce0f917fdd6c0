//! Events of a connection for the application.

use clearway_quic::stream::{Directionality, StreamId};

use crate::error::{Code, ConnectionError, StreamError};
use crate::head::{Request, Response};
use crate::priority::Priority;
use crate::settings::Settings;
use crate::timeouts::Deadline;
use crate::webtransport::SessionEnd;

/// An event that the application can act on. Events of a stream name it, so that the task that
/// waits for it can be woken. `Readable` and `Writable` are edge-triggered: after one, there is no
/// other until a call has returned `Blocked` again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer's SETTINGS arrived.
    Settings(Settings),
    /// A request arrived (server).
    Request {
        /// The request stream.
        stream: StreamId,
        /// Its header section.
        request: Request,
        /// Whether the message has neither body nor trailers; `read_body` need not be called.
        end: bool,
    },
    /// An interim (1xx) response arrived (client).
    Informational {
        /// The request's stream.
        stream: StreamId,
        /// Its header section.
        response: Response,
    },
    /// The final response arrived (client).
    Response {
        /// The request's stream.
        stream: StreamId,
        /// Its header section.
        response: Response,
        /// Whether the message has neither body nor trailers; `read_body` need not be called.
        end: bool,
    },
    /// `read_body` has something to return: data, trailers, the end or an error.
    Readable(StreamId),
    /// A send that returned `Blocked` can be tried again.
    Writable(StreamId),
    /// The peer reset the stream before its message was read. Sending may go on; a server whose
    /// response has not begun can save itself the work.
    Reset {
        /// The stream.
        stream: StreamId,
        /// The peer's error code.
        code: Code,
    },
    /// The peer stopped reading the stream, and our sending side was reset. Reading may go on: a
    /// server may respond before it has read the whole request (RFC 9114 §4.1).
    Stopped {
        /// The stream.
        stream: StreamId,
        /// The peer's error code; `NO_ERROR` if it needs no more of the request.
        code: Code,
    },
    /// The peer's message is malformed or too large. The stream was reset in both directions.
    Failed {
        /// The stream.
        stream: StreamId,
        /// The code and the reason.
        error: StreamError,
    },
    /// The client did not send more of a request's body, or did not accept more of a response, in
    /// time. The stream was reset in both directions (server).
    TimedOut {
        /// The stream.
        stream: StreamId,
        /// The deadline that was missed.
        deadline: Deadline,
    },
    /// The server has not processed the request, which can be retried on another connection (RFC
    /// 9114 §5.2). The stream is closed (client).
    Rejected(StreamId),
    /// The client changed the priority of a response in progress (server).
    PriorityChanged {
        /// The stream.
        stream: StreamId,
        /// The new priority.
        priority: Priority,
    },
    /// After `TooManyRequests`, another request can be sent now (client).
    RequestsAvailable,
    /// `recv_datagram` has a datagram to return.
    DatagramReceived,
    /// The peer opened a stream of a WebTransport session:
    /// [`accept_session_stream`](crate::Connection::accept_session_stream) returns it.
    SessionStream {
        /// The session's request stream.
        session: StreamId,
        /// Whether the stream is unidirectional or bidirectional.
        directionality: Directionality,
    },
    /// A session may open more streams, after
    /// [`open_session_stream`](crate::Connection::open_session_stream) returned none because of its
    /// limit.
    SessionStreamsAvailable(Directionality),
    /// The peer asks to end a WebTransport session soon; it is still usable.
    SessionDraining(StreamId),
    /// A WebTransport session has ended. Its streams were reset in both directions.
    SessionEnded {
        /// The session's request stream.
        session: StreamId,
        /// How it ended.
        end: SessionEnd,
        /// The streams that were open.
        streams: Vec<StreamId>,
    },
    /// The peer sent GOAWAY: it is shutting the connection down.
    GoAway {
        /// From a server: the first request stream that it will not process. From a client: a push
        /// ID.
        id: u64,
    },
    /// The connection failed with this error; reported once. `flush` closes the connection.
    Closed(ConnectionError),
}
