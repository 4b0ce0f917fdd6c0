//! Errors in scenarios and options are reported before anything runs.

use std::fs;

use super::common::{clearway, stderr};
use super::{SMALL, place, small};

#[test]
fn scenario_error_gives_file_and_line() {
    let (_, file) = small("mistake", "soon");
    let output = clearway(&["lab", "run", &file]);
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(said.contains("small.toml:11:20: invalid "), "{said}");
    let output = clearway(&["lab", "run", "death_spirl"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("did you mean death_spiral?"));
}

#[test]
fn every_scenario_error_gives_file_line_and_remedy() {
    let dir = place("mistakes");
    let cases = [
        (
            "duration =",
            "durration =",
            "3:1: unknown setting \"durration\"; did you mean duration?",
        ),
        (
            "bytes =",
            "byte =",
            "9:1: unknown setting \"byte\" in [[flows]]; did you mean bytes?",
        ),
        (
            "rate=10M",
            "rate=-10M",
            "6:8: invalid rate \"-10M\": must not be negative; expected bits per second such as 100M",
        ),
        (
            "queue=25",
            "queue=500B",
            "6:8: invalid queue \"500B\": 500 bytes cannot hold a packet of 1480; expected packets such as 250",
        ),
        (
            "rate=10M",
            "trace=nowhere.trace",
            "6:8: invalid trace \"nowhere.trace\": cannot read the file: No such file or directory (os error 2); \
             expected the path of a file with a millisecond per line",
        ),
    ];
    for (number, (from, to, said)) in cases.into_iter().enumerate() {
        let file = dir.join(format!("{number}.toml"));
        assert!(SMALL.contains(from), "{from}");
        let text = SMALL.replace("WITHIN", "20s").replacen(from, to, 1);
        fs::write(&file, text).unwrap();
        let name = file.to_str().unwrap();
        let expected = format!("{name}:{said}");
        let lab: &[&str] = &["lab", "run", name];
        let ports = ["--listen", "127.0.0.1:0", "--to", "127.0.0.1:9"];
        let relay = [&["relay", name][..], &ports].concat();
        for arguments in [lab, &relay] {
            let output = clearway(arguments);
            assert_eq!(output.status.code(), Some(2), "{to}");
            let words = stderr(&output);
            assert!(words.contains(&expected), "{words}");
            assert!(output.stdout.is_empty());
        }
    }
}

/// A file with `SMALL` after changes.
fn changed(name: &str, changes: &[(&str, &str)]) -> String {
    let file = place(name).join("changed.toml");
    let mut text = SMALL.replace("WITHIN", "20s");
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// The message for invalid arguments.
fn refused(arguments: &[&str]) -> String {
    let output = clearway(arguments);
    let words = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {words}");
    assert!(output.stdout.is_empty());
    words
}

#[test]
fn input_that_would_panic_or_hang_is_rejected() {
    let carried = "bytes = \"200kB\"";
    let cases = [
        (
            "queue=25",
            "queue=infbdp".to_owned(),
            "6:8: invalid queue \"infbdp\": value is too large",
        ),
        (
            carried,
            format!("{carried}\nrebind = [\"5s\", \"1s\"]"),
            "10:17: the rebinding at \"1s\"",
        ),
        (
            carried,
            format!("{carried}\nrebind = [\"0s\"]"),
            "10:11: the rebinding at \"0s\"",
        ),
        (
            carried,
            format!("{carried}\nflows = 4000000000"),
            "10:9: \"4000000000\" is too large",
        ),
    ];
    let ports = ["--listen", "127.0.0.1:0", "--to", "127.0.0.1:9"];
    for (from, to, said) in cases {
        let file = changed("hostile", &[(from, &to)]);
        let expected = format!("{file}:{said}");
        for arguments in [
            &["lab", "run", &file][..],
            &[&["relay", &file][..], &ports].concat(),
        ] {
            let words = refused(arguments);
            assert!(words.contains(&expected), "{words}");
        }
    }
    let words = refused(&["lab", "sweep", "--queue", "1e30bdp"]);
    assert!(
        words.contains("--queue \"1e30bdp\": invalid queue \"1e30bdp\": value is too large"),
        "{words}"
    );
}

#[test]
fn too_many_runs_are_rejected_with_their_number() {
    for count in ["0", "1000000000", "18446744073709551615"] {
        let words = refused(&["lab", "run", "policer", "--seeds", count]);
        assert!(words.contains("1..=1000000"), "{words}");
    }
    let beyond = [
        "lab",
        "run",
        "policer",
        "--seed",
        "18446744073709551615",
        "--seeds",
        "3",
    ];
    let words = refused(&beyond);
    assert!(
        words.contains("cannot run 3 seeds starting at 18446744073709551615"),
        "{words}"
    );
    let words = refused(&["lab", "run", "--seeds", "1000000"]);
    assert!(words.contains("the limit is 1000000"), "{words}");
    let rates: Vec<String> = (1..=1_000).map(|rate| format!("{rate}M")).collect();
    let rtts: Vec<String> = (1..=1_000).map(|rtt| format!("{rtt}ms")).collect();
    let (rates, rtts) = (rates.join(","), rtts.join(","));
    let words = refused(&["lab", "sweep", "--rate", &rates, "--rtt", &rtts]);
    assert!(words.contains("the sweep has 2000000 points"), "{words}");
    let words = refused(&["lab", "sweep", "--seeds", "10000"]);
    assert!(words.contains("8 points and 240000 runs"), "{words}");
}

#[test]
fn empty_plan_error_gives_the_reason() {
    let grid = changed(
        "grid",
        &[
            ("queue=25", "queue={queue}"),
            ("[network]", "[grid]\nqueue = [25, 250]\n[network]"),
        ],
    );
    let words = refused(&["lab", "run", &grid, "--variant", "zzz"]);
    assert!(
        words.contains("expected one of queue=25; queue=250"),
        "{words}"
    );
    let plain = changed("plain", &[]);
    let words = refused(&["lab", "run", &plain, "--variant", "zzz"]);
    assert!(words.contains("there is no grid"), "{words}");
    let words = refused(&["lab", "run", &plain, "--controller", "cubik"]);
    assert!(words.contains("did you mean cubic?"), "{words}");
    let words = refused(&[
        "lab",
        "compare",
        "cubic",
        "bbr",
        &plain,
        "--controller",
        "prague",
    ]);
    assert!(words.contains("not by --controller"), "{words}");
}

#[test]
fn non_utf8_scenario_file_is_rejected() {
    let file = place("binary").join("binary.toml");
    fs::write(&file, [0x7f, 0x45, 0x4c, 0x46, 0xff]).unwrap();
    let words = refused(&["lab", "run", file.to_str().unwrap()]);
    assert!(
        words.contains("binary.toml is not a scenario: invalid UTF-8 at byte 4"),
        "{words}"
    );
}
