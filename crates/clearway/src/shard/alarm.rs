//! The timer of the event loop.

use std::future::pending;
use std::pin::Pin;

use clearway_quic::Instant;
use clearway_udp::Timer;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Sleep;

use super::{Clock, watch};

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
        let fine = Timer::new().and_then(|timer| watch(timer, Interest::READABLE));
        Self {
            clock,
            kind: fine.map_or(TimerKind::Tokio(None), TimerKind::Precise),
            armed: None,
        }
    }

    /// Sets the timer to expire at `at` or earlier: a deadline that is postponed leaves it as
    /// it is, which saves a system call for most packets.
    pub(super) fn set(&mut self, at: Option<Instant>) {
        let Some(at) = at else { return };
        if self.armed.is_some_and(|armed| armed <= at) {
            return;
        }
        let Some(system) = self.clock.to_system(at) else {
            return;
        };
        match &mut self.kind {
            TimerKind::Precise(timer) => {
                if let Err(error) = timer.get_ref().arm_at(system) {
                    tracing::warn!(%error, "the high-resolution timer failed; using tokio's timer");
                    self.kind = TimerKind::Tokio(Some(sleep_until(system)));
                }
            }
            TimerKind::Tokio(Some(sleep)) => sleep.as_mut().reset(system.into()),
            TimerKind::Tokio(sleep) => *sleep = Some(sleep_until(system)),
            #[cfg(test)]
            TimerKind::Manual => {}
        }
        self.armed = Some(at);
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
