//! Errors: the code that is sent to the peer, and the reason in words.

use core::fmt;
use std::borrow::Cow;

/// An HTTP/3 application error code (RFC 9114 §8.1, RFC 9204 §6, RFC 9297 §5.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u64);

/// Declares the known codes with their names.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal as $text:literal;)*) => {
        impl Code {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// A malformed HTTP datagram or capsule (RFC 9297 §5.2).
    DATAGRAM_ERROR = 0x33 as "H3_DATAGRAM_ERROR";
    /// A WebTransport stream could not be kept until its session arrived (draft-ietf-webtrans-http3
    /// §4.6).
    WEBTRANSPORT_BUFFERED_STREAM_REJECTED = 0x3994_bd84 as "WEBTRANSPORT_BUFFERED_STREAM_REJECTED";
    /// The session of a WebTransport stream has ended (draft-ietf-webtrans-http3 §4.6).
    WEBTRANSPORT_SESSION_GONE = 0x170d_7b68 as "WEBTRANSPORT_SESSION_GONE";
    /// The peer exceeded a limit of a WebTransport session, or reduced one
    /// (draft-ietf-webtrans-http3-16 §5).
    WEBTRANSPORT_FLOW_CONTROL_ERROR = 0x045d_4487 as "WT_FLOW_CONTROL_ERROR";
    /// The connection or stream was closed without an error.
    NO_ERROR = 0x100 as "H3_NO_ERROR";
    /// A protocol violation without a code of its own.
    GENERAL_PROTOCOL_ERROR = 0x101 as "H3_GENERAL_PROTOCOL_ERROR";
    /// An internal error of the endpoint.
    INTERNAL_ERROR = 0x102 as "H3_INTERNAL_ERROR";
    /// The endpoint does not accept the stream that its peer created.
    STREAM_CREATION_ERROR = 0x103 as "H3_STREAM_CREATION_ERROR";
    /// A stream that the connection requires was closed or reset.
    CLOSED_CRITICAL_STREAM = 0x104 as "H3_CLOSED_CRITICAL_STREAM";
    /// A frame was received that is not allowed in the current state or on the current stream.
    FRAME_UNEXPECTED = 0x105 as "H3_FRAME_UNEXPECTED";
    /// A frame has an invalid layout or size.
    FRAME_ERROR = 0x106 as "H3_FRAME_ERROR";
    /// The peer's behavior might generate excessive load.
    EXCESSIVE_LOAD = 0x107 as "H3_EXCESSIVE_LOAD";
    /// A stream ID or push ID was used incorrectly.
    ID_ERROR = 0x108 as "H3_ID_ERROR";
    /// The SETTINGS payload is invalid.
    SETTINGS_ERROR = 0x109 as "H3_SETTINGS_ERROR";
    /// The control stream does not begin with a SETTINGS frame.
    MISSING_SETTINGS = 0x10a as "H3_MISSING_SETTINGS";
    /// The request was rejected without any processing; it is safe to retry.
    REQUEST_REJECTED = 0x10b as "H3_REQUEST_REJECTED";
    /// The request or its response is no longer needed.
    REQUEST_CANCELLED = 0x10c as "H3_REQUEST_CANCELLED";
    /// The client's stream ended before the request was complete.
    REQUEST_INCOMPLETE = 0x10d as "H3_REQUEST_INCOMPLETE";
    /// The message is malformed.
    MESSAGE_ERROR = 0x10e as "H3_MESSAGE_ERROR";
    /// The TCP connection for a CONNECT request failed or was reset.
    CONNECT_ERROR = 0x10f as "H3_CONNECT_ERROR";
    /// The request has to be retried over HTTP/1.1.
    VERSION_FALLBACK = 0x110 as "H3_VERSION_FALLBACK";
    /// A field section cannot be decoded (RFC 9204 §6).
    QPACK_DECOMPRESSION_FAILED = 0x200 as "QPACK_DECOMPRESSION_FAILED";
    /// An instruction on the peer's encoder stream is invalid (RFC 9204 §6).
    QPACK_ENCODER_STREAM_ERROR = 0x201 as "QPACK_ENCODER_STREAM_ERROR";
    /// An instruction on the peer's decoder stream is invalid (RFC 9204 §6).
    QPACK_DECODER_STREAM_ERROR = 0x202 as "QPACK_DECODER_STREAM_ERROR";
}

