//! The metrics of a run that bars are set on.

use core::time::Duration;

use clearway_links::Time;
use clearway_recovery::limit::LimitGroup;

use super::outcome::{Bulk, FlowOutcome, Outcome, Sample};
use super::statistics::{jain, percentile};
use crate::scenario::Unit;

/// A metric of a run.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name; bars are called `NAME_min` and `NAME_max`.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Its description.
    pub about: &'static str,
    /// Computes it; `None` if the run does not have it.
    pub of: fn(&Outcome) -> Option<f64>,
}

macro_rules! metrics {
    ($($name:ident $unit:ident $about:literal $of:expr;)*) => {
        /// All metrics.
        pub const METRICS: &[Metric] = &[
            $(Metric { name: stringify!($name), unit: Unit::$unit, about: $about, of: $of },)*
        ];
    };
}

metrics! {
    time Time "completion time of the last flow; none if any flow did not complete" |run| {
        run.finished.then(|| run.ended.as_nanos() as f64 / 1e9)
    };
    goodput Rate "goodput of all bulk flows together" goodput;
    util Share "goodput as a share of the link rate, at most 100 %" util;
    rtt_min Time "minimum smoothed RTT" |run| percentile(&rtts(run), 0.0);
    rtt_p50 Time "median smoothed RTT" |run| percentile(&rtts(run), 0.50);
    rtt_p95 Time "95th percentile of the smoothed RTT" |run| percentile(&rtts(run), 0.95);
    rtt_p99 Time "99th percentile of the smoothed RTT" |run| percentile(&rtts(run), 0.99);
    rtt_max Time "maximum smoothed RTT" |run| percentile(&rtts(run), 1.0);
    rtt_inflation Number "ratio of the median RTT to the propagation delay" |run| {
        let base = run.flows.first()?.base_rtt.as_secs_f64();
        Some(percentile(&rtts(run), 0.5)? / base)
    };
    queue_mean Time "mean queueing delay in the bulk direction" queue_mean;
    queue_max Time "maximum queueing delay in the bulk direction" |run| {
        Some(link(run).queueing_max.as_secs_f64())
    };
    queue_p95 Time "95th percentile of the queueing delay in the bulk direction" |run| sojourn(run, 0.95);
    queue_p99 Time "99th percentile of the queueing delay in the bulk direction" |run| sojourn(run, 0.99);
    queue_late Time "median time that the queue in the bulk direction takes to drain, after the warm-up" queue_late;
    stall Time "longest time in which a flow that has work delivers nothing" stall;
    loss Share "share of sent packets declared lost" |run| {
        let (sent, lost) = losses(run);
        (sent > 0).then(|| lost as f64 / sent as f64)
    };
    loss_late Share "share of sent packets declared lost after the warm-up" loss_late;
    losses Number "packets declared lost" |run| Some(losses(run).1 as f64);
    spurious Number "packets declared lost but acknowledged later" |run| {
        Some(run.flows.iter().map(|f| f.sender().spurious_losses).sum::<u64>() as f64)
    };
    drops Number "packets dropped by the queue, AQM or policer in the bulk direction" |run| {
        let link = link(run);
        Some((link.dropped_queue + link.dropped_aqm + link.dropped_policer) as f64)
    };
    dropped Number "packets dropped in the bulk direction for any reason" |run| {
        Some(link(run).dropped() as f64)
    };
    marks Number "packets ECN-marked in the bulk direction" |run| Some(link(run).ce_marked as f64);
    jain Number "Jain's fairness index of the bulk flows after the warm-up" |run| jain(&shares(run));
    share_min Share "the smallest flow's share of the total goodput" |run| {
        share(run, |shares| shares.iter().copied().fold(f64::INFINITY, f64::min))
    };
    share_max Share "the largest flow's share of the total goodput" |run| {
        share(run, |shares| shares.iter().copied().fold(0.0, f64::max))
    };
    share_ratio Number "ratio of the largest to the smallest goodput of a flow" |run| {
        let shares = shares(run);
        let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
        let most = shares.iter().copied().fold(0.0, f64::max);
        (shares.len() > 1).then_some(most / least)
    };
    floor_rtts Number "longest time at the minimum window with data waiting, in RTTs, counted from the first data delivered after the disturbance" floor_rtts;
    recovery Time "time from the end of a disturbance until goodput reaches 80 % of the rate" recovery;
    ptos Number "most probe timeouts of any flow" |run| {
        run.flows.iter().map(|f| f.sender().ptos).max().map(|n| n as f64)
    };
    persistent Number "number of window collapses through persistent congestion" |run| {
        run.flows.iter().map(|f| f.sender().persistent_events).max().map(|n| n as f64)
    };
    events Number "number of window reductions" |run| {
        run.flows.iter().map(|f| f.sender().congestion_events).max().map(|n| n as f64)
    };
    key_updates Number "most key updates of any flow, counted at either end" |run| {
        let most = |f: &FlowOutcome| f.client.key_updates.max(f.server.key_updates);
        run.flows.iter().map(most).max().map(|n| n as f64)
    };
    window_max Bytes "largest congestion window" |run| {
        samples(run).map(|s| s.window).max().map(|n| n as f64)
    };
    window_max_late Bytes "largest congestion window after the warm-up" |run| {
        run.flows.iter().flat_map(|f| f.since(run.warmup)).map(|s| s.window).max().map(|n| n as f64)
    };
    burst Bytes "most bytes sent at the same instant after the handshake" |run| {
        run.bulk_flows().map(|flow| flow.burst).max().map(|n| n as f64)
    };
    idle_growth Number "largest ratio of the window one RTT after a silence to the window before it" idle_growth;
    loss_after Share "share of packets declared lost in the second after a disturbance" loss_after;
    handshake Time "longest time until a client could open streams" |run| {
        worst(run.flows.iter().map(|f| Some(f.record.connected? - f.started)))
    };
    job_p50 Time "median duration of a request or transfer" |run| percentile(&jobs(run)?, 0.50);
    job_p99 Time "99th percentile of the duration of a request or transfer" |run| percentile(&jobs(run)?, 0.99);
    job_spread Number "ratio of job_p99 to job_p50" |run| {
        let jobs = jobs(run)?;
        Some(percentile(&jobs, 0.99)? / percentile(&jobs, 0.5)?)
    };
    amplification Number "largest ratio of bytes sent to bytes received by a server before address validation" |run| {
        Some(run.amplification_permille as f64 / 1e3)
    };
    flow_controlled Share "share of time limited by flow control, including stream limits" |run| {
        limits(run, LimitGroup::FlowControl)
    };
    app_limited Share "share of time limited by the application" |run| {
        limits(run, LimitGroup::Application)
    };
    window_limited Share "share of time limited by the congestion window or the pacer" |run| {
        limits(run, LimitGroup::Network)
    };
    response Number "ratio of the mean window to CUBIC's response function at the measured loss" response;
}

