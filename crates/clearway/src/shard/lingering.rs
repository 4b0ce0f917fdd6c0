//! Closing connections once what the application has ended is delivered.
//!
//! CONNECTION_CLOSE ends all streams at once (RFC 9000 §10.2): what is queued or lost then never
//! arrives. So a close that is to deliver it waits. Each connection is closed in its own turn as
//! soon as nothing is left; here is how long that may take.

use std::time::Duration;

use clearway_quic::Instant;

use super::connections::Connections;
use super::link::{CloseAll, CloseWhen};
use crate::connection::Stage;

/// The longest time for which connections linger while something is delivered.
const MAX_LINGERING: Duration = Duration::from_secs(10);

/// The shortest time without progress after which they are closed. Three PTOs can be less on a fast
/// network, where a busy host may need longer to answer.
const MIN_PERIOD: Duration = Duration::from_millis(100);

/// Until when connections may deliver what is left.
#[derive(Debug)]
pub(super) struct Lingering {
    close: CloseAll,
    /// How long nothing may be delivered: three PTOs of the slowest path.
    period: Duration,
    /// When there has to be progress since the last look.
    check_at: Instant,
    until: Instant,
    progress: Progress,
}

/// What changes while something is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Progress {
    /// Bytes of stream data transferred.
    moved: u64,
    /// Connections that were not closed.
    connections: usize,
}

#[cfg(test)]
impl Lingering {
    /// Returns how long it goes on at least and at most.
    pub(super) fn left(&self, now: Instant) -> [Duration; 2] {
        [self.check_at, self.until].map(|at| at.saturating_since(now))
    }
}

impl Connections {
    /// Closes every connection once nothing is left, and those that are begun later at once.
    pub(super) fn linger(&mut self, now: Instant, close: CloseAll) {
        if self.lingering.is_some() {
            return;
        }
        let mut period = MIN_PERIOD;
        let handles: Vec<_> = self.table.keys().copied().collect();
        for handle in handles {
            // In the turn that follows it is closed, if nothing is left.
            self.with_state(handle, Stage::Call, |state| {
                period = period.max(state.quic.drain_period());
            });
        }
        let until = now + MAX_LINGERING;
        self.lingering = Some(Lingering {
            close: CloseAll {
                when: CloseWhen::Now,
                ..close.clone()
            },
            period,
            check_at: until.min(now + period),
            until,
            progress: self.progress(),
        });
        self.closing = Some(close);
    }

    /// Returns when to look whether connections still deliver something.
    pub(super) fn lingering_ends_at(&self) -> Option<Instant> {
        let lingering = self.lingering.as_ref()?;
        (!self.is_empty()).then_some(lingering.check_at)
    }

    /// Closes the connections that are left if nothing was delivered lately.
    pub(super) fn end_lingering(&mut self, now: Instant) {
        if self.lingering.as_ref().is_none_or(|it| it.check_at > now) {
            return;
        }
        let progress = self.progress();
        let Some(lingering) = &mut self.lingering else {
            return;
        };
        let before = std::mem::replace(&mut lingering.progress, progress);
        if before != progress && now < lingering.until {
            lingering.check_at = lingering.until.min(now + lingering.period);
            return;
        }
        let close = lingering.close.clone();
        self.close_all(now, close);
    }

    fn progress(&self) -> Progress {
        let open = self.table.values().map(|entry| entry.activity.moved);
        Progress {
            moved: open.fold(0, u64::wrapping_add),
            connections: self.table.len(),
        }
    }
}
