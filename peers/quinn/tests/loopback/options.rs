//! quinn's client against quinn's server: each option does what it says.

use crate::harness::{Server, certificates, client, complaint};
use serde_json::{Value, json};

#[test]
fn download_is_complete_and_counted_by_both_sides() {
    let mut server = Server::start(&[]);
    let run = server.run(&["--bytes", "3000001"]);
    assert_eq!(run["peer"], "quinn");
    assert_eq!(run["bytes"], 3_000_001);
    assert_eq!(run["requests"], 1);
    for unasked in ["resumed", "zero_rtt_accepted"] {
        assert_eq!(run[unasked], Value::Null, "{unasked}");
    }
    let closed = server.closed();
    assert_eq!(closed["sent"], 3_000_001);
    assert_eq!(closed["requests"], 1);
    assert_eq!(closed["cause"], "closed by peer: done (code 0)");
    for absent in ["retried", "zero_rtt_accepted", "migrated"] {
        assert_eq!(closed[absent], false, "{absent}");
    }
}

#[test]
fn an_empty_answer_is_an_answer() {
    let run = Server::start(&[]).run(&["--bytes", "0"]);
    assert_eq!((&run["bytes"], &run["requests"]), (&json!(0), &json!(1)));
}

#[test]
fn more_requests_than_the_stream_limit_are_completed() {
    let mut server = Server::start(&["--workers", "2"]);
    for parallel in ["300", "7"] {
        let run = server.run(&[
            "--bytes",
            "3001",
            "--streams",
            "300",
            "--parallel",
            parallel,
        ]);
        assert_eq!(run["bytes"], 300 * 3001);
        assert_eq!(run["requests"], 300);
        assert_eq!(server.closed()["requests"], 300);
    }
}

#[test]
fn an_upload_arrives_before_the_answer() {
    let mut server = Server::start(&[]);
    let run = server.run(&["--bytes", "1000", "--upload", "2500000", "--streams", "2"]);
    assert_eq!(run["bytes"], 2000);
    assert_eq!(run["uploaded"], 5_000_000);
    let closed = server.closed();
    assert_eq!(closed["received"], 5_000_000);
    assert_eq!(closed["sent"], 2000);
}

#[test]
fn requested_key_update_is_added_to_those_of_quinn() {
    let mut server = Server::start(&[]);
    server.run(&["--bytes", "12000000"]);
    assert_eq!(server.closed()["key_updates"], 1, "quinn's own");
    let run = server.run(&["--bytes", "12000000", "--key-update"]);
    assert_eq!(run["bytes"], 12_000_000);
    assert_eq!(run["key_updates"], 2);
    let closed = server.closed();
    assert_eq!(closed["key_updates"], 2);
    assert!(closed["peer_key_updates"].as_u64() >= Some(1), "{closed}");
}

#[test]
fn a_rebinding_moves_the_connection() {
    let mut server = Server::start(&[]);
    let run = server.run(&["--bytes", "20000000", "--rebind"]);
    assert_eq!(run["bytes"], 20_000_000);
    let closed = server.closed();
    assert_eq!(closed["migrated"], true);
    assert_eq!(closed["sent"], 20_000_000);
}

#[test]
fn key_update_and_rebind_need_a_download() {
    let server = Server::start(&[]);
    for option in ["--key-update", "--rebind"] {
        let output = server.client(&["--bytes", "0", option]);
        assert!(complaint(&output).contains("need a download"));
    }
}

#[test]
fn a_retry_is_seen_by_both_sides() {
    let mut server = Server::start(&["--retry"]);
    assert_eq!(server.run(&[])["retried"], true);
    assert_eq!(server.closed()["retried"], true);
    assert_eq!(Server::start(&[]).run(&[])["retried"], false);
}

#[test]
fn second_connection_is_resumed() {
    let run = Server::start(&[]).run(&["--resume", "--bytes", "5000"]);
    assert_eq!(run["resumed"], true);
    assert_eq!(run["zero_rtt_accepted"], Value::Null);
    assert_eq!(
        (&run["bytes"], &run["requests"]),
        (&json!(10_000), &json!(2))
    );
}

#[test]
fn early_data_is_accepted_where_it_is_allowed() {
    let mut server = Server::start(&["--zero-rtt"]);
    let run = server.run(&["--zero-rtt", "--streams", "20", "--bytes", "5000"]);
    assert_eq!(run["resumed"], true);
    assert_eq!(run["zero_rtt_accepted"], true);
    assert_eq!(
        (&run["bytes"], &run["requests"]),
        (&json!(200_000), &json!(40))
    );
    assert_eq!(server.closed()["zero_rtt_accepted"], false);
    assert_eq!(server.closed()["zero_rtt_accepted"], true);
}

#[test]
fn early_data_survives_a_retry() {
    let run = Server::start(&["--zero-rtt", "--retry"]).run(&["--zero-rtt"]);
    assert_eq!(run["zero_rtt_accepted"], true);
    assert_eq!(run["retried"], true);
}

#[test]
fn without_early_data_the_second_connection_still_works() {
    let mut server = Server::start(&[]);
    let run = server.run(&["--zero-rtt", "--bytes", "5000"]);
    assert_eq!(run["resumed"], true);
    assert_eq!(run["zero_rtt_accepted"], false);
    assert_eq!(run["bytes"], 10_000);
    for _ in 0..2 {
        assert_eq!(server.closed()["zero_rtt_accepted"], false);
    }
}

#[test]
fn timed_run_downloads_on_one_stream_until_the_time_limit() {
    let mut server = Server::start(&["--window", "8000000"]);
    let run = server.run(&["--seconds", "0.3", "--window", "8000000"]);
    assert!(run["bytes"].as_u64().unwrap() > 0);
    assert_eq!(run["requests"], 1);
    let rate = run["bytes"].as_f64().unwrap() * 8e-9 / run["seconds"].as_f64().unwrap();
    assert!((run["gbps"].as_f64().unwrap() - rate).abs() <= rate * 1e-9);
    assert_eq!(server.closed()["requests"], 1);
}

#[test]
fn a_timed_run_of_small_requests_repeats_them() {
    let run = Server::start(&[]).run(&["--seconds", "0.3", "--bytes", "64", "--parallel", "8"]);
    let (bytes, requests) = (&run["bytes"], run["requests"].as_u64().unwrap());
    assert!(requests > 8, "{run}");
    assert!(bytes.as_u64().unwrap() <= requests * 64);
}

#[test]
fn small_datagrams_and_large_buffers_are_accepted() {
    let options = ["--payload", "1200", "--socket-buffer", "400000"];
    let run = Server::start(&options).run(&["--payload", "1200", "--socket-buffer", "400000"]);
    assert_eq!(run["bytes"], 1 << 20);
}

#[test]
fn a_strangers_certificate_is_refused() {
    let (server, others) = (Server::start(&[]), certificates());
    let output = client(&server.address, others.path(), &[]);
    assert!(complaint(&output).contains("certificate"));
}

#[test]
fn connection_to_a_silent_address_times_out() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let output = client(&address, certificates().path(), &["--idle", "1"]);
    assert!(complaint(&output).contains("timed out"));
}
