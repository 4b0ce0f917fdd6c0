//! A running `clearway serve`, and its directory.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    missing_docs,
    reason = "each test binary uses a part; a test that cannot go on has failed"
)]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// An empty directory, removed when dropped.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> Self {
        let number = NEXT.fetch_add(1, Relaxed);
        let name = format!("web-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.join(name).to_str().unwrap().to_owned()
    }

    /// Names in it, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// A file whose last change is long ago, so that its tag is strong.
    pub fn old_file(&self, name: &str, content: &[u8]) {
        fs::write(self.join(name), content).unwrap();
        let file = fs::File::options().write(true).open(self.join(name));
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        file.unwrap().set_modified(then).unwrap();
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Bytes that do not repeat nearby.
pub fn pattern(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

pub fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// A `clearway serve` that ends with the test.
pub struct Site {
    pub child: Child,
    lines: Receiver<Value>,
    pub url: String,
}

impl Site {
    pub fn start(dir: &Path, options: &[&str]) -> Self {
        Self::spawn(
            Command::new(env!("CARGO_BIN_EXE_clearway")),
            Path::new("127.0.0.1:0"),
            dir,
            options,
        )
    }

    /// With a limit on open files.
    pub fn start_with_descriptors(limit: u32, dir: &Path, options: &[&str]) -> Self {
        let mut shell = Command::new("sh");
        let script = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_clearway")]);
        Self::spawn(shell, Path::new("127.0.0.1:0"), dir, options)
    }

    /// At the address of a previous server.
    pub fn start_at(address: &str, dir: &Path, options: &[&str]) -> Self {
        Self::spawn(
            Command::new(env!("CARGO_BIN_EXE_clearway")),
            Path::new(address),
            dir,
            options,
        )
    }

    /// With its standard error in a file.
    pub fn start_logging(log: &Path, dir: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
        command.stderr(fs::File::create(log).unwrap());
        Self::spawn_as_is(command, Path::new("127.0.0.1:0"), dir, options)
    }

    /// With a limit on the size of the files it writes, in kB, and its standard error in a file.
    pub fn start_with_small_files(limit: u32, log: &Path, dir: &Path, options: &[&str]) -> Self {
        let mut shell = Command::new("bash");
        // Otherwise a signal ends whoever exceeds the limit.
        let script = format!("trap '' XFSZ; ulimit -f {limit} && exec \"$0\" \"$@\"");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_clearway")]);
        shell.stderr(fs::File::create(log).unwrap());
        Self::spawn_as_is(shell, Path::new("127.0.0.1:0"), dir, options)
    }

    fn spawn(mut command: Command, listen: &Path, dir: &Path, options: &[&str]) -> Self {
        command.stderr(Stdio::null());
        Self::spawn_as_is(command, listen, dir, options)
    }

    fn spawn_as_is(mut command: Command, listen: &Path, dir: &Path, options: &[&str]) -> Self {
        command
            .args(["serve", "--json", "--listen"])
            .args([listen, dir])
            .args(options);
        Self::spawn_program(command)
    }

    /// Another server, whose first line is `listening on ADDR`, and each other one an object.
    pub fn start_peer(mut command: Command) -> Self {
        command.stderr(Stdio::null());
        Self::spawn_program(command)
    }

    fn spawn_program(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (tell, lines) = channel::<Value>();
        std::thread::spawn(move || {
            for line in stdout.lines() {
                let line = line.unwrap();
                let value = match line.strip_prefix("listening on ") {
                    Some(address) => json!({"event": "listening", "address": address}),
                    None => serde_json::from_str(&line).unwrap(),
                };
                if tell.send(value).is_err() {
                    break;
                }
            }
        });
        let first = lines.recv().unwrap();
        assert_eq!(first["event"], "listening");
        let address = first["address"].as_str().unwrap();
        let port = address.rsplit(':').next().unwrap();
        let url = format!("https://localhost:{port}");
        Self { child, lines, url }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        let port = self.url.rsplit(':').next().unwrap().parse().unwrap();
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    /// The next line of the access log.
    pub fn logged(&self) -> Value {
        self.lines.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    fn proc(&self, name: &str) -> PathBuf {
        Path::new("/proc")
            .join(self.child.id().to_string())
            .join(name)
    }

    /// Number of open files.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(self.proc("fd")).unwrap().count()
    }

    /// Memory in use, in MiB (`VmRSS` of proc_pid_status(5)).
    pub fn memory(&self) -> u64 {
        let status = fs::read_to_string(self.proc("status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.unwrap().split_whitespace().nth(1).unwrap();
        kib.parse::<u64>().unwrap() / 1_024
    }

    /// CPU time used, in hundredths of a second (`utime` and `stime` of proc_pid_stat(5)).
    pub fn work(&self) -> u64 {
        let stat = fs::read_to_string(self.proc("stat")).unwrap();
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        let fields: Vec<_> = rest.split(' ').collect();
        [11, 12]
            .iter()
            .map(|&i| fields[i].parse::<u64>().unwrap())
            .sum()
    }

    pub fn signal(&self, signal: Signal) {
        send(&self.child, signal);
    }

    pub fn stop(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.child.wait().unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // Ended already unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
