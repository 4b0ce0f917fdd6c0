//! Loss detection and congestion control for QUIC (RFC 9002, RFC 9438), with
//! no TLS, no I/O, no clock and no floating point; usable alone.
pub mod congestion;
pub mod controller;
pub mod limit;
pub mod rate;
pub mod time;
