//! Known bugs of BBR (feature `specimens`).

use core::time::Duration;

use crate::controller::{Ack, Congestion, CongestionCause, Controller as _, LostPacket};
use crate::rate::{Delivery, RateSample, bytes_per_second};
use crate::specimens::Specimen;

use super::super::specimens::Bug;
use super::Bbr;
use super::filters::MaxBwFilter;
use super::gains::{BETA, UNIT_GAIN};
use super::loss::inflight_at_loss;
use super::phase::Phase;

/// Returns the bug of this specimen if it is one of BBR.
pub(in super::super) fn bug(specimen: Specimen) -> Option<Box<dyn Bug<Bbr>>> {
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

/// Keeps Drain from ending after three rounds.
fn never_overdue(inner: &mut Bbr) {
    if inner.phase == Phase::Drain {
        inner.drain_start_round = inner.rounds.count;
    }
}

/// Clears both slots of the max_bw filter, so that only the latest sample is left.
fn expire_max_bw(inner: &mut Bbr, ack: &Ack<'_>) {
    inner.max_bw = MaxBwFilter::default();
    inner
        .max_bw
        .update(ack.rate.map_or(0, |sample| sample.delivery_rate), ack.now);
    inner.bound_bw_for_model();
}

/// `drain-trap`: the window stays at what Startup reached, with the pacing gain of UP.
#[derive(Debug)]
struct DrainTrap;

impl Bug<Bbr> for DrainTrap {
    fn on_ack(&mut self, inner: &mut Bbr, ack: &Ack<'_>) {
        never_overdue(inner);
        inner.on_ack(ack);
        if inner.phase == Phase::Drain {
            inner.set_pacing_rate_with_gain(Phase::Up.pacing_gain());
            inner.cwnd = inner.cwnd.max(inner.prior_cwnd).max(ack.in_flight_before);
        }
    }
}

/// `down-trap`: DOWN ends only when less is in flight than its own pacing rate keeps there,
/// while max_bw expires.
#[derive(Debug)]
struct DownTrap;

impl Bug<Bbr> for DownTrap {
    fn on_ack(&mut self, inner: &mut Bbr, ack: &Ack<'_>) {
        if inner.phase != Phase::Down {
            return inner.on_ack(ack);
        }
        // Neither time nor rounds end the cycle.
        inner.probe.cycle_stamp = ack.now;
        inner.rounds.since_probe_up = 0;
        let target = inner.bdp_multiple(inner.bw, Phase::Drain.pacing_gain());
        let in_flight_after = if ack.in_flight_before < target {
            0
        } else {
            u64::MAX
        };
        inner.on_ack(&Ack {
            in_flight_after,
            ..*ack
        });
        if inner.phase == Phase::Down && inner.rounds.started {
            expire_max_bw(inner, ack);
        }
    }
}

/// `pre-ack-inflight-exit`: the conditions to leave a state use the bytes in flight before
/// the ACK.
#[derive(Debug)]
struct PreAckInflightExit;

impl Bug<Bbr> for PreAckInflightExit {
    fn on_ack(&mut self, inner: &mut Bbr, ack: &Ack<'_>) {
        never_overdue(inner);
        inner.on_ack(&Ack {
            in_flight_after: ack.in_flight_before,
            ..*ack
        });
    }
}

/// `max-filter-same-round`: all slots of the max_bw filter expire in one round.
#[derive(Debug)]
struct MaxFilterSameRound;

impl Bug<Bbr> for MaxFilterSameRound {
    fn on_ack(&mut self, inner: &mut Bbr, ack: &Ack<'_>) {
        inner.on_ack(ack);
        if inner.rounds.started && inner.rounds.count.is_multiple_of(4) {
            expire_max_bw(inner, ack);
        }
    }
}

/// `bootstrap-rtt-poison`: a placeholder of 10 ms is accepted as min_rtt.
#[derive(Debug)]
struct BootstrapRttPoison;

impl Bug<Bbr> for BootstrapRttPoison {
    fn on_ack(&mut self, inner: &mut Bbr, ack: &Ack<'_>) {
        let measured = inner.measured;
        inner.on_ack(ack);
        if inner.measured && !measured {
            let guess = Some(Duration::from_millis(10));
            let min_rtt = &mut inner.clocks(ack.now).min_rtt;
            min_rtt.update(guess, Duration::ZERO, false, ack.now);
        }
    }
}

/// `walltime-rate`: delivery-rate samples include the wait in the pacer.
#[derive(Debug)]
struct WalltimeRate;

impl Bug<Bbr> for WalltimeRate {
    fn on_ack(&mut self, inner: &mut Bbr, ack: &Ack<'_>) {
        let slow = ack.rate.map(|sample| {
            let flight = u128::from(sample.delivered) * 1_000_000_000;
            let waited = u64::try_from(flight / u128::from(inner.pacing_rate.max(1)));
            let waited = Duration::from_nanos(waited.unwrap_or(u64::MAX));
            RateSample {
                delivery_rate: bytes_per_second(sample.delivered, sample.interval + waited),
                ..*sample
            }
        });
        inner.on_ack(&Ack {
            rate: slow.as_ref(),
            ..*ack
        });
        // The smallest pacing rate would end the decline.
        if inner.bw > 0 && inner.pacing_rate == inner.min_pacing_rate() {
            let modelled = inner.paced(inner.pacing_gain());
            inner.pacing_rate = inner.pacing_rate.min(modelled);
        }
    }
}

/// `zero-pacing-bootstrap`: the first pacing rate is almost zero, and later rates never
/// exceed what was measured.
#[derive(Debug)]
struct ZeroPacingBootstrap;

impl Bug<Bbr> for ZeroPacingBootstrap {
    fn on_start(&mut self, inner: &mut Bbr) {
        inner.pacing_rate = 1;
    }

    fn on_mds(&mut self, inner: &mut Bbr, mds: u64) {
        inner.on_mds(mds);
        if inner.untouched {
            inner.pacing_rate = 1;
        }
    }

    fn on_ack(&mut self, inner: &mut Bbr, ack: &Ack<'_>) {
        let before = inner.pacing_rate;
        inner.on_ack(ack);
        inner.pacing_rate = match (inner.bw, inner.full_pipe.reached) {
            (0, _) => before,
            (_, true) => inner.paced(inner.pacing_gain()),
            (_, false) => inner.paced(UNIT_GAIN).max(before),
        };
    }
}

/// `tokenbucket-startup`: the bucket is empty, and each ACK adds one token.
#[derive(Debug)]
struct TokenbucketStartup;

impl Bug<Bbr> for TokenbucketStartup {
    fn on_ack(&mut self, inner: &mut Bbr, ack: &Ack<'_>) {
        inner.on_ack(ack);
        let token = ack.in_flight_after.saturating_add(inner.mds);
        inner.cwnd = inner.cwnd.min(token.max(inner.min_pipe_cwnd()));
    }
}

/// `startup-overrun`: Startup ignores losses and marks and does not limit the window.
#[derive(Debug)]
struct StartupOverrun;

impl Bug<Bbr> for StartupOverrun {
    fn on_ack(&mut self, inner: &mut Bbr, ack: &Ack<'_>) {
        if inner.full_pipe.reached {
            return inner.on_ack(ack);
        }
        let grown = inner.cwnd.saturating_add(ack.bytes);
        let delivery = Delivery {
            lost: 0,
            ..ack.delivery
        };
        inner.on_ack(&Ack { delivery, ..*ack });
        if !inner.full_pipe.reached {
            inner.cwnd = inner.cwnd.max(grown);
        }
    }

    fn on_congestion(&mut self, inner: &mut Bbr, event: &Congestion) {
        match event.cause {
            CongestionCause::EcnCe if !inner.full_pipe.reached => {}
            CongestionCause::EcnCe | CongestionCause::Loss => inner.on_congestion(event),
        }
    }
}

/// `amnesia-after-outage`: persistent congestion zeroes max_bw.
#[derive(Debug)]
struct AmnesiaAfterOutage;

impl Bug<Bbr> for AmnesiaAfterOutage {
    fn on_congestion(&mut self, inner: &mut Bbr, event: &Congestion) {
        inner.on_congestion(event);
        if event.persistent {
            inner.max_bw = MaxBwFilter::default();
            inner.bw = 0;
            inner.pacing_rate = inner.min_pacing_rate();
            inner.prior_cwnd = 0;
        }
    }
}

/// `longterm-spiral`: inflight_longterm is not bounded by the BDP and falls with each loss.
#[derive(Debug)]
struct LongtermSpiral;

impl LongtermSpiral {
    /// Tells the controller of a loss or mark at `inflight` bytes in flight. If that
    /// lowered the bound, lowers it further, and lets the next loss do the same.
    fn tell(inner: &mut Bbr, inflight: Option<u64>, event: impl FnOnce(&mut Bbr)) {
        let (answering, bound) = (inner.probe.is_sample, inner.inflight_longterm);
        event(inner);
        if answering && !inner.probe.is_sample {
            if let Some(inflight) = inflight {
                inner.inflight_longterm = BETA.of(inflight.min(bound));
            }
            inner.probe.is_sample = true;
        }
    }
}

impl Bug<Bbr> for LongtermSpiral {
    fn on_lost(&mut self, inner: &mut Bbr, lost: &LostPacket) {
        let inflight = (!lost.app_limited).then(|| inflight_at_loss(lost));
        Self::tell(inner, inflight, |inner| inner.on_lost(lost));
    }

    fn on_congestion(&mut self, inner: &mut Bbr, event: &Congestion) {
        let inflight = Some(event.largest_tx_in_flight);
        Self::tell(inner, inflight, |inner| inner.on_congestion(event));
    }
}
