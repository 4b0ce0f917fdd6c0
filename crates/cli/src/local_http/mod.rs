//! The little of HTTP/1.1 (RFC 9112) that a browser on this host and Prometheus need.

mod access;
mod client;
mod events;
mod message;
mod server;

pub(crate) use self::access::Access;
pub(crate) use self::client::RemoteEndpoint;
pub(crate) use self::events::EventStreams;
pub(crate) use self::message::{RequestHead, Response};
pub(crate) use self::server::{Answer, serve};
