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
//! # What to know
//! * Dropping a [`SendStream`] that was not finished **resets** it, so that the peer
//!   does not mistake half a message for a whole one. Dropping a [`RecvStream`] that was
//!   not read to its end asks the peer to stop sending.
//! * Dropping the last handle of a connection (its [`Connection`]s and streams)
//!   closes it with code 0, after the peer has acknowledged every stream that was
//!   finished.
//! * Dropping the last [`Endpoint`] handle stops accepting; open connections go on.
//!   [`Endpoint::wait_idle`] waits until they have ended and the peers have been told.
//! * Certificates are verified.
//!
//! # The path of a datagram
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
//! A handle works on the connection itself, under the connection's own lock: there is no
//! task and no channel between a `write` and the buffer. A connection that has something
//! to send is put on its shard's dirty list once, however often it is written to, and the
//! shard is woken if it sleeps. A client's shard is a task on the caller's runtime, a
//! server's shard is a thread of its own ([`EndpointBuilder::shards`]).
//!
//! | module | contents |
//! |---|---|
//! | `endpoint` | binding, connecting, accepting, closing |
//! | [`config`] | certificates, protocols, transport settings |
//! | `connection` | the handle of a connection and the state it shares with its shard |
//! | `stream` | the two halves of a stream |
//! | [`http`] | an HTTP/3 server and client |
//! | [`doq`] | DNS over QUIC |
//! | `application` | a protocol served on an endpoint |
//! | `shard` | the event loop |
//! | `error` | errors |

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
compile_error!("clearway supports Unix only: its event loop waits on file descriptors");

mod application;
pub mod config;
mod connection;
pub mod doq;
mod endpoint;
mod error;
#[cfg(doctest)]
mod guide;
pub mod http;
mod log_limit;
mod panic;
pub mod runtime;
mod shard;
mod slice;
mod spans;
mod stream;

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
    CarefulResume, Config as TransportConfig, ConnectionError, PathStats, Stats, UpdateKeysError,
};
/// TLS settings of clients and servers, and the stores of their sessions for resumption and
/// 0-RTT.
pub use clearway_quic::crypto::{
    ClientCrypto, ClientSessions, ConfigError, Identity, Roots, ServerCrypto, ServerId, ServerName,
    ServerSessions,
};
pub use clearway_quic::endpoint::Limits;
pub use clearway_quic::event::{Observer, TraceEvent};
/// Whether packets of a path are marked with ECN ([`PathStats::ecn`]).
pub use clearway_quic::path::ecn::{EcnFailure, EcnState};
pub use clearway_quic::stream::{Priority, StreamId};
/// QUIC versions, and those that an end speaks in order of preference.
pub use clearway_quic::wire::{Version, VersionPreference, VersionPreferenceError};
pub use clearway_quic::{Instant, Role};
/// The built-in congestion controllers, and how their slow start ends.
pub use clearway_recovery::congestion::{Algorithm as CongestionController, SlowStart};
/// The traits and types to write a congestion controller
/// ([`ClientConfig::congestion_control`], which has an example, and
/// [`ServerConfig::congestion_control`]). The trait also names [`Instant`] and [`Limit`], which
/// are in the crate's root.
pub mod congestion {
    pub use clearway_recovery::congestion::{
        CongestionControl, ControllerFactory, NewPath, initial_window, min_window,
    };
    pub use clearway_recovery::controller::*;
    pub use clearway_recovery::rate::{Delivery, RateSample};
}
/// The traits and types to write a connection-ID generator
/// ([`EndpointBuilder::connection_ids`]).
pub mod connection_id {
    pub use clearway_quic::cid::generator::{CidGenerator, RandomGenerator};
    /// Connection IDs for load balancers (draft-ietf-quic-load-balancers).
    pub use clearway_quic::cid::quic_lb;
    pub use clearway_quic::cid::{CidLengths, ConnectionId};
    pub use clearway_quic::rng::Rng;
}
/// The reason why a connection is not sending.
pub use clearway_recovery::limit::{Limit, LimitGroup};
/// A directory with a qlog file for each connection.
pub use clearway_trace::qlog::QlogDir;
/// The sockets below an endpoint: to implement [`DatagramSocket`](udp::DatagramSocket) for
/// [`EndpointBuilder::on_datagram_socket`].
pub use clearway_udp as udp;
pub use clearway_udp::Options as SocketOptions;
