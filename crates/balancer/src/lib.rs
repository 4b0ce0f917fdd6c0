//! A load balancer for QUIC that routes by connection ID, so that a connection stays with its
//! server when its client changes its address.
//!
//! ```text
//! client                  shard (a thread of its own)                         server
//!   |   service socket      router                     flow            port     |
//!   | ---- batch, GRO ----> header -> backend ----> (client, backend) -- GSO --> |
//!   |                        1 connection ID with a server ID (QUIC-LB)          |
//!   |                        2 long header: addresses and source ID              |
//!   |                        3 table of destination IDs                          |
//!   |                        4 table of addresses                                |
//!   |                        5 Maglev, and the tables remember                   |
//!   | <--- GSO ------------- the flow's client <-- (port, address, server) ----- |
//! ```
//!
//! The routing does no I/O and reads no clock: [`Router`] decides on a backend, [`Flows`] assigns
//! upstream ports and remembers where replies go. [`Balancer`] runs them on sockets.
//!
//! Every table has a bound, and every datagram received is either forwarded or counted by the
//! reason why it was dropped ([`Traffic`]).

#![cfg_attr(
    not(test),
    deny(
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable,
        clippy::unwrap_used,
    )
)]

mod backend;
pub mod config;
mod control;
mod engine;
mod flows;
mod gather;
mod header;
mod health;
mod limit;
mod lru;
mod maglev;
mod orphans;
mod plan;
mod ports;
mod queue;
mod receive;
mod registry;
mod report;
mod router;
pub mod sample;
mod send;
mod service;
mod settings;
mod shard;
mod silence;
mod status;
mod strays;
#[cfg(feature = "testing")]
pub mod testing;
mod traffic;
mod transparent;

pub use backend::{Backend, BackendId, BackendState};
pub use flows::{Flow, FlowCapacity, FlowKey, Flows, Upstream};
pub use header::{Header, HeaderForm};
pub use health::HealthSettings;
pub use lru::LruMap;
pub use maglev::{Maglev, TABLE_SIZE};
pub use plan::{Plan, PlanError};
pub use router::{Route, RouteStep, Router, RouterLimits, Tuple};
pub use service::{Balancer, StartError};
pub use settings::{BackendSettings, Mode, Settings};
pub use status::{BackendStatus, Status};
pub use traffic::{DropReason, Traffic};
