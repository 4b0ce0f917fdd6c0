//! The timer of the event loop.

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::time::Duration;

use clearway_quic::Instant;
use clearway_udp::Timer;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Sleep;

use super::{Clock, watch};
use crate::runtime;

/// A timer with one deadline: a high-resolution one where the system has it, precise enough for
/// pacing, or else tokio's.
#[derive(Debug)]
pub(super) struct Alarm {
    clock: Clock,
    kind: TimerKind,
    armed: Option<Instant>,
}

#[derive(Debug)]
enum TimerKind {
    Precise(AsyncFd<Timer>),
    /// Tokio's timer, with a resolution of a millisecond.
    Tokio(Option<Pin<Box<Sleep>>>),
    /// The timer of the runtime that the endpoint was given.
    Runtime(Box<dyn runtime::Timer>),
    /// Expires with a manual clock, when it is polled.
    #[cfg(test)]
    Manual,
}

impl Alarm {
    pub(super) fn new(clock: Clock) -> Self {
        #[cfg(test)]
        if clock.is_manual() {
            return Self {
                clock,
                kind: TimerKind::Manual,
                armed: None,
            };
        }
        if let Some(runtime) = clock.runtime() {
            let kind = TimerKind::Runtime(runtime.timer());
            return Self {
                clock,
                kind,
                armed: None,
            };
        }
        let fine = Timer::new().and_then(|timer| watch(timer, Interest::READABLE));
        Self {
            clock,
            kind: fine.map_or(TimerKind::Tokio(None), TimerKind::Precise),
            armed: None,
        }
    }

    /// Whether it expires at `at` or earlier.
    pub(super) fn expires_by(&self, at: Instant) -> bool {
        self.armed.is_some_and(|armed| armed <= at)
    }

    /// Sets the timer to expire at `at` or earlier: a deadline that is postponed leaves it as
    /// it is, which saves a system call for most packets.
    pub(super) fn set(&mut self, at: Option<Instant>) {
        let Some(at) = at else { return };
        if self.expires_by(at) {
            return;
        }
        match &mut self.kind {
            TimerKind::Runtime(timer) => timer.set(Duration::from_nanos(at.as_nanos())),
            TimerKind::Precise(_) | TimerKind::Tokio(_) => match self.clock.to_system(at) {
                Some(system) => self.set_system(system),
                None => return,
            },
            #[cfg(test)]
            TimerKind::Manual => {}
        }
        self.armed = Some(at);
    }

    fn set_system(&mut self, at: std::time::Instant) {
        match &mut self.kind {
            TimerKind::Precise(timer) => {
                if let Err(error) = timer.get_ref().arm_at(at) {
                    tracing::warn!(%error, "the high-resolution timer failed; using tokio's timer");
                    self.kind = TimerKind::Tokio(Some(sleep_until(at)));
                }
            }
            TimerKind::Tokio(Some(sleep)) => sleep.as_mut().reset(at.into()),
            TimerKind::Tokio(sleep) => *sleep = Some(sleep_until(at)),
            TimerKind::Runtime(_) => {}
            #[cfg(test)]
            TimerKind::Manual => {}
        }
    }

    /// Waits until it expires. Cancel-safe.
    pub(super) async fn expired(&mut self) {
        if self.armed.is_none() {
            return pending().await;
        }
        match &mut self.kind {
            TimerKind::Precise(timer) => loop {
                let Ok(mut ready) = timer.readable().await else {
                    return pending().await;
                };
                let fired = timer.get_ref().clear();
                ready.clear_ready();
                match fired {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(error) => {
                        drop(ready);
                        tracing::warn!(%error, "the high-resolution timer failed; using tokio's timer");
                        self.kind = TimerKind::Tokio(None);
                        break;
                    }
                }
            },
            TimerKind::Tokio(Some(sleep)) => sleep.as_mut().await,
            TimerKind::Tokio(None) => return pending().await,
            TimerKind::Runtime(timer) => poll_fn(|cx| timer.poll_expired(cx)).await,
            #[cfg(test)]
            TimerKind::Manual => {
                if self.armed.is_none_or(|at| self.clock.now() < at) {
                    return pending().await;
                }
            }
        }
        self.armed = None;
    }
}

#[cfg(test)]
impl Alarm {
    /// Returns when it expires.
    pub(super) fn armed(&self) -> Option<Instant> {
        self.armed
    }
}

fn sleep_until(at: std::time::Instant) -> Pin<Box<Sleep>> {
    Box::pin(tokio::time::sleep_until(at.into()))
}
