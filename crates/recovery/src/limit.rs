//! Why a connection is not sending: one reason at a time.

/// The one reason a connection is not sending at this instant.
///
/// The names follow qlog's `connection_data_blocked_updated` reasons. The
/// precedence (decided by the send path, which knows) is: amplification, then
/// congestion, pacing, scheduling while something is sendable within credit;
/// otherwise connection credit, stream credit, stream limit, application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Limit {
    /// The handshake has not completed, so application data can't flow yet.
    Handshake,
    /// The peer's address is not validated (RFC 9000 §8.1).
    Amplification,
    /// The congestion window is full.
    Congestion,
    /// The window has room, the pacer says not yet.
    Pacing,
    /// The socket or the host did not take what we had ready.
    Scheduling,
    /// The peer's connection flow-control window is used up.
    ConnectionFlowControl,
    /// Everything sendable waits for stream credit.
    StreamFlowControl,
    /// The application waits for permission to open a stream.
    StreamLimit,
    /// The application had nothing to send while window and pacer were open.
    Application,
}
