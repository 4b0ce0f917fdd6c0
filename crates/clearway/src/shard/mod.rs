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
//! | `turn` | the turn of one connection |
//! | `backlog` | datagrams that wait for the turn of their connection |
//! | `pending_clients` | new clients that wait for their handshake to begin |
//! | `eviction` | closing connections when memory or places run out |
//! | `transmitter` | sending trains of datagrams |
//! | `deadlines`, `alarm` | the deadlines of connections, and the timer for the next |
//! | `strays` | datagrams forwarded from other shards |
//! | `connection_count` | the number of connections over all shards |
//! | `clock` | the endpoint's time |

mod alarm;
mod backlog;
mod clock;
mod connection_count;
mod connections;
mod deadlines;
mod driver;
mod eviction;
mod link;
#[cfg(test)]
mod manual_socket;
mod pending_clients;
mod receiver;
mod routing;
mod scheduler;
mod strays;
mod transmitter;
mod turn;
#[cfg(test)]
mod world;

use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};
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
pub(crate) use self::link::ShardLink;
pub(crate) use self::scheduler::{MAX_OWED, QUANTUM_NANOS};

/// A shard's socket as a file descriptor, for the runtime.
#[derive(Clone, Debug)]
struct SocketFd(Arc<dyn DatagramSocket>);

impl Deref for SocketFd {
    type Target = dyn DatagramSocket;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl AsRawFd for SocketFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.descriptor().as_raw_fd()
    }
}

/// A socket with its readiness.
#[cfg(not(test))]
type AsyncSocket = AsyncFd<SocketFd>;
#[cfg(test)]
use self::manual_socket::AsyncSocket;

/// Registers a socket with the runtime.
fn watch_socket(socket: Arc<dyn DatagramSocket>) -> io::Result<AsyncSocket> {
    let interest = Interest::READABLE | Interest::WRITABLE | Interest::ERROR;
    let socket = watch(SocketFd(socket), interest)?;
    #[cfg(test)]
    let socket = AsyncSocket::Runtime(socket);
    Ok(socket)
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
