//! The world that tests, benches and fuzzers share: two QUIC endpoints in virtual time.
//!
//! ```text
//! setup     the configuration of both ends
//! world     a client, a server, a clock and a path between them
//! host      one end: an endpoint, its connections, and the application on them
//! meter     the largest memory of one end
//! transfer  downloads over a world
//! pair      two connections joined in memory, for benches
//! explore   exhaustive exploration of state machines
//! readme    the tests that a README names exist
//! ```
//!
//! Nothing but `readme` reads a file, and nothing a clock. A seed decides everything except TLS secrets, on which no size and no time
//! depends.

pub mod explore;
mod host;
mod meter;
mod pair;
mod readme;
mod setup;
mod transfer;
mod world;

pub use host::{Application, EventLog, Host, SocketFault};
pub use meter::Meter;
pub use pair::DirectPair;
pub use readme::check_named_tests;
pub use setup::{Setup, identity, server_id};
pub use transfer::{Bulk, download, download_watched};
pub use world::{Filter, World, path};

/// Wall time of virtual time zero, in Unix seconds.
pub const UNIX_ORIGIN: u64 = 1_800_000_000;
