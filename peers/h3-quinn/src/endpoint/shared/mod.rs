//! An endpoint of the public QUIC interop runner ([`contract::runner`]) over HTTP/0.9, for the crates
//! that have quinn's functions: `quinn` here is quinn itself, or noq, its successor, by that name.

pub(crate) mod client;
pub(crate) mod server;
mod tls;

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use contract::runner::{Environment, Role};
use quinn::{TransportConfig, VarInt};

/// The application protocol of HTTP/0.9 over QUIC.
const HQ: &[u8] = b"hq-interop";

/// How long a connection may be silent: with 30 % loss, some handshakes take long.
const IDLE: Duration = Duration::from_secs(120);

/// Streams that a client may open at once. The runner wants 1,000 at most.
const STREAMS: VarInt = VarInt::from_u32(1000);

/// Test cases that are supported. These stacks have no version 2 and no preferred address of a
/// server.
const CASES: &[&str] = &[
    "handshake",
    "transfer",
    "longrtt",
    "chacha20",
    "multiplexing",
    "retry",
    "resumption",
    "zerortt",
    "blackhole",
    "keyupdate",
    "ecn",
    "amplificationlimit",
    "multiconnect",
    "handshakeloss",
    "transferloss",
    "handshakecorruption",
    "transfercorruption",
    "ipv6",
    "goodput",
    "crosstraffic",
    "rebind-port",
    "rebind-addr",
];

/// Does what the runner asks for; returns false if the test case is not supported.
pub(crate) async fn run(environment: Environment) -> Result<bool> {
    if !CASES.contains(&environment.test_case.as_str()) {
        return Ok(false);
    }
    match environment.role {
        Role::Client => client::run(&environment).await?,
        Role::Server => server::run(&environment).await?,
    }
    Ok(true)
}

fn transport(test_case: &str) -> Result<Arc<TransportConfig>> {
    let mut transport = TransportConfig::default();
    transport
        .max_idle_timeout(Some(IDLE.try_into()?))
        .max_concurrent_bidi_streams(STREAMS);
    if test_case == "zerortt" {
        // The runner counts 1-RTT payload: probes of the path's MTU would look like late requests.
        transport.mtu_discovery_config(None);
    }
    Ok(Arc::new(transport))
}
