use core::time::Duration;

use clearway_links::{LinkStats, Time};

use super::*;
use crate::app::{JobRecord, Record};
use crate::stack::SenderStats;

const RTT: Duration = Duration::from_millis(100);

/// A download sampled every 25 ms whose rate is `rate(ms)` bit/s.
fn flow(length: u64, rate: impl Fn(u64) -> u64) -> FlowOutcome {
    let mut down = 0;
    let samples = (0..=length / 25).map(|step| {
        let ms = step * 25;
        let sample = Sample {
            at: Time::from_millis(ms),
            down,
            up: 0,
            window: 100_000,
            in_flight: 10_000,
            rtt: RTT,
            sent: step * 10,
            lost: step,
            at_floor: false,
        };
        down += rate(ms) * 25 / 8_000;
        sample
    });
    FlowOutcome {
        controller: "test".to_owned(),
        started: Time::ZERO,
        bulk: Bulk::Down,
        counts: true,
        record: Record::default(),
        client: SenderStats::default(),
        server: SenderStats::default(),
        samples: samples.collect(),
        base_rtt: RTT,
        burst: 0,
    }
}

fn outcome(flows: Vec<FlowOutcome>) -> Outcome {
    let ended = flows[0].samples.last().unwrap().at;
    Outcome {
        scenario: "test".to_owned(),
        variant: String::new(),
        controller: "test".to_owned(),
        seed: 1,
        finished: true,
        ended,
        warmup: Time::ZERO,
        recovery_from: Vec::new(),
        flows,
        up: LinkStats::default(),
        down: LinkStats::default(),
        up_capacity: None,
        down_capacity: Some(1e7 * (ended - Time::ZERO).as_secs_f64()),
        recovery_rates: Vec::new(),
        amplification_permille: 0,
        digest: 0,
        events: 0,
        queue: Vec::new(),
        queue_delay: Vec::new(),
        findings: Vec::new(),
        violations: Vec::new(),
    }
}

fn value(name: &str, run: &Outcome) -> Option<f64> {
    (metric(name).unwrap().of)(run)
}

/// Equal to a percent.
#[track_caller]
fn about(value: Option<f64>, expected: f64) {
    let value = value.expect("the run has the figure");
    assert!(
        (value - expected).abs() <= expected * 0.01,
        "{value}, not {expected}"
    );
}

#[test]
fn goodput_and_utilisation_exclude_the_warm_up() {
    let mut run = outcome(vec![flow(
        10_000,
        |ms| if ms < 5_000 { 0 } else { 8_000_000 },
    )]);
    about(value("goodput", &run), 4e6);
    about(value("util", &run), 0.4);
    run.warmup = Time::from_secs(5);
    run.down_capacity = Some(5e7);
    about(value("goodput", &run), 8e6);
    about(value("util", &run), 0.8);
    about(value("loss_late", &run), 0.1);
}

#[test]
fn shares_count_bulk_flows_only() {
    let mut ping = flow(10_000, |_| 1_000);
    ping.counts = false;
    let run = outcome(vec![
        flow(10_000, |_| 6_000_000),
        flow(10_000, |_| 2_000_000),
        ping,
    ]);
    about(value("jain", &run), 0.8);
    about(value("share_min", &run), 0.25);
    about(value("share_max", &run), 0.75);
    about(value("share_ratio", &run), 3.0);
}

#[test]
fn recovery_ends_with_the_first_window_at_80_percent_of_the_rate() {
    let mut run = outcome(vec![flow(10_000, |ms| match ms {
        0..2_000 => 10_000_000,
        2_000..6_500 => 0,
        _ => 9_000_000,
    })]);
    run.recovery_from = vec![Time::from_secs(4)];
    run.recovery_rates = vec![Some(1e7)];
    let took = value("recovery", &run).unwrap();
    assert!((2.3..2.6).contains(&took), "{took}");
    run.recovery_rates = vec![Some(2e7)];
    assert_eq!(value("recovery", &run), None, "it never reaches 16 Mbit/s");
}

#[test]
fn floor_time_counts_only_after_data_get_through() {
    let mut stuck = flow(10_000, |ms| if ms < 3_000 { 0 } else { 10_000 });
    for sample in &mut stuck.samples {
        sample.at_floor = sample.at < Time::from_secs(7);
    }
    let mut run = outcome(vec![stuck]);
    run.recovery_from = vec![Time::from_secs(2)];
    // From about 3 s to 7 s at 100 ms.
    let rtts = value("floor_rtts", &run).unwrap();
    assert!((38.0..=40.0).contains(&rtts), "{rtts}");
}

#[test]
fn unfinished_run_has_no_completion_time() {
    let mut run = outcome(vec![flow(1_000, |_| 1_000_000)]);
    about(value("time", &run), 1.0);
    run.finished = false;
    assert_eq!(value("time", &run), None);
}

#[test]
fn jobs_before_the_warm_up_are_excluded() {
    let mut flow = flow(10_000, |_| 1_000_000);
    let job = |began, took| JobRecord {
        began: Time::from_millis(began),
        done: Some(Time::from_millis(began + took)),
    };
    flow.record.jobs = vec![job(0, 900), job(2_000, 100), job(3_000, 120)];
    let mut run = outcome(vec![flow]);
    about(value("job_p99", &run), 0.9);
    run.warmup = Time::from_secs(1);
    about(value("job_p50", &run), 0.1);
    about(value("job_spread", &run), 1.2);
}

#[test]
fn window_growth_across_silence_is_measured() {
    let mut flow = flow(10_000, |_| 1_000_000);
    flow.record.jobs = [0, 5_000]
        .map(|began| JobRecord {
            began: Time::from_millis(began),
            done: None,
        })
        .to_vec();
    for sample in &mut flow.samples {
        if sample.at >= Time::from_millis(5_000) {
            sample.window = 150_000;
        }
    }
    about(value("idle_growth", &outcome(vec![flow])), 1.5);
}

#[test]
fn metric_names_are_unique() {
    for (index, metric) in METRICS.iter().enumerate() {
        assert!(
            METRICS[..index]
                .iter()
                .all(|other| other.name != metric.name)
        );
    }
}
