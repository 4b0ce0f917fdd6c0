//! clearway-raw on s2n-quic.

mod client;
mod server;
mod tuning;

use std::process::ExitCode;

use contract::program;

fn main() -> ExitCode {
    let about = "s2n-quic speaking clearway-raw";
    program::run::<client::Client, _>("peer-s2n-quic", about, server::run)
}
