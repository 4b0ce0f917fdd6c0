//! One run of one case.

use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;

use clearway_links::{Direction, Time};
use clearway_quic::Instant;
use clearway_quic::event::Observer;
use clearway_recovery::congestion::Algorithm;
use clearway_trace::{Detector, Detectors, Finding, Profile, Recorder, Severity, Shared};

use super::starved::starved;
use crate::app::{Client, Log, Record, Server};
use crate::measure::{Bulk, FlowOutcome, Outcome, Sample, capacity_bits};
use crate::scenario::{Case, Flow};
use crate::stack::{
    ClearwayFactory, Observers, Role, Secrets, SenderStats, SharedObserverFactory, StackFactory,
    StackSetup, Tls,
};
use crate::world::{BusyLoop, NodeId, RunEnd, Tap, World};

/// Observers of a run.
#[derive(Default)]
pub struct RunObservers {
    /// Receives every datagram.
    pub tap: Option<Box<dyn Tap>>,
    /// Whether the detectors run on every sender.
    pub detect: bool,
    /// Creates trace sinks.
    pub watcher: Option<SharedObserverFactory>,
    /// Collects the TLS secrets.
    pub secrets: Option<Secrets>,
    /// The stack under test, if it is not ours with the case's controller.
    pub stack: Option<Rc<dyn StackFactory>>,
    /// Called with the outcome, on the thread that ran it.
    pub after: Option<After>,
}

/// Receives the outcome of a run.
pub type After = Box<dyn FnOnce(&Outcome)>;

/// A flow in its world.
struct RunningFlow {
    client: NodeId,
    server: NodeId,
    log: Log,
    samples: Vec<Sample>,
    controller: String,
    base_rtt: Duration,
    /// The detectors on its sender.
    detectors: Option<Shared<Detectors>>,
}

/// Runs `case` with all randomness derived from `seed`.
#[must_use]
pub fn run_case(case: &Case, seed: u64, extras: RunObservers) -> Outcome {
    let mut world = World::new(&case.network, seed);
    let under_test = extras.stack.as_ref().map(|stack| stack.name());
    let detect = extras.detect;
    let mut lives: Vec<RunningFlow> = case
        .flows
        .iter()
        .map(|flow| begin(case, flow, &mut world, &extras))
        .collect();
    if let Some(tap) = extras.tap {
        world.set_tap(tap);
    }
    let end = Time::ZERO + case.duration;
    let period = period(case, &lives);
    let mut violations = unspoken(case, extras.stack.as_deref());
    let mut queue = Vec::new();
    let mut queue_delay = Vec::new();
    let mut stuck = None;
    let finished = loop {
        let until = (world.now() + period).min(end);
        match world.run_to(until) {
            Ok(RunEnd::Done) => break true,
            Ok(RunEnd::TimeOver | RunEnd::Silence) => {}
            Err(busy) => {
                violations.push(busy.to_string());
                stuck = Some(busy_timer(&lives, busy));
                break false;
            }
        }
        if world.now() >= end {
            break false;
        }
        sample(case, &mut lives, &world);
        let waiting = waiting(case, &world);
        queue.push((world.now(), waiting));
        let delay = drain_time(case, &world, waiting);
        queue_delay.extend(delay.map(|delay| (world.now(), delay)));
    };
    sample(case, &mut lives, &world);
    if cfg!(debug_assertions) && stuck.is_none() {
        world.check();
    }
    violations.extend(world.unbalanced());
    let mut outcome = conclude(case, seed, &world, lives, finished, violations);
    outcome.findings.extend(stuck);
    if detect {
        outcome.findings.extend(starved(&outcome));
    }
    outcome.queue = queue;
    outcome.queue_delay = queue_delay;
    if let Some(under_test) = under_test {
        outcome.controller = under_test;
    }
    outcome
}

/// Flows whose protocol the stack does not support.
fn unspoken(case: &Case, under_test: Option<&dyn StackFactory>) -> Vec<String> {
    let Some(stack) = under_test else {
        return Vec::new();
    };
    let own = case.flows.iter().filter(|flow| flow.controller.is_none());
    let strange = own.filter(|flow| !stack.speaks(flow.protocol));
    strange
        .map(|flow| format!("{} does not support {}", stack.name(), flow.protocol.alpn()))
        .collect()
}

