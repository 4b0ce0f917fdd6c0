//! Batches in parts, and their results joined.

use std::fs;
use std::path::Path;

use super::common::{clearway, stderr};
use super::{place, small};

/// `clearway lab …` with the words of both lists.
fn lab(common: &[&str], more: &[&str]) -> std::process::Output {
    let mut arguments = vec!["lab"];
    arguments.extend(common);
    arguments.extend(more);
    clearway(&arguments)
}

/// The parts of a batch as files.
fn parts(common: &[&str], count: usize, dir: &Path) -> Vec<String> {
    let part = |number: usize| {
        let file = dir.join(format!("part{number}of{count}.jsonl"));
        let file = file.to_str().unwrap().to_owned();
        let shard = format!("{number}/{count}");
        let output = lab(common, &["--shard", &shard, "--results", &file]);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(output.stdout.is_empty(), "a part judges nothing");
        file
    };
    (1..=count).map(part).collect()
}

fn merge(files: &[String], more: &[&str]) -> std::process::Output {
    let mut arguments = vec!["lab", "merge"];
    arguments.extend(files.iter().map(String::as_str));
    arguments.extend(more);
    clearway(&arguments)
}

/// What was said, but for the speed.
fn said(output: &std::process::Output) -> String {
    let text = stderr(output);
    let lines = text.lines().filter(|line| !line.contains("simulated in"));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn merged_shards_give_the_output_of_the_whole_run() {
    for (dir, within) in [("shards-good", "20s"), ("shards-bad", "10ms")] {
        let (dir, file) = small(dir, within);
        let common = ["run", &file, "--controller", "cubic,bbr", "--seeds", "3"];
        let parts = parts(&common, 2, &dir);
        let whole = lab(&common, &[]);
        let merged = merge(&parts, &[]);
        assert_eq!(merged.stdout, whole.stdout);
        assert_eq!(said(&merged), said(&whole));
        assert_eq!(merged.status.code(), whole.status.code());
        let whole = lab(&common, &["--json"]);
        let merged = merge(&parts, &["--json"]);
        assert_eq!(merged.stdout, whole.stdout, "to the bit");
    }
}

#[test]
fn merged_shards_of_a_sweep_give_the_output_of_the_whole_sweep() {
    let dir = place("shards-sweep");
    let common = [
        "sweep",
        "--rate",
        "5M,10M",
        "--rtt",
        "20ms",
        "--bytes",
        "100kB",
        "--flows",
        "2",
        "--controller",
        "cubic",
    ];
    let parts = parts(&common, 3, &dir);
    assert_eq!(
        merge(&parts, &["--json"]).stdout,
        lab(&common, &["--json"]).stdout
    );
    assert_eq!(merge(&parts, &[]).stdout, lab(&common, &[]).stdout);
}

#[test]
fn merge_rejects_what_is_no_whole_batch() {
    let (dir, file) = small("shards-wrong", "20s");
    let common = ["run", &file, "--controller", "cubic", "--seeds", "4"];
    let parts = parts(&common, 2, &dir);
    let error = |files: &[String]| {
        let output = merge(files, &[]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        stderr(&output)
    };
    let missing = error(&parts[..1]);
    assert!(
        missing.contains("results are missing: shard 2/2"),
        "{missing}"
    );
    let twice = error(&[parts[0].clone(), parts[0].clone()]);
    assert!(twice.contains("are both shard 1/2"), "{twice}");
    let text = fs::read_to_string(&parts[1]).unwrap();
    let cut = dir.join("cut.jsonl").to_str().unwrap().to_owned();
    let lines: Vec<&str> = text.lines().collect();
    fs::write(&cut, lines[..lines.len() - 1].join("\n")).unwrap();
    let incomplete = error(&[parts[0].clone(), cut]);
    assert!(
        incomplete.contains("shard 2/2 was interrupted after"),
        "{incomplete}"
    );
    let other = dir.join("other.jsonl").to_str().unwrap().to_owned();
    let arguments = ["--seed", "9", "--shard", "2/2", "--results", &other];
    assert!(lab(&common, &arguments).status.success());
    let mixed = error(&[parts[0].clone(), other]);
    assert!(mixed.contains("are not of one batch"), "{mixed}");
    let foreign = error(&[file]);
    assert!(foreign.contains("not a line of results"), "{foreign}");
}

#[test]
fn shard_without_results_and_impossible_shards_are_rejected() {
    let (_, file) = small("shards-arguments", "20s");
    let output = lab(&["run", &file], &["--shard", "1/2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--results"), "{}", stderr(&output));
    let output = lab(&["run", &file], &["--shard", "3/2", "--results", "x"]);
    assert!(stderr(&output).contains("expected I/N with I from 1 to N"));
}

#[test]
fn fresh_seeds_are_printed_and_can_be_repeated() {
    let (_, file) = small("fresh", "20s");
    let common = ["run", &file, "--controller", "cubic"];
    let output = lab(&common, &["--fresh", "--seeds", "2", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stderr(&output);
    let seed = text.split("--seed ").nth(1).unwrap();
    let seed = seed.split_whitespace().next().unwrap();
    let again = lab(&common, &["--seed", seed, "--seeds", "2", "--json"]);
    assert_eq!(again.stdout, output.stdout);
    let other = lab(&common, &["--fresh", "--seeds", "2", "--json"]);
    assert_ne!(other.stdout, output.stdout, "the same seed was drawn twice");
    let output = lab(&common, &["--fresh", "--seed", "3"]);
    assert_eq!(output.status.code(), Some(2));
}
