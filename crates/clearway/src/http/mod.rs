//! HTTP/3: a server for any tower service, and a client.
//!
//! A server that says hello:
//!
//! ```
//! use axum::{Router, routing::get};
//! use clearway::{DevelopmentIdentity, ServerConfig, http::Server};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let identity = DevelopmentIdentity::generate(["localhost"])?;
//! let config = ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem())?;
//! let server = Server::bind("127.0.0.1:0".parse()?, config)?;
//! # let (stopping, address) = (server.clone(), server.local_addr());
//! # let serving = tokio::spawn(async move {
//! server.serve(Router::new().route("/", get(async || "hello"))).await?;
//! # Ok::<(), clearway::EndpointError>(())
//! # });
//! # let config = clearway::ClientConfig::with_roots(identity.certificate_pem())?;
//! # let client = clearway::http::Client::new(config)?;
//! # let mut response = client.get(&format!("https://localhost:{}/", address.port())).await?;
//! # assert_eq!(response.body_mut().text(100).await?, "hello");
//! # stopping.shutdown(std::time::Duration::from_secs(5)).await;
//! # serving.await??;
//! # Ok(())
//! # }
//! ```
//!
//! And its client, which trusts that one certificate
//! ([`ClientConfig::with_native_roots`](crate::ClientConfig::with_native_roots) trusts what the
//! host does); `url` is `https://localhost:` with the port of [`Server::local_addr`]:
//!
//! ```
//! use clearway::{ClientConfig, http::Client};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let identity = clearway::DevelopmentIdentity::generate(["localhost"])?;
//! # let config = clearway::ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem())?;
//! # let server = clearway::http::Server::bind("127.0.0.1:0".parse()?, config)?;
//! # let url = format!("https://localhost:{}/", server.local_addr().port());
//! # let router = axum::Router::new().route("/", axum::routing::get(async || "hello"));
//! # tokio::spawn(async move { server.serve(router).await });
//! let client = Client::new(ClientConfig::with_roots(identity.certificate_pem())?)?;
//! let mut response = client.get(&url).await?;
//! assert_eq!(response.status(), 200);
//! assert_eq!(response.body_mut().text(1_000).await?, "hello");
//! # Ok(())
//! # }
//! ```
//!
//! # The path of a request
//! ```text
//! shard ─▶ transport ─▶ HttpLayer (HTTP/3, under the connection's lock)
//!                         │ arrived        ▲ respond, write, finish
//!                         ▼                │
//!              task of the connection ─▶ task of the request: service ─▶ body
//! ```
//! Bodies are pulled: a client cannot send more of a body than the stream's window while the
//! handler does not read it.
//!
//! | module | contents |
//! |---|---|
//! | `layer`, `requests` | HTTP/3's state of a connection, and which tasks wait for what |
//! | `view` | the layer and the transport together, for one call |
//! | `request_stream` | the handle of one exchange |
//! | `body` | received bodies, and sending of bodies |
//! | `message` | conversions between the types of the `http` crate and header sections |
//! | `server`, `client` | tasks |
//! | `server_state` | what a server's connections share: permits for requests |
//! | `answer` | one request of a server and its response |
//! | `pool` | the client's connections |
//! | `early` | early data: requests before the handshake is complete |
//! | [`connect_udp`] | UDP in such tunnels: a proxy and its client |
//! | `tunnel` | CONNECT: halves, datagrams and capsules of a tunnel |
//! | `datagram_queue` | received datagrams of one tunnel |
//! | `websocket` | WebSockets in such tunnels (feature `websocket`) |
//! | [`webtransport`] | WebTransport sessions and their streams |
//! | `interim` | interim responses (1xx) |
//! | `error` | errors |

mod answer;
mod body;
mod client;
pub mod connect_udp;
mod datagram_queue;
mod early;
mod error;
mod interim;
pub(crate) mod layer;
mod message;
mod pool;
mod request_stream;
pub(crate) mod requests;
mod server;
mod server_state;
mod tunnel;
pub(crate) mod turns;
pub(crate) mod view;
#[cfg(feature = "websocket")]
pub mod websocket;
pub mod webtransport;

/// The ALPN identifier (RFC 9114 §3.1).
const ALPN: &str = "h3";

pub use self::body::Incoming;
pub use self::client::Client;
pub(crate) use self::early::RememberedSettings;
pub use self::early::{ArrivedEarly, EarlyData};
pub use self::error::{BoxError, Code, Error};
pub use self::interim::{Interim, InterimSender, OnInterim};
pub(crate) use self::layer::HttpLayer;
pub use self::message::Protocol;
pub use self::pool::port;
pub use self::server::{Server, ServerBuilder};
pub use self::server_state::ServerCounters;
pub use self::tunnel::{
    Capsule, CapsuleReader, OpenTunnel, OpenTunnelError, Tunnel, TunnelDatagramError,
    TunnelDatagrams, TunnelReceiver, TunnelSender,
};
pub use clearway_http3::error as protocol;
/// Limits on what a peer may use, timeouts, and sizes of compression tables.
pub use clearway_http3::{Config, Deadline, Limits, Timeouts};
