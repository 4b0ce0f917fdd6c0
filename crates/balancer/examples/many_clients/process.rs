//! Child processes: each prints its address, answers each line of its standard input with its
//! counts, and ends with the input.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use clearway_testing::{Setup, identity};

use crate::arguments::Arguments;

const CERTIFICATE: &str = "MANY_CLIENTS_CERTIFICATE";
const KEY: &str = "MANY_CLIENTS_KEY";

/// Names and values.
pub(crate) type Report = Vec<(&'static str, u64)>;

/// Returns random bytes from the system.
pub(crate) fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    let mut source = std::fs::File::open("/dev/urandom").unwrap();
    source.read_exact(&mut seed).unwrap();
    seed
}

/// Returns the configuration of both ends, with the certificate of the parent process.
pub(crate) fn setup(arguments: &Arguments) -> Setup {
    let mut setup = match (std::env::var(CERTIFICATE), std::env::var(KEY)) {
        (Ok(certificate), Ok(key)) => Setup::with_identity(&certificate, &certificate, &key),
        _ => {
            let (certificate, key) = identity();
            Setup::with_identity(&certificate, &certificate, &key)
        }
    };
    for config in [&mut setup.client, &mut setup.server] {
        // Connecting all of them takes minutes, and they are idle meanwhile.
        config.idle_timeout = Duration::from_secs(600);
        config.mtu_discovery = false;
        config.active_connection_id_limit = 2;
    }
    setup.client.max_ack_delay = arguments.ack_delay;
    setup
}

/// Another process of this program.
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    pub(crate) address: String,
}

impl Process {
    /// Starts this program with its own arguments and these.
    pub(crate) fn start(more: &[&str]) -> Self {
        let (certificate, key) = identity();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(std::env::args().skip(1))
            .args(more)
            .env(CERTIFICATE, certificate)
            .env(KEY, key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let mut this = Self {
            child,
            input,
            output: BufReader::new(output),
            address: String::new(),
        };
        this.address = this.line();
        this
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "a child process has ended early");
        line.trim().to_owned()
    }

    /// Asks for its counts.
    pub(crate) fn report(&mut self) -> HashMap<String, u64> {
        writeln!(self.input.as_mut().unwrap()).unwrap();
        parse(&self.line())
    }

    /// Returns its resident memory in bytes.
    pub(crate) fn memory(&self) -> u64 {
        memory(&self.child.id().to_string())
    }

    /// Returns the processor time that it has used.
    pub(crate) fn processor_time(&self) -> Duration {
        processor_time(&self.child.id().to_string())
    }

    /// Ends it, and returns its last counts.
    pub(crate) fn stop(mut self) -> HashMap<String, u64> {
        self.input = None;
        let report = parse(&self.line());
        assert!(self.child.wait().unwrap().success());
        report
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It ends with its input; this is for the case that something has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the resident memory of a process in bytes (proc_pid_statm(5)).
pub(crate) fn memory(process: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// Returns the processor time of a process (proc_pid_stat(5)).
pub(crate) fn processor_time(process: &str) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, fields) = text.rsplit_once(')').unwrap();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second())
}

fn parse(line: &str) -> HashMap<String, u64> {
    let pairs = line.split(' ').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

/// Answers the parent process.
pub(crate) struct Answers {
    thread: JoinHandle<()>,
    report: Arc<Mutex<Report>>,
}

impl Answers {
    /// Prints `address`, and then a report for each line. Sets `stop` when there are no more.
    pub(crate) fn start(address: &str, stop: &Arc<AtomicBool>, report: Arc<Mutex<Report>>) -> Self {
        println!("{address}");
        let (stop, answered) = (stop.clone(), report.clone());
        let thread = std::thread::spawn(move || {
            for _ in std::io::stdin().lines() {
                print(&answered.lock().unwrap());
            }
            stop.store(true, Relaxed);
        });
        Self { thread, report }
    }

    /// Prints the last report.
    pub(crate) fn end(self) {
        self.thread.join().unwrap();
        print(&self.report.lock().unwrap());
    }
}

fn print(report: &Report) {
    let pairs: Vec<String> = report
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    println!("{}", pairs.join(" "));
}
