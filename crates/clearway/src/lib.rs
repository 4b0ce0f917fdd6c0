//! QUIC for tokio: endpoints, connections, streams, datagrams.
//!
//! A server that echoes every stream:
//!
//! ```
//! use clearway::{Connection, DevelopmentIdentity, Endpoint, ServerConfig};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let identity = DevelopmentIdentity::generate(["localhost"])?;
//! let config = ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem())?;
//! let server = Endpoint::server("127.0.0.1:0".parse()?, config.alpn(["echo"]))?;
//! # let address = server.local_addr();
//! # let closing = server.clone();
//! # let serving = tokio::spawn(async move {
//! server.serve(async |connection: Connection| {
//!     while let Ok((mut send, mut recv)) = connection.accept_bi().await {
//!         tokio::spawn(async move {
//!             tokio::io::copy(&mut recv, &mut send).await?;
//!             send.finish()?; // dropped without it, the stream would be reset
//!             Ok::<(), std::io::Error>(())
//!         });
//!     }
//! }).await?;
//! # Ok::<(), clearway::EndpointError>(())
//! # });
//! # let config = clearway::ClientConfig::with_roots(identity.certificate_pem())?.alpn(["echo"]);
//! # let client = Endpoint::client("127.0.0.1:0".parse()?, config)?;
//! # let connection = client.connect(address, "localhost").await?;
//! # let (mut send, mut recv) = connection.open_bi().await?;
//! # send.write_all(b"x").await?;
//! # send.finish()?;
//! # assert_eq!(recv.read_to_end(10).await?, b"x");
//! # closing.close(0, b"");
//! # serving.await??;
//! # Ok(())
//! # }
//! ```
//!
//! And its client:
//!
//! ```
//! use clearway::{ClientConfig, Endpoint};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let identity = clearway::DevelopmentIdentity::generate(["localhost"])?;
//! # let config = clearway::ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem())?;
//! # let server = Endpoint::server("127.0.0.1:0".parse()?, config.alpn(["echo"]))?;
//! # let (address, certificate) = (server.local_addr(), identity.certificate_pem().to_owned());
//! # tokio::spawn(async move {
//! #     let connection = server.accept().await.unwrap().unwrap();
//! #     let (mut send, mut recv) = connection.accept_bi().await.unwrap();
//! #     tokio::io::copy(&mut recv, &mut send).await.unwrap();
//! #     send.finish().unwrap();
//! #     connection.closed().await;
//! # });
//! let config = ClientConfig::with_roots(&certificate)?.alpn(["echo"]);
//! let client = Endpoint::client("127.0.0.1:0".parse()?, config)?;
//! let connection = client.connect(address, "localhost").await?;
//! let (mut send, mut recv) = connection.open_bi().await?;
//! send.write_all(b"hello").await?;
//! send.finish()?;
//! assert_eq!(recv.read_to_end(100).await?, b"hello");
//! connection.close(0, b"done");
//! client.wait_idle().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Habits worth knowing
//! * Dropping a [`SendStream`] that was not finished **resets** it: a peer never
//!   takes half a message for a whole one. Dropping a [`RecvStream`] that was
//!   not read to its end asks the peer to stop.
//! * Dropping the last handle of a connection (its [`Connection`]s and streams)
//!   closes it with code 0, but only when the peer has acknowledged every stream
//!   that was finished.
//! * Dropping the last [`Endpoint`] handle stops accepting; connections live on.
//!   [`Endpoint::wait_idle`] waits until they have ended and said so.
//! * Certificates are verified.
//!
//! # A datagram's way
//! ```text
//!           shard: one socket, one event loop, its connections
//!           ┌──────────────────────────────────────────────────────────────┐
//! socket ──▶│ batch ─▶ stray? ─▶ route by connection ID ─▶ connection lock  │
//!           │           │            │                       │ receive      │
//!           │           ▼            ▼                       ▼              │
//!           │     owner's queue   answer without    events ─▶ wakers ───────┼─▶ tasks
//!           │                     a connection                              │    │ read, write,
//! socket ◀──│ train ◀─ transmit ◀─ ready, in turns ◀─ timers, dirty list ◀──┼────┘ open, close
//!           └──────────────────────────────────────────────────────────────┘
//! ```
//!
//! A handle works on the connection itself, under a lock that is its own: no
//! task and no channel stands between a `write` and the bytes being buffered.
//! What has to leave is put on the shard's dirty list, once however often it is
//! written, and the shard is woken if it sleeps. A client's shard is a task on
//! the caller's runtime, a server's a thread of its own
//! ([`EndpointBuilder::shards`]).
//!
//! | file | what it owns |
//! |---|---|
//! | [`endpoint`] | binding, connecting, accepting, closing |
//! | [`config`] | certificates, protocols, transport settings |
//! | [`connection`] | the handle of a connection and what it shares with its shard |
//! | [`stream`] | the two halves of a stream |
//! | [`application`] | a protocol served on an endpoint |
//! | `shard` | the event loop |
//! | [`error`] | why something failed |

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

