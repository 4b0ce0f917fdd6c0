//! quinn as an endpoint of the public QUIC interop runner ([`contract::runner`]), over HTTP/0.9 and
//! HTTP/3.

mod http3;
mod shared;

use std::process::ExitCode;

use anyhow::Result;
use contract::runner::{self, Environment};

#[tokio::main]
async fn main() -> ExitCode {
    runner::main("endpoint-quinn", run).await
}

async fn run(environment: Environment) -> Result<bool> {
    if environment.test_case == "http3" {
        http3::run(environment).await?;
        return Ok(true);
    }
    shared::run(environment).await
}
