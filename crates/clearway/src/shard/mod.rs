//! A shard: one socket, one event loop, its connections.
//!
//! | module | contents |
//! |---|---|
//! | `link` | the access for handles and other shards: inbox, routes, counters |
//! | `driver` | the event loop: the steps of a turn, and their limits |
//! | `receiver` | receiving batches of datagrams |
//! | `routing` | the connection that a datagram belongs to; accepting clients |
//! | `connections` | the connections of the shard, and operations on all of them |
//! | `scheduler` | which connection gets the next turn |
//! | `chores` | which work waits while the next look at the socket is urgent |
//! | `turn` | the turn of one connection |
//! | `backlog` | datagrams that wait for the turn of their connection |
//! | `pending_clients` | new clients that wait for their handshake to begin |
//! | `recent_handshakes` | how many handshakes each source has begun recently |
//! | `handshake_pace` | how much time new and silent clients get beside others |
//! | `offenders` | sources whose connections end with errors of their own |
//! | `eviction` | closing connections when memory or places run out |
//! | `lingering` | closing connections once what is left is delivered |
//! | `transmitter` | sending trains of datagrams |
//! | `async_socket` | the socket with its readiness |
//! | `overdue` | timers of silent clients, which wait while others are served |
//! | `deadlines`, `alarm` | the deadlines of connections, and the timer for the next |
//! | `strays` | datagrams forwarded from other shards |
//! | `connection_count` | the number of connections over all shards |
//! | `clock` | the endpoint's time |

mod alarm;
mod async_socket;
mod backlog;
mod chores;
mod clock;
mod connection_count;
mod connections;
mod deadlines;
mod driver;
mod eviction;
mod handshake_pace;
mod lingering;
mod link;
mod offenders;
mod overdue;
mod pending_clients;
mod receiver;
mod recent_handshakes;
mod routing;
mod scheduler;
mod strays;
mod transmitter;
mod turn;
#[cfg(test)]
mod world;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use clearway_udp::DatagramSocket;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub(crate) use self::clock::Clock;
pub(crate) use self::connection_count::ConnectionCount;
pub(crate) use self::connections::Position;
pub(crate) use self::driver::Driver;
#[cfg(feature = "testing")]
pub use self::link::Fault;
pub use self::link::ShardCounters;
pub(crate) use self::link::{CloseAll, CloseWhen, ShardLink};
pub(crate) use self::scheduler::{MAX_OWED, QUANTUM_NANOS};

/// A shard's socket as a file descriptor, for the runtime.
#[derive(Debug)]
struct SocketFd {
    descriptor: RawFd,
    /// Keeps the descriptor open.
    _owner: Arc<dyn DatagramSocket>,
}

impl SocketFd {
    /// `descriptor` is the one of `owner`.
    fn new(descriptor: BorrowedFd<'_>, owner: Arc<dyn DatagramSocket>) -> Self {
        Self {
            descriptor: descriptor.as_raw_fd(),
            _owner: owner,
        }
    }
}

impl AsRawFd for SocketFd {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor
    }
}

/// Registers a file descriptor with the runtime.
#[expect(
    deprecated,
    reason = "the constructor that replaces it is unsafe for types that may swap their \
              descriptor; sockets and timers here own theirs for life"
)]
fn watch<T: AsRawFd>(owner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(owner, interest)
}
