//! `clearway tunnel` through `clearway serve --connect-udp`.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::UdpSocket;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{clearway, stderr};
use crate::web::{Site, TempDir, pattern, send};

const TOKEN: &str = "for-tests-only-0123456789";

/// A `clearway tunnel` that ends with the test.
struct Tunnel {
    child: Child,
    stdout: BufReader<ChildStdout>,
    address: String,
}

impl Tunnel {
    fn start(proxy: &str, target: &str, options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_clearway"))
            .args(["tunnel", "--proxy", proxy, "--to", target, "-k", "--json"])
            .args(["--local", "127.0.0.1:0"])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let first: Value = serde_json::from_str(&line).unwrap_or_else(|error| {
            let mut told = String::new();
            let _ = child.stderr.take().unwrap().read_to_string(&mut told);
            panic!("{line:?}: {error}: {told}")
        });
        assert_eq!(first["event"], "listening");
        let address = first["address"].as_str().unwrap().to_owned();
        Self {
            child,
            stdout,
            address,
        }
    }

    /// Ends it, and returns what it counted.
    fn stop(mut self) -> Value {
        send(&self.child, Signal::TERM);
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        let totals: Value = serde_json::from_str(&rest).unwrap();
        assert_eq!(totals["event"], "closed");
        totals
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        // Ended already unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The file with the token.
fn token(dir: &TempDir) -> String {
    let file = dir.join("token");
    fs::write(&file, format!("# of the tests\n{TOKEN}\n")).unwrap();
    file.to_str().unwrap().to_owned()
}

/// A proxy that forwards to these ports of loopback.
fn proxy(dir: &TempDir, ports: &[u16]) -> Site {
    let token = token(dir);
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let mut options = vec!["--connect-udp", "--proxy-token", &token];
    options.extend(["--proxy-allow", "127.0.0.0/8"]);
    for port in &ports {
        options.extend(["--proxy-port", port]);
    }
    Site::start(dir.path(), &options)
}

/// A DNS server, as far as queries need one: it sends each back as a response with an address.
/// Returns its port and how many it has answered.
fn dns_server() -> (u16, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let answered = Arc::new(AtomicUsize::new(0));
    let count = answered.clone();
    std::thread::spawn(move || {
        let mut buffer = [0; 1_500];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let response = response(&buffer[..len]);
            count.fetch_add(1, Ordering::Relaxed);
            if socket.send_to(&response, from).is_err() {
                return;
            }
        }
    });
    (port, answered)
}

/// A query for an A record (RFC 1035 §4).
fn query(id: u16) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    message.extend(b"\x07example\x03org\0\0\x01\0\x01");
    message
}

fn response(query: &[u8]) -> Vec<u8> {
    let mut message = query.to_vec();
    message[2] |= 0x80;
    message[7] = 1;
    message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, query[1]]);
    message
}

#[test]
fn dns_queries_pass_in_both_modes() {
    let dir = TempDir::new();
    let (port, answered) = dns_server();
    let site = proxy(&dir, &[port]);
    let token = token(&dir);
    for mode in [&[][..], &["--capsules"]] {
        let options = [&["--proxy-token", &token][..], mode].concat();
        let tunnel = Tunnel::start(&site.url, &format!("127.0.0.1:{port}"), &options);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(&tunnel.address).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(2)))
            .unwrap();
        for id in 0..200 {
            // UDP may lose it: a resolver asks again.
            let received = (0..10).find_map(|_| {
                socket.send(&query(id)).unwrap();
                let mut buffer = [0; 1_500];
                loop {
                    let len = socket.recv(&mut buffer).ok()?;
                    if buffer[..2] == id.to_be_bytes() {
                        return Some(buffer[..len].to_vec());
                    }
                }
            });
            assert_eq!(received.unwrap(), response(&query(id)), "{mode:?}");
        }
        let totals = tunnel.stop();
        assert_eq!(totals["flows"], 1);
        assert!(totals["received"].as_u64().unwrap() >= 200, "{totals}");
    }
    assert!(answered.load(Ordering::Relaxed) >= 400);
    assert!(site.stop().success());
}

