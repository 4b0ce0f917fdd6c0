//! The report that the sender of a body gives about its connection.
//!
//! The trailer `clearway-breakdown` is a Structured Fields dictionary (RFC 9651) of integers: for
//! each limit, under [`Limit::name`], for how many microseconds it was in effect; further
//! `packets-sent`, `packets-lost` and `rtt` (smoothed, microseconds). Receivers ignore keys that
//! they do not know.

use core::time::Duration;
use std::fmt::Write as _;

use clearway::{Limit, Stats};
use http::{HeaderMap, HeaderName, HeaderValue};

/// The trailer's name.
pub(crate) const NAME: HeaderName = HeaderName::from_static("clearway-breakdown");

/// Structured Fields integers have at most fifteen digits (RFC 9651 §3.3.1).
const LARGEST: u128 = 999_999_999_999_999;

/// The statistics of the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SenderReport {
    /// For how long each limit was in effect.
    pub(crate) limits: Vec<(Limit, Duration)>,
    pub(crate) packets_sent: u64,
    pub(crate) packets_lost: u64,
    pub(crate) rtt: Duration,
}

impl SenderReport {
    /// From the statistics of the connection.
    pub(crate) fn of(stats: &Stats) -> Self {
        Self {
            limits: stats.limits.clone(),
            packets_sent: stats.counters.packets_sent,
            packets_lost: stats.counters.packets_lost,
            rtt: stats.smoothed_rtt,
        }
    }

    /// Encodes the report as trailers.
    pub(crate) fn trailers(&self) -> HeaderMap {
        let mut text = format!(
            "packets-sent={}, packets-lost={}, rtt={}",
            self.packets_sent,
            self.packets_lost,
            self.rtt.as_micros()
        );
        for &(limit, time) in &self.limits {
            let micros = time.as_micros().min(LARGEST);
            // Writing to a String cannot fail.
            let _ = write!(text, ", {limit}={micros}");
        }
        let mut trailers = HeaderMap::new();
        if let Ok(value) = HeaderValue::try_from(text) {
            trailers.insert(NAME, value);
        }
        trailers
    }

    /// Decodes a response's trailers, if they are valid.
    pub(crate) fn from_trailers(trailers: &HeaderMap) -> Option<Self> {
        let text = trailers.get(NAME)?.to_str().ok()?;
        let mut report = Self {
            limits: Vec::new(),
            packets_sent: 0,
            packets_lost: 0,
            rtt: Duration::ZERO,
        };
        for member in text.split(',') {
            let (name, value) = member.trim().split_once('=')?;
            let value: u64 = value.parse().ok()?;
            match name {
                "packets-sent" => report.packets_sent = value,
                "packets-lost" => report.packets_lost = value,
                "rtt" => report.rtt = Duration::from_micros(value),
                name => {
                    let known = Limit::from_name(name);
                    let time = Duration::from_micros(value);
                    report.limits.extend(known.map(|limit| (limit, time)));
                }
            }
        }
        Some(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sender_report_round_trips() {
        let report = SenderReport {
            limits: Limit::ALL
                .into_iter()
                .zip(1..)
                .map(|(limit, n)| (limit, Duration::from_micros(n)))
                .collect(),
            packets_sent: 77,
            packets_lost: 5,
            rtt: Duration::from_millis(3),
        };
        assert_eq!(
            SenderReport::from_trailers(&report.trailers()),
            Some(report)
        );
    }

    #[test]
    fn unknown_keys_are_ignored_and_invalid_values_rejected() {
        let parse = |text: &'static str| {
            let mut trailers = HeaderMap::new();
            trailers.insert(NAME, HeaderValue::from_static(text));
            SenderReport::from_trailers(&trailers)
        };
        let report = parse("weather=3,pacing=7").unwrap();
        assert_eq!(report.limits, [(Limit::Pacing, Duration::from_micros(7))]);
        for nonsense in ["", "pacing", "pacing=-1", "pacing=1.5", "pacing=1;"] {
            assert_eq!(parse(nonsense), None, "{nonsense}");
        }
        assert_eq!(SenderReport::from_trailers(&HeaderMap::new()), None);
    }
}
