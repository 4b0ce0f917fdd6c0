//! Long pauses, during which the path may have changed.

use core::time::Duration;

use super::driver::{Driver, facts};
use super::sim::{App, Link, Sim};
use crate::limit::Limit;

const SECONDS: Duration = Duration::from_secs(1);

/// A bulk flow on 100 Mbit/s that paused for this long.
fn paused(pause: Duration) -> Sim {
    let mut sim = Sim::new(Link::new(100, 40, 100), App::Bulk);
    sim.run(5 * SECONDS);
    sim.set_app(App::Silent);
    sim.run(pause);
    sim.set_app(App::Bulk);
    sim
}

/// Packets lost in ten seconds after a pause of a minute in which the rate fell to a tenth.
#[test]
fn model_from_before_a_long_pause_gives_way_to_the_first_lossy_round() {
    let mut sim = paused(60 * SECONDS);
    sim.link.rate /= 10;
    sim.link.queue /= 10;
    let before = sim.packets_dropped;
    sim.run(10 * SECONDS);
    let dropped = sim.packets_dropped - before;
    assert!(dropped < 2_000, "{dropped}");
    let max_bw = sim.bbr().max_bw.get();
    assert!(max_bw <= sim.link.rate * 110 / 100, "{max_bw}");
    let rate = sim.measure(5 * SECONDS);
    assert!(rate >= sim.link.rate * 85 / 100, "{rate}");
}

#[test]
fn model_is_used_after_a_long_pause_on_the_same_path() {
    let mut sim = paused(60 * SECONDS);
    sim.run(SECONDS / 10);
    let rate = sim.measure(SECONDS);
    assert!(rate >= sim.link.rate * 90 / 100, "{rate}");
    assert!(!sim.bbr().doubt.can_be_settled(), "and confirmed");
}

/// Losses of a few packets that an application sends now and then say nothing of the rate.
#[test]
fn losses_of_a_short_message_do_not_replace_the_model() {
    let mut sim = paused(60 * SECONDS);
    let max_bw = sim.bbr().max_bw.get();
    sim.set_app(App::Chunks {
        packets: 4,
        every: 20 * SECONDS,
    });
    sim.link.loss = 300_000;
    sim.run(60 * SECONDS);
    assert_eq!(sim.bbr().max_bw.get(), max_bw);
}

/// The model of before a long pause is settled by losses of more than 2 %, or by a round without loss that
/// brings half of its bandwidth or more.
#[test]
fn round_settles_model_in_doubt_by_losses_or_by_half_of_its_bandwidth() {
    let settled = |loss_seen: bool, lost: u64, bandwidth: u64| {
        let mut driver = Driver::cruising();
        let resumed = driver.now + Duration::from_secs(11);
        driver.bbr.doubt.on_measured(driver.now);
        driver.bbr.doubt.on_limit(Limit::Application, driver.now);
        driver.bbr.doubt.on_limit(Limit::Pacing, resumed);
        assert!(driver.bbr.doubt.can_be_settled());
        driver.bbr.loss_round.loss_seen = loss_seen;
        driver.bbr.loss_round.bw_latest = bandwidth;
        driver.bbr.loss_round.inflight_latest = 100_000;
        assert_eq!(driver.bbr.bw, 1_000_000);
        let facts = facts(&driver, 100_000, lost);
        driver.bbr.judge_model_in_doubt(&facts);
        !driver.bbr.doubt.can_be_settled()
    };
    assert!(settled(true, 2_001, 400_000));
    assert!(!settled(true, 2_000, 900_000));
    assert!(settled(false, 0, 500_000));
    assert!(!settled(false, 0, 499_999));
}
