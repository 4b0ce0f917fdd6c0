//! The capacity of a link.

use core::time::Duration;

use clearway_links::{LinkConfig, Rate, Time};

/// Bits that the link's serialiser can send between two moments, headers included; `None` if its
/// rate is unlimited. `origin` is when its clock started. For a trace, its mean over a round
/// counts.
#[must_use]
pub fn capacity_bits(
    config: &LinkConfig,
    origin: Option<Time>,
    from: Time,
    to: Time,
) -> Option<f64> {
    if let Some(trace) = &config.trace {
        return part(trace.mean(), to - from);
    }
    let elapsed = |at: Time| origin.and_then(|origin| at.checked_since(origin));
    let mut at = from;
    let mut rate = config.rate.at(elapsed(from));
    let mut bits = 0.0;
    if let Some(origin) = origin {
        for (step, next) in config.rate.steps_after(elapsed(from)) {
            let until = (origin + step).min(to);
            bits += part(rate, until - at)?;
            at = until.max(at);
            rate = next;
        }
    }
    Some(bits + part(rate, to - at)?)
}

fn part(rate: Rate, time: Duration) -> Option<f64> {
    Some(rate.bits()? as f64 * time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(rate: &str, from: u64, to: u64) -> Option<f64> {
        let config: LinkConfig = format!("rate={rate}").parse().unwrap();
        let (from, to) = (Time::from_secs(from), Time::from_secs(to));
        capacity_bits(&config, Some(Time::ZERO), from, to)
    }

    #[test]
    fn capacity_sums_rate_steps() {
        assert_eq!(bits("10M", 2, 5), Some(3e7));
        assert_eq!(bits("10M,1M@4s,0@6s", 2, 10), Some(2.2e7));
        assert_eq!(bits("10M,1M@4s", 5, 6), Some(1e6));
        assert_eq!(bits("10M,1M@4s", 1, 2), Some(1e7));
        assert_eq!(bits("unlimited", 1, 2), None);
    }
}
