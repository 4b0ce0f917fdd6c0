//! Hunts for the networks in which controllers do worst.

use std::fs;
use std::path::{Path, PathBuf};

use super::common::{clearway, stderr};
use super::place;

/// Small networks, so that a debug build runs them in no time.
const BOUNDS: &str = r#"
rate = ["500k", "3M"]
rtt = ["10ms", "200ms"]
duration = ["5s", "8s"]
flows = 3
traffic = "1MB"
"#;

/// Envelopes that no controller can stay in: half a queue's delay is not allowed.
const STRICT: &str = r#"
[cubic]
growth = "cubic"
response = "cubic"
settle = { time = "100ms", rtts = 2, reason = "a test" }
stall = { time = "1ms", rtts = 0, reason = "nothing arrives so often" }
"#;

fn files(name: &str) -> (PathBuf, String) {
    let dir = place(name);
    let bounds = dir.join("bounds.toml");
    fs::write(&bounds, BOUNDS).unwrap();
    fs::write(dir.join("strict.toml"), STRICT).unwrap();
    let bounds = bounds.to_str().unwrap().to_owned();
    (dir, bounds)
}

fn hunt(bounds: &str, more: &[&str]) -> std::process::Output {
    let mut arguments = vec!["lab", "hunt", "--controller", "cubic", "--bounds", bounds];
    arguments.extend(more);
    clearway(&arguments)
}

fn text(dir: &Path, name: &str) -> String {
    dir.join(name).to_str().unwrap().to_owned()
}

#[test]
fn hunt_writes_cases_that_a_run_of_their_files_confirms() {
    let (dir, bounds) = files("hunt-cases");
    let (strict, cases) = (text(&dir, "strict.toml"), text(&dir, "cases"));
    let options = [
        "--envelopes",
        &strict,
        "--evaluations",
        "24",
        "--cases",
        &cases,
    ];
    let output = hunt(&bounds, &options);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(
        table.contains("stall") && table.contains("a plain link"),
        "{table}"
    );
    let file = text(&dir, "cases/hunt_cubic_stall_1.toml");
    let content = fs::read_to_string(&file).unwrap();
    assert!(
        content.starts_with("# clearway lab run ./hunt_cubic_stall_1.toml"),
        "{content}"
    );
    assert!(dir.join("cases/hunt_cubic_stall_1.html").exists());
    let replay = clearway(&["lab", "run", &file, "--seed", "1", "--seeds", "1"]);
    assert_eq!(replay.status.code(), Some(1), "the case does not show it");
    assert!(stderr(&replay).contains("stall"), "{}", stderr(&replay));
}

#[test]
fn hunt_repeats_on_one_thread_and_resumes() {
    let (dir, bounds) = files("hunt-resume");
    let strict = text(&dir, "strict.toml");
    let journal = text(&dir, "hunt.jsonl");
    let common = |more: &[&str]| {
        let mut all = vec!["--envelopes", &strict, "--threads", "1", "--json"];
        all.extend(more);
        hunt(&bounds, &all)
    };
    let whole = common(&["--evaluations", "72"]);
    assert_eq!(common(&["--evaluations", "72"]).stdout, whole.stdout);
    let part = common(&["--evaluations", "24", "--results", &journal]);
    assert_eq!(part.status.code(), Some(1), "{}", stderr(&part));
    // Killed in the middle of a line.
    let half = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, &half[..half.len() * 2 / 3]).unwrap();
    let more = ["--evaluations", "72", "--results", &journal, "--resume"];
    let resumed = common(&more);
    assert_eq!(resumed.stdout, whole.stdout, "{}", stderr(&resumed));
    // All of it is known now.
    let again = common(&more);
    assert_eq!(again.stdout, whole.stdout);
    assert!(
        stderr(&again).contains("0 runs were new"),
        "{}",
        stderr(&again)
    );
    let merged = clearway(&["lab", "merge", &journal, "--json"]);
    assert_eq!(merged.stdout, whole.stdout);
}

#[test]
fn hunt_shards_search_differently_and_merge() {
    let (dir, bounds) = files("hunt-shards");
    let strict = text(&dir, "strict.toml");
    let part = |shard: &str, file: &str| {
        let options = [
            "--envelopes",
            &strict,
            "--evaluations",
            "24",
            "--shard",
            shard,
            "--results",
            file,
        ];
        hunt(&bounds, &options)
    };
    let (one, two) = (text(&dir, "1.jsonl"), text(&dir, "2.jsonl"));
    part("1/2", &one);
    part("2/2", &two);
    assert_ne!(
        fs::read_to_string(&one).unwrap(),
        fs::read_to_string(&two).unwrap()
    );
    let merged = clearway(&["lab", "merge", &one, &two]);
    assert_eq!(merged.status.code(), Some(1), "{}", stderr(&merged));
    assert!(
        stderr(&merged).contains("different ones"),
        "{}",
        stderr(&merged)
    );
}

#[test]
fn hunt_errors_say_what_is_expected() {
    let (dir, bounds) = files("hunt-errors");
    let journal = text(&dir, "hunt.jsonl");
    let error = |more: &[&str]| {
        let output = hunt(&bounds, more);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        stderr(&output)
    };
    let budget = ["--evaluations", "1", "--results", &journal];
    hunt(&bounds, &budget);
    let exists = error(&budget);
    assert!(exists.contains("go on with --resume"), "{exists}");
    let differs = error(&[&budget[..], &["--resume", "--seed", "7"]].concat());
    assert!(
        differs.contains("another value of --seed (\"1\", now \"7\")"),
        "{differs}"
    );
    assert!(error(&["--resume"]).contains("--results"));
    assert!(error(&["--known", "/no/such/file"]).contains("--known: cannot read"));
    assert!(error(&["--shard", "1/2"]).contains("--results"));
    let output = clearway(&["lab", "hunt", "--controller", "cubik"]);
    assert!(stderr(&output).contains("unknown controller \"cubik\""));
    fs::write(dir.join("wrong.toml"), "rtt = [\"1s\", \"10ms\"]").unwrap();
    let output = clearway(&["lab", "hunt", "--bounds", &text(&dir, "wrong.toml")]);
    assert!(stderr(&output).contains("expected the smaller value first"));
}
