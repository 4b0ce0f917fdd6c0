//! SIGINT and SIGTERM, which end a command.

use core::future::Future;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Failure, Kind};

/// SIGINT and SIGTERM, which do not end the process any more once this exists. A command that
/// announces itself makes it before that: whoever hears of it may end it at once.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// Begins to receive them.
    ///
    /// # Errors
    /// If the system refuses it.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next one, and returns its name. Cancel-safe.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

/// Runs `work` to its end, or until a signal.
///
/// # Errors
/// [`Kind::Interrupted`] after a signal.
pub(crate) async fn unless_interrupted<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let mut interrupts = Interrupts::new()?;
    let name = tokio::select! {
        done = work => return Ok(done),
        name = interrupts.next() => name,
    };
    Err(Failure::new(
        Kind::Interrupted,
        format!("interrupted by {name}"),
    ))
}
