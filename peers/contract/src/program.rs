//! The program of a stack: two roles, one thread, one exit code.

use std::{future::Future, process::ExitCode};

use anyhow::Result;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use tokio::runtime::Builder;

use crate::{
    Stack, UNSUPPORTED, Unsupported, client,
    options::{Get, Serve},
};

#[derive(Debug, Parser)]
#[command(version)]
struct Arguments<E: Args> {
    #[command(subcommand)]
    role: Role<E>,
}

#[derive(Debug, Subcommand)]
enum Role<E: Args> {
    /// Answer requests until killed
    Serve {
        #[command(flatten)]
        options: Serve,
        #[command(flatten)]
        extra: E,
    },
    /// Make requests; exits with 0 only if every byte of every response was right
    Get(Get),
}

/// No options besides those of all servers.
#[derive(Debug, Clone, Copy, Args)]
struct NoExtra {}

/// Runs the program of a stack whose server has no options of its own.
pub fn run<S, F>(
    name: &'static str,
    about: &'static str,
    serve: impl FnOnce(Serve) -> F,
) -> ExitCode
where
    S: Stack,
    F: Future<Output = Result<()>>,
{
    run_with::<S, NoExtra, F>(name, about, |options, NoExtra {}| serve(options))
}

/// Runs the program of a stack whose server has additional options `E`.
pub fn run_with<S, E, F>(
    name: &'static str,
    about: &'static str,
    serve: impl FnOnce(Serve, E) -> F,
) -> ExitCode
where
    S: Stack,
    E: Args,
    F: Future<Output = Result<()>>,
{
    let command = Arguments::<E>::command().name(name).about(about);
    let parsed = Arguments::<E>::from_arg_matches(&command.get_matches());
    let role = parsed.unwrap_or_else(|error| error.exit()).role;
    exit(name, act::<S, E, F>(role, serve))
}

/// One thread, because that is how stacks are compared.
fn act<S, E, F>(role: Role<E>, serve: impl FnOnce(Serve, E) -> F) -> Result<()>
where
    S: Stack,
    E: Args,
    F: Future<Output = Result<()>>,
{
    let runtime = Builder::new_current_thread().enable_all().build()?;
    match role {
        Role::Serve { options, extra } => runtime.block_on(serve(options, extra)),
        Role::Get(options) => runtime.block_on(client::run::<S>(options)),
    }
}

/// Returns the exit code for a result, and prints the error.
fn exit(program: &str, outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error:#}");
            let unsupported = error.downcast_ref::<Unsupported>().is_some();
            ExitCode::from(if unsupported { UNSUPPORTED } else { 1 })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Args)]
    struct Extra {
        #[arg(long)]
        own: bool,
    }

    fn parse<E: Args>(line: &str) -> Result<Role<E>, clap::Error> {
        Ok(Arguments::<E>::try_parse_from(line.split(' '))?.role)
    }

    #[test]
    fn server_options_of_a_stack_are_parsed_with_the_shared_ones() {
        let line = "x serve --listen 127.0.0.1:0 --cert c --key k --retry --own";
        let role = parse::<Extra>(line).unwrap();
        let Role::Serve { options, extra } = role else {
            panic!("{role:?}");
        };
        assert!(options.retry && extra.own);
        assert!(parse::<NoExtra>(line).is_err());
    }

    #[test]
    fn what_a_stack_cannot_do_has_an_exit_code_of_its_own() {
        let code = |error: anyhow::Error| format!("{:?}", exit("x", Err(error)));
        let unsupported = code(Unsupported("all of it").into());
        assert_eq!(unsupported, format!("{:?}", ExitCode::from(UNSUPPORTED)));
        let failed = code(anyhow::anyhow!("no"));
        assert_eq!(failed, format!("{:?}", ExitCode::from(1)));
    }
}
