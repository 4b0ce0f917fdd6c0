//! The `clearway` command.

#[macro_use]
mod terminal;

mod address;
mod background;
mod balance;
mod connect;
mod controller_help;
mod demo;
mod diagnose;
mod doctor;
mod doq;
mod failure;
mod get;
mod identity;
mod interrupt;
mod lab;
mod local_http;
mod log;
mod output;
mod printable;
mod probe;
mod qlog;
mod raw;
mod relay;
mod report;
mod samples;
mod seconds;
mod serve;
mod tokens;
mod trace;
mod traces;
mod tunnel;
mod view;

use std::process::ExitCode;

use clap::{ArgAction, Parser, Subcommand};

/// QUIC and HTTP/3 client, server, and network lab.
#[derive(Debug, Parser)]
#[command(
    name = "clearway",
    version,
    arg_required_else_help = true,
    after_help = failure::EXIT_CODES
)]
struct Cli {
    /// Log more; twice for every detail. Warnings are always logged. The environment variables
    /// CLEARWAY_LOG and RUST_LOG set detailed filters, such as clearway=debug.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Balance QUIC connections over several servers.
    #[command(long_about = balance::ABOUT)]
    Balance(Box<balance::Args>),
    /// Download through a network that is known to stall congestion controllers.
    #[command(long_about = demo::ABOUT)]
    Demo(Box<demo::Args>),
    /// Find out why a connection was slow, from its trace.
    #[command(long_about = diagnose::ABOUT)]
    Diagnose(Box<diagnose::Args>),
    /// Find where this host loses UDP datagrams, and which program loses them.
    #[command(long_about = doctor::ABOUT)]
    Doctor(Box<doctor::Args>),
    /// Fetch URLs over HTTP/3, or upload to them.
    #[command(long_about = get::ABOUT)]
    Get(Box<get::Args>),
    /// Test congestion controllers on simulated networks in virtual time.
    #[command(long_about = lab::ABOUT, subcommand)]
    Lab(lab::Command),
    /// Test how a server answers malformed and forbidden input.
    #[command(long_about = probe::ABOUT)]
    Probe(Box<probe::Args>),
    /// Transfer bytes directly over QUIC, without HTTP.
    #[command(long_about = raw::ABOUT, subcommand)]
    Raw(Box<raw::Command>),
    /// Put a network with loss, delay and a bottleneck between two UDP programs.
    #[command(long_about = relay::ABOUT)]
    Relay(Box<relay::Args>),
    /// Write traces as one HTML page.
    #[command(long_about = report::ABOUT)]
    Report(Box<report::Args>),
    /// Serve a directory over HTTP/3.
    #[command(long_about = serve::ABOUT)]
    Serve(Box<serve::Args>),
    /// Forward plain DNS to DNS over QUIC, or back.
    #[command(long_about = doq::ABOUT)]
    Doq(Box<doq::Args>),
    /// Send UDP through an HTTP/3 proxy, from a local port.
    #[command(long_about = tunnel::ABOUT)]
    Tunnel(Box<tunnel::Args>),
    /// Convert, check and count trace files.
    #[command(long_about = trace::ABOUT, subcommand)]
    Trace(trace::Command),
    /// Show traces in the browser.
    #[command(long_about = view::ABOUT)]
    View(Box<view::Args>),
}

fn main() -> ExitCode {
    let Cli { verbose, command } = Cli::parse();
    let done = log::init(verbose).and_then(|()| run(command));
    match done {
        Ok(code) => code,
        // Like other tools, which a signal ends, print nothing.
        Err(failure) if failure.unread => failure.code(),
        Err(failure) => {
            say!("error: {failure}");
            failure.code()
        }
    }
}

fn run(command: Command) -> Result<ExitCode, failure::Failure> {
    match command {
        Command::Balance(args) => balance::command(&args)?,
        Command::Demo(args) => demo::command(&args)?,
        Command::Diagnose(args) => diagnose::command(&args)?,
        // Its verdict is an exit code.
        Command::Doctor(args) => return doctor::command(&args),
        Command::Doq(args) => doq::command(&args)?,
        Command::Get(args) => get::command(args)?,
        Command::Lab(command) => lab::command(&command)?,
        // Deviations are an exit code.
        Command::Probe(args) => return probe::command(&args),
        Command::Raw(command) => raw::command(&command)?,
        Command::Relay(args) => relay::command(&args)?,
        Command::Report(args) => report::command(&args)?,
        Command::Serve(args) => serve::command(&args)?,
        Command::Tunnel(args) => tunnel::command(&args)?,
        Command::Trace(command) => trace::command(&command)?,
        Command::View(args) => view::command(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn clap_definition_is_valid() {
        super::Cli::command().debug_assert();
    }
}
