//! Clearway as an endpoint of the public QUIC interop runner, as [`contract::runner`] describes it;
//! `run_endpoint.sh` passes the environment on.

mod client;
mod pages;
mod server;
mod test_case;

use std::process::ExitCode;

use contract::runner::{self, Environment, Role};
use test_case::TestCase;

/// One thread: requests that are made at once are written before the first of them is sent, and
/// share packets.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    runner::main("interop-endpoint", run).await
}

/// Returns false if the test case is not supported.
async fn run(environment: Environment) -> anyhow::Result<bool> {
    let Some(mut test) = TestCase::find(&environment.test_case) else {
        return Ok(false);
    };
    test.http3 |= environment.http3;
    match environment.role {
        Role::Client if test.http3 && !test.is_one_download() => return Ok(false),
        Role::Client => client::run(&environment, test).await?,
        // A server has nowhere to invite a client to.
        Role::Server if test.migration && environment.preferred.is_none() => return Ok(false),
        Role::Server => server::run(&environment, test).await?,
    }
    Ok(true)
}
