//! The proxy that Clearway began with, `clearway balance --mode naive`, at the load at which it begins to
//! lose.

use std::net::UdpSocket;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::balance::fleet::{Balance, PATIENCE};
use crate::common::json;
use crate::doctor::doctor;
use crate::doctor::host::Namespace;
use crate::web::TempDir;

/// Where the balancer is.
const NEAR: &str = "10.98.0.2";
/// Where its clients and its server are.
const FAR: &str = "10.98.0.1";

/// A namespace with a balancer, and one with clients and servers: what these read is not counted where
/// the doctor looks.
fn connected() -> Option<(Namespace, Namespace)> {
    let (near, far) = (Namespace::new()?, Namespace::new()?);
    let ip = |arguments: &[&str]| {
        let status = Command::new("ip").args(arguments).status();
        assert!(status.unwrap().success(), "ip {arguments:?}");
    };
    let ends = [(&near, "near", NEAR), (&far, "far", FAR)];
    ip(&[
        "link", "add", "near", "netns", &near.0, "type", "veth", "peer", "far", "netns", &far.0,
    ]);
    for (namespace, device, address) in ends {
        let address = format!("{address}/24");
        ip(&["-n", &namespace.0, "addr", "add", &address, "dev", device]);
        ip(&["-n", &namespace.0, "link", "set", device, "up"]);
    }
    Some((near, far))
}

/// Threads of a client that sends at a rate, and of a server that answers probes. They end with the test.
struct Traffic {
    ended: Arc<AtomicBool>,
    rate: Arc<AtomicU64>,
    sent: Arc<AtomicU64>,
}

impl Traffic {
    fn start(client: UdpSocket, server: UdpSocket, rate: u64) -> Self {
        let traffic = Self {
            ended: Arc::default(),
            rate: Arc::new(AtomicU64::new(rate)),
            sent: Arc::default(),
        };
        let (ended, rate, sent) = (
            traffic.ended.clone(),
            traffic.rate.clone(),
            traffic.sent.clone(),
        );
        std::thread::spawn(move || send(&client, &ended, &rate, &sent));
        let ended = traffic.ended.clone();
        std::thread::spawn(move || answer_probes(&server, &ended));
        traffic
    }

    fn raise(&self) {
        self.rate.store(self.rate.load(Relaxed) * 5 / 4, Relaxed);
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.ended.store(true, Relaxed);
    }
}

/// Sends short headers of an unknown connection. What could not be sent in time is left out.
fn send(client: &UdpSocket, ended: &AtomicBool, rate: &AtomicU64, sent: &AtomicU64) {
    const TICK: Duration = Duration::from_micros(500);
    let mut next = Instant::now();
    let mut due = 0;
    while !ended.load(Relaxed) {
        // In millionths of a datagram, so that nothing is lost by rounding.
        due += rate.load(Relaxed) * 500;
        while due >= 1_000_000 {
            due -= 1_000_000;
            // One that was refused (ICMP) was another.
            if client.send(&[0x40; 100]).is_ok() {
                sent.fetch_add(1, Relaxed);
            }
        }
        next += TICK;
        let now = Instant::now();
        match next.checked_duration_since(now) {
            Some(left) => std::thread::sleep(left),
            None if now > next + 20 * TICK => next = now,
            None => {}
        }
    }
}

/// Answers long headers as a server that does not know their version does (RFC 8999 §6), with the
/// connection IDs exchanged, and reads everything else.
fn answer_probes(server: &UdpSocket, ended: &AtomicBool) {
    server
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let mut buffer = [0; 2_048];
    while !ended.load(Relaxed) {
        let Ok((length, from)) = server.recv_from(&mut buffer) else {
            continue;
        };
        let packet = &buffer[..length];
        if packet[0] & 0x80 == 0 {
            continue;
        }
        let destination = &packet[6..6 + usize::from(packet[5])];
        let rest = &packet[6 + destination.len()..];
        let source = &rest[1..1 + usize::from(rest[0])];
        let mut answer = vec![0x80, 0, 0, 0, 0];
        for id in [source, destination] {
            answer.push(u8::try_from(id.len()).unwrap());
            answer.extend_from_slice(id);
        }
        answer.extend_from_slice(&1_u32.to_be_bytes());
        let _ = server.send_to(&answer, from);
    }
}

