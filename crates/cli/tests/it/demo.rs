//! `clearway demo` as a user runs it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::{clearway, json, stderr};
use serde_json::Value;

/// The limit of the case this is made after: at full speed again well before.
const LIMIT_SECONDS: f64 = 10.0;

fn download(controller: &str) -> Value {
    let output = clearway(&["demo", "--json", "--controller", controller]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("congestion window"), "{text}");
    assert!(text.contains("the sender waited for: "), "{text}");
    json(&output)
}

fn check(run: &Value, controller: &str) {
    assert_eq!(run["completed"], true);
    assert!(run["reason"].is_null());
    assert_eq!(run["controller"], controller);
    assert_eq!(run["seed"], 1);
    assert_eq!(run["size"], 10_000_000);
    assert!(run["losses"].as_u64().unwrap() > 0, "{run}");
    assert!(run["network"]["lost"].as_u64().unwrap() > 0, "{run}");
    let shares = run["breakdown"].as_object().unwrap();
    let total: f64 = shares.values().map(|share| share.as_f64().unwrap()).sum();
    assert!((total - 100.0).abs() < 0.1, "{run}");
    assert!(shares["network"].as_f64().unwrap() > 50.0, "{run}");
    let goodput = run["goodput_mbps"].as_f64().unwrap();
    let seconds = run["seconds"].as_f64().unwrap();
    assert!((goodput * seconds - 80.0).abs() < 0.1, "{run}");
}

/// Both controllers in one test, so that neither disturbs the other's clock.
/// A busy machine gets a second chance.
#[test]
fn download_through_death_spiral_completes() {
    for controller in ["cubic", "newreno"] {
        let run = download(controller);
        check(&run, controller);
        if run["seconds"].as_f64().unwrap() < LIMIT_SECONDS {
            continue;
        }
        let again = download(controller);
        assert!(
            again["seconds"].as_f64().unwrap() < LIMIT_SECONDS,
            "{run} {again}"
        );
    }
}

#[test]
fn several_runs_print_a_summary() {
    let output = clearway(&[
        "demo", "--runs", "2", "--size", "100kB", "--json", "--seed", "7",
    ]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("2 of 2 completed, median "), "{text}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let seeds: Vec<u64> = stdout
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["seed"]
                .as_u64()
                .unwrap()
        })
        .collect();
    assert_eq!(seeds, [7, 8]);
}

#[test]
fn invalid_option_value_is_rejected_naming_the_option() {
    for (options, expected) in [
        (["--controller", "reno"], "expected newreno, cubic"),
        (["--runs", "0"], "'--runs <COUNT>'"),
        (["--size", "ten"], "such as 10MB"),
        (["--seed", "one"], "--seed"),
    ] {
        let output = clearway(&[&["demo"], &options[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

#[test]
fn help_shows_examples_and_exit_codes() {
    let output = clearway(&["demo", "--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.contains("clearway demo --controller newreno --runs 100 --json"));
    let output = clearway(&["--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(
        help.contains("5  the content received differs from what was sent"),
        "{help}"
    );
}
