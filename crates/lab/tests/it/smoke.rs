//! Scenarios, at a size that a debug build runs in seconds.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "a test that cannot go on has failed"
)]

use std::rc::Rc;

use clearway_lab::measure::metric;
use clearway_lab::run::{Group, Plan, Row, RunObservers, Settings, Task, judge, run_all, run_case};
use clearway_lab::scenario::{Case, Scenario, Size, find};
use clearway_lab::stack::{
    Clearway, ClearwayFactory, Protocol, Role, Stack, StackFactory, StackSetup,
};
use clearway_recovery::congestion::Algorithm;

/// The catalogue's scenario with a transfer of this size.
fn shrunk(name: &str, bytes: &str) -> Vec<Case> {
    let scenario = find(name).unwrap();
    let mut text = scenario.text().to_owned();
    for size in ["20MB", "10MB", "5MB", "4MB", "3MB", "2MB"] {
        text = text.replace(
            &format!("bytes = \"{size}\""),
            &format!("bytes = \"{bytes}\""),
        );
    }
    let small = Scenario::parse(name, &text).unwrap();
    small.cases(Size::Ci, "cubic").unwrap()
}

fn rows(plan: &Plan, threads: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    run_all(plan, &Settings::quiet(threads), |_, row| rows.push(row));
    rows
}

/// A few networks, two seeds each.
fn plan() -> Plan {
    let mut plan = Plan::default();
    for name in [
        "death_spiral",
        "transfer_loss",
        "wifi_jitter",
        "blackhole_2s",
    ] {
        for case in shrunk(name, "300kB") {
            plan.add_case(case, 1, 2);
        }
    }
    plan
}

#[test]
fn catalogue_networks_deliver_data_and_account_for_every_packet() {
    for row in rows(&plan(), 2) {
        assert!(
            row.finished,
            "{} {} seed {}",
            row.scenario, row.variant, row.seed
        );
        assert!(
            row.violations.is_empty(),
            "{}: {:?}",
            row.scenario,
            row.violations
        );
        assert!(row.get("goodput").unwrap() > 0.0);
    }
}

#[test]
fn digests_and_their_order_are_the_same_on_one_and_two_threads() {
    let digests = |threads| {
        let rows = rows(&plan(), threads);
        rows.into_iter()
            .map(|row| (row.scenario, row.seed, row.digest, row.events))
            .collect::<Vec<_>>()
    };
    let one = digests(1);
    assert_eq!(one, digests(2));
    assert_ne!(one[0].2, one[1].2, "another seed is another run");
}

#[test]
fn observing_a_run_does_not_change_it() {
    let case = &shrunk("transfer_loss", "300kB")[0];
    let plain = run_case(case, 3, RunObservers::default());
    let watched = RunObservers {
        detect: true,
        tap: Some(Box::new(clearway_lab::pcapng::Capture::at(Role::Server))),
        secrets: Some(clearway_lab::stack::Secrets::default()),
        ..RunObservers::default()
    };
    assert_eq!(plain.digest, run_case(case, 3, watched).digest);
}

#[test]
fn connection_survives_migration_and_rebinding() {
    let text = r#"
name = "moving"
duration = "20s"
[network]
rtt = "20ms"
both = "rate=10M queue=50"
[[flows]]
traffic = "download"
bytes = "1MB"
migrate = "300ms"
[[flows]]
traffic = "upload"
bytes = "500kB"
rebind = ["200ms", "600ms"]
[pass]
completes_within = "10s"
"#;
    let scenario = Scenario::parse("moving", text).unwrap();
    let case = &scenario.cases(Size::Full, "cubic").unwrap()[0];
    let run = run_case(case, 1, RunObservers::default());
    assert!(run.finished, "{:?}", run.violations);
    assert_eq!(run.flows[1].record.up, 500_000);
    assert_eq!(run.flows[0].record.down, 1_000_000);
}

#[test]
fn small_window_is_reported_as_flow_control_limit() {
    let text = find("tiny_window").unwrap().text().replace("1MB", "60kB");
    let scenario = Scenario::parse("tiny_window", &text).unwrap();
    let case = &scenario.cases(Size::Ci, "cubic").unwrap()[0];
    let run = run_case(case, 1, RunObservers::default());
    assert!(run.finished);
    let share = (metric("flow_controlled").unwrap().of)(&run).unwrap();
    assert!(share > 0.5, "{share}");
}

#[test]
fn missed_bar_fails_and_is_named() {
    let text = find("transfer_loss")
        .unwrap()
        .text()
        .replace("2MB", "100kB")
        .replace("12s", "1ms");
    let scenario = Scenario::parse("transfer_loss", &text).unwrap();
    let mut plan = Plan::default();
    let controllers = ["newreno".to_owned()];
    plan.add(&scenario, Size::Ci, &controllers, Some((1, 1)))
        .unwrap();
    let row = rows(&plan, 1).remove(0);
    assert_eq!(row.failed, ["time ≤ 1.0 ms"]);
    let group = clearway_lab::run::judge(&plan.cases[0], vec![row]);
    assert!(!group.passed());
    assert_eq!(group.shortfalls[0].seed, 1);
}

