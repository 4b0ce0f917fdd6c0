//! HTTP/3 by the h3 crate, and clearway-raw, on quinn.

mod client;
mod quic_lb;
mod server;

use std::process::ExitCode;

use contract::program;

fn main() -> ExitCode {
    let about = "quinn speaking HTTP/3 or clearway-raw";
    program::run_with::<client::Client, quic_lb::Balanced, _>("peer-h3-quinn", about, server::run)
}
