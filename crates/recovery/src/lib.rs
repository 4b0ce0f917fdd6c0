//! Loss detection and congestion control for QUIC (RFC 9002, RFC 9438), with
//! no TLS, no I/O, no clock and no floating point; usable alone.
//!
//! A [`Recovery`] keeps the packets that a connection sent until they are acknowledged,
//! lost or discarded. It also owns the bytes in flight, the reordering thresholds and the
//! one timer.
//!
//! The controller of a path is built by a
//! [`CongestionControl`](congestion::CongestionControl): one of
//! [`Algorithm`](congestion::Algorithm), or one of your own behind a
//! [`ControllerFactory`](congestion::ControllerFactory).
//!
//! ```text
//!             gate ──► may a train be sent?      window − in flight, then the pacer
//!                │
//!  connection ── on_sent ──► ledger (space)      packet by number, with its content
//!                       └──► path                in flight, send index, delivery state
//!                │
//!                set_limit ──► path              why the train ended: clock, marks
//!                │
//!                on_ack ──► ledger ──► acked     ranges out, content back
//!                │              └────► late      spurious losses: thresholds, undo
//!                │          rtt                  on the packet's own path
//!                │          loss ────► lost      packet and time threshold
//!                │          controller           on_congestion, then on_ack
//!                │
//!                on_timeout ──► lost, or a probe timeout
//! ```
//!
//! | module          | holds                                    | source             |
//! |-----------------|------------------------------------------|--------------------|
//! | [`recovery`]    | the entry point                          | RFC 9002           |
//! | [`rtt`]         | round-trip time                          | RFC 9002 §5        |
//! | `ledger`        | items by ascending number                |                    |
//! | [`packet`]      | what is kept of a sent packet            | RFC 9002 A.1       |
//! | [`space`]       | a packet number space                    | RFC 9000 §12.3     |
//! | `loss`          | reordering thresholds                    | RFC 9002 §6.1      |
//! | `detection`     | acknowledged, late or lost               | RFC 9002 A.7, A.10 |
//! | [`pto`]         | the timer                                | RFC 9002 §6.2      |
//! | `persistent`    | persistent congestion                    | RFC 9002 §7.6      |
//! | `spurious`      | losses that prove to be spurious         | RFC 9438 §4.9.2    |
//! | [`path`]        | in flight, gate, controller              | RFC 9000 §9.4      |
//! | `pacer`         | spreading the window over the round trip | RFC 9002 §7.7      |
//! | [`rate`]        | delivery rate                            | BBR draft §4.1     |
//! | `capacity`      | what a later connection may begin with   | RFC 9959 §3.1      |
//! | [`limit`]       | the reason for not sending               | qlog, RFC 9438 §5.8|
//! | `window_used`   | which packets justify growth             | RFC 9002 §7.8      |
//! | `fraction`      | products divided, without overflow       |                    |
//! | [`controller`]  | the trait of congestion controllers      | RFC 9002 §7        |
//! | [`congestion`]  | NewReno, CUBIC, Prague, BBR, a fixed one | RFC 9438, drafts   |
//! | [`outcome`]     | results for the connection               |                    |
//!
//! The feature `specimens` adds controllers and a [`Recovery`] with known bugs, to test
//! detectors with. Each is a wrapper around the correct one.
mod capacity;
pub mod congestion;
pub mod controller;
mod detection;
mod fraction;
mod invariants;
mod ledger;
pub mod limit;
mod loss;
pub mod outcome;
mod own_marks;
mod pacer;
pub mod packet;
pub mod path;
mod persistent;
pub mod pto;
pub mod rate;
pub mod recovery;
pub mod rtt;
pub mod space;
#[cfg(feature = "specimens")]
pub mod specimens;
mod spurious;
pub mod time;
mod window_used;

#[cfg(test)]
mod tests;

pub use outcome::{AckError, Outcome};
pub use packet::SentInfo;
pub use path::{Gate, PathId, PathRecovery};
pub use pto::PtoContext;
pub use recovery::Config;
#[cfg(not(feature = "specimens"))]
pub use recovery::Recovery;
pub use space::Space;
#[cfg(feature = "specimens")]
pub use specimens::Recovery;

/// The worked example of CONTRIBUTING.md compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../CONTRIBUTING.md")]
struct Contributing;
