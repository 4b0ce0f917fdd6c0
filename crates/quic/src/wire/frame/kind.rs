//! Frame types (RFC 9000 §12.4 table 3, RFC 9221 §4, ACK frequency §4–5, reliable reset §4).

/// PADDING.
pub const PADDING: u64 = 0x00;
/// PING.
pub const PING: u64 = 0x01;
/// ACK without ECN counts.
pub const ACK: u64 = 0x02;
/// ACK with ECN counts.
pub const ACK_ECN: u64 = 0x03;
/// RESET_STREAM.
pub const RESET_STREAM: u64 = 0x04;
/// STOP_SENDING.
pub const STOP_SENDING: u64 = 0x05;
/// CRYPTO.
pub const CRYPTO: u64 = 0x06;
/// NEW_TOKEN.
pub const NEW_TOKEN: u64 = 0x07;
/// STREAM without flags.
pub const STREAM: u64 = 0x08;
/// STREAM with every flag.
pub const STREAM_LAST: u64 = STREAM | STREAM_OFF | STREAM_LEN | STREAM_FIN;
/// STREAM flag: the stream ends here.
pub const STREAM_FIN: u64 = 0x01;
/// STREAM flag: there is a Length field.
pub const STREAM_LEN: u64 = 0x02;
/// STREAM flag: there is an Offset field.
pub const STREAM_OFF: u64 = 0x04;
/// MAX_DATA.
pub const MAX_DATA: u64 = 0x10;
/// MAX_STREAM_DATA.
pub const MAX_STREAM_DATA: u64 = 0x11;
/// MAX_STREAMS for bidirectional streams.
pub const MAX_STREAMS_BIDI: u64 = 0x12;
/// MAX_STREAMS for unidirectional streams.
pub const MAX_STREAMS_UNI: u64 = 0x13;
/// DATA_BLOCKED.
pub const DATA_BLOCKED: u64 = 0x14;
/// STREAM_DATA_BLOCKED.
pub const STREAM_DATA_BLOCKED: u64 = 0x15;
/// STREAMS_BLOCKED for bidirectional streams.
pub const STREAMS_BLOCKED_BIDI: u64 = 0x16;
/// STREAMS_BLOCKED for unidirectional streams.
pub const STREAMS_BLOCKED_UNI: u64 = 0x17;
/// NEW_CONNECTION_ID.
pub const NEW_CONNECTION_ID: u64 = 0x18;
/// RETIRE_CONNECTION_ID.
pub const RETIRE_CONNECTION_ID: u64 = 0x19;
/// PATH_CHALLENGE.
pub const PATH_CHALLENGE: u64 = 0x1a;
/// PATH_RESPONSE.
pub const PATH_RESPONSE: u64 = 0x1b;
/// CONNECTION_CLOSE for a transport error.
pub const CONNECTION_CLOSE: u64 = 0x1c;
/// CONNECTION_CLOSE for an application's error.
pub const APPLICATION_CLOSE: u64 = 0x1d;
/// HANDSHAKE_DONE.
pub const HANDSHAKE_DONE: u64 = 0x1e;
/// IMMEDIATE_ACK.
pub const IMMEDIATE_ACK: u64 = 0x1f;
/// RESET_STREAM_AT (draft-ietf-quic-reliable-stream-reset §4).
pub const RESET_STREAM_AT: u64 = 0x24;
/// DATAGRAM that runs to the end of the packet.
pub const DATAGRAM: u64 = 0x30;
/// DATAGRAM with a Length field.
pub const DATAGRAM_LEN: u64 = 0x31;
/// ACK_FREQUENCY; two bytes on the wire.
pub const ACK_FREQUENCY: u64 = 0xaf;
