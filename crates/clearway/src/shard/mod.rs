//! A shard: one socket, one event loop, its connections.
//!
//! | file | what it owns |
//! |---|---|
//! | `link` | what handles and other shards may touch of it |
//! | `driver` | the loop: what a turn does, in which order, within which bounds |
//! | `intake` | the way in: batches, and whose each datagram is |
//! | `connections` | its connections, and what concerns all of them |
//! | `arrivals` | whose a datagram is, which clients are let in |
//! | `turns` | whose turn it is |
//! | `turn` | the turn of one connection |
//! | `backlog` | datagrams that wait for the turn of their connection |
//! | `newcomers` | clients that wait to begin |
//! | `crowding` | who has to go when there is no room |
//! | `outlet` | the way out: trains, and what the socket says to them |
//! | `deadlines`, `alarm` | which connection waits for when; waking up then |
//! | `strays` | datagrams on their way to the shard that owns them |
//! | `connection_count` | how many connections are alive, over all shards |
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
pub(crate) use self::eviction::Activity;
#[cfg(feature = "testing")]
pub use self::link::Fault;
pub use self::link::ShardCounters;
pub(crate) use self::link::ShardLink;

/// A shard's socket, as the runtime watches it.
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

/// A socket and its readiness.
#[cfg(not(test))]
type AsyncSocket = AsyncFd<SocketFd>;
#[cfg(test)]
use self::manual_socket::AsyncSocket;

/// Has the runtime watch a socket.
fn watch_socket(socket: Arc<dyn DatagramSocket>) -> io::Result<AsyncSocket> {
    let interest = Interest::READABLE | Interest::WRITABLE | Interest::ERROR;
    let socket = watch(SocketFd(socket), interest)?;
    #[cfg(test)]
    let socket = AsyncSocket::Runtime(socket);
    Ok(socket)
}

/// Has the runtime watch a descriptor.
#[expect(
    deprecated,
    reason = "the constructor that replaces it is unsafe for types that may swap their \
              descriptor; sockets and timers here own theirs for life"
)]
fn watch<T: AsRawFd>(owner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(owner, interest)
}
