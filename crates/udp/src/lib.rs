//! UDP sockets for QUIC: batches, segmentation offload both ways, ECN, packet info, drop
//! counters, ICMP errors, a fine timer, and steering of datagrams to shards.
//!
//! On Linux a [`Socket`] reads with `recvmmsg` and writes whole trains with `UDP_SEGMENT`.
//! Elsewhere the same API works one datagram a call; [`Report`] says what a socket can do, so
//! that a caller never has to ask which platform it runs on. Nothing here knows QUIC beyond
//! where a packet keeps its destination connection ID ([`steering`]).
//!
//! Sockets are non-blocking and know no runtime: wrap one in tokio's `AsyncFd` (it is
//! `AsRawFd`), call [`Socket::recv`] or [`Socket::send`] until `WouldBlock`, wait again.
//!
//! What an error means is decided here, per system call and errno: [`SendError`] and
//! [`RecvError`] tell a loss from a wait and both from a broken socket. Nothing that arrives
//! from the network, ICMP of any kind included, can break a socket or switch something off.
//!
//! ```
//! use clearway_udp::{Options, RecvBatch, Socket, Transmit};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let a = Socket::bind("127.0.0.1:0".parse()?, &Options::default())?;
//! let b = Socket::bind("127.0.0.1:0".parse()?, &Options::default())?;
//!
//! let train = [7; 3000];
//! let mut transmit = Transmit::new(b.local_addr()?, &train);
//! transmit.segment_size = Some(1200); // three datagrams, one system call
//! a.send(&mut transmit)?;
//!
//! let mut batch = RecvBatch::for_socket(&b, 8);
//! b.recv(&mut batch)?;
//! for (meta, payload) in batch.datagrams() {
//!     assert_eq!(meta.remote, a.local_addr()?);
//!     payload.reverse(); // ours to change: decrypt in place
//! }
//! # Ok(())
//! # }
//! ```

#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable,
        clippy::unwrap_used,
    )
)]

mod batch;
mod counters;
mod datagram_socket;
mod ecn;
mod icmp;
mod options;
mod readiness;
mod receive;
mod socket;
pub mod steering;
mod streak;
#[cfg(all(target_os = "linux", any(test, feature = "testing")))]
pub mod testing;
mod timer;
mod transmit;
#[cfg(target_os = "linux")]
mod warning_interval;
mod warnings;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(any(test, not(target_os = "linux")))]
mod portable;

pub use batch::{MAX_SLOTS, Meta, RecvBatch};
pub use counters::Counters;
pub use datagram_socket::DatagramSocket;
pub use ecn::Ecn;
pub use icmp::{IcmpError, IcmpKind, IcmpSource};
pub use options::{Buffer, Options, Report};
pub use readiness::{Events, Observed, Readiness, ReadinessSource};
pub use receive::RecvError;
pub use socket::Socket;
pub use steering::{SteeringKey, bind_shards};
pub use timer::Timer;
pub use transmit::{DropKind, MAX_TRAIN, SendError, Transmit};
