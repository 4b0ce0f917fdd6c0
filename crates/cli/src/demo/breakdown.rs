//! The breakdown of a sender's time.

use core::time::Duration;
use std::fmt::Write as _;

use clearway::{Limit, LimitGroup};
use serde::Serialize;
use serde::ser::SerializeMap as _;

/// Basis points (hundredths of a percent) in 100 %.
const WHOLE: u64 = 10_000;

/// The shares of a connection's life, which sum to exactly 100 %.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Breakdown {
    /// Basis points, by group.
    shares: [u64; LimitGroup::ALL.len()],
}

impl Breakdown {
    /// From the transport's statistics; `None` if no time has passed.
    pub(crate) fn new(limits: &[(Limit, Duration)]) -> Option<Self> {
        let mut nanos = [0_u128; LimitGroup::ALL.len()];
        for &(limit, time) in limits {
            nanos[limit.group() as usize] += time.as_nanos();
        }
        let total: u128 = nanos.iter().sum();
        (total > 0).then(|| Self {
            shares: apportion(nanos, total),
        })
    }

    /// One line, the largest share first; reasons without a share are omitted.
    pub(crate) fn text(&self) -> String {
        let mut present: Vec<_> = LimitGroup::ALL
            .into_iter()
            .map(|group| (group, self.shares[group as usize]))
            .filter(|&(_, share)| share > 0)
            .collect();
        present.sort_by_key(|&(_, share)| core::cmp::Reverse(share));
        let mut text = String::new();
        for (group, share) in present {
            let separator = if text.is_empty() { "" } else { ", " };
            // Writing to a String cannot fail.
            let _ = write!(text, "{separator}{:.1} % {group}", percent(share));
        }
        text
    }
}

impl Serialize for Breakdown {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(LimitGroup::ALL.len()))?;
        for group in LimitGroup::ALL {
            map.serialize_entry(group.name(), &percent(self.shares[group as usize]))?;
        }
        map.end()
    }
}

fn percent(share: u64) -> f64 {
    share as f64 / 100.0
}

/// Shares of `total` in basis points that sum to exactly 100 %: the remainder of rounding down goes
/// to the largest remainders.
fn apportion<const N: usize>(parts: [u128; N], total: u128) -> [u64; N] {
    let whole = u128::from(WHOLE);
    let mut shares = parts.map(|part| (part * whole / total) as u64);
    let mut order: [usize; N] = core::array::from_fn(|i| i);
    order.sort_by_key(|&i| core::cmp::Reverse(parts[i] * whole % total));
    let left = WHOLE - shares.iter().sum::<u64>();
    for &i in order.iter().take(left as usize) {
        shares[i] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn millis(limits: &[(Limit, u64)]) -> Breakdown {
        let limits: Vec<_> = limits
            .iter()
            .map(|&(limit, ms)| (limit, Duration::from_millis(ms)))
            .collect();
        Breakdown::new(&limits).unwrap()
    }

    #[test]
    fn congestion_and_pacing_count_as_network() {
        let breakdown = millis(&[
            (Limit::Congestion, 600),
            (Limit::Pacing, 200),
            (Limit::Amplification, 10),
            (Limit::Handshake, 40),
            (Limit::StreamFlowControl, 50),
            (Limit::ConnectionFlowControl, 50),
            (Limit::Application, 50),
        ]);
        assert_eq!(
            breakdown.text(),
            "80.0 % network, 10.0 % flow control, 5.0 % handshake, 5.0 % application"
        );
        let json = serde_json::to_string(&breakdown).unwrap();
        assert_eq!(
            json,
            r#"{"handshake":5.0,"network":80.0,"host":0.0,"flow_control":10.0,"application":5.0}"#
        );
    }

    #[test]
    fn breakdown_of_zero_time_is_none() {
        assert_eq!(Breakdown::new(&[]), None);
        assert_eq!(Breakdown::new(&[(Limit::Pacing, Duration::ZERO)]), None);
    }

    proptest! {
        #[test]
        fn shares_sum_to_100_percent_and_round_to_within_one_point(
            parts in prop::array::uniform5(0_u64..1 << 50)
        ) {
            prop_assume!(parts.iter().any(|&part| part > 0));
            // One of each group, in the order of the groups.
            let limits: Vec<_> = [
                Limit::Handshake,
                Limit::Congestion,
                Limit::Scheduling,
                Limit::StreamFlowControl,
                Limit::Application,
            ]
            .into_iter()
            .zip(parts.map(Duration::from_nanos))
            .collect();
            let shares = Breakdown::new(&limits).unwrap().shares;
            prop_assert_eq!(shares.iter().sum::<u64>(), WHOLE);
            let total: u128 = parts.iter().map(|&part| u128::from(part)).sum();
            for (share, part) in shares.into_iter().zip(parts) {
                let down = u128::from(part) * u128::from(WHOLE) / total;
                prop_assert!(u128::from(share) == down || u128::from(share) == down + 1);
            }
        }
    }
}
