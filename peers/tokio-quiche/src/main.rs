//! HTTP/3 on tokio-quiche.

mod caller;
mod client;
mod outflow;
mod server;
mod settings;
mod wire;

use std::process::ExitCode;

use contract::program;

fn main() -> ExitCode {
    let about = "tokio-quiche speaking HTTP/3";
    program::run_with::<client::Client, server::Extra, _>("peer-tokio-quiche", about, server::run)
}