/// What no trace shows, because a timer that expires without effect logs nothing: the world itself
/// is the detector. Returns the finding with the index of the host's flow.
fn busy_timer(lives: &[RunningFlow], busy: BusyLoop) -> (usize, Finding) {
    let at = busy.at.as_nanos();
    let finding = Finding::new(Detector::BusyTimer, at, at, Severity::Error)
        .with("calls", u64::from(busy.calls));
    let owner = lives.iter().enumerate().find_map(|(index, live)| {
        let role = match busy.host? {
            host if host == live.client => "client",
            host if host == live.server => "server",
            _ => return None,
        };
        Some((index, role))
    });
    match owner {
        Some((index, role)) => (index, finding.with("host", role)),
        None => (0, finding.with("host", "none: a link")),
    }
}

/// Length of the shared queue in the bulk direction.
fn waiting(case: &Case, world: &World) -> u64 {
    let packets = world.link(direction(case)).queue_len() as u64;
    packets * u64::from(case.transport.max_mtu)
}

/// How long `bytes` take to leave the shared queue at its present rate; `None` if it is stopped or
/// not limited.
fn drain_time(case: &Case, world: &World, bytes: u64) -> Option<Duration> {
    let link = world.link(direction(case));
    let config = link.config();
    let rate = match &config.trace {
        Some(trace) => trace.mean(),
        None => {
            let clock = link.windows_started();
            config
                .rate
                .at(clock.and_then(|origin| world.now().checked_since(origin)))
        }
    };
    let bits = rate.bits().filter(|bits| *bits > 0)?;
    let nanos = u128::from(bytes) * 8_000_000_000 / u128::from(bits);
    Some(Duration::from_nanos(nanos as u64))
}

/// The direction of the first flow's bulk data.
fn direction(case: &Case) -> Direction {
    match case.flows.first().map_or(Bulk::Down, |flow| flow.bulk) {
        Bulk::Down | Bulk::Both => Direction::Down,
        Bulk::Up => Direction::Up,
    }
}

/// Attaches `detectors` to the sending end, and `other` to all ends.
fn watcher(
    flow: &Flow,
    detectors: Option<&Shared<Detectors>>,
    other: Option<&SharedObserverFactory>,
) -> Option<SharedObserverFactory> {
    let Some(detectors) = detectors.cloned() else {
        return other.cloned();
    };
    let sender = match flow.bulk {
        Bulk::Down | Bulk::Both => Role::Server,
        Bulk::Up => Role::Client,
    };
    let other = other.cloned();
    Some(SharedObserverFactory(Rc::new(move |birth: &StackSetup| {
        let own = (birth.role == sender).then(|| {
            Box::new(Recorder::since(Instant::ZERO, detectors.clone())) as Box<dyn Observer>
        });
        let other = other.as_ref().and_then(|watcher| (watcher.0)(birth));
        match (own, other) {
            (Some(own), Some(other)) => Some(Box::new(Observers(own, other))),
            (own, other) => own.or(other),
        }
    })))
}

fn factory(
    case: &Case,
    flow: &Flow,
    controller: &str,
    extras: &RunObservers,
    watcher: Option<SharedObserverFactory>,
) -> ClearwayFactory {
    let mut config = case.transport.clone();
    // Plans contain only controllers that exist.
    config.controller = controller.parse().unwrap_or(Algorithm::Cubic).into();
    ClearwayFactory {
        config,
        tls: Tls {
            certificates: case.certificates,
            x25519_only: case.x25519_only,
            protocol: flow.protocol,
            secrets: extras.secrets.clone(),
        },
        watcher,
        resumed: case.resumed,
    }
}

fn begin(case: &Case, flow: &Flow, world: &mut World, extras: &RunObservers) -> RunningFlow {
    let log = Rc::new(RefCell::new(Record::default()));
    let controller = flow.controller.as_ref().unwrap_or(&case.controller);
    let detectors = extras
        .detect
        .then(|| Shared::new(Detectors::new(&Profile::default())));
    let watcher = watcher(flow, detectors.as_ref(), extras.watcher.as_ref());
    let own: Rc<dyn StackFactory> = Rc::new(factory(case, flow, controller, extras, watcher));
    let stack = match (&extras.stack, &flow.controller) {
        (Some(stack), None) => stack.clone(),
        (Some(_), Some(_)) | (None, _) => own,
    };
    let told = log.clone();
    let server = world.server(&*stack, move || Server::new(told.clone()));
    let application = Client::new(flow.workload.clone(), log.clone());
    let client = world.client_that_moves(&*stack, server, &flow.moves, application);
    let leg = flow.moves.leg.as_ref().map_or(Duration::ZERO, |leg| {
        leg.up.delay.at(None).0 + leg.down.delay.at(None).0
    });
    RunningFlow {
        client,
        server,
        log,
        samples: Vec::new(),
        controller: stack.name(),
        base_rtt: case.network.base_rtt() + leg,
        detectors,
    }
}

