//! UDP through HTTP/3: CONNECT-UDP (RFC 9298), a part of MASQUE.
//!
//! ```text
//! client   UdpTunnel::connect ─▶ /.well-known/masque/udp/{host}/{port}/ ─▶ UdpProxy::serve   server
//!          payloads ◀──────── HTTP datagrams, or capsules ────────▶ a connected UDP socket
//! ```
//!
//! ```
//! use axum::{Router, body::Body, extract::Request, extract::State, response::Response};
//! use clearway::http::connect_udp::{AddressPolicy, Target, UdpProxy, UdpTunnel, UdpTunnelMode};
//! use clearway::http::{Client, Server};
//! # use clearway::{ClientConfig, DevelopmentIdentity, ServerConfig};
//!
//! async fn serve(State(proxy): State<UdpProxy>, request: Request) -> Response {
//!     proxy.serve(request).await.map(|()| Body::empty())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let identity = DevelopmentIdentity::generate(["localhost"])?;
//! # let config = ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem())?;
//! let token = "a token of 24 characters";
//! // For this example: every port, and loopback, which is refused by default.
//! let policy = AddressPolicy::default().ports([]).allow("127.0.0.0/8".parse()?);
//! let proxy = UdpProxy::builder().token(token).policy(policy).build();
//! let server = Server::builder("127.0.0.1:0".parse()?, config).tunnels().build()?;
//! let url = format!("https://localhost:{}", server.local_addr().port()).parse()?;
//! let router = Router::new().fallback(serve).with_state(proxy);
//! tokio::spawn(async move { server.serve(router).await });
//!
//! let target = tokio::net::UdpSocket::bind("127.0.0.1:0").await?;
//! let to = Target::new("127.0.0.1", target.local_addr()?.port())?;
//! let client = Client::new(ClientConfig::with_roots(identity.certificate_pem())?)?;
//! let mode = UdpTunnelMode::Datagrams;
//! let mut tunnel = UdpTunnel::connect(&client, &url, &to, Some(token), mode).await?;
//! tunnel.send(b"ping")?;
//! let mut packet = [0; 100];
//! let (len, from) = target.recv_from(&mut packet).await?;
//! assert_eq!(&packet[..len], b"ping");
//! target.send_to(b"pong", from).await?;
//! assert_eq!(tunnel.recv().await?.as_deref(), Some(&b"pong"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! A proxy lets others send from its address, so it does nothing that it was not told to:
//!
//! * Every request has to carry a token ([`UdpProxyBuilder::token`]).
//! * Ports other than 443 and 53 are refused, and so are addresses that mean something else to the
//!   proxy than to its clients ([`AddressPolicy`]). A name is resolved once; the address that was
//!   checked is the one that packets are sent to.
//! * A payload that does not fit into a datagram, or for which the network has no room, is dropped
//!   and counted (RFC 9298 §5). Packets to the target are not marked with ECN.
//! * A tunnel without a packet for two minutes ends.
//!
//! | module | contents |
//! |---|---|
//! | `target` | host and port, and their path |
//! | `policy` | which addresses a proxy sends to |
//! | `proxy` | the server: authentication, resolution, answers |
//! | `relay` | packets between a tunnel and a socket |
//! | `udp_tunnel` | UDP payloads in a tunnel; the client |

mod policy;
mod proxy;
mod relay;
mod target;
mod udp_tunnel;

pub use self::policy::{AddressPolicy, DeniedAddress};
pub use self::proxy::{Resolution, UdpProxy, UdpProxyBuilder, UdpProxyCounters};
pub use self::target::{InvalidTarget, Target};
pub use self::udp_tunnel::{UdpTunnel, UdpTunnelCounters, UdpTunnelMode};

/// The `:protocol` (RFC 9298 §3.4).
const PROTOCOL: &str = "connect-udp";

/// The longest UDP payload, in bytes.
const MAX_PAYLOAD: usize = 65_527;