#[test]
fn quic_download_passes_in_both_modes() {
    let (dir, origin_dir) = (TempDir::new(), TempDir::new());
    let content = pattern(3_000_000);
    fs::write(origin_dir.join("file"), &content).unwrap();
    let origin = Site::start(origin_dir.path(), &[]);
    let port: u16 = origin.url.rsplit(':').next().unwrap().parse().unwrap();
    let site = proxy(&dir, &[port]);
    let token = token(&dir);
    for mode in [&[][..], &["--capsules"]] {
        let options = [&["--proxy-token", &token][..], mode].concat();
        let tunnel = Tunnel::start(&site.url, &format!("localhost:{port}"), &options);
        let out = dir.join("out");
        let url = format!("https://{}/file", tunnel.address);
        let output = clearway(&["get", "-k", "-o", out.to_str().unwrap(), &url]);
        assert!(output.status.success(), "{mode:?}: {}", stderr(&output));
        assert!(fs::read(&out).unwrap() == content, "{mode:?}");
        fs::remove_file(&out).unwrap();
        let totals = tunnel.stop();
        assert!(totals["received"].as_u64().unwrap() > 2_000, "{totals}");
    }
}

#[test]
fn refusals_are_explained() {
    let dir = TempDir::new();
    let site = proxy(&dir, &[53]);
    let wrong = dir.join("wrong");
    fs::write(&wrong, "another-token-of-25-chars\n").unwrap();
    let (right, wrong) = (token(&dir), wrong.to_str().unwrap().to_owned());
    let own = site.url.replace("https://localhost", "127.0.0.1");
    for (target, options, expected) in [
        ("127.0.0.1:53", &[][..], "407"),
        ("127.0.0.1:53", &["--proxy-token", &wrong], "407"),
        (
            "10.0.0.1:53",
            &["--proxy-token", &right],
            "destination_ip_prohibited",
        ),
        (
            "127.0.0.1:54",
            &["--proxy-token", &right],
            "http_request_denied",
        ),
        (&own, &["--proxy-token", &right], "403"),
    ] {
        let mut tunnel = Tunnel::start(&site.url, target, options);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"anything", &tunnel.address).unwrap();
        let told = BufReader::new(tunnel.child.stderr.take().unwrap());
        let (tell, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in told.lines() {
                let _ = tell.send(line.unwrap());
            }
        });
        let line = lines.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(
            line.contains("refused") && line.contains(expected),
            "{line}"
        );
        let totals = tunnel.stop();
        assert_eq!(
            (&totals["flows"], &totals["failed"]),
            (&0.into(), &1.into())
        );
    }
}

#[test]
fn server_without_the_option_has_no_tunnels() {
    let dir = TempDir::new();
    let site = Site::start(dir.path(), &[]);
    let mut tunnel = Tunnel::start(&site.url, "127.0.0.1:53", &[]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"anything", &tunnel.address).unwrap();
    let mut line = String::new();
    let mut told = BufReader::new(tunnel.child.stderr.take().unwrap());
    told.read_line(&mut line).unwrap();
    assert!(line.contains("the proxy has no tunnels"), "{line}");
    drop(told);
    tunnel.stop();
}

#[test]
fn proxy_needs_a_token_of_its_own() {
    let dir = TempDir::new();
    let path = dir.path().to_str().unwrap();
    let fails = |options: &[&str], expected: &str| {
        let output = clearway(&[&["serve", path, "--listen", "127.0.0.1:0"], options].concat());
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    };
    fails(&["--connect-udp"], "--proxy-token");
    fails(&["--proxy-allow", "10.0.0.0/8"], "--connect-udp");
    let short = dir.join("short");
    fs::write(&short, "short\n").unwrap();
    let short = short.to_str().unwrap();
    fails(
        &["--connect-udp", "--proxy-token", short],
        "at least 16 characters",
    );
    let missing = dir.join("missing");
    let missing = missing.to_str().unwrap();
    fails(&["--connect-udp", "--proxy-token", missing], "cannot read");
}
