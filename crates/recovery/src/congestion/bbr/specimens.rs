//! Known bugs around BBR (feature `specimens`).

use core::time::Duration;

use crate::controller::{Ack, Congestion, CongestionCause, Controller as _, LostPacket};
use crate::rate::{Delivery, RateSample};
use crate::specimens::Specimen;

use super::super::specimens::Flaw;
use super::Bbr;
use super::filters::MaxBwFilter;
use super::gains::{BETA, UNIT_GAIN, rate};
use super::loss::inflight_at_loss;
use super::phase::Phase;

/// The bug of this name, if it is one of BBR's.
pub(in super::super) fn flaw(specimen: Specimen) -> Option<Box<dyn Flaw<Bbr>>> {
    match specimen {
        Specimen::DrainTrap => Some(Box::new(DrainTrap)),
        Specimen::DownTrap => Some(Box::new(DownTrap)),
        Specimen::PreAckInflightExit => Some(Box::new(PreAckInflightExit)),
        Specimen::MaxFilterSameRound => Some(Box::new(MaxFilterSameRound)),
        Specimen::BootstrapRttPoison => Some(Box::new(BootstrapRttPoison)),
        Specimen::WalltimeRate => Some(Box::new(WalltimeRate)),
        Specimen::ZeroPacingBootstrap => Some(Box::new(ZeroPacingBootstrap)),
        Specimen::TokenbucketStartup => Some(Box::new(TokenbucketStartup)),
        Specimen::StartupOverrun => Some(Box::new(StartupOverrun)),
        Specimen::AmnesiaAfterOutage => Some(Box::new(AmnesiaAfterOutage)),
        Specimen::LongtermSpiral => Some(Box::new(LongtermSpiral)),
        Specimen::IdleFromLastSend
        | Specimen::EpochClampedToNow
        | Specimen::EpochNotShifted
        | Specimen::EpochResetOnIdle
        | Specimen::UndoOnLightLoss
        | Specimen::MultiCut
        | Specimen::BifDesync
        | Specimen::PtoUnarmed
        | Specimen::PacerSpin
        | Specimen::RetransmitAllOnMigration
        | Specimen::MigrationRttReset => None,
    }
}

/// Drain has no end after three rounds.
fn never_overdue(right: &mut Bbr) {
    if right.phase == Phase::Drain {
        right.drain_start_round = right.rounds.count;
    }
}

/// Both slots of the max_bw filter expire, and only the latest sample is left.
fn expire_max_bw(right: &mut Bbr, ack: &Ack<'_>) {
    right.max_bw = MaxBwFilter::default();
    right
        .max_bw
        .update(ack.rate.map_or(0, |sample| sample.delivery_rate));
    right.bound_bw_for_model();
}

/// `drain-trap`: the window is pinned to what Startup reached, at the pace of UP.
#[derive(Debug)]
struct DrainTrap;

impl Flaw<Bbr> for DrainTrap {
    fn on_ack(&mut self, right: &mut Bbr, ack: &Ack<'_>) {
        never_overdue(right);
        right.on_ack(ack);
        if right.phase == Phase::Drain {
            right.set_pacing_rate_with_gain(Phase::Up.pacing_gain());
            right.cwnd = right.cwnd.max(right.prior_cwnd).max(ack.in_flight_before);
        }
    }
}

/// `down-trap`: DOWN waits for less in flight than its own pace keeps there, and
/// for nothing else, while max_bw ages.
#[derive(Debug)]
struct DownTrap;

impl Flaw<Bbr> for DownTrap {
    fn on_ack(&mut self, right: &mut Bbr, ack: &Ack<'_>) {
        if right.phase != Phase::Down {
            return right.on_ack(ack);
        }
        // Neither clock of the cycle runs.
        right.probe.cycle_stamp = ack.now;
        right.rounds.since_probe_up = 0;
        let target = right.bdp_multiple(right.bw, Phase::Drain.pacing_gain());
        let in_flight_after = if ack.in_flight_before < target {
            0
        } else {
            u64::MAX
        };
        right.on_ack(&Ack {
            in_flight_after,
            ..*ack
        });
        if right.phase == Phase::Down && right.rounds.started {
            expire_max_bw(right, ack);
        }
    }
}

/// `pre-ack-inflight-exit`: exits are tested on what was in flight before the ACK.
#[derive(Debug)]
struct PreAckInflightExit;

impl Flaw<Bbr> for PreAckInflightExit {
    fn on_ack(&mut self, right: &mut Bbr, ack: &Ack<'_>) {
        never_overdue(right);
        right.on_ack(&Ack {
            in_flight_after: ack.in_flight_before,
            ..*ack
        });
    }
}

/// `max-filter-same-round`: all slots of the max_bw filter expire in one round.
#[derive(Debug)]
struct MaxFilterSameRound;

impl Flaw<Bbr> for MaxFilterSameRound {
    fn on_ack(&mut self, right: &mut Bbr, ack: &Ack<'_>) {
        right.on_ack(ack);
        if right.rounds.started && right.rounds.count.is_multiple_of(4) {
            expire_max_bw(right, ack);
        }
    }
}

/// `bootstrap-rtt-poison`: a placeholder of 10 ms is accepted as min_rtt.
#[derive(Debug)]
struct BootstrapRttPoison;

