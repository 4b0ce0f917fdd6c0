//! HTTP/3, which has no crate on noq: the test case is not supported.

use anyhow::{Result, bail};
use contract::runner::{Environment, Target};
use quinn::Connection;

/// Fails.
pub(crate) async fn download(_: Connection, _: Vec<Target>) -> Result<()> {
    bail!("noq has no HTTP/3");
}

/// Fails.
pub(crate) async fn serve(_: Environment, _: Connection) -> Result<()> {
    bail!("noq has no HTTP/3");
}
