//! `clearway relay` as a user runs it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{self, BufRead, BufReader, Read};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Running {
    child: Child,
    stderr: BufReader<ChildStderr>,
    pub(crate) listen: SocketAddr,
}

impl Running {
    pub(crate) fn start(to: SocketAddr, options: &[&str]) -> Self {
        Self::start_between("127.0.0.1:0", &to.to_string(), options)
    }

    fn start_between(listen: &str, to: &str, options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_clearway"))
            .args(["relay", "--json", "--listen", listen, "--to", to])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let listen = line
            .strip_prefix("relay: listening on ")
            .and_then(|rest| rest.split(',').next())
            .unwrap_or_else(|| panic!("the relay did not start: {line}"))
            .parse()
            .unwrap();
        Self {
            child,
            stderr,
            listen,
        }
    }

    /// Reads what it prints for people until a line contains `text`.
    fn read_until(&mut self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            let read = self.stderr.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "the relay ended without saying {text:?}");
        }
    }

    /// Stops it as `signal` does and returns what it printed: (JSON, text).
    fn stop(mut self, signal: Signal) -> (Value, String) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        self.finish()
    }

    fn finish(&mut self) -> (Value, String) {
        let mut text = String::new();
        self.stderr.read_to_string(&mut text).unwrap();
        let mut json = String::new();
        let mut stdout = self.child.stdout.take().unwrap();
        stdout.read_to_string(&mut json).unwrap();
        assert!(self.child.wait().unwrap().success(), "{text}");
        assert_eq!(json.lines().count(), 1, "one object on one line: {json}");
        (serde_json::from_str(&json).unwrap(), text)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ended already unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// A socket with a timeout answers EINTR to any signal, one that stops and
/// continues the process among them (signal(7)).
fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> T {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done.unwrap(),
        }
    }
}

/// Sends `count` datagrams through the relay and the server's echoes back, one
/// at a time; returns the numbers of those that came home.
fn echo(client: &UdpSocket, server: &UdpSocket, relay: SocketAddr, count: u32) -> Vec<u32> {
    let mut buffer = [0; 2048];
    let mut home = Vec::new();
    for number in 0..count {
        let mut data = number.to_be_bytes().to_vec();
        data.resize(1200, 0);
        client.send_to(&data, relay).unwrap();
        let (len, from) = uninterrupted(|| server.recv_from(&mut buffer));
        server.send_to(&buffer[..len], from).unwrap();
        let len = uninterrupted(|| client.recv(&mut buffer));
        assert_eq!(len, 1200);
        home.push(u32::from_be_bytes(buffer[..4].try_into().unwrap()));
    }
    home
}

#[test]
fn host_name_and_port_alone_are_accepted() {
    let (server, client) = (socket(), socket());
    let port = server.local_addr().unwrap().port();
    for (listen, to) in [
        ("127.0.0.1:0", format!("localhost:{port}")),
        (":0", format!("127.0.0.1:{port}")),
    ] {
        let relay = Running::start_between(listen, &to, &[]);
        let there = ([127, 0, 0, 1], relay.listen.port()).into();
        assert!(
            echo(&client, &server, there, 5).into_iter().eq(0..5),
            "{listen}"
        );
        relay.stop(Signal::INT);
    }
    for (listen, to, why) in [
        (
            "127.0.0.1:0",
            "no.such.host.invalid:1",
            "cannot resolve the host",
        ),
        ("127.0.0.1:0", "localhost", "expected a host and port"),
        ("5601", "localhost:1", "or a port such as :4433"),
    ] {
        let refused = Command::new(env!("CARGO_BIN_EXE_clearway"))
            .args(["relay", "--listen", listen, "--to", to])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{text}");
        assert!(text.contains(why), "{to}: {text}");
    }
}

#[test]
fn relay_without_impairment_delivers_everything() {
    let (server, client) = (socket(), socket());
    let relay = Running::start(server.local_addr().unwrap(), &["--delay", "200us"]);
    let home = echo(&client, &server, relay.listen, 200);
    assert!(home.into_iter().eq(0..200));
    let (json, text) = relay.stop(Signal::INT);
    assert_eq!(json["command"], "relay");
    assert_eq!(json["flows"], 1);
    for way in ["up", "down"] {
        assert_eq!(json[way]["sent"], 200);
        assert_eq!(json[way]["delivered"], 200);
        assert_eq!(json[way]["delivered_bytes"], 240_000);
        assert_eq!(json[way]["dropped_loss"], 0);
    }
    for (cause, count) in json["own_losses"].as_object().unwrap() {
        assert_eq!(count, 0, "{cause}");
    }
    assert!(
        text.contains("200 sent, 200 delivered (240000 bytes)"),
        "{text}"
    );
}

