//! Samples of client, balancer and server name the hop that loses.

use super::fleet::{Balance, Relay};
use super::*;
use crate::common::json;
use crate::web::send;

/// What the lossy network between two hops loses of each direction, in percent.
const LOSS: f64 = 0.05;

fn texts(options: &[String; 3]) -> [&str; 3] {
    options.each_ref().map(String::as_str)
}

/// Downloads and uploads through two networks, so many times, and returns what `doctor path` says of the
/// samples. Balancer and server have this number of shards.
fn path_with_loss(first: &[&str], second: &[&str], shards: &str, times: usize) -> Value {
    let (dir, content) = (TempDir::new(), content());
    let sample = |name: &str| {
        [
            "--sample".to_owned(),
            dir.text(name),
            "--sample-one-in=1".to_owned(),
        ]
    };
    let [client, balancer, server] = ["c", "b", "s"].map(sample);
    let shards = ["--shards", shards];
    let writable = [&texts(&server)[..], &shards, &["--writable"]].concat();
    let mut site = Site::start(content.path(), &writable);
    let behind = Relay::start(&address(&site), second);
    let options = [&["--to", &behind.address][..], &shards, &texts(&balancer)].concat();
    let balance = Balance::start(&dir, "127.0.0.1:0", &options);
    let before = Relay::start(&balance.address, first);
    let url = |name: &str| format!("{}/{name}", before.url);
    let large = content.path().join("large");
    let (to, up) = (dir.text("to"), large.to_str().unwrap());
    for _ in 0..times {
        for arguments in [
            &["get", "-k", "-s", "-o", &to, &url("large")][..],
            &["get", "-k", "-s", "-T", up, &url("uploaded")],
        ] {
            let output = clearway(&[arguments, &texts(&client)].concat());
            assert!(output.status.success(), "{}", stderr(&output));
        }
    }
    assert!(std::fs::read(&to).unwrap() == pattern(LARGE));
    balance.stop();
    send(&site.child, Signal::TERM);
    assert!(site.child.wait().unwrap().success());
    let files = [&client[1], &balancer[1], &server[1]].map(String::as_str);
    let output = clearway(&[&["doctor", "path", "--json"], &files[..]].concat());
    json(&output)
}

/// The segment that loses most, if one does, as `FROM -> TO DIRECTION`, and its share.
fn worst(report: &Value) -> Option<(String, f64)> {
    let segment = &report["segments"][usize::try_from(report["worst"].as_u64()?).unwrap()];
    let text = |name: &str| segment[name].as_str().unwrap().to_owned();
    let name = format!("{} -> {} {}", text("from"), text("to"), text("direction"));
    let count = |name: &str| segment[name].as_u64().unwrap() as f64;
    Some((name, count("lost") / count("sent")))
}

#[test]
fn samples_name_the_hop_that_loses_and_its_share() {
    name_the_hop_that_loses("1", 1);
}

/// All shards of a process sample, into one file. With six connections, one in 32 runs has all of them
/// at one shard of the server.
#[test]
fn samples_of_several_shards_name_the_hop_that_loses_and_its_share() {
    name_the_hop_that_loses("2", 3);
}

fn name_the_hop_that_loses(shards: &str, times: usize) {
    let loss = |direction: &str| format!("--loss-{direction}={}%", LOSS * 100.0);
    let [up, down] = [loss("up"), loss("down")];
    for (first, second, expected) in [
        (vec![down.as_str()], vec![], "balancer -> client down"),
        (vec![], vec![up.as_str()], "balancer-out -> server up"),
    ] {
        let report = path_with_loss(&first, &second, shards, times);
        let (name, share) = worst(&report).unwrap_or_else(|| panic!("{report:#}"));
        assert_eq!(name, expected, "{report:#}");
        assert!((share - LOSS).abs() < 0.02, "{share}: {report:#}");
        let segments = report["segments"].as_array().unwrap();
        assert_eq!(segments.len(), 6, "three each way: {report:#}");
        for (index, segment) in segments.iter().enumerate() {
            let lost = segment["lost"].as_u64().unwrap() as f64;
            let sent = segment["sent"].as_u64().unwrap() as f64;
            let is_worst = report["worst"] == index;
            assert!(is_worst || lost / sent < 0.01, "{report:#}");
        }
        println!("{name}: {:.2} %", share * 100.0);
    }
}
