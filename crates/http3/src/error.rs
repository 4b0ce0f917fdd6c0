//! Errors: the code the peer is told, and the cause in words.

use core::fmt;
use std::borrow::Cow;

/// An HTTP/3 application error code (RFC 9114 §8.1, RFC 9204 §6, RFC 9297 §5.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u64);

/// Declares the codes we know together with their names.
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
    /// Closed without an error.
    NO_ERROR = 0x100 as "H3_NO_ERROR";
    /// A violation without a code of its own.
    GENERAL_PROTOCOL_ERROR = 0x101 as "H3_GENERAL_PROTOCOL_ERROR";
    /// The endpoint itself failed.
    INTERNAL_ERROR = 0x102 as "H3_INTERNAL_ERROR";
    /// A stream the endpoint will not accept.
    STREAM_CREATION_ERROR = 0x103 as "H3_STREAM_CREATION_ERROR";
    /// A stream the connection cannot do without was closed or reset.
    CLOSED_CRITICAL_STREAM = 0x104 as "H3_CLOSED_CRITICAL_STREAM";
    /// A frame not permitted in the state or on the stream.
    FRAME_UNEXPECTED = 0x105 as "H3_FRAME_UNEXPECTED";
    /// A frame whose layout or size is wrong.
    FRAME_ERROR = 0x106 as "H3_FRAME_ERROR";
    /// Behaviour that might be generating excessive load.
    EXCESSIVE_LOAD = 0x107 as "H3_EXCESSIVE_LOAD";
    /// A stream or push ID used incorrectly.
    ID_ERROR = 0x108 as "H3_ID_ERROR";
    /// A wrong SETTINGS payload.
    SETTINGS_ERROR = 0x109 as "H3_SETTINGS_ERROR";
    /// The control stream does not begin with SETTINGS.
    MISSING_SETTINGS = 0x10a as "H3_MISSING_SETTINGS";
    /// Refused without any processing; safe to retry.
    REQUEST_REJECTED = 0x10b as "H3_REQUEST_REJECTED";
    /// The request or its response is not wanted any more.
    REQUEST_CANCELLED = 0x10c as "H3_REQUEST_CANCELLED";
    /// The client's stream ended without a whole request.
    REQUEST_INCOMPLETE = 0x10d as "H3_REQUEST_INCOMPLETE";
    /// A malformed message.
    MESSAGE_ERROR = 0x10e as "H3_MESSAGE_ERROR";
    /// The TCP connection of a CONNECT failed.
    CONNECT_ERROR = 0x10f as "H3_CONNECT_ERROR";
    /// To be retried over HTTP/1.1.
    VERSION_FALLBACK = 0x110 as "H3_VERSION_FALLBACK";
    /// A field section that can't be decoded (RFC 9204 §6).
    QPACK_DECOMPRESSION_FAILED = 0x200 as "QPACK_DECOMPRESSION_FAILED";
    /// A wrong instruction on the peer's encoder stream.
    QPACK_ENCODER_STREAM_ERROR = 0x201 as "QPACK_ENCODER_STREAM_ERROR";
    /// A wrong instruction on the peer's decoder stream.
    QPACK_DECODER_STREAM_ERROR = 0x202 as "QPACK_DECODER_STREAM_ERROR";
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

/// A violation that ends the connection (RFC 9114 §8).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}")]
pub struct ConnectionError {
    /// The code the peer is told.
    pub code: Code,
    /// The cause in words, for the peer's log and ours.
    pub reason: Cow<'static, str>,
}

impl ConnectionError {
    /// An error with its cause.
    pub fn new(code: Code, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            reason: reason.into(),
        }
    }
}

/// Why one request or response failed while the connection goes on (RFC 9114 §8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}")]
pub struct StreamError {
    /// The code the peer is told.
    pub code: Code,
    /// The cause in words.
    pub reason: &'static str,
}

impl StreamError {
    /// An error with its cause.
    #[must_use]
    pub const fn new(code: Code, reason: &'static str) -> Self {
        Self { code, reason }
    }

    /// The message is malformed (RFC 9114 §4.1.2).
    #[must_use]
    pub const fn malformed(reason: &'static str) -> Self {
        Self::new(Code::MESSAGE_ERROR, reason)
    }
}

/// What went wrong with a received message: itself, or the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The stream is abandoned.
    Stream(StreamError),
    /// The connection ends.
    Connection(ConnectionError),
}

impl From<StreamError> for Fault {
    fn from(error: StreamError) -> Self {
        Self::Stream(error)
    }
}

impl From<ConnectionError> for Fault {
    fn from(error: ConnectionError) -> Self {
        Self::Connection(error)
    }
}

/// Why something was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Something sent earlier waits for room; [`Event::Writable`](crate::Event::Writable)
    /// follows.
    #[error("the stream is blocked")]
    Blocked,
    /// The peer allows no further request now;
    /// [`Event::RequestsAvailable`](crate::Event::RequestsAvailable) follows.
    #[error("the peer allows no further request now")]
    TooManyRequests,
    /// One end is shutting down: requests go to another connection.
    #[error("the connection is going away")]
    GoingAway,
    /// The message breaks a rule of HTTP/3.
    #[error("the message is malformed: {0}")]
    Malformed(&'static str),
    /// The peer said that it takes no field section of this size.
    #[error("a field section of {size} bytes; the peer takes {limit}")]
    TooLarge {
        /// Its size, bytes (RFC 9114 §4.2.2).
        size: u64,
        /// The peer's SETTINGS_MAX_FIELD_SECTION_SIZE.
        limit: u64,
    },
    /// The peer has not said that it supports this.
    #[error("the peer does not support {0}")]
    Unsupported(&'static str),
    /// Not what comes next on this stream: a body before the header, a second
    /// final response, anything after the end.
    #[error("out of order: {0}")]
    OutOfOrder(&'static str),
    /// More or fewer bytes than the content-length that was sent.
    #[error("the body contradicts its content-length")]
    WrongLength,
    /// The peer does not want the data, with its code.
    #[error("the peer stopped reading: {0}")]
    Stopped(Code),
    /// No such stream, or it is over.
    #[error("no such stream")]
    Unknown,
    /// The connection has failed or is closed.
    #[error("the connection is closed")]
    Closed,
}

/// Why a body gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The peer gave up, with its code.
    #[error("the peer reset the stream: {0}")]
    Reset(Code),
    /// The rest is malformed; the stream was reset in both directions.
    #[error(transparent)]
    Failed(#[from] StreamError),
    /// No such stream, its end was read, it was stopped, or its header is still to
    /// come.
    #[error("unknown stream, or already read to its end")]
    Unknown,
    /// The connection has failed or is closed.
    #[error("the connection is closed")]
    Closed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_names_and_unknown_ones_their_number() {
        assert_eq!(Code::MESSAGE_ERROR.to_string(), "H3_MESSAGE_ERROR");
        assert_eq!(
            Code(0x200).to_string(),
            "QPACK_DECOMPRESSION_FAILED".to_owned()
        );
        assert_eq!(Code(0x1234).to_string(), "error 0x1234");
        let error = ConnectionError::new(Code::ID_ERROR, "GOAWAY grew");
        assert_eq!(error.to_string(), "H3_ID_ERROR: GOAWAY grew");
    }
}
