//! Scenarios at a size that a debug build runs in seconds.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "a test that cannot go on has failed"
)]

use std::rc::Rc;

use clearway_lab::measure::metric;
use clearway_lab::run::{Extras, Group, Plan, Row, Settings, Task, judge, run_all, run_case};
use clearway_lab::scenario::{Case, Scenario, Size, find};
use clearway_lab::stack::{Birth, Clearway, ClearwayFactory, Protocol, Role, Stack, StackFactory};
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
fn networks_of_the_catalogue_carry_data_and_account_for_every_packet() {
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
fn one_thread_or_two_the_digests_agree_and_so_does_their_order() {
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
fn a_run_that_is_watched_is_the_same_run() {
    let case = &shrunk("transfer_loss", "300kB")[0];
    let plain = run_case(case, 3, Extras::default());
    let watched = Extras {
        detect: true,
        tap: Some(Box::new(clearway_lab::pcapng::Capture::at(Role::Server))),
        secrets: Some(clearway_lab::stack::Secrets::default()),
        ..Extras::default()
    };
    assert_eq!(plain.digest, run_case(case, 3, watched).digest);
}

#[test]
fn migration_and_rebinding_keep_the_connection() {
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
    let run = run_case(case, 1, Extras::default());
    assert!(run.finished, "{:?}", run.violations);
    assert_eq!(run.flows[1].record.up, 500_000);
    assert_eq!(run.flows[0].record.down, 1_000_000);
}

#[test]
fn flow_control_is_named_as_the_limit() {
    let text = find("tiny_window").unwrap().text().replace("1MB", "60kB");
    let scenario = Scenario::parse("tiny_window", &text).unwrap();
    let case = &scenario.cases(Size::Ci, "cubic").unwrap()[0];
    let run = run_case(case, 1, Extras::default());
    assert!(run.finished);
    let share = (metric("flow_controlled").unwrap().of)(&run).unwrap();
    assert!(share > 0.5, "{share}");
}

#[test]
fn a_bar_that_is_too_high_fails_and_names_itself() {
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

/// The first seed of an outage in a transfer, looked at by the detectors.
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
    let extras = |_: &Task| Extras {
        detect: true,
        ..Extras::default()
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
fn findings_that_a_scenario_does_not_declare_fail_it() {
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

/// What a crate outside would plug in.
struct Rival(ClearwayFactory);

impl StackFactory for Rival {
    fn name(&self) -> String {
        "rival/fixed".to_owned()
    }

    fn build(&self, birth: &Birth) -> Box<dyn Stack> {
        Box::new(Clearway::new(&self.0, birth))
    }
}

#[test]
fn another_stack_runs_in_the_same_network_under_its_own_name() {
    let case = &shrunk("transfer_loss", "300kB")[0];
    let controller: Algorithm = "fixed:20000".parse().unwrap();
    let rival = Rival(ClearwayFactory::with_controller(controller));
    let extras = Extras {
        stack: Some(Rc::new(rival)),
        ..Extras::default()
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
fn http3_carries_the_same_workload_for_a_little_more() {
    // A path that loses nothing: what is sent again would hide the difference.
    let raw = &shrunk("shallow_25", "300kB")[0];
    let mut http3 = raw.clone();
    http3.flows[0].protocol = Protocol::Http3;
    let [raw, http3] = [raw, &http3].map(|case| run_case(case, 1, Extras::default()));
    for run in [&raw, &http3] {
        assert!(run.finished && run.violations.is_empty(), "{run:?}");
        assert_eq!(run.flows[0].record.down, 300_000);
    }
    let [less, more] = [&raw, &http3].map(|run| run.down.sent_bytes);
    assert!(less < more && more < less * 21 / 20, "{less}, {more}");
}

#[test]
fn a_stack_without_http3_does_not_pass_for_one_that_has_it() {
    let mut case = shrunk("transfer_loss", "300kB").remove(0);
    case.flows[0].protocol = Protocol::Http3;
    let extras = Extras {
        stack: Some(Rc::new(Rival(ClearwayFactory::default()))),
        ..Extras::default()
    };
    let run = run_case(&case, 1, extras);
    assert_eq!(run.violations, ["rival/fixed has no streams of h3"]);
}
