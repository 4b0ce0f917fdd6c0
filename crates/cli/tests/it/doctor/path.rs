//! `clearway doctor path`: which hop loses.

use std::fs;

use crate::common::json;
use crate::doctor::{expect, stdout};
use crate::web::TempDir;

/// Three seconds of two connections at a hop that saw this share of their packets.
fn samples(hop: &str, percent: u64, direction: &str) -> String {
    let mut lines = String::new();
    for second in 1_763_830_800..1_763_830_803 {
        for connection in ["9f86d081", "60303ae2"] {
            let (packets, bytes) = (10 * percent, 12_000 * percent);
            lines += &format!(
                "{{\"second\":{second},\"hop\":\"{hop}\",\"connection\":\"{connection}\",\
                 \"packets\":{packets},\"bytes\":{bytes},\"direction\":\"{direction}\",\"new\":0}}\n"
            );
        }
    }
    lines
}

/// Writes a file for each hop, and returns their names.
fn write(dir: &TempDir, hops: &[(&str, u64)], direction: &str) -> Vec<String> {
    let write = |(hop, percent): &(&str, u64)| {
        fs::write(dir.join(hop), samples(hop, *percent, direction)).unwrap();
        dir.text(hop)
    };
    hops.iter().map(write).collect()
}

#[test]
fn hop_that_loses_is_named_and_exits_with_1() {
    let dir = TempDir::new();
    let hops = [("server", 50), ("client", 100), ("balancer", 100)];
    let files = write(&dir, &hops, "up");
    let mut arguments = vec!["path"];
    arguments.extend(files.iter().map(String::as_str));
    let text = stdout(&expect(1, &arguments));
    let first =
        "Packets are lost between balancer and server: 3000 of 6000 (50.00 %), on 2 connections.\n";
    assert!(text.starts_with(first), "{text}");
    assert!(text.contains("ok      client -> balancer: sent 6000, arrived 6000, lost 0.00 %"));
    assert!(text.contains("LOSING  balancer -> server: sent 6000, arrived 3000, lost 50.00 %"));
    let report = json(&expect(1, &[&arguments[..], &["--json"]].concat()));
    assert_eq!(report["worst"], 1);
    let worst = &report["segments"][1];
    assert_eq!(
        (&worst["from"], &worst["to"]),
        (&"balancer".into(), &"server".into())
    );
    assert_eq!(
        (&worst["sent"], &worst["lost"]),
        (&6_000.into(), &3_000.into())
    );
    // From server to client it is the other way round: the client's side of the balancer gains.
    let files = write(
        &dir,
        &[("server", 100), ("balancer", 100), ("client", 90)],
        "down",
    );
    let mut arguments = vec!["path"];
    arguments.extend(files.iter().map(String::as_str));
    let text = stdout(&expect(1, &arguments));
    assert!(
        text.starts_with("Packets are lost between balancer and client: 600 of 6000"),
        "{text}"
    );
}

#[test]
fn hops_that_see_the_same_packets_exit_with_0() {
    let dir = TempDir::new();
    let files = write(
        &dir,
        &[("client", 100), ("balancer", 100), ("server", 100)],
        "up",
    );
    let text = stdout(&expect(0, &["path", &files[0], &files[1], &files[2]]));
    assert!(
        text.starts_with("Every hop saw what the one before it sent.\n"),
        "{text}"
    );
}

#[test]
fn order_of_other_hops_is_given_by_option() {
    let dir = TempDir::new();
    let files = write(&dir, &[("a", 100), ("b", 100), ("c", 70)], "up");
    let text = stdout(&expect(
        1,
        &["path", "--hops", "a,b,c", &files[0], &files[1], &files[2]],
    ));
    assert!(
        text.starts_with("Packets are lost between b and c: 1800 of 6000"),
        "{text}"
    );
}

#[test]
fn files_without_a_common_connection_exit_with_2() {
    let dir = TempDir::new();
    let files = write(&dir, &[("client", 100)], "up");
    fs::write(dir.join("empty"), "").unwrap();
    for arguments in [&["path", &files[0]][..], &["path", &dir.text("empty")]] {
        let text = stdout(&expect(2, arguments));
        assert!(text.contains("nothing can be compared"), "{text}");
    }
}