/// What was lost for a full buffer in the namespace so far.
fn lost(namespace: &Namespace) -> u64 {
    let text = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
    let mut lines = text.lines().filter(|line| line.starts_with("Udp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut columns = names.split(' ').zip(values.split(' '));
    let column = columns.find(|(name, _)| *name == "RcvbufErrors");
    column.unwrap().1.parse().unwrap()
}

/// Raises the rate until a twentieth of what is sent is lost, three times in a row: others may take the
/// processors for a moment.
fn raise_until_it_loses(near: &Namespace, traffic: &Traffic) {
    let begun = Instant::now();
    let mut losing = 0;
    while losing < 3 {
        let (sent, before) = (traffic.sent.load(Relaxed), lost(near));
        std::thread::sleep(Duration::from_millis(300));
        let (sent, lost) = (traffic.sent.load(Relaxed) - sent, lost(near) - before);
        println!("lost {lost} of {sent}");
        if lost * 20 > sent {
            losing += 1;
        } else {
            assert!(begun.elapsed() < PATIENCE, "lost {lost} of {sent}");
            losing = 0;
            traffic.raise();
        }
    }
}

fn received(balance: &Balance) -> u64 {
    balance.status()["up"]["received"].as_u64().unwrap()
}

/// A verdict, and by how much λ and μ are off. `None` if nothing was lost after all.
fn examine(near: &Namespace, balance: &Balance, traffic: &Traffic) -> Option<(Value, f64)> {
    let (read, sent) = (received(balance), traffic.sent.load(Relaxed));
    let begun = Instant::now();
    let output = near.run(|| doctor(&["--interval", "2s", "--json"]));
    if output.status.code() == Some(0) {
        return None;
    }
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let (sent, seconds) = (
        traffic.sent.load(Relaxed) - sent,
        begun.elapsed().as_secs_f64(),
    );
    let read = received(balance) - read;
    let read_per_second = read as f64 / begun.elapsed().as_secs_f64();
    let sent_per_second = sent as f64 / seconds;
    let report = json(&output);
    let rate = |name: &str| report["model"]["rates"][name].as_f64().unwrap();
    let (arriving, reading) = (rate("arriving_per_second"), rate("read_per_second"));
    println!("{:#}", report["verdict"]);
    println!(
        "λ: found {arriving:.0}, truth {sent_per_second:.0}; μ: found {reading:.0}, truth {read_per_second:.0}"
    );
    let off = (arriving / sent_per_second - 1.0).abs();
    let off = off.max((reading / read_per_second - 1.0).abs());
    Some((report, off))
}

/// The naive balancer is the culprit, for its thread, and a larger buffer is no remedy.
fn assert_names(report: &Value, balance: &Balance) {
    assert_eq!(report["stage"], "receive_buffer");
    let culprit = &report["culprit"];
    assert_eq!(culprit["process"]["pid"], balance.pid(), "{report:#}");
    assert_eq!(culprit["process"]["name"], "clearway");
    assert_eq!(culprit["socket"]["local"], balance.address);
    assert_eq!(culprit["thread"]["name"], "balance-0");
    // Saturated; on a machine that others use, too, it may be short of processor time instead.
    let cause = culprit["thread"]["cause"].as_str().unwrap();
    assert!(["saturated", "starved"].contains(&cause), "{cause}");
    let [first, second] = [0, 1].map(|sentence| report["verdict"][sentence].as_str().unwrap());
    let who = format!(
        "clearway (process {}), UDP socket {}",
        balance.pid(),
        balance.address
    );
    assert!(first.contains(&who), "{first}");
    assert!(second.contains("thread \"balance-0\""), "{second}");
}

#[test]
fn naive_balancer_is_named_at_the_load_at_which_it_begins_to_lose() {
    let Some((near, far)) = connected() else {
        return;
    };
    let dir = TempDir::new();
    let server = far.run(|| UdpSocket::bind((FAR, 0)).unwrap());
    let to = server.local_addr().unwrap().to_string();
    let listen = format!("{NEAR}:0");
    let options = ["--to", &to, "--mode", "naive", "--work", "30us"];
    let balance = near.run(|| Balance::start(&dir, &listen, &options));
    let client = far.run(|| UdpSocket::bind((FAR, 0)).unwrap());
    client.connect(&balance.address).unwrap();
    let traffic = Traffic::start(client, server, 8_000);
    raise_until_it_loses(&near, &traffic);
    let mut tries = Vec::new();
    // Others may take the processors from sender and balancer alike, so that the buffer is not full all
    // the time, or the estimate of the rate is poor: then there is another try, at a higher load.
    for _ in 0..6 {
        if let Some((report, off)) = examine(&near, &balance, &traffic) {
            assert_names(&report, &balance);
            let second = report["verdict"][1].as_str().unwrap();
            if report["model"]["shape"]["pattern"] == "sustained" && off <= 0.15 {
                assert!(report["model"]["rates"]["load"].as_f64().unwrap() > 1.0);
                assert!(second.contains("a larger buffer does not help"), "{second}");
                let forwarded = &balance.status()["up"]["forwarded"];
                assert!(forwarded.as_u64().unwrap() > 0, "nothing was forwarded");
                return;
            }
            tries.push(format!("off by {:.0} %: {second}", off * 100.0));
        }
        traffic.raise();
    }
    panic!("{tries:#?}");
}
