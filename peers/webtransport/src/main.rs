//! WebTransport clients that check a server, by Clearway and by wtransport, and an echo server on
//! wtransport. `../README.md` describes the command line, which the program on webtransport-go shares.

mod check;
mod clearway;
mod session;
mod wtransport;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::clearway::QlogDir;
use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand, ValueEnum};

/// A WebTransport peer.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check a server, and print the outcome as a JSON object.
    Check {
        /// The stack.
        stack: Stack,
        /// URL of the server's echo.
        url: String,
        /// The server's certificate, PEM.
        #[arg(long)]
        cert: PathBuf,
        /// Make this check only, such as reset_by_client.
        #[arg(long)]
        only: Option<String>,
    },
    /// Serve an echo on wtransport.
    Serve {
        /// Address to listen on.
        #[arg(long)]
        listen: SocketAddr,
        /// Certificate chain, PEM.
        #[arg(long)]
        cert: PathBuf,
        /// Private key, PEM.
        #[arg(long)]
        key: PathBuf,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Stack {
    Clearway,
    Wtransport,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let report = match Args::parse().command {
        Command::Serve { listen, cert, key } => {
            wtransport::serve(listen, &cert, &key).await?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::Check {
            stack,
            url,
            cert,
            only,
        } => {
            let only = only.as_deref();
            match stack {
                Stack::Clearway => {
                    let qlog = QlogDir::from_env().context("QLOGDIR")?;
                    let open = async || clearway::open(&url, &cert, qlog.as_ref()).await;
                    let report = check::check(open, only).await;
                    let _ = qlog.map(|dir| dir.finish(Duration::from_secs(2)));
                    report
                }
                Stack::Wtransport => {
                    check::check(async || wtransport::open(&url, &cert).await, only).await
                }
            }
        }
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(ExitCode::from(u8::from(!report.passed())))
}
