//! msquic as an endpoint of the public QUIC interop runner ([`contract::runner`]), over HTTP/0.9.

mod client;
mod ffi;
mod server;

use std::process::ExitCode;

use anyhow::Result;
use contract::runner::{self, Environment, Role};
use msquic::{BufferRef, Settings};

/// The application protocol of HTTP/0.9 over QUIC.
const HQ: &str = "hq-interop";

/// How long a handshake may take, and a connection be silent, in milliseconds: with 30 % loss, some
/// handshakes take long.
const PATIENCE: u64 = 120_000;

/// Streams that a client may open at once. The runner wants 1,000 at most.
const STREAMS: u16 = 1000;

/// Flow-control windows in bytes; the one of a stream has to be a power of two.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 10 << 20;

/// Test cases that msquic supports by the functions of its crate, which has no HTTP/3, no ECN and no
/// preferred address, and lists no versions.
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

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    runner::main("endpoint-msquic", run).await
}

async fn run(environment: Environment) -> Result<bool> {
    if !CASES.contains(&environment.test_case.as_str()) {
        return Ok(false);
    }
    match environment.role {
        Role::Client => client::run(&environment)?,
        Role::Server => server::run(environment)?,
    }
    Ok(true)
}

fn alpn() -> [BufferRef; 1] {
    [BufferRef::from(HQ)]
}

/// Returns the settings of both roles.
fn settings() -> Settings {
    Settings::new()
        .set_IdleTimeoutMs(PATIENCE)
        .set_HandshakeIdleTimeoutMs(PATIENCE)
        .set_DisconnectTimeoutMs(PATIENCE as u32)
        .set_StreamRecvWindowDefault(STREAM_WINDOW)
        .set_ConnFlowControlWindow(CONNECTION_WINDOW)
        .set_PeerBidiStreamCount(STREAMS)
}
