//! WebSocket over HTTP/3 (RFC 9220, RFC 6455).
//!
//! A server with [`ServerBuilder::tunnels`](super::ServerBuilder::tunnels) accepts them with
//! axum's own extractor, unchanged (`axum::extract::ws`, on a route for any method), or with
//! [`accept`]. A client opens them with [`Client::websocket`](super::Client::websocket).
//!
//! ```
//! use axum::extract::ws::{WebSocket, WebSocketUpgrade};
//! use axum::{Router, response::Response, routing::any};
//! use clearway::http::{Client, Server};
//! use clearway::http::websocket::Message;
//! use clearway::{ClientConfig, DevelopmentIdentity, ServerConfig};
//!
//! async fn upgrade(upgrade: WebSocketUpgrade) -> Response {
//!     upgrade.on_upgrade(async |mut socket: WebSocket| {
//!         while let Some(Ok(message)) = socket.recv().await {
//!             if socket.send(message).await.is_err() {
//!                 break;
//!             }
//!         }
//!     })
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let identity = DevelopmentIdentity::generate(["localhost"])?;
//! let config = ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem())?;
//! let server = Server::builder("127.0.0.1:0".parse()?, config).tunnels().build()?;
//! let url = format!("https://localhost:{}/ws", server.local_addr().port());
//! tokio::spawn(async move { server.serve(Router::new().route("/ws", any(upgrade))).await });
//!
//! let client = Client::new(ClientConfig::with_roots(identity.certificate_pem())?)?;
//! let mut socket = client.websocket(&url).await?;
//! socket.send(Message::text("hello")).await?;
//! assert_eq!(socket.recv().await.transpose()?, Some(Message::text("hello")));
//! socket.close(None).await?;
//! # Ok(())
//! # }
//! ```
//!
//! The frames are tungstenite's. A WebSocket that is dropped ends its stream like a TCP connection
//! that is closed; whether the last message was complete is told by its frames.
//!
//! | module | contents |
//! |---|---|
//! | `socket` | a WebSocket, opened by a client or accepted by a server |
//! | `io` | the two halves of a tunnel as one byte stream |
//! | `upgrade` | what axum's extractor expects of an HTTP server: hyper's `OnUpgrade` |

mod io;
mod socket;
mod upgrade;

pub(super) use self::io::TunnelIo;
pub use self::socket::{OpenWebSocketError, WebSocket, accept};
pub(super) use self::upgrade::Upgrade;
pub use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
pub use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
pub use tokio_tungstenite::tungstenite::{Error as WebSocketError, Message};

/// The `:protocol` (RFC 9220 §3).
const PROTOCOL: &str = "websocket";
