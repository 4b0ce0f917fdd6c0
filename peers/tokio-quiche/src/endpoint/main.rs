//! quiche as an endpoint of the public QUIC interop runner ([`contract::runner`]), over HTTP/0.9 and
//! HTTP/3. It drives quiche's connections itself, on one socket: tokio-quiche has no HTTP/0.9, and
//! its client neither resumes nor sends early data by itself.

mod client;
mod link;
mod server;
mod settings;

use std::process::ExitCode;

use anyhow::Result;
use contract::runner::{self, Environment, Role};

/// Test cases that quiche supports in both roles. It has no version 2, no ECN and no preferred
/// address.
const CASES: &[&str] = &[
    "handshake",
    "transfer",
    "longrtt",
    "multiplexing",
    "retry",
    "resumption",
    "zerortt",
    "http3",
    "blackhole",
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

/// Test cases in which a server only has to answer what its client begins: BoringSSL cannot offer
/// one cipher suite of TLS 1.3 alone, and quiche has no function that starts a key update.
const SERVER_CASES: &[&str] = &["chacha20", "keyupdate"];

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    runner::main("endpoint-quiche", run).await
}

async fn run(environment: Environment) -> Result<bool> {
    let test = environment.test_case.as_str();
    let answers = environment.role == Role::Server && SERVER_CASES.contains(&test);
    if !CASES.contains(&test) && !answers {
        return Ok(false);
    }
    match environment.role {
        Role::Client => client::run(&environment).await?,
        Role::Server => server::run(&environment).await?,
    }
    Ok(true)
}
