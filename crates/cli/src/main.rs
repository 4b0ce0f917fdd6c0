//! The `clearway` command.

mod relay;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// QUIC and HTTP/3, and the networks to try them on.
#[derive(Debug, Parser)]
#[command(name = "clearway", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Put a network with loss, delay and a bottleneck between two UDP programs.
    #[command(long_about = relay::ABOUT)]
    Relay(Box<relay::Args>),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Relay(args) => relay::command(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(error.as_ref());
            ExitCode::FAILURE
        }
    }
}

/// Prints an error with its causes, which `Display` alone leaves out.
fn report(error: &dyn Error) {
    eprint!("error: {error}");
    let mut cause = error.source();
    while let Some(inner) = cause {
        eprint!(": {inner}");
        cause = inner.source();
    }
    eprintln!();
}
