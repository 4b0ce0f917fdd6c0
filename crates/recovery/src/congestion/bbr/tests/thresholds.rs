//! The figures that the controller shows of its model, and the exact values of its
//! thresholds.

use core::time::Duration;

use super::super::facts::Facts;
use super::super::filters::{ExtraAcked, MinRtt};
use super::super::phase::Phase;
use super::super::{Bbr, INFINITE};
use super::sim::{App, Link, MDS, Sim};
use crate::controller::Controller;
use crate::time::{Instant, nanos};

fn shown(bbr: &Bbr, name: &str) -> Option<u64> {
    let mut found = None;
    bbr.internals(Instant::ZERO, &mut |other, value| {
        if other == name {
            found = Some(value);
        }
    });
    found
}

#[test]
fn internals_show_only_finite_bounds() {
    let mut bbr = Bbr::new(MDS, 1);
    assert_eq!(shown(&bbr, "inflight_longterm"), None);
    assert_eq!(shown(&bbr, "bw_shortterm"), None);
    assert_eq!(bbr.inflight_longterm, INFINITE);
    bbr.inflight_longterm = 70_000;
    assert_eq!(shown(&bbr, "inflight_longterm"), Some(70_000));
    assert_eq!(shown(&bbr, "boundary"), Some(0));
}

#[test]
fn internals_show_the_model_of_a_filled_pipe() {
    let mut sim = Sim::new(Link::new(10, 40, 100), App::Bulk);
    sim.until_phase(Phase::Up);
    let bbr = &*sim.bbr();
    assert_eq!(shown(bbr, "max_bw"), Some(bbr.max_bw.get()));
    assert_eq!(shown(bbr, "min_rtt"), bbr.min_rtt().map(nanos));
    // Gains in thousandths: UP is 1.25 (§5.3.3.4).
    assert_eq!(shown(bbr, "pacing_gain"), Some(1_250));
    // Two to three seconds (§5.3.3.8).
    let wait = shown(bbr, "probe_wait").unwrap();
    assert!((2_000_000_000..3_000_000_000).contains(&wait), "{wait}");
}

/// BBR.LossThresh: exactly 2 % is tolerated.
#[test]
fn two_percent_loss_is_within_the_threshold() {
    let facts = |lost| Facts {
        now: Instant::ZERO,
        delivery_rate: 0,
        delivered: 0,
        prior_delivered: 0,
        lost,
        tx_in_flight: 100_000,
        is_app_limited: false,
        newly_acked: 0,
        rtt: None,
        srtt: Duration::ZERO,
        total_delivered: 0,
        in_flight: 0,
        in_flight_before: 0,
    };
    assert!(!facts(2_000).is_inflight_too_high());
    assert!(facts(2_001).is_inflight_too_high());
}

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

const SECOND: u64 = 1_000_000_000;

/// §5.3.4.3: ProbeRTT is due after five seconds without a sample as low as the minimum.
#[test]
fn probe_rtt_is_due_after_five_seconds() {
    let ms = Duration::from_millis;
    let mut filter = MinRtt::new(at(0));
    filter.update(Some(ms(10)), Duration::ZERO, false, at(0));
    filter.update(None, Duration::ZERO, false, at(5 * SECOND));
    assert!(!filter.is_probe_due());
    filter.update(None, Duration::ZERO, false, at(5 * SECOND + 1));
    assert!(filter.is_probe_due());
    filter.schedule_next(at(6 * SECOND));
    filter.update(None, Duration::ZERO, false, at(11 * SECOND));
    assert!(!filter.is_probe_due(), "one has just been done");
}

/// §5.3.4.3: the minimum is kept for ten seconds; then that of the last probe counts.
#[test]
fn min_rtt_expires_after_ten_seconds() {
    let ms = Duration::from_millis;
    let mut filter = MinRtt::new(at(0));
    filter.update(Some(ms(10)), Duration::ZERO, false, at(0));
    filter.update(Some(ms(20)), Duration::ZERO, false, at(6 * SECOND));
    filter.update(None, Duration::ZERO, false, at(10 * SECOND));
    assert_eq!(filter.get(), Some(ms(10)));
    filter.update(None, Duration::ZERO, false, at(10 * SECOND + 1));
    assert_eq!(filter.get(), Some(ms(20)));
}

/// §5.4.1: the expected bytes are counted from the restart on.
#[test]
fn restart_from_idle_resets_extra_acked_interval() {
    let mut extra = ExtraAcked::new(at(0));
    extra.update(100_000, 1_000_000, INFINITE, 0, at(0));
    // 50 ms at 1 MB/s: 50,000 bytes would have been expected.
    extra.restart(at(SECOND / 20));
    extra.update(10_000, 1_000_000, INFINITE, 0, at(SECOND / 20));
    assert_eq!(extra.get(true), 110_000);
}

/// UpdateMinRTT(): only a lower sample renews the minimum's ten seconds.
#[test]
fn equal_rtt_sample_does_not_renew_min_rtt() {
    let ms = Duration::from_millis;
    let mut filter = MinRtt::new(at(0));
    filter.update(Some(ms(10)), Duration::ZERO, false, at(0));
    filter.update(Some(ms(10)), Duration::ZERO, false, at(3 * SECOND));
    filter.update(Some(ms(20)), Duration::ZERO, false, at(8 * SECOND + 1));
    assert_eq!(filter.get(), Some(ms(10)));
    filter.update(None, Duration::ZERO, false, at(10 * SECOND + 1));
    assert_eq!(filter.get(), Some(ms(20)));
}
