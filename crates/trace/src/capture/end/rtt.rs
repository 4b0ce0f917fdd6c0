//! Round-trip times, by the rules of RFC 9002 §5.

use crate::event::Metrics;

/// Timer granularity (RFC 9002 §6.1.2).
const GRANULARITY: u64 = 1_000_000;

/// Round-trip times in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rtt {
    latest: u64,
    min: u64,
    smoothed: Option<u64>,
    variance: u64,
}

impl Rtt {
    /// Processes a sample and the delay that the peer reports.
    pub(super) fn on_sample(&mut self, sample: u64, ack_delay: u64) {
        self.latest = sample;
        let Some(smoothed) = self.smoothed else {
            self.min = sample;
            self.smoothed = Some(sample);
            self.variance = sample / 2;
            return;
        };
        self.min = self.min.min(sample);
        let delayed = sample >= self.min.saturating_add(ack_delay);
        let adjusted = if delayed {
            sample.saturating_sub(ack_delay)
        } else {
            sample
        };
        let off = smoothed.abs_diff(adjusted);
        self.variance = weigh(self.variance, 3, off, 4);
        self.smoothed = Some(weigh(smoothed, 7, adjusted, 8));
    }

    /// Smoothed RTT, once measured.
    pub(super) const fn smoothed(&self) -> Option<u64> {
        self.smoothed
    }

    /// A probe timeout without the peer's delay and without backoff (RFC 9002 §6.2.1).
    pub(super) fn probe_timeout(&self) -> Option<u64> {
        let spread = self.variance.saturating_mul(4).max(GRANULARITY);
        Some(self.smoothed?.saturating_add(spread))
    }

    /// The time threshold of losses (RFC 9002 §6.1.2).
    pub(super) fn loss_delay(&self) -> Option<u64> {
        let longer = self.smoothed?.max(self.latest);
        let threshold = longer.saturating_mul(9) / 8;
        Some(threshold.max(GRANULARITY))
    }

    /// As an event; `sampled` says whether there is a new sample.
    pub(super) fn metrics(&self, sampled: bool) -> Metrics {
        let known = self.smoothed.is_some();
        Metrics {
            min_rtt: known.then_some(self.min),
            smoothed_rtt: self.smoothed,
            latest_rtt: (known && sampled).then_some(self.latest),
            rtt_variance: known.then_some(self.variance),
            ..Metrics::default()
        }
    }
}

/// `old` with `parts` of `all`, and `new` with one.
fn weigh(old: u64, parts: u64, new: u64, all: u64) -> u64 {
    let sum = old.saturating_mul(parts).saturating_add(new);
    sum.checked_div(all).unwrap_or(old)
}