/// The metric called `name`.
#[must_use]
pub fn metric(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

fn samples(run: &Outcome) -> impl Iterator<Item = &Sample> {
    run.flows.iter().flat_map(|flow| &flow.samples)
}

fn bulk(run: &Outcome) -> Bulk {
    run.bulk_flows().next().map_or(Bulk::Down, |flow| flow.bulk)
}

fn link(run: &Outcome) -> &clearway_links::LinkStats {
    match bulk(run) {
        Bulk::Down | Bulk::Both => &run.down,
        Bulk::Up => &run.up,
    }
}

/// Bytes delivered in one direction from `run.warmup` to the end.
fn arrived(run: &Outcome, of: fn(&Sample) -> u64) -> u64 {
    run.bulk_flows()
        .filter_map(|flow| {
            let last = of(flow.samples.last()?);
            let base = match flow.since(run.warmup).first() {
                Some(_) if run.warmup <= flow.started => 0,
                Some(first) => of(first),
                None => last,
            };
            Some(last - base)
        })
        .sum()
}

fn goodput(run: &Outcome) -> Option<f64> {
    let bytes = match bulk(run) {
        Bulk::Down => arrived(run, |s| s.down),
        Bulk::Up => arrived(run, |s| s.up),
        Bulk::Both => arrived(run, |s| s.down + s.up),
    };
    let time = (run.ended - run.warmup).as_secs_f64();
    (time > 0.0).then(|| bytes as f64 * 8.0 / time)
}

/// The worse of both directions, where bulk data flows in both. At most one: what waited in a
/// queue or behind a gap when the warm-up ended is read after it, and a trace has its mean as its
/// capacity, so that over a short time more may arrive than the link carries in it.
fn util(run: &Outcome) -> Option<f64> {
    let share = |bytes: u64, capacity: f64| (bytes as f64 * 8.0 / capacity).min(1.0);
    let down = || Some(share(arrived(run, |s| s.down), run.down_capacity?));
    let up = || Some(share(arrived(run, |s| s.up), run.up_capacity?));
    match bulk(run) {
        Bulk::Down => down(),
        Bulk::Up => up(),
        Bulk::Both => Some(down()?.min(up()?)),
    }
}

fn rtts(run: &Outcome) -> Vec<f64> {
    run.bulk_flows()
        .flat_map(|flow| flow.since(run.warmup))
        .filter(|sample| !sample.rtt.is_zero())
        .map(|sample| sample.rtt.as_secs_f64())
        .collect()
}

fn queue_mean(run: &Outcome) -> Option<f64> {
    let sojourn = &link(run).sojourn;
    (sojourn.count() > 0).then(|| sojourn.mean().as_secs_f64())
}

fn sojourn(run: &Outcome, share: f64) -> Option<f64> {
    let sojourn = &link(run).sojourn;
    let permille = (share * 1e3).round() as u32;
    (sojourn.count() > 0).then(|| sojourn.permille(permille).as_secs_f64())
}

fn queue_late(run: &Outcome) -> Option<f64> {
    let late = run.queue_delay.iter().filter(|(at, _)| *at >= run.warmup);
    let late: Vec<f64> = late.map(|(_, delay)| delay.as_secs_f64()).collect();
    percentile(&late, 0.5)
}

/// Of each flow the longest time between two samples with more data, while a job is under way.
fn stall(run: &Outcome) -> Option<f64> {
    let longest = |flow: &FlowOutcome| {
        let mut longest = Duration::ZERO;
        let mut since = flow.started;
        let mut bytes = 0;
        for sample in &flow.samples {
            let now = flow.bytes(sample);
            if now > bytes || !flow.has_work(sample.at) {
                since = sample.at;
            }
            bytes = now;
            longest = longest.max(sample.at.checked_since(since).unwrap_or_default());
        }
        longest.as_secs_f64()
    };
    run.bulk_flows().map(longest).reduce(f64::max)
}

fn losses(run: &Outcome) -> (u64, u64) {
    run.bulk_flows()
        .map(FlowOutcome::losses)
        .fold((0, 0), |(a, b), (c, d)| (a + c, b + d))
}

fn late(run: &Outcome, flow: &FlowOutcome) -> Option<(u64, u64)> {
    let samples = flow.since(run.warmup);
    let (first, last) = (samples.first()?, samples.last()?);
    Some((last.sent - first.sent, last.lost.saturating_sub(first.lost)))
}

fn loss_late(run: &Outcome) -> Option<f64> {
    let (sent, lost) = run
        .bulk_flows()
        .filter_map(|flow| late(run, flow))
        .fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
    (sent > 0).then(|| lost as f64 / sent as f64)
}

fn shares(run: &Outcome) -> Vec<f64> {
    run.bulk_flows()
        .map(|flow| flow.goodput(run.warmup).unwrap_or(0.0))
        .collect()
}

fn share(run: &Outcome, of: impl Fn(&[f64]) -> f64) -> Option<f64> {
    let shares = shares(run);
    let sum: f64 = shares.iter().sum();
    (sum > 0.0).then(|| of(&shares) / sum)
}

/// The worst of all flows; `None` if a flow has no value.
fn worst(times: impl Iterator<Item = Option<Duration>>) -> Option<f64> {
    let times: Option<Vec<Duration>> = times.collect();
    Some(times?.into_iter().max()?.as_secs_f64())
}

fn floor_rtts(run: &Outcome) -> Option<f64> {
    let after = run
        .recovery_from
        .iter()
        .max()
        .copied()
        .unwrap_or(run.warmup);
    let longest = |flow: &FlowOutcome| {
        let mut longest = Duration::ZERO;
        let mut since: Option<Time> = None;
        let samples = flow.since(after);
        // Until something is delivered, the sender cannot know that the path works again: that time
        // is the probe timer's, not the window's.
        let before = samples.first().map_or(0, |first| flow.bytes(first));
        let through = samples.partition_point(|sample| flow.bytes(sample) <= before);
        for sample in &samples[through..] {
            if sample.at_floor {
                longest = longest.max(sample.at - *since.get_or_insert(sample.at));
            } else {
                since = None;
            }
        }
        longest.as_secs_f64() / flow.base_rtt.as_secs_f64().max(1e-6)
    };
    run.bulk_flows().map(longest).reduce(f64::max)
}

/// The share of the rate at which a flow counts as recovered.
const RECOVERED: f64 = 0.8;

fn recovery(run: &Outcome) -> Option<f64> {
    let flow = run.bulk_flows().next()?;
    let mut slowest = None;
    for (&from, rate) in run.recovery_from.iter().zip(&run.recovery_rates) {
        let took = recovered(flow, from, (*rate)?)?;
        slowest = slowest.max(Some(took));
    }
    Some(slowest?.as_secs_f64())
}

/// How long after `from` the flow first reached 80 % of `rate` over a window of some RTTs. `None`:
/// never.
fn recovered(flow: &FlowOutcome, from: Time, rate: f64) -> Option<Duration> {
    let window = (flow.base_rtt * 4).max(Duration::from_millis(200));
    let samples = flow.since(from);
    if samples.is_empty() {
        // It was done before the end of the disturbance.
        return flow.record.done.map(|_| Duration::ZERO);
    }
    let mut start = 0;
    for (index, sample) in samples.iter().enumerate() {
        while sample.at - samples[start].at > window {
            start += 1;
        }
        let time = sample.at - samples[start].at;
        if time * 10 < window * 9 || index == start {
            continue;
        }
        let bits = (flow.bytes(sample) - flow.bytes(&samples[start])) as f64 * 8.0;
        if bits >= RECOVERED * rate * time.as_secs_f64() {
            return Some((sample.at - from).saturating_sub(time));
        }
    }
    // The end of the transfer counts as recovery.
    flow.record.done.map(|done| done - from)
}

fn idle_growth(run: &Outcome) -> Option<f64> {
    let growth = |flow: &FlowOutcome, began: Time| {
        let at = flow.samples.partition_point(|sample| sample.at < began);
        let before = flow.samples[..at].last()?;
        let after = flow.since(began + flow.base_rtt).first()?;
        Some(after.window as f64 / before.window as f64)
    };
    run.bulk_flows()
        .flat_map(|flow| {
            let later = flow.record.jobs.iter().skip(1);
            later.filter_map(move |job| growth(flow, job.began))
        })
        .reduce(f64::max)
}

fn loss_after(run: &Outcome) -> Option<f64> {
    let flow = run.bulk_flows().next()?;
    let in_second = |&from: &Time| {
        let samples = flow.since(from);
        let end = samples.partition_point(|s| s.at < from + Duration::from_secs(1));
        let (first, last) = (samples.first()?, samples[..end].last()?);
        let sent = last.sent - first.sent;
        (sent > 0).then(|| (last.lost - first.lost) as f64 / sent as f64)
    };
    run.recovery_from
        .iter()
        .filter_map(in_second)
        .reduce(f64::max)
}

/// Those that started after the warm-up.
fn jobs(run: &Outcome) -> Option<Vec<f64>> {
    let any = run.flows.iter().any(|flow| !flow.counts);
    let flows = run.flows.iter().filter(|flow| !any || !flow.counts);
    let jobs = flows.flat_map(|flow| &flow.record.jobs);
    let jobs = jobs.filter(|job| job.began >= run.warmup);
    let times: Vec<f64> = jobs
        .filter_map(|job| Some((job.done? - job.began).as_secs_f64()))
        .collect();
    (!times.is_empty()).then_some(times)
}

fn limits(run: &Outcome, group: LimitGroup) -> Option<f64> {
    let (mut part, mut all) = (Duration::ZERO, Duration::ZERO);
    for flow in run.bulk_flows() {
        for (limit, time) in &flow.sender().limits {
            all += *time;
            if limit.group() == group {
                part += *time;
            }
        }
    }
    (!all.is_zero()).then(|| part.as_secs_f64() / all.as_secs_f64())
}

/// max(1.054 (RTT/p)^¾, √(1.5/p)) packets (RFC 9438 §5.2 with C = 0.4 and
/// β = 0.7, and RFC 9438 §5.1's standard TCP), against goodput × RTT.
fn response(run: &Outcome) -> Option<f64> {
    let flow = run.bulk_flows().next()?;
    let (sent, lost) = late(run, flow)?;
    let p = lost as f64 / sent as f64;
    let rtts = rtts(run);
    let rtt = rtts.iter().sum::<f64>() / rtts.len() as f64;
    let packet = f64::from(flow.sender().mtu);
    let window = flow.goodput(run.warmup)? / 8.0 * rtt / packet;
    let model = (1.054 * (rtt / p).powf(0.75)).max((1.5 / p).sqrt());
    (lost > 0).then_some(window / model)
}
