//! The breakdown: how long each limit kept the connection from sending.

use core::fmt;

use clearway_recovery::limit::{Limit, LimitGroup};

use crate::event::{Event, EventData};
use crate::sink::Sink;

/// What a connection waited for, as reports show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitReason {
    /// A limit of this group.
    Of(LimitGroup),
    /// The trace does not record the limit.
    Unknown,
}

impl WaitReason {
    /// All reasons, in the order in which reports show them.
    pub const ALL: [Self; 6] = [
        Self::Of(LimitGroup::Handshake),
        Self::Of(LimitGroup::Network),
        Self::Of(LimitGroup::Host),
        Self::Of(LimitGroup::FlowControl),
        Self::Of(LimitGroup::Application),
        Self::Unknown,
    ];

    /// The name that users see.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Of(group) => group.label(),
            Self::Unknown => "unknown",
        }
    }
}

/// Time by limit; sums to the length of the trace.
#[derive(Clone, Debug, Default)]
pub struct Breakdown {
    start: Option<u64>,
    now: u64,
    current: Option<Limit>,
    /// By limit.
    spent: [u64; Limit::ALL.len()],
    /// Time without a recorded limit.
    unknown: u64,
}

impl Breakdown {
    /// An empty breakdown.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The breakdown of a whole trace.
    #[must_use]
    pub fn of(events: &[Event]) -> Self {
        let mut this = Self::new();
        for event in events {
            this.event(event);
        }
        this
    }

    fn advance(&mut self, to: u64) {
        self.start.get_or_insert(to);
        if self.start == Some(to) && self.now == 0 {
            self.now = to;
        }
        let passed = to.saturating_sub(self.now);
        let spent = match self.current {
            Some(limit) => self.spent.get_mut(limit as usize),
            None => Some(&mut self.unknown),
        };
        if let Some(spent) = spent {
            *spent = spent.saturating_add(passed);
        }
        self.now = self.now.max(to);
    }

    /// Extends the current limit to `now`, for a trace that ends later than its last event.
    pub fn until(&mut self, now: u64) {
        if self.start.is_some() {
            self.advance(now);
        }
    }

    /// Nanoseconds during which `limit` was in effect.
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "it has a place for each limit")]
    pub const fn spent(&self, limit: Limit) -> u64 {
        self.spent[limit as usize]
    }

    /// Nanoseconds of the whole trace.
    #[must_use]
    pub fn life(&self) -> u64 {
        self.now.saturating_sub(self.start.unwrap_or(self.now))
    }

    /// Nanoseconds by reason; sums to [`Self::life`].
    #[must_use]
    pub fn shares(&self) -> Vec<(WaitReason, u64)> {
        let of = |share: WaitReason| {
            let spent = match share {
                WaitReason::Of(group) => Limit::ALL
                    .into_iter()
                    .filter(|limit| limit.group() == group)
                    .map(|limit| self.spent(limit))
                    .fold(0, u64::saturating_add),
                WaitReason::Unknown => self.unknown,
            };
            (share, spent)
        };
        WaitReason::ALL.map(of).to_vec()
    }

    /// Tenths of a percent by reason; sums to exactly 1,000 unless the trace is empty (largest
    /// remainders are rounded up).
    #[must_use]
    pub fn permille(&self) -> Vec<(WaitReason, u64)> {
        let life = u128::from(self.life());
        let mut parts: Vec<(WaitReason, u64, u128)> = self
            .shares()
            .into_iter()
            .map(|(share, spent)| {
                let scaled = u128::from(spent) * 1_000;
                let (whole, rest) = (scaled.checked_div(life), scaled.checked_rem(life));
                (share, whole.unwrap_or(0) as u64, rest.unwrap_or(0))
            })
            .collect();
        let given: u64 = parts.iter().map(|(_, whole, _)| whole).sum();
        if life > 0 {
            parts.sort_by_key(|(share, _, rest)| (core::cmp::Reverse(*rest), *share));
            let missing = usize::try_from(1_000_u64.saturating_sub(given)).unwrap_or(0);
            for (_, whole, _) in parts.iter_mut().take(missing) {
                *whole = whole.saturating_add(1);
            }
            parts.sort_by_key(|(share, ..)| *share);
        }
        let named = parts.into_iter();
        named.map(|(share, whole, _)| (share, whole)).collect()
    }
}

impl Sink for Breakdown {
    fn event(&mut self, event: &Event) {
        self.advance(event.time);
        if let EventData::DataBlockedUpdated { reason } = &event.data {
            self.current = *reason;
        }
    }
}

impl fmt::Display for Breakdown {
    /// "62.0 % network, 30.0 % flow control, 8.0 % application".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self.permille();
        parts.retain(|(_, permille)| *permille > 0);
        parts.sort_by_key(|(share, permille)| (core::cmp::Reverse(*permille), *share));
        for (at, (share, permille)) in parts.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            let (whole, tenth) = (permille / 10, permille % 10);
            write!(f, "{comma}{whole}.{tenth} % {}", share.label())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limit(time: u64, reason: Option<Limit>) -> Event {
        Event {
            time,
            data: EventData::DataBlockedUpdated { reason },
        }
    }

    #[test]
    fn time_is_charged_to_the_limit_in_effect() {
        let mut breakdown = Breakdown::of(&[
            limit(100, Some(Limit::Handshake)),
            limit(200, Some(Limit::Pacing)),
            limit(500, Some(Limit::Congestion)),
            limit(800, Some(Limit::ConnectionFlowControl)),
            limit(1_050, None),
        ]);
        breakdown.until(1_100);
        assert_eq!(breakdown.life(), 1_000);
        assert_eq!(
            breakdown.to_string(),
            "60.0 % network, 25.0 % flow control, 10.0 % handshake, 5.0 % unknown"
        );
    }

    proptest! {
        #[test]
        fn shares_sum_to_the_whole_trace(
            steps in prop::collection::vec((0_u64..1 << 33, prop::option::of(0_usize..9)), 1..40),
            tail in 1_u64..1 << 33,
        ) {
            let mut now = 0;
            let mut breakdown = Breakdown::new();
            for (step, reason) in steps {
                now += step;
                breakdown.event(&limit(now, reason.map(|at| Limit::ALL[at])));
            }
            breakdown.until(now + tail);
            let shares: u64 = breakdown.shares().iter().map(|(_, spent)| spent).sum();
            prop_assert_eq!(shares, breakdown.life());
            let permille: u64 = breakdown.permille().iter().map(|(_, part)| part).sum();
            prop_assert_eq!(permille, 1_000);
        }
    }
}
