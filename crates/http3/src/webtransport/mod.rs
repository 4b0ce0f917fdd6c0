//! WebTransport over HTTP/3 (draft-ietf-webtrans-http3): what its sessions and streams carry.
//!
//! A session is an extended CONNECT. Its streams are streams of the transport that begin with the
//! session's ID; the application reads and writes them on the transport itself.
//!
//! | module | contents |
//! |---|---|
//! | `code` | error codes of streams |
//! | `capsule` | the capsules that close and drain a session |
//! | `stream` | the header of a stream |
//! | `flow` | flow control of a session |
//! | `session` | sessions of a connection, and streams that wait for theirs |

mod capsule;
mod code;
mod flow;
mod session;
mod stream;

use crate::head::Request;

pub use self::capsule::{CLOSE_SESSION, CloseSession, DRAIN_SESSION, MAX_REASON};
pub use self::code::{code_from_wire, code_to_wire};
pub use self::flow::{
    DATA_BLOCKED, MAX_DATA, MAX_STREAMS_BIDI, MAX_STREAMS_UNI, STREAMS_BLOCKED_BIDI,
    STREAMS_BLOCKED_UNI, SessionLimits,
};
pub(crate) use self::flow::{FlowUpdate, SessionFlow, is_flow_control};
pub use self::session::SessionEnd;
pub(crate) use self::session::{Session, SessionState, WebTransport};
pub use self::stream::{BIDI_STREAM, IncomingStream, StreamHeader, StreamHeaderReader, UNI_STREAM};

/// Returns whether a request asks for a WebTransport session: `webtransport-h3` is the protocol
/// since draft-ietf-webtrans-http3-15, `webtransport` what all browsers send.
#[must_use]
pub fn is_session(request: &Request) -> bool {
    request.protocol == "webtransport" || request.protocol == "webtransport-h3"
}
