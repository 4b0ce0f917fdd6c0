//! Clearway's library behind the peers' command line.

mod client;
mod server;

use std::process::ExitCode;

use contract::program;

fn main() -> ExitCode {
    let about = "Clearway speaking HTTP/3 or clearway-raw";
    program::run::<client::Client, _>("peer-clearway", about, server::run)
}