/// The sampling interval: four times a round trip, within limits.
fn period(case: &Case, lives: &[RunningFlow]) -> Duration {
    const SHORTEST: Duration = Duration::from_millis(1);
    const LONGEST: Duration = Duration::from_millis(50);
    const SAMPLES: u32 = 20_000;
    let rtt = lives.iter().map(|live| live.base_rtt).min();
    let period = rtt.unwrap_or(LONGEST) / 4;
    period.clamp(SHORTEST, LONGEST).max(case.duration / SAMPLES)
}

fn sample(case: &Case, lives: &mut [RunningFlow], world: &World) {
    for (live, flow) in lives.iter_mut().zip(&case.flows) {
        let sender = match flow.bulk {
            Bulk::Down | Bulk::Both => live.server,
            Bulk::Up => live.client,
        };
        let record = live.log.borrow();
        let Some(figures) = world.figures(sender) else {
            continue;
        };
        let waiting = record.done.is_none() && record.failure.is_none();
        let at_floor = figures.window <= figures.floor + u64::from(figures.mtu);
        live.samples.push(Sample {
            at: world.now(),
            down: record.down,
            up: record.up,
            window: figures.window,
            in_flight: figures.in_flight,
            // Before the first sample the RTT is an assumption.
            rtt: figures
                .min_rtt
                .map_or(Duration::ZERO, |_| figures.smoothed_rtt),
            sent: figures.packets_sent,
            lost: figures.packets_lost,
            at_floor: at_floor && waiting && figures.in_flight > 0,
        });
    }
}

fn conclude(
    case: &Case,
    seed: u64,
    world: &World,
    lives: Vec<RunningFlow>,
    finished: bool,
    mut violations: Vec<String>,
) -> Outcome {
    let now = world.now();
    let warmup = Time::ZERO + case.warmup;
    let capacity = |direction| {
        let link = world.link(direction);
        capacity_bits(link.config(), link.windows_started(), warmup, now)
    };
    let origin = world.link(Direction::Down).windows_started();
    let origin = origin.unwrap_or(Time::ZERO);
    let recovery_from: Vec<Time> = case.recovery_from.iter().map(|&at| origin + at).collect();
    let mut flows = Vec::new();
    let mut findings = Vec::new();
    for (index, (live, flow)) in lives.into_iter().zip(&case.flows).enumerate() {
        if let Some(detectors) = &live.detectors {
            let empty = Detectors::new(&Profile::default());
            let detectors = detectors.with(|all| core::mem::replace(all, empty));
            let found = detectors.finish(now.as_nanos());
            findings.extend(found.into_iter().map(|finding| (index, finding)));
        }
        let record = live.log.borrow().clone();
        violations.extend(record.violations.iter().cloned());
        if let Some(why) = &record.failure {
            violations.push(format!("the connection ended: {why}"));
        }
        let figures = |node: NodeId| -> SenderStats { world.figures(node).unwrap_or_default() };
        flows.push(FlowOutcome {
            controller: live.controller,
            started: Time::ZERO + flow.moves.starts,
            bulk: flow.bulk,
            counts: flow.counts,
            record,
            burst: world.largest_burst(match flow.bulk {
                Bulk::Down | Bulk::Both => live.server,
                Bulk::Up => live.client,
            }),
            client: figures(live.client),
            server: figures(live.server),
            samples: live.samples,
            base_rtt: live.base_rtt,
        });
    }
    let link = world.link(direction(case));
    let rate = |at: &Duration| {
        let of_link = || {
            link.config()
                .rate
                .at(Some(*at))
                .bits()
                .map(|bits| bits as f64)
        };
        case.recovery_rate.or_else(of_link)
    };
    Outcome {
        scenario: case.scenario.clone(),
        variant: case.variant.clone(),
        controller: case.controller.clone(),
        seed,
        finished,
        ended: now,
        warmup,
        recovery_rates: case.recovery_from.iter().map(rate).collect(),
        recovery_from,
        flows,
        up: *world.link_stats(Direction::Up),
        down: *world.link_stats(Direction::Down),
        up_capacity: capacity(Direction::Up),
        down_capacity: capacity(Direction::Down),
        amplification_permille: world.amplification_permille(),
        digest: world.digest(),
        events: world.events(),
        queue: Vec::new(),
        queue_delay: Vec::new(),
        findings,
        violations,
    }
}
