//! Streams (RFC 9000 §2–4, §19.4–19.14).
//!
//! ```text
//! streams      all streams of a connection: limits, lookup, opening and removal
//! application  the calls of the application
//! incoming     received frames
//! outgoing     filling packets
//! outcome      acknowledged and lost frames
//! halves       one stream; send, recv: its halves; state: their state machines
//! layout       how a STREAM frame fits into a packet
//! per_direction   values for each directionality
//! send_buffer, ranges        data to send
//! assembler, out_of_order, block   received data
//! sending      what sending halves share: credit, buffer budget, schedule
//! budget       limits on buffered data, which may change at any time
//! window       receive windows; concurrency: stream limits
//! ```
mod application;
mod assembler;
mod block;
mod budget;
mod concurrency;
pub mod config;
mod content;
mod event;
mod halves;
mod incoming;
#[cfg(feature = "testing")]
mod inspection;
mod layout;
mod out_of_order;
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

pub use crate::wire::stream_id::{Directionality, MAX_STREAM_COUNT, StreamId};
pub use config::{Config, PeerLimits};
pub use content::StreamContent;
pub use event::StreamEvent;
#[cfg(feature = "testing")]
pub use inspection::ProductiveWork;
pub use recv::ReadError;
pub use schedule::Priority;
pub use send::{SendProgress, WriteError};
pub use streams::{Counts, Sendability, Streams};
