//! Handling of SIGINT and SIGTERM in commands that end by themselves.

use core::future::Future;

use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Failure, Kind};

/// Runs `work` to its end, or until a signal.
///
/// # Errors
/// [`Kind::Interrupted`] after a signal.
pub(crate) async fn unless_interrupted<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let name = tokio::select! {
        done = work => return Ok(done),
        _ = interrupt.recv() => "SIGINT",
        _ = terminate.recv() => "SIGTERM",
    };
    Err(Failure::new(
        Kind::Interrupted,
        format!("interrupted by {name}"),
    ))
}
