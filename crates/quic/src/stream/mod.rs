//! Streams (RFC 9000 §2–4, §19.4–19.14).
//!
//! ```text
//! streams      all streams of a connection: limits, lookup, life and end
//! application  what the application calls
//! incoming     frames of the peer
//! outgoing     filling a packet
//! outcome      packets acknowledged or lost
//! halves       one stream; send, recv: its halves; state: their machines
//! layout       how a STREAM frame uses the room in a packet
//! per_direction   what there is once for each directionality
//! send_buffer, ranges        bytes on their way out
//! assembler, ahead, block   bytes on their way in
//! sending      what sending halves share: credit, budget, turns (schedule)
//! budget       what all may buffer, changed while they live
//! window       credit we grant; concurrency: how many streams
//! ```
mod ahead;
mod application;
mod assembler;
mod block;
mod budget;
mod concurrency;
pub mod config;
mod content;
mod event;
mod halves;
pub mod id;
mod incoming;
#[cfg(feature = "testing")]
mod inspection;
mod layout;
mod outcome;
mod outgoing;
mod per_direction;
mod ranges;
mod recv;
mod schedule;
mod send;
mod send_buffer;
mod sending;
pub mod state;
mod streams;
#[cfg(test)]
mod tests;
mod window;

pub use config::{Config, PeerLimits};
pub use content::StreamContent;
pub use event::StreamEvent;
pub use id::{Directionality, StreamId};
#[cfg(feature = "testing")]
pub use inspection::Useful;
pub use recv::ReadError;
pub use schedule::Priority;
pub use send::{SendProgress, WriteError};
pub use streams::{Counts, Sendability, Streams};

/// Most streams of a kind that an ID can number (RFC 9000 §4.6).
pub const MAX_STREAM_COUNT: u64 = 1 << 60;