#[test]
fn relay_with_total_loss_delivers_nothing() {
    let (server, client) = (socket(), socket());
    let to = server.local_addr().unwrap();
    let mut relay = Running::start(to, &["--loss-up", "100%", "--every", "1ms"]);
    for _ in 0..50 {
        client.send_to(&[0; 1200], relay.listen).unwrap();
    }
    // The counters it prints say when all fifty have met their end.
    relay.read_until("up 0/50 delivered");
    let (json, text) = relay.stop(Signal::TERM);
    assert_eq!(json["up"]["sent"], 50);
    assert_eq!(json["up"]["delivered"], 0);
    assert_eq!(json["up"]["dropped_loss"], 50);
    assert!(
        text.contains("50 sent, 0 delivered (0 bytes), 50 lost"),
        "{text}"
    );
    server.set_nonblocking(true).unwrap();
    assert!(server.recv_from(&mut [0; 2048]).is_err());
}

#[test]
fn options_override_profile_and_report_shows_effective_settings() {
    let options = ["--profile", "death_spiral", "--rate", "1G", "--duration"];
    let to = "127.0.0.1:9".parse().unwrap();
    let mut relay = Running::start(to, &[&options[..], &["10ms", "--seed", "7"]].concat());
    let (json, _) = relay.finish();
    assert_eq!(json["seed"], 7);
    assert_eq!(
        json["up"]["settings"],
        "clock=first-packet queue=250p rate=1G delay=5ms"
    );
    assert_eq!(
        json["down"]["settings"],
        "clock=first-packet queue=250p rate=1G delay=5ms loss=30%@0s-2s"
    );
}

fn run(options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_clearway"))
        .arg("relay")
        .args(options)
        .output()
        .unwrap()
}

#[test]
fn invalid_option_value_is_rejected_naming_the_option() {
    const PORTS: [&str; 4] = ["--listen", "127.0.0.1:0", "--to", "127.0.0.1:9"];
    let cases: [(&[&str], &str); 10] = [
        (
            &["--rate", "100X"],
            "'100X' for '--rate <RATE>': invalid rate \"100X\": unknown unit \"X\"; expected bits \
             per second such as 100M",
        ),
        (
            &["--delay", "5"],
            "missing unit; expected a time with its unit",
        ),
        (
            &["--loss", "30"],
            "invalid probability \"30\": missing unit",
        ),
        (&["--loss-up", "30%@2s-1s"], "ends before it starts"),
        (&["--queue", "lots"], "for '--queue <LIMIT>'"),
        (&["--profile", "lan"], "expected one of death_spiral"),
        (
            &["--up", "speed=1M"],
            "invalid setting \"speed\": unknown name",
        ),
        (
            &["--rebind", "5s,1s"],
            "--rebind times must be in increasing order",
        ),
        (&["--down", "clock=explicit"], "--down sets clock=explicit"),
        (&["--every", "0"], "must be greater than zero"),
    ];
    for (options, expected) in cases {
        let output = run(&[&PORTS[..], options].concat());
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{options:?}");
        assert!(message.contains(expected), "{options:?}: {message}");
        assert!(output.stdout.is_empty());
    }
    let output = run(&["--listen", "localhost", "--to", "127.0.0.1:9"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("such as 127.0.0.1:4433"), "{message}");
    let output = run(&["--listen", "127.0.0.1:9", "--to", "127.0.0.1:9"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("would forward to itself"), "{message}");
}

#[test]
fn address_in_use_is_named_in_the_error() {
    let holder = socket();
    let taken = holder.local_addr().unwrap();
    let output = run(&["--listen", &taken.to_string(), "--to", "127.0.0.1:9"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains(&format!("cannot listen on {taken}")),
        "{message}"
    );
}

#[test]
fn help_shows_examples_and_profiles() {
    let output = run(&["--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.contains("clearway relay --listen 127.0.0.1:4433 --to 127.0.0.1:4434"));
    assert!(help.contains("death_spiral"));
    assert!(help.contains("one way"));
}
