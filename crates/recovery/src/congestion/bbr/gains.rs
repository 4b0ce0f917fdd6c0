//! The constants of the algorithm, in hundredths instead of floating point.

use core::time::Duration;

use super::phase::Phase;

/// A factor in hundredths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Percent(pub(super) u64);

impl Percent {
    /// Returns this share of an amount, rounded down, saturating.
    pub(super) fn of(self, amount: u64) -> u64 {
        let share = u128::from(amount) * u128::from(self.0) / 100;
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}

/// Pacing gain of Startup: 4·ln(2), so that the rate doubles each round (§2.5).
pub(super) const STARTUP_PACING_GAIN: Percent = Percent(277);
/// Pacing gain of Drain, which empties the queue of Startup in less than a round (§2.5).
const DRAIN_PACING_GAIN: Percent = Percent(50);
/// Pacing gain of DOWN (§5.3.3.1).
const DOWN_PACING_GAIN: Percent = Percent(90);
/// Pacing gain of UP (§5.3.3.5).
const UP_PACING_GAIN: Percent = Percent(125);
/// Pacing gain of all other phases.
pub(super) const UNIT_GAIN: Percent = Percent(100);
/// Window gain, large enough for the rate to double each round (§2.6).
const DEFAULT_CWND_GAIN: Percent = Percent(200);
/// Window gain of UP, with room for the higher pacing rate (§5.3.3.5).
const UP_CWND_GAIN: Percent = Percent(225);
/// Window gain of ProbeRTT: half of the estimated BDP (§2.16.2).
pub(super) const PROBE_RTT_CWND_GAIN: Percent = Percent(50);
/// Share of the rate that remains after the pacing margin of 1 % (§2.5).
pub(super) const PACED_SHARE: Percent = Percent(99);
/// Tolerated loss per round trip (§2.8).
pub(super) const LOSS_THRESHOLD: Percent = Percent(2);
/// Multiplicative decrease per round with loss (§2.8).
pub(super) const BETA: Percent = Percent(70);
/// Share of inflight_longterm that is left to other flows (§2.8).
pub(super) const HEADROOM: Percent = Percent(15);
/// Growth of the rate that shows that the pipe is not full (§5.3.1.2).
pub(super) const FULL_BW_GROWTH: Percent = Percent(125);
/// The same while inflight_longterm limits the bandwidth. A probe raises this bound by 1, 2, 4, 8 …
/// datagrams a round, so a round cannot bring a quarter more. The draft has such rounds not count
/// (§5.3.3.9), but it compares the window with the bound that the same ACK may have raised: from one
/// datagram for each ACK on they count, and the probe ends far below what the path carries.
pub(super) const BOUNDED_GROWTH: Percent = Percent(117);
/// Rounds without that growth that show that it is full (§5.3.1.2).
pub(super) const FULL_BW_ROUNDS: u8 = 3;
/// Discontiguous losses in a round that end Startup (§5.3.1.3).
pub(super) const STARTUP_FULL_LOSS_COUNT: u64 = 6;
/// Rounds after which Drain ends in any case (§5.3.2).
pub(super) const DRAIN_ROUNDS: u64 = 3;
/// MinPipeCwnd in datagrams (§2.8).
pub(super) const MIN_PIPE_DATAGRAMS: u64 = 4;
/// Length of the min_rtt filter (§2.16.1).
pub(super) const MIN_RTT_FILTER_LEN: Duration = Duration::from_secs(10);
/// Least time between two ProbeRTTs (§2.16.2).
pub(super) const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
/// Least time spent with little in flight (§2.16.2).
pub(super) const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);
/// Least time between two probes for bandwidth; a random part of a second is
/// added (§5.3.3.8).
pub(super) const PROBE_WAIT: Duration = Duration::from_secs(2);
/// Most rounds between two probes, for the sake of Reno (§5.3.3.8).
pub(super) const RENO_ROUNDS: u64 = 63;

impl Phase {
    /// BBR.pacing_gain (table of §5.6.1).
    pub(super) const fn pacing_gain(self) -> Percent {
        match self {
            Self::Startup => STARTUP_PACING_GAIN,
            Self::Drain => DRAIN_PACING_GAIN,
            Self::Down => DOWN_PACING_GAIN,
            Self::Cruise | Self::Refill | Self::ProbeRtt => UNIT_GAIN,
            Self::Up => UP_PACING_GAIN,
        }
    }

    /// BBR.cwnd_gain (table of §5.6.1).
    pub(super) const fn cwnd_gain(self) -> Percent {
        match self {
            Self::Startup | Self::Drain | Self::Down | Self::Cruise | Self::Refill => {
                DEFAULT_CWND_GAIN
            }
            Self::Up => UP_CWND_GAIN,
            Self::ProbeRtt => PROBE_RTT_CWND_GAIN,
        }
    }
}