/// The first seed of a transfer with an outage, with detectors.
fn outage_with(findings: &str) -> Group {
    let text = find("blackhole_2s").unwrap().text();
    let begin = text.find("expected_findings").unwrap();
    let end = begin + text[begin..].find('\n').unwrap();
    let text = format!(
        "{}expected_findings = {findings}{}",
        &text[..begin],
        &text[end..]
    );
    let scenario = Scenario::parse("blackhole_2s", &text).unwrap();
    let mut plan = Plan::default();
    let controllers = ["cubic".to_owned()];
    plan.add(&scenario, Size::Ci, &controllers, Some((1, 1)))
        .unwrap();
    let extras = |_: &Task| RunObservers {
        detect: true,
        ..RunObservers::default()
    };
    let settings = Settings {
        extras: &extras,
        ..Settings::quiet(1)
    };
    let mut rows = Vec::new();
    run_all(&plan, &settings, |_, row| rows.push(row));
    judge(&plan.cases[0], rows)
}

#[test]
fn undeclared_finding_fails_the_scenario() {
    let found = |group: &Group| {
        let all = group.shortfalls.iter().map(|short| short.found.clone());
        all.filter(|what| what.starts_with("undeclared finding"))
            .collect::<Vec<_>>()
    };
    let group = outage_with("[]");
    assert!(!group.is_as_known());
    let undeclared = found(&group);
    assert!(
        undeclared.iter().any(|what| what.contains("pto_storm")),
        "{undeclared:?}"
    );
    let declared = r#"["pto_storm", "persistent_false", "floor_pinned", "rtt_step"]"#;
    assert_eq!(found(&outage_with(declared)), Vec::<String>::new());
}

/// A stack as an outside crate would plug it in.
struct Rival(ClearwayFactory);

impl StackFactory for Rival {
    fn name(&self) -> String {
        "rival/fixed".to_owned()
    }

    fn build(&self, birth: &StackSetup) -> Box<dyn Stack> {
        Box::new(Clearway::new(&self.0, birth))
    }
}

#[test]
fn other_stack_runs_in_the_same_network_under_its_own_name() {
    let case = &shrunk("transfer_loss", "300kB")[0];
    let controller: Algorithm = "fixed:20000".parse().unwrap();
    let rival = Rival(ClearwayFactory::with_controller(controller));
    let extras = RunObservers {
        stack: Some(Rc::new(rival)),
        ..RunObservers::default()
    };
    let run = run_case(case, 1, extras);
    assert!(run.finished);
    assert_eq!(run.controller, "rival/fixed");
    assert!(
        run.flows[0]
            .samples
            .iter()
            .all(|sample| sample.window <= 20_000)
    );
}

#[test]
fn http3_carries_the_same_workload_with_little_overhead() {
    // A path without loss: retransmissions would hide the difference.
    let raw = &shrunk("shallow_25", "300kB")[0];
    let mut http3 = raw.clone();
    http3.flows[0].protocol = Protocol::Http3;
    let [raw, http3] = [raw, &http3].map(|case| run_case(case, 1, RunObservers::default()));
    for run in [&raw, &http3] {
        assert!(run.finished && run.violations.is_empty(), "{run:?}");
        assert_eq!(run.flows[0].record.down, 300_000);
    }
    let [less, more] = [&raw, &http3].map(|run| run.down.sent_bytes);
    assert!(less < more && more < less * 21 / 20, "{less}, {more}");
}

#[test]
fn stack_without_http3_rejects_http3_runs() {
    let mut case = shrunk("transfer_loss", "300kB").remove(0);
    case.flows[0].protocol = Protocol::Http3;
    let extras = RunObservers {
        stack: Some(Rc::new(Rival(ClearwayFactory::default()))),
        ..RunObservers::default()
    };
    let run = run_case(&case, 1, extras);
    assert_eq!(run.violations, ["rival/fixed does not support h3"]);
}

/// A neighbour whose window never falls keeps the queue full.
#[test]
fn flow_beside_one_that_never_slows_down_is_found_starved() {
    let text = r#"
name = "hog"
duration = "34s"
[network]
rtt = "20ms"
both = "rate=3M queue=20"
[[flows]]
traffic = "download"
[[flows]]
traffic = "download"
controller = "NEIGHBOUR"
"#;
    let starved = |neighbour: &str| {
        let text = text.replace("NEIGHBOUR", neighbour);
        let scenario = Scenario::parse("hog", &text).unwrap();
        let case = &scenario.cases(Size::Full, "cubic").unwrap()[0];
        let observers = RunObservers {
            detect: true,
            ..RunObservers::default()
        };
        let run = run_case(case, 1, observers);
        let starved = |found: &&(usize, clearway_trace::Finding)| {
            found.1.detector == clearway_trace::Detector::FlowStarved
        };
        let flows = run.findings.iter().filter(starved);
        flows.map(|(flow, _)| *flow).collect::<Vec<_>>()
    };
    assert_eq!(starved("fixed:150000"), [0]);
    assert_eq!(starved("cubic"), Vec::<usize>::new());
}
