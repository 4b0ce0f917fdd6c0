//! What is wrong with a scenario or a command line is said before anything runs.

use std::fs;

use super::common::{clearway, stderr};
use super::{SMALL, place, small};

#[test]
fn a_mistake_says_where_it_is() {
    let (_, file) = small("mistake", "soon");
    let output = clearway(&["lab", "run", &file]);
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(said.contains("small.toml:11:20: bad "), "{said}");
    let output = clearway(&["lab", "run", "death_spirl"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("did you mean death_spiral?"));
}

#[test]
fn each_kind_of_mistake_has_its_file_its_line_and_what_would_be_right() {
    let dir = place("mistakes");
    let cases = [
        (
            "duration =",
            "durration =",
            "3:1: there is no setting \"durration\"; did you mean duration?",
        ),
        (
            "bytes =",
            "byte =",
            "9:1: [[flows]] has no setting \"byte\"; did you mean bytes?",
        ),
        (
            "rate=10M",
            "rate=-10M",
            "6:8: bad rate \"-10M\": it is negative; write bits per second such as 100M",
        ),
        (
            "queue=25",
            "queue=500B",
            "6:8: queue \"500B\" is impossible: 500 bytes hold no packet of 1480; write packets such as 250",
        ),
        (
            "rate=10M",
            "trace=nowhere.trace",
            "6:8: bad trace \"nowhere.trace\": it cannot be read: No such file or directory (os error 2); \
             write the path of a file with a millisecond per line",
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

/// What is said of arguments that make no sense.
fn refused(arguments: &[&str]) -> String {
    let output = clearway(arguments);
    let words = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {words}");
    assert!(output.stdout.is_empty());
    words
}

#[test]
fn what_would_panic_or_hang_is_refused_by_lab_and_relay() {
    let carried = "bytes = \"200kB\"";
    let cases = [
        (
            "queue=25",
            "queue=infbdp".to_owned(),
            "6:8: queue \"infbdp\" is beyond all measure",
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
            "10:9: \"4000000000\" is too many",
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
        words.contains("--queue \"1e30bdp\": queue \"1e30bdp\" is beyond"),
        "{words}"
    );
}

#[test]
fn more_than_anybody_waits_for_is_refused_with_its_number() {
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
        words.contains("there are no 3 seeds from 18446744073709551615 on"),
        "{words}"
    );
    let words = refused(&["lab", "run", "--seeds", "1000000"]);
    assert!(words.contains("1000000 the most"), "{words}");
    let rates: Vec<String> = (1..=1_000).map(|rate| format!("{rate}M")).collect();
    let rtts: Vec<String> = (1..=1_000).map(|rtt| format!("{rtt}ms")).collect();
    let (rates, rtts) = (rates.join(","), rtts.join(","));
    let words = refused(&["lab", "sweep", "--rate", &rates, "--rtt", &rtts]);
    assert!(words.contains("the sweep has 2000000 points"), "{words}");
    let words = refused(&["lab", "sweep", "--seeds", "10000"]);
    assert!(words.contains("8 points and 240000 runs"), "{words}");
}

#[test]
fn nothing_to_run_says_why() {
    let grid = changed(
        "grid",
        &[
            ("queue=25", "queue={queue}"),
            ("[network]", "[grid]\nqueue = [25, 250]\n[network]"),
        ],
    );
    let words = refused(&["lab", "run", &grid, "--variant", "zzz"]);
    assert!(words.contains("there are queue=25; queue=250"), "{words}");
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
fn a_file_that_is_no_text_is_no_scenario() {
    let file = place("binary").join("binary.toml");
    fs::write(&file, [0x7f, 0x45, 0x4c, 0x46, 0xff]).unwrap();
    let words = refused(&["lab", "run", file.to_str().unwrap()]);
    assert!(
        words.contains("binary.toml is no scenario: byte 4"),
        "{words}"
    );
}
