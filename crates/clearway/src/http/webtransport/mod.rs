//! WebTransport over HTTP/3 (draft-ietf-webtrans-http3): streams and datagrams for web pages, and
//! for programs that share a connection with HTTP requests.
//!
//! A server that sends every stream back:
//!
//! ```
//! use axum::{Router, extract::Request, response::{IntoResponse, Response}, routing::any};
//! use clearway::http::webtransport::{AllowedOrigins, SessionRequest};
//!
//! async fn echo(request: Request) -> Response {
//!     let session = match SessionRequest::of(&request, &AllowedOrigins::SameHost) {
//!         Ok(asked) => asked.accept().await,
//!         Err(refused) => return refused.into_response(),
//!     };
//!     let Ok(session) = session else {
//!         return "the client has gone".into_response();
//!     };
//!     while let Ok((mut send, mut recv)) = session.accept_bi().await {
//!         tokio::spawn(async move {
//!             while let Ok(Some(data)) = recv.read_chunk(65_536).await {
//!                 send.write_chunk(data).await?;
//!             }
//!             send.finish()
//!         });
//!     }
//!     "ignored: the session was accepted".into_response()
//! }
//! # use clearway::{ClientConfig, DevelopmentIdentity, ServerConfig, http::{Client, Server}};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let identity = DevelopmentIdentity::generate(["localhost"])?;
//! # let config = ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem())?;
//! let server = Server::builder("127.0.0.1:0".parse()?, config).webtransport(16).build()?;
//! # let url = format!("https://localhost:{}/echo", server.local_addr().port());
//! # let serving = server.clone();
//! # tokio::spawn(async move {
//! serving.serve(Router::new().route("/echo", any(echo))).await
//! # });
//! # let client = Client::new(ClientConfig::with_roots(identity.certificate_pem())?)?;
//! # let (session, _) = client.webtransport(http::Request::get(url).body(())?).await?;
//! # let (mut send, mut recv) = session.open_bi().await?;
//! # send.write_all(b"hello").await?;
//! # send.finish()?;
//! # assert_eq!(recv.read_to_end(100).await?, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! [`Client::webtransport`](crate::http::Client::webtransport) opens a session.
//!
//! * A session lives as long as its handles, streams included. When the last is dropped it is closed
//!   with code 0. When it ends, its streams are reset in both directions.
//! * Sessions are tunnels, which [`ServerBuilder::max_tunnels`](crate::http::ServerBuilder::max_tunnels)
//!   limits and [`ServerCounters`](crate::http::ServerCounters) counts.
//! * The streams and the data of each session are limited ([`SessionLimits`], part of
//!   [`Config`](crate::http::Config)), and the limits follow what is read, if both ends support that
//!   (draft-ietf-webtrans-http3-16 §5). Otherwise sessions share the transport's limits.
//!
//! | module | contents |
//! |---|---|
//! | `request` | a server's request for a session: origin and protocols |
//! | `session` | sessions |
//! | `stream` | the halves of streams |
//! | `open` | the client |
//! | `state` | which tasks wait for what of a session |

mod open;
mod request;
mod session;
mod state;
mod stream;

pub use self::request::{AllowedOrigins, RefusedSession, SessionRequest};
pub use self::session::{SessionError, WebTransportSession};
pub(super) use self::state::SessionState;
pub use self::stream::{ReadToEndError, RecvStream, SendStream, StreamError};
pub use clearway_http3::webtransport::SessionLimits;
