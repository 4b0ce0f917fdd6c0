//! What the application hears.

use clearway_quic::stream::StreamId;

use crate::error::{Code, ConnectionError, StreamError};
use crate::head::{Request, Response};
use crate::priority::Priority;
use crate::settings::Settings;
use crate::timeouts::Deadline;

/// Something the application can act on. Those about a stream name it, so that the
/// one who waits for it can be woken. `Readable` and `Writable` are edge-triggered:
/// told once, until the application has met `Blocked` again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer's SETTINGS arrived.
    Settings(Settings),
    /// A request arrived (server).
    Request {
        /// Its stream.
        stream: StreamId,
        /// Its header section.
        request: Request,
        /// Nothing follows; `read_body` need not be called.
        end: bool,
    },
    /// An interim response arrived (client).
    Informational {
        /// The request's stream.
        stream: StreamId,
        /// Its header section.
        response: Response,
    },
    /// The response arrived (client).
    Response {
        /// The request's stream.
        stream: StreamId,
        /// Its header section.
        response: Response,
        /// Nothing follows; `read_body` need not be called.
        end: bool,
    },
    /// `read_body` has something: data, trailers, the end or an error.
    Readable(StreamId),
    /// A send that was `Blocked` is worth trying again.
    Writable(StreamId),
    /// The peer gave up sending before its message was read. Sending may go on; a server
    /// whose answer has not begun can spare itself the work.
    Reset {
        /// The stream.
        stream: StreamId,
        /// The peer's code.
        code: Code,
    },
    /// The peer does not want what we send (any more); it was reset. Reading may go
    /// on: a server may answer early (RFC 9114 §4.1).
    Stopped {
        /// The stream.
        stream: StreamId,
        /// The peer's code; `NO_ERROR` if it needs no more of the request.
        code: Code,
    },
    /// A message of the peer is malformed or too large; the stream is gone in both
    /// directions.
    Failed {
        /// The stream.
        stream: StreamId,
        /// What is wrong with it.
        error: StreamError,
    },
    /// The client did not send more of a request's body, or take more of a response, in
    /// time; the stream is gone in both directions (server).
    TimedOut {
        /// The stream.
        stream: StreamId,
        /// What was missed.
        deadline: Deadline,
    },
    /// The server has not processed the request, which can be sent on another
    /// connection (RFC 9114 §5.2); the stream is gone (client).
    Rejected(StreamId),
    /// The peer changed the priority of a response in progress (server).
    PriorityChanged {
        /// The stream.
        stream: StreamId,
        /// As it is now.
        priority: Priority,
    },
    /// After `TooManyRequests`, a request would succeed now (client).
    RequestsAvailable,
    /// `recv_datagram` has something.
    DatagramReceived,
    /// The peer is on its way out.
    GoAway {
        /// From a server: the first request it does not process, by stream ID. From
        /// a client: a push ID.
        id: u64,
    },
    /// The connection fails for this; said once. `flush` closes it.
    Closed(ConnectionError),
}
