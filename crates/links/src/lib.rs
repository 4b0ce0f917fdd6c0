//! Link models and the event heap, in virtual and in real time.
//!
//! A [`Link`] is one direction of a network path: a queue, a serialiser, a
//! propagation delay, jitter and reordering, and impairments at the receiver.
//! It reads no clock: time is passed in as integer nanoseconds ([`Time`]), so
//! the same model runs under a virtual clock in tests and the lab, and under
//! the real one in `clearway relay`. Decisions are integers and all randomness
//! comes from a seed, so two runs with the same inputs agree everywhere.
//!
//! ```
//! use clearway_links::{Link, LinkConfig, Packet, Time};
//!
//! let config: LinkConfig = "rate=10M delay=15ms queue=25 loss=2%".parse()?;
//! let mut link = Link::new(config, 7);
//! let to = ([127, 0, 0, 1], 4433).into();
//! let from = ([127, 0, 0, 1], 50_000).into();
//! link.send(Time::ZERO, Packet::new(from, to, vec![0; 1200]));
//! while let Some(now) = link.next_event() {
//!     while let Some(packet) = link.poll(now) {
//!         assert_eq!(packet.data.len(), 1200);
//!     }
//! }
//! # Ok::<(), clearway_links::SpecError>(())
//! ```

mod config;
mod dice;
mod heap;
mod impair;
mod link;
mod nat;
mod packet;
mod path;
mod profile;
mod queue;
mod schedule;
mod serialiser;
mod spec;
mod stats;
mod time;
mod transit;

pub use config::{Jitter, LinkConfig, Overhead, Reorder};
pub use dice::Dice;
pub use heap::EventHeap;
pub use impair::{DropList, Gilbert};
pub use link::{Link, Verdict};
pub use nat::Nat;
pub use packet::{Ecn, Packet};
pub use path::{Direction, Path};
pub use profile::{PROFILES, Profile};
pub use queue::{MarkAt, QueueLimit};
pub use schedule::{Clock, LossWindows, Schedule, Window, Windows};
pub use spec::{Probability, Rate, Span, SpecError};
pub use stats::LinkStats;
pub use time::Time;