impl Code {
    /// Whether a connection is closed with this code because of what the peer sent.
    #[must_use]
    pub const fn blames_peer(self) -> bool {
        matches!(
            self,
            Self::DATAGRAM_ERROR
                | Self::GENERAL_PROTOCOL_ERROR
                | Self::STREAM_CREATION_ERROR
                | Self::CLOSED_CRITICAL_STREAM
                | Self::FRAME_UNEXPECTED
                | Self::FRAME_ERROR
                | Self::EXCESSIVE_LOAD
                | Self::ID_ERROR
                | Self::SETTINGS_ERROR
                | Self::MISSING_SETTINGS
                | Self::MESSAGE_ERROR
                | Self::QPACK_DECOMPRESSION_FAILED
                | Self::QPACK_ENCODER_STREAM_ERROR
                | Self::QPACK_DECODER_STREAM_ERROR
        )
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error {:#x}", self.0),
        }
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An error that closes the connection (RFC 9114 §8).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}")]
pub struct ConnectionError {
    /// The code that is sent to the peer.
    pub code: Code,
    /// The reason in words, for the peer's log and ours.
    pub reason: Cow<'static, str>,
}

impl ConnectionError {
    /// Creates an error from a code and a reason.
    pub(crate) fn new(code: Code, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            reason: reason.into(),
        }
    }
}

/// An error that ends one request or response, while the connection goes on (RFC 9114 §8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}")]
pub struct StreamError {
    /// The code that is sent to the peer.
    pub code: Code,
    /// The reason in words.
    pub reason: &'static str,
}

impl StreamError {
    /// Creates an error from a code and a reason.
    #[must_use]
    pub(crate) const fn new(code: Code, reason: &'static str) -> Self {
        Self { code, reason }
    }

    /// Creates an `H3_MESSAGE_ERROR`: the message is malformed (RFC 9114 §4.1.2).
    #[must_use]
    pub const fn malformed(reason: &'static str) -> Self {
        Self::new(Code::MESSAGE_ERROR, reason)
    }
}

/// An error in what was received: it ends the stream, or the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReceiveError {
    /// The stream is reset.
    Stream(StreamError),
    /// The connection is closed.
    Connection(ConnectionError),
}

impl From<StreamError> for ReceiveError {
    fn from(error: StreamError) -> Self {
        Self::Stream(error)
    }
}

impl From<ConnectionError> for ReceiveError {
    fn from(error: ConnectionError) -> Self {
        Self::Connection(error)
    }
}

/// The error of a call that sends something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Data that was sent earlier waits for flow control;
    /// [`Event::Writable`](crate::Event::Writable) follows.
    #[error("the stream is blocked by flow control")]
    Blocked,
    /// The peer's stream limit is reached;
    /// [`Event::RequestsAvailable`](crate::Event::RequestsAvailable) follows.
    #[error("too many open requests: the peer's stream limit is reached")]
    TooManyRequests,
    /// One endpoint is shutting the connection down. Requests need another connection.
    #[error("the connection is shutting down: use another connection")]
    GoingAway,
    /// The message violates a rule of HTTP/3; contains the reason.
    #[error("malformed message: {0}")]
    Malformed(&'static str),
    /// The field section is larger than the peer accepts.
    #[error("field section too large: {size} bytes, but the peer accepts at most {limit}")]
    TooLarge {
        /// The size of the field section, in bytes (RFC 9114 §4.2.2).
        size: u64,
        /// The peer's SETTINGS_MAX_FIELD_SECTION_SIZE, in bytes.
        limit: u64,
    },
    /// The peer's settings do not offer this extension.
    #[error("the peer does not support {0}")]
    Unsupported(&'static str),
    /// The call is not allowed in the state of this stream: a body before the header section, a
    /// second final response, anything after the end.
    #[error("call out of order: {0}")]
    OutOfOrder(&'static str),
    /// The body is longer or shorter than the content-length that was sent.
    #[error("the length of the body does not match content-length")]
    WrongLength,
    /// The peer stopped reading the stream, with this code.
    #[error("the peer stopped reading the stream: {0}")]
    Stopped(Code),
    /// The stream does not exist, or is already closed for sending.
    #[error("the stream does not exist or is already closed")]
    Unknown,
    /// The connection has failed or is closed.
    #[error("the connection is closed")]
    Closed,
}

/// The error of reading a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The peer reset the stream, with this code.
    #[error("the peer reset the stream: {0}")]
    Reset(Code),
    /// The rest of the message is malformed; the stream was reset in both directions.
    #[error(transparent)]
    Failed(#[from] StreamError),
    /// The stream does not exist, was read to its end, or was stopped.
    #[error("the stream does not exist or was already read to its end")]
    Unknown,
    /// The connection has failed or is closed.
    #[error("the connection is closed")]
    Closed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_codes_are_shown_by_name_and_unknown_ones_by_number() {
        assert_eq!(Code::MESSAGE_ERROR.to_string(), "H3_MESSAGE_ERROR");
        assert_eq!(
            Code(0x200).to_string(),
            "QPACK_DECOMPRESSION_FAILED".to_owned()
        );
        assert_eq!(Code(0x1234).to_string(), "error 0x1234");
        let error = ConnectionError::new(Code::ID_ERROR, "identifier increased");
        assert_eq!(error.to_string(), "H3_ID_ERROR: identifier increased");
    }
}
