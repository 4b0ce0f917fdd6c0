//! What an endpoint takes from its host: a clock, timers, tasks and random numbers.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// A task that an endpoint starts.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The host of an endpoint, in place of the system's clock and tokio's tasks
/// ([`EndpointBuilder::runtime`](crate::EndpointBuilder::runtime)): another runtime, or one in
/// virtual time.
///
/// HTTP servers and clients also use tokio's tasks and timers, so they need a tokio runtime
/// beside this.
pub trait Runtime: fmt::Debug + Send + Sync {
    /// Returns the time since an origin of its own. It never goes back.
    fn now(&self) -> Duration;

    /// Creates the timer of an event loop.
    fn timer(&self) -> Box<dyn Timer>;

    /// Runs a task to its end.
    fn spawn(&self, task: Task);

    /// Returns 256 random bits, from which the endpoint's connection IDs, tokens and timings are
    /// drawn: the operating system's, unless runs must be repeatable. TLS has its own.
    ///
    /// # Errors
    /// If there are none.
    fn random_seed(&self) -> io::Result<[u8; 32]> {
        system_seed()
    }
}

/// A timer with one deadline.
pub trait Timer: fmt::Debug + Send {
    /// Sets the deadline, in [`Runtime::now`]'s time, in place of the one before.
    fn set(&mut self, at: Duration);

    /// Waits for the deadline, and forgets it once it has passed.
    fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// Tokio as a [`Runtime`]: its clock, which tests can pause, its timers with their resolution of
/// a millisecond, and its tasks.
///
/// An endpoint without a runtime of its own uses tokio's tasks too, but the system's clock and
/// timers, which are more precise.
#[derive(Clone, Debug)]
pub struct TokioRuntime {
    origin: tokio::time::Instant,
    handle: tokio::runtime::Handle,
    seed: Option<[u8; 32]>,
}

impl TokioRuntime {
    /// Uses the tokio runtime that this is called on.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn current() -> Self {
        Self {
            origin: tokio::time::Instant::now(),
            handle: tokio::runtime::Handle::current(),
            seed: None,
        }
    }

    /// Draws everything random from `seed`, so that tests can be repeated. Never do this where
    /// others can connect: they could guess tokens and connection IDs.
    #[must_use]
    pub fn with_seed(mut self, seed: [u8; 32]) -> Self {
        self.seed = Some(seed);
        self
    }
}

impl Runtime for TokioRuntime {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn timer(&self) -> Box<dyn Timer> {
        Box::new(TokioTimer {
            origin: self.origin,
            sleep: None,
        })
    }

    fn spawn(&self, task: Task) {
        self.handle.spawn(task);
    }

    fn random_seed(&self) -> io::Result<[u8; 32]> {
        self.seed.map_or_else(system_seed, Ok)
    }
}

#[derive(Debug)]
struct TokioTimer {
    origin: tokio::time::Instant,
    sleep: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Timer for TokioTimer {
    fn set(&mut self, at: Duration) {
        let Some(at) = self.origin.checked_add(at) else {
            self.sleep = None;
            return;
        };
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().reset(at),
            None => self.sleep = Some(Box::pin(tokio::time::sleep_until(at))),
        }
    }

    fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(sleep) = &mut self.sleep else {
            return Poll::Pending;
        };
        std::task::ready!(sleep.as_mut().poll(cx));
        self.sleep = None;
        Poll::Ready(())
    }
}

/// Returns 256 random bits from the operating system.
pub(crate) fn system_seed() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    aws_lc_rs::rand::fill(&mut seed)
        .map_err(|_| io::Error::other("the operating system returned no random bytes"))?;
    Ok(seed)
}
