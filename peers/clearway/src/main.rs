//! Clearway's library behind the peers' command line.

mod client;
mod server;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use contract::options::{Get, Serve};
use tokio::runtime::Builder;

/// Clearway speaking HTTP/3 or clearway-raw
#[derive(Debug, Parser)]
#[command(name = "peer-clearway", version)]
struct Arguments {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Answer requests until killed
    Serve(Serve),
    /// Make requests; exits with 0 only if every byte of every answer was right
    Get(Get),
}

fn main() -> ExitCode {
    contract::client::exit("peer-clearway", act(Arguments::parse().role))
}

/// One thread: that is how stacks are compared.
fn act(role: Role) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    match role {
        Role::Serve(options) => runtime.block_on(server::run(options)),
        Role::Get(options) => runtime.block_on(contract::client::run::<client::Client>(options)),
    }
}
