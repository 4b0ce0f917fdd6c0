//! The contract of the public runner, without Docker: `run_endpoint.sh` with the environment
//! variables of each test case, its directories elsewhere.

mod capture;

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader},
    net::{SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use capture::{Capture, Sender};
use clearway_quic::wire::Version;

/// Size of the runner's probe for Version Negotiation.
const PROBE: usize = 1207;

/// The directories that the runner mounts.
struct Mounts(tempfile::TempDir);

impl Mounts {
    /// Creates them, with these files to serve.
    fn new(files: &[(&str, usize)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["www", "downloads", "qlog"] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        for (name, size) in files {
            let content: Vec<u8> = (0..*size).map(|at| (at * 31 % 251) as u8).collect();
            fs::write(folder.path().join("www").join(name), content).expect("a file");
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn endpoint(&self, role: &str, test: &str) -> Command {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new(here.join("run_endpoint.sh"));
        command
            .env("INTEROP_ENDPOINT", env!("CARGO_BIN_EXE_interop-endpoint"))
            .env("ROLE", role)
            .env("TESTCASE", test)
            .env("WWW", self.path("www"))
            .env("DOWNLOADS", self.path("downloads"))
            .env("CERTS", here.join("tests/certs"))
            .env("PORT", "0")
            .env("QLOGDIR", self.path("qlog"))
            .env("SSLKEYLOGFILE", self.path(&format!("{role}.keys")))
            .stderr(Stdio::inherit());
        command
    }

    /// Returns whether every file has arrived as it is.
    fn same(&self) -> bool {
        let read = |folder: &str| -> BTreeSet<(std::ffi::OsString, Vec<u8>)> {
            let files = fs::read_dir(self.path(folder)).expect("a folder");
            files
                .map(|file| file.expect("a file"))
                .map(|file| (file.file_name(), fs::read(file.path()).expect("a file")))
                .collect()
        };
        read("www") == read("downloads")
    }
}

/// A server, killed when it is dropped.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start(mounts: &Mounts, test: &str) -> Self {
        let mut process = mounts
            .endpoint("server", test)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a server");
        let out = process.stdout.take().expect("piped");
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("listening on ").expect("address");
        let address: SocketAddr = address.parse().expect("an address");
        Self {
            process,
            port: address.port(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a test case left behind: files, the client's exit, and what passed between the ends.
struct Run {
    mounts: Mounts,
    status: ExitStatus,
    capture: Capture,
}

fn run(test: &str, files: &[(&str, usize)]) -> Run {
    let mounts = Mounts::new(files);
    let server = Server::start(&mounts, test);
    let capture = Capture::before(server.port);
    let status = download(&mounts, test, &format!("127.0.0.1:{}", capture.port), files);
    Run {
        mounts,
        status,
        capture,
    }
}

fn download(mounts: &Mounts, test: &str, host: &str, files: &[(&str, usize)]) -> ExitStatus {
    let urls: Vec<String> = files
        .iter()
        .map(|(name, _)| format!("https://{host}/{name}"))
        .collect();
    mounts
        .endpoint("client", test)
        .env("REQUESTS", urls.join(" "))
        .status()
        .expect("a client")
}

/// Checks what the headers on the wire show, as the runner does with its captures.
fn check_wire(test: &str, capture: &Capture) {
    let (one, two) = (Version::V1, Version::V2);
    let by_server = capture.versions(Sender::Server);
    let by_client = capture.versions(Sender::Client);
    match test {
        // Compatible negotiation: the client begins with version 1 and follows the server.
        "v2" => {
            assert_eq!(by_client.first(), Some(&one), "{by_client:?}");
            assert_eq!(by_client.last(), Some(&two), "{by_client:?}");
            assert_eq!(by_server.last(), Some(&two), "{by_server:?}");
        }
        // The second connection begins with the version of the first one's ticket.
        _ => assert_eq!((by_client, by_server), (vec![one], vec![one]), "{test}"),
    }
    let connections = match test {
        "resumption" | "zerortt" => 2,
        "multiconnect" => 4,
        _ => 1,
    };
    assert_eq!(capture.connections(), connections, "{test}");
    let tokens = capture.retry_tokens();
    assert_eq!(!tokens.is_empty(), test == "retry", "{test}");
    for token in &tokens {
        assert!(capture.initial_tokens().contains(token), "{test}");
    }
    assert_eq!(capture.early_bytes() > 0, test == "zerortt", "{test}");
}

#[test]
fn every_test_case_downloads_every_file() {
    let long = "n".repeat(250);
    for test in [
        "handshake",
        "transfer",
        "chacha20",
        "multiplexing",
        "retry",
        "resumption",
        "zerortt",
        "http3",
        "keyupdate",
        "ecn",
        "multiconnect",
        "v2",
    ] {
        let files: &[(&str, usize)] = &[("a", 5_000), ("b", 300_000), (&long, 32), ("empty", 0)];
        let Run {
            mounts,
            status,
            capture,
        } = run(test, files);
        assert!(status.success(), "{test}: {status}");
        assert!(mounts.same(), "{test}");
        check_wire(test, &capture);
        for role in ["client", "server"] {
            let keys = fs::read_to_string(mounts.path(&format!("{role}.keys"))).expect("secrets");
            assert!(keys.contains("CLIENT_TRAFFIC_SECRET_0"), "{test} {role}");
        }
        let traces = fs::read_dir(mounts.path("qlog")).expect("a folder");
        assert!(traces.count() >= 2, "{test}: a trace of each end");
    }
}

#[test]
fn ipv6_is_supported() {
    let files = &[("a", 5_000), ("b", 10_000)];
    let mounts = Mounts::new(files);
    let server = Server::start(&mounts, "ipv6");
    let host = format!("[::1]:{}", server.port);
    let status = download(&mounts, "ipv6", &host, files);
    assert!(status.success() && mounts.same(), "{status}");
}

/// The client moves in the middle of a download; a server needs a preferred address for that.
#[test]
fn client_migrates_and_server_without_preferred_address_refuses_the_case() {
    let mounts = Mounts::new(&[("a", 2_000_000)]);
    let server = Server::start(&mounts, "transfer");
    let status = mounts
        .endpoint("client", "connectionmigration")
        .env("REQUESTS", format!("https://127.0.0.1:{}/a", server.port))
        .status()
        .expect("a client");
    assert!(status.success() && mounts.same(), "{status}");
    let status = mounts.endpoint("server", "connectionmigration").status();
    assert_eq!(status.expect("a server").code(), Some(127));
}

#[test]
fn unsupported_test_case_exits_with_127() {
    let mounts = Mounts::new(&[]);
    for role in ["client", "server"] {
        let status = mounts.endpoint(role, "no-such-case").status();
        assert_eq!(status.expect("an endpoint").code(), Some(127), "{role}");
    }
}

#[test]
fn missing_file_and_missing_requests_are_errors() {
    let mounts = Mounts::new(&[]);
    let server = Server::start(&mounts, "transfer");
    for requests in [
        format!("https://127.0.0.1:{}/missing", server.port),
        String::new(),
    ] {
        let status = mounts
            .endpoint("client", "transfer")
            .env("REQUESTS", requests)
            .status();
        assert_eq!(status.expect("a client").code(), Some(1));
    }
}

/// The runner's check that a server is up: a packet of an unknown version with empty connection
/// IDs.
/// A client that hangs is the one whose file matters.
#[test]
fn client_that_is_asked_to_end_leaves_its_qlog() {
    let mounts = Mounts::new(&[]);
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let timeout = Some(Duration::from_secs(60));
    silent.set_read_timeout(timeout).expect("a timeout");
    let address = silent.local_addr().expect("an address");
    let mut client = mounts
        .endpoint("client", "handshake")
        .env("REQUESTS", format!("https://{address}/small"))
        .spawn()
        .expect("a client");
    silent.recv(&mut [0; 2048]).expect("the first datagram");
    let id = client.id().to_string();
    let asked = Command::new("kill").args(["-TERM", &id]).status();
    assert!(asked.expect("kill").success());
    assert_eq!(client.wait().expect("an end").code(), Some(1));
    let files = fs::read_dir(mounts.path("qlog")).expect("a folder");
    let traces: Vec<String> = files
        .map(|file| fs::read_to_string(file.expect("a file").path()).expect("a trace"))
        .collect();
    let [trace] = &traces[..] else {
        panic!("expected one trace, found {}", traces.len());
    };
    assert!(trace.contains("quic:packet_sent"), "{trace}");
}

#[test]
fn version_negotiation_answers_probe_with_empty_connection_ids() {
    let mounts = Mounts::new(&[]);
    let server = Server::start(&mounts, "handshake");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let mut probe = vec![0xc0, 0x57, 0x41, 0x49, 0x54, 0, 0];
    probe.resize(PROBE, 0);
    let mut answer = [0; 1500];
    socket
        .set_read_timeout(Some(Duration::from_secs(1)))
        .expect("a timeout");
    let answered = (0..10).find_map(|_| {
        let to = ("127.0.0.1", server.port);
        socket.send_to(&probe, to).expect("sends");
        socket.recv_from(&mut answer).ok()
    });
    let (len, _) = answered.expect("an answer");
    assert_eq!(answer[1..7], [0; 6], "version 0 and two empty IDs");
    let versions: Vec<_> = answer[7..len].chunks(4).collect();
    assert!(versions.contains(&&[0, 0, 0, 1][..]));
}
