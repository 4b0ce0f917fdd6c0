//! The printed replay commands reproduce missed bars.

use std::fs;
use std::process::{Command, Output};

use super::common::{clearway, stderr};
use super::{SMALL, place, small};

#[test]
fn missed_bar_fails_and_prints_a_replay_command() {
    let (_, file) = small("bar", "1ms");
    let output = clearway(&[
        "lab",
        "run",
        &file,
        "--controller",
        "newreno",
        "--seeds",
        "2",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains("FAILED small newreno: time ≤ 1.0 ms"),
        "{said}"
    );
    let replay = format!("clearway lab run {file} --controller newreno --seed ");
    assert!(said.contains(&replay), "{said}");
}

/// The replay lines of an output, without what is before them.
fn replays(output: &Output) -> Vec<String> {
    let said = stderr(output);
    let lines = said
        .lines()
        .filter_map(|line| line.trim().strip_prefix("replay: "));
    lines.map(str::to_owned).collect()
}

/// Runs a replay line as a shell does, with the binary under test.
fn again(line: &str) -> Output {
    let arguments = line.strip_prefix("clearway ").unwrap();
    let script = format!("\"$0\" {arguments}");
    let output = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_clearway")])
        .output();
    output.unwrap()
}

/// The median time of five runs, which two of them are under.
const MEDIAN: &str = r#"
name = "median"
duration = "60s"
[network]
rtt = "40ms"
down = "rate=10M queue=25 loss=5%"
[[flows]]
traffic = "download"
bytes = "100kB"
[pass]
time_max = { value = "LIMIT", over = "median" }
"#;

#[test]
fn replay_of_missed_median_misses_it_again() {
    let file = place("median").join("median.toml");
    let name = file.to_str().unwrap();
    let run = |limit: &str| {
        fs::write(&file, MEDIAN.replace("LIMIT", limit)).unwrap();
        let output = clearway(&[
            "lab",
            "run",
            name,
            "--controller",
            "cubic",
            "--seeds",
            "5",
            "--json",
        ]);
        (String::from_utf8(output.stdout.clone()).unwrap(), output)
    };
    let (rows, _) = run("60s");
    let mut times: Vec<f64> = rows
        .lines()
        .map(|row| {
            serde_json::from_str::<serde_json::Value>(row).unwrap()["metrics"]["time"]
                .as_f64()
                .unwrap()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    assert!(times[0] < times[2], "{times:?}");
    // Between the second and the third: the median misses it, two runs do not.
    let under = times.iter().filter(|time| **time < times[2]).count();
    let limit = format!("{}us", ((times[under - 1] + times[2]) * 5e5) as u64);
    let (_, output) = run(&limit);
    let said = stderr(&output);
    assert!(
        said.contains(&format!("({} of 5 runs)", 5 - under)),
        "{said}"
    );
    let replay = &replays(&output)[0];
    assert!(replay.ends_with("--seed 1 --seeds 5"), "{replay}");
    let output = again(replay);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
}

#[test]
fn replay_command_quotes_scenario_file_names() {
    let dir = place("it's $HOME of \"files\"");
    // The catalogue has a network of this name that is another.
    let text = SMALL
        .replace("WITHIN", "1ms")
        .replace("\"small\"", "\"policer\"");
    let files: Vec<String> = ["a b.toml", "-c.toml"]
        .iter()
        .map(|name| {
            let file = dir.join(name);
            fs::write(&file, &text).unwrap();
            file.to_str().unwrap().to_owned()
        })
        .collect();
    let output = clearway(&["lab", "run", &files[0], &files[1], "--controller", "cubic"]);
    let lines = replays(&output);
    assert_eq!(lines.len(), 2, "{}", stderr(&output));
    for line in &lines {
        let output = again(line);
        let said = stderr(&output);
        assert!(
            said.contains("FAILED policer cubic: time ≤ 1.0 ms"),
            "{line}: {said}"
        );
    }
    // A name that looks like an option, as seen from its own directory.
    let output = Command::new(env!("CARGO_BIN_EXE_clearway"))
        .args(["lab", "run", "--controller", "cubic", "--", "-c.toml"])
        .current_dir(&dir)
        .output()
        .unwrap();
    assert!(replays(&output)[0].starts_with("clearway lab run ./-c.toml "));
}

#[test]
fn variant_option_runs_only_the_named_point() {
    let file = place("variant").join("variant.toml");
    let text = SMALL
        .replace("WITHIN", "20s")
        .replace("queue=25", "queue={queue}");
    fs::write(&file, text + "[grid]\nqueue = [25, 250]\n").unwrap();
    let name = file.to_str().unwrap();
    let rows = |variant| {
        let arguments = [
            "lab",
            "run",
            name,
            "--controller",
            "cubic",
            "--json",
            "--variant",
            variant,
        ];
        let output = clearway(&arguments);
        String::from_utf8(output.stdout).unwrap().lines().count()
    };
    assert_eq!(rows("queue=25"), 1);
    assert_eq!(rows("queue="), 2);
}

#[test]
fn sweep_points_and_league_rows_can_be_replayed() {
    let output = clearway(&[
        "lab",
        "sweep",
        "--rate",
        "1M,100M",
        "--rtt",
        "20ms",
        "--loss",
        "0%",
        "--bytes",
        "2MB",
        "--duration",
        "5s",
        "--controller",
        "cubic",
        "--also",
        "jitter=1ms",
    ]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let lines = replays(&output);
    assert_eq!(lines.len(), 1, "{}", stderr(&output));
    assert!(lines[0].contains("--rate 1M "), "{}", lines[0]);
    let output = again(&lines[0]);
    assert!(
        stderr(&output).contains("1 of 1 points did not complete"),
        "{}",
        stderr(&output)
    );

    let (_, file) = small("league", "1ms");
    let output = clearway(&[
        "lab",
        "league",
        &file,
        "--controller",
        "cubic",
        "--seed",
        "3",
    ]);
    assert!(output.status.success(), "a league compares");
    let lines = replays(&output);
    assert_eq!(lines.len(), 1, "{}", stderr(&output));
    assert!(lines[0].contains("--seed 3 --seeds 1"), "{}", lines[0]);
    assert_eq!(again(&lines[0]).status.code(), Some(1));
}

#[test]
fn replay_command_includes_http3_option() {
    let (_, file) = small("bar", "1ms");
    let run = |more: &[&str]| {
        let words = ["lab", "run", &file, "--controller", "newreno", "--json"];
        let output = clearway(&[&words, more].concat());
        let row: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (row["digest"].clone(), replays(&output))
    };
    let ((raw, plain), (http3, asked)) = (run(&[]), run(&["--http3"]));
    assert_ne!(raw, http3);
    assert!(!plain[0].contains("--http3"), "{plain:?}");
    assert!(asked[0].ends_with(" --http3"), "{asked:?}");
}

#[test]
fn replay_command_includes_slow_start_option() {
    let (_, file) = small("bar", "1ms");
    let words = ["lab", "run", &file, "--controller", "newreno"];
    let asked = clearway(&[&words[..], &["--slow-start", "search"]].concat());
    let line = &replays(&asked)[0];
    assert!(line.ends_with(" --slow-start search"), "{line}");
    let unknown = clearway(&[&words[..], &["--slow-start", "serch"]].concat());
    assert_eq!(unknown.status.code(), Some(2), "{}", stderr(&unknown));
}