impl Flaw<Bbr> for BootstrapRttPoison {
    fn on_ack(&mut self, right: &mut Bbr, ack: &Ack<'_>) {
        let measured = right.measured;
        right.on_ack(ack);
        if right.measured && !measured {
            let guess = Some(Duration::from_millis(10));
            let min_rtt = &mut right.clocks(ack.now).min_rtt;
            min_rtt.update(guess, Duration::ZERO, ack.now);
        }
    }
}

/// `walltime-rate`: the wait in the pacer counts in the rate sample.
#[derive(Debug)]
struct WalltimeRate;

impl Flaw<Bbr> for WalltimeRate {
    fn on_ack(&mut self, right: &mut Bbr, ack: &Ack<'_>) {
        let slow = ack.rate.map(|sample| {
            let flight = u128::from(sample.delivered) * 1_000_000_000;
            let waited = u64::try_from(flight / u128::from(right.pacing_rate.max(1)));
            let waited = Duration::from_nanos(waited.unwrap_or(u64::MAX));
            RateSample {
                delivery_rate: rate(sample.delivered, sample.interval + waited),
                ..*sample
            }
        });
        right.on_ack(&Ack {
            rate: slow.as_ref(),
            ..*ack
        });
        // The floor of the pacing rate would end the spiral.
        if right.bw > 0 && right.pacing_rate == right.min_pacing_rate() {
            let modelled = right.paced(right.pacing_gain());
            right.pacing_rate = right.pacing_rate.min(modelled);
        }
    }
}

/// `zero-pacing-bootstrap`: the first rate is next to nothing, and pacing never
/// asks for more than what was measured.
#[derive(Debug)]
struct ZeroPacingBootstrap;

impl Flaw<Bbr> for ZeroPacingBootstrap {
    fn on_start(&mut self, right: &mut Bbr) {
        right.pacing_rate = 1;
    }

    fn on_mds(&mut self, right: &mut Bbr, mds: u64) {
        right.on_mds(mds);
        if right.untouched {
            right.pacing_rate = 1;
        }
    }

    fn on_ack(&mut self, right: &mut Bbr, ack: &Ack<'_>) {
        let before = right.pacing_rate;
        right.on_ack(ack);
        right.pacing_rate = match (right.bw, right.full_pipe.reached) {
            (0, _) => before,
            (_, true) => right.paced(right.pacing_gain()),
            (_, false) => right.paced(UNIT_GAIN).max(before),
        };
    }
}

/// `tokenbucket-startup`: the bucket is empty, and each ACK brings one token.
#[derive(Debug)]
struct TokenbucketStartup;

impl Flaw<Bbr> for TokenbucketStartup {
    fn on_ack(&mut self, right: &mut Bbr, ack: &Ack<'_>) {
        right.on_ack(ack);
        let token = ack.in_flight_after.saturating_add(right.mds);
        right.cwnd = right.cwnd.min(token.max(right.min_pipe_cwnd()));
    }
}

/// `startup-overrun`: Startup looks at no loss or mark and bounds no window.
#[derive(Debug)]
struct StartupOverrun;

impl Flaw<Bbr> for StartupOverrun {
    fn on_ack(&mut self, right: &mut Bbr, ack: &Ack<'_>) {
        if right.full_pipe.reached {
            return right.on_ack(ack);
        }
        let grown = right.cwnd.saturating_add(ack.bytes);
        let delivery = Delivery {
            lost: 0,
            ..ack.delivery
        };
        right.on_ack(&Ack { delivery, ..*ack });
        if !right.full_pipe.reached {
            right.cwnd = right.cwnd.max(grown);
        }
    }

    fn on_congestion(&mut self, right: &mut Bbr, event: &Congestion) {
        match event.cause {
            CongestionCause::EcnCe if !right.full_pipe.reached => {}
            CongestionCause::EcnCe | CongestionCause::Loss => right.on_congestion(event),
        }
    }
}

/// `amnesia-after-outage`: persistent congestion zeroes max_bw.
#[derive(Debug)]
struct AmnesiaAfterOutage;

impl Flaw<Bbr> for AmnesiaAfterOutage {
    fn on_congestion(&mut self, right: &mut Bbr, event: &Congestion) {
        right.on_congestion(event);
        if event.persistent {
            right.max_bw = MaxBwFilter::default();
            right.bw = 0;
            right.pacing_rate = right.min_pacing_rate();
            right.prior_cwnd = 0;
        }
    }
}

/// `longterm-spiral`: the long-term bound has no floor of the BDP and falls with
/// each loss.
#[derive(Debug)]
struct LongtermSpiral;

impl LongtermSpiral {
    /// Tells `right` of a loss or mark that met `inflight` bytes in flight. If that
    /// moved the bound, moves it further, and never ends the answers to the probe.
    fn tell(right: &mut Bbr, inflight: Option<u64>, event: impl FnOnce(&mut Bbr)) {
        let (answering, bound) = (right.probe.is_sample, right.inflight_longterm);
        event(right);
        if answering && !right.probe.is_sample {
            if let Some(inflight) = inflight {
                right.inflight_longterm = BETA.of(inflight.min(bound));
            }
            right.probe.is_sample = true;
        }
    }
}

impl Flaw<Bbr> for LongtermSpiral {
    fn on_lost(&mut self, right: &mut Bbr, lost: &LostPacket) {
        let inflight = (!lost.app_limited).then(|| inflight_at_loss(lost));
        Self::tell(right, inflight, |right| right.on_lost(lost));
    }

    fn on_congestion(&mut self, right: &mut Bbr, event: &Congestion) {
        let inflight = Some(event.largest_tx_in_flight);
        Self::tell(right, inflight, |right| right.on_congestion(event));
    }
}
