//! quinn speaking clearway-raw: a partner to test against and a rival to measure against.

mod client;
mod report;
mod server;
mod transfer;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};
use peer_quinn::cert;
use tokio::runtime::{Builder, Runtime};

/// quinn speaking clearway-raw
#[derive(Debug, Parser)]
#[command(name = "peer-quinn", version)]
struct Arguments {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Answer requests until killed
    Server(server::Options),
    /// Make requests; exits with 0 only if every byte of every answer was right
    Client(client::Options),
    /// Write ca.pem, cert.pem and key.pem, good for localhost, 127.0.0.1 and ::1
    Cert {
        /// Folder to write to
        #[arg(long)]
        out: PathBuf,
    },
}

fn main() -> ExitCode {
    match act(Arguments::parse().role) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peer-quinn: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn act(role: Role) -> Result<()> {
    match role {
        Role::Server(options) => runtime(options.workers)?.block_on(server::run(options)),
        Role::Client(options) => runtime(1)?.block_on(client::run(options)),
        Role::Cert { out } => cert::Certificates::generate()?.write(&out),
    }
}

/// One worker means the main thread alone.
fn runtime(workers: u16) -> Result<Runtime> {
    let mut builder = match workers {
        0 | 1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    Ok(builder
        .worker_threads(usize::from(workers.max(1)))
        .enable_all()
        .build()?)
}
