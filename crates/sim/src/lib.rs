//! Clearway's event loop, and applications on tokio, over modelled networks in virtual time.
//!
//! | module | contents |
//! |---|---|
//! | [`network`] | hosts, the links between them, sockets by address |
//! | [`socket`] | a socket in memory, with full buffers and errors on demand |
//! | [`simulation`] | tokio with paused time: applications as they are, over a network |
//! | [`cores`] | cores on which the event loop takes time, without tokio |
//! | [`costs`] | what each call and datagram takes of a core |
//! | [`closed_loop`] | requests in a closed loop on two cores: rates, latency, how busy they are |
//!
//! The way of a datagram: the production event loop sends a train through
//! [`DatagramSocket`](clearway::udp::DatagramSocket); [`SimSocket`] splits it, and the link of its two
//! hosts delays, drops, marks or reorders each datagram; [`Network::advance`] puts those that are
//! due into the receiver's queue and sets its readiness, which wakes that event loop.
//!
//! A seed decides everything: what links draw, connection IDs, tokens, jitter of timers. Only the
//! secrets of TLS are the operating system's, on which no size and no time depends, given
//! certificates whose signatures have one size, such as [`identity`]'s.
//!
//! # An axum service over a slow, lossy link
//! ```
//! use std::time::Duration;
//! use clearway::{ClientConfig, Endpoint, ServerConfig, http};
//! use clearway_sim::{Simulation, identity};
//!
//! let (certificate, key) = identity(["shop.example"]);
//! let simulation = Simulation::new("rate=5M delay=40ms queue=100 loss=1%", 7)?;
//! let body = simulation.run(async |net| {
//!     // The server, at an address of the modelled network.
//!     let address = "10.0.0.1:443".parse().unwrap();
//!     let config = ServerConfig::with_identity(&certificate, &key).unwrap();
//!     let server = http::Server::builder(address, config)
//!         .endpoint(|endpoint| net.attach(endpoint, address))
//!         .build()
//!         .unwrap();
//!     let router = axum::Router::new().route("/", axum::routing::get(async || {
//!         tokio::time::sleep(Duration::from_secs(20)).await; // takes no time at all
//!         "in stock"
//!     }));
//!     tokio::spawn(async move { server.serve(router).await });
//!
//!     let local = "10.0.0.2:5000".parse().unwrap();
//!     let config = ClientConfig::with_roots(&certificate).unwrap();
//!     let client = http::Client::with_endpoint(net.attach(Endpoint::builder(local), local), config).unwrap();
//!     client.resolve("shop.example", 443, [address]);
//!     let response = client.get("https://shop.example/").await.unwrap();
//!     http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes()
//! });
//! assert_eq!(body, "in stock");
//! # Ok::<(), clearway_sim::SimError>(())
//! ```

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/simulation.md")]
struct Guide;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/own-protocol.md")]
struct OwnProtocol;

pub mod closed_loop;
pub mod cores;
pub mod costs;
mod identity;
pub mod network;
pub mod simulation;
pub mod socket;

pub use identity::identity;
pub use network::{Network, NetworkStats, SimError};
pub use simulation::{Net, Simulation};
pub use socket::SimSocket;