#[cfg(not(unix))]
compile_error!("clearway's event loop waits on file descriptors: Unix only so far");

pub mod application;
pub mod config;
pub mod connection;
pub mod endpoint;
pub mod error;
#[cfg(doctest)]
mod guide;
pub mod http;
mod log_limit;
mod panic;
mod shard;
pub mod stream;

pub use application::Application;
pub use config::{Certificates, ClientConfig, DevelopmentIdentity, Fingerprint, ServerConfig};
pub use connection::Connection;
#[cfg(feature = "testing")]
pub use connection::Stage;
pub use endpoint::{
    Connecting, Counters, Endpoint, EndpointBuilder, MemoryAccount, MemoryCharge, ZeroRttAccepted,
};
pub use error::{
    BuildError, ConnectAnyError, ConnectError, EndpointError, ReadError, ReadExactError,
    ReadToEndError, SendDatagramError, WriteError,
};
pub use panic::CaughtPanic;
#[cfg(feature = "testing")]
pub use shard::Fault;
pub use stream::{RecvStream, SendStream};

pub use clearway_quic::connection::{
    Config as TransportConfig, ConnectionError, PathStats, Stats, UpdateKeysError,
};
/// TLS of clients and servers in full, and what they remember of each other:
/// tickets for resumption and 0-RTT.
pub use clearway_quic::crypto::{
    ClientCrypto, ClientSessions, ConfigError, Identity, Roots, ServerCrypto, ServerName,
    ServerSessions,
};
pub use clearway_quic::endpoint::Limits;
pub use clearway_quic::event::{Observer, TraceEvent};
pub use clearway_quic::stream::{Priority, StreamId};
pub use clearway_quic::{Instant, Role};
/// Congestion controllers to choose from, and how their slow start ends.
pub use clearway_recovery::congestion::{Algorithm as CongestionController, SlowStart};
/// What a congestion controller of your own is made of
/// ([`ClientConfig::congestion_control`], [`ServerConfig::congestion_control`]).
pub mod congestion {
    pub use clearway_recovery::congestion::{
        CongestionControl, ControllerFactory, NewPath, initial_window, min_window,
    };
    pub use clearway_recovery::controller::*;
    pub use clearway_recovery::rate::{Delivery, RateSample};
}
/// What a connection-ID generator of your own is made of
/// ([`EndpointBuilder::connection_ids`]).
pub mod connection_id {
    pub use clearway_quic::cid::ConnectionId;
    pub use clearway_quic::cid::generator::{CidGenerator, RandomGenerator};
    pub use clearway_quic::rng::Rng;
}
/// Why a connection is not sending, and who can change that.
pub use clearway_recovery::limit::{Limit, LimitGroup};
/// A directory that gets a qlog file for each connection.
pub use clearway_trace::qlog::QlogDir;
/// Sockets below the endpoint, for whoever brings a [`DatagramSocket`](udp::DatagramSocket) of
/// their own to [`EndpointBuilder::on_datagram_socket`].
pub use clearway_udp as udp;
pub use clearway_udp::Options as SocketOptions;
