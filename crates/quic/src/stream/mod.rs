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
//! group        streams that share credit of their own
//! sending      what sending halves share: credit, buffer budget, schedule
//! budget       limits on buffered data, which may change at any time
//! window       receive windows; concurrency: stream limits
//! ```
mod application;
mod assembler;
mod block;
mod budget;
mod concurrency;
pub(crate) mod config;
pub(crate) mod content;
mod event;
mod group;
mod halves;
mod incoming;
#[cfg(feature = "testing")]
pub(crate) mod inspection;
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
pub(crate) mod state;
pub(crate) mod streams;
#[cfg(test)]
mod tests;
mod window;

pub use crate::wire::stream_id::{Directionality, MAX_STREAM_COUNT, StreamId};
pub use config::Config;
pub use event::StreamEvent;
pub use group::{GroupAccount, GroupMarks};
pub use recv::ReadError;
pub use schedule::Priority;
pub use send::{SendProgress, WriteError};

pub(crate) use config::PeerLimits;
pub(crate) use content::StreamContent;
pub(crate) use streams::{Sendability, Streams};
