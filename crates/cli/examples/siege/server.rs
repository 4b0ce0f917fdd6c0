//! The server under siege: a process of the built command, and what it uses.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;

use crate::cores::{self, Cores};
use crate::site::Site;

/// How long a server may take to say where it listens.
const START: Duration = Duration::from_secs(20);

/// Lines kept of what the server says when something breaks.
const REMEMBERED: usize = 3;

/// How servers are started.
#[derive(Clone, Debug)]
pub(crate) struct Build {
    /// The command.
    pub(crate) program: PathBuf,
    /// Options of `serve` beside those that the siege needs.
    pub(crate) options: Vec<String>,
    /// Descriptors that the server may have open.
    pub(crate) descriptors: u64,
}

/// Where a server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the core that is the server's alone.
    OwnCore,
    /// With the attackers, at their priority: it is their sink in the baseline.
    AmongAttackers,
}

/// A running server, which is ended with the value.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    complaints: Receiver<String>,
}

impl Build {
    /// Starts a server for `site`.
    pub(crate) fn start(&self, site: &Site, cores: &Cores, place: Place) -> io::Result<Server> {
        let mut command = Command::new(&self.program);
        command
            .arg("serve")
            .arg(site.served())
            .args([
                "--listen",
                "127.0.0.1:0",
                "--json",
                "--writable",
                "--early-data",
            ])
            .arg("--cert")
            .arg(site.certificate())
            .arg("--key")
            .arg(site.key())
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = spawn(command, cores.clone(), place)?;
        let listening = self.limit(&child).and_then(|()| await_address(&mut child));
        match listening {
            Ok(address) => Ok(Server {
                complaints: watch(&mut child),
                child,
                address,
            }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    fn limit(&self, child: &Child) -> io::Result<()> {
        let limit = Rlimit {
            current: Some(self.descriptors),
            maximum: Some(self.descriptors),
        };
        prlimit(pid(child), Resource::Nofile, limit)?;
        Ok(())
    }
}

fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// Starts a process from a thread that is where the process shall be: it inherits
/// that.
fn spawn(mut command: Command, cores: Cores, place: Place) -> io::Result<Child> {
    let thread = std::thread::spawn(move || {
        match place {
            Place::OwnCore => cores.take_server()?,
            Place::AmongAttackers => cores::give_way(),
        }
        command.spawn()
    });
    let started = thread.join();
    started.unwrap_or_else(|_| Err(io::Error::other("the server could not be started")))
}

/// Has a pipe hold more, so that a server that logs much need not wait for us.
fn widen(pipe: &impl AsFd) {
    // A smaller one does too.
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, 1 << 20);
}

/// The first line of what the server prints; the access log after it is read and
/// thrown away.
fn await_address(child: &mut Child) -> io::Result<SocketAddr> {
    let stdout = child.stdout.take();
    let stdout = stdout.ok_or_else(|| io::Error::other("the server has no standard output"))?;
    let (tell, first) = channel();
    widen(&stdout);
    std::thread::spawn(move || {
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        let read = stdout.read_line(&mut line);
        // The siege has ended if nobody listens.
        let _ = tell.send(read.map(|_| line));
        let _ = io::copy(&mut stdout, &mut io::sink());
    });
    let line = first.recv_timeout(START);
    let line = line.map_err(|_| io::Error::other("the server did not start in time"))??;
    let value: Value = serde_json::from_str(&line)
        .map_err(|_| io::Error::other(format!("the server did not start: it said {line:?}")))?;
    let address = value["address"].as_str().unwrap_or_default();
    address.parse().map_err(io::Error::other)
}

/// Lines of standard error that tell of a defect.
fn watch(child: &mut Child) -> Receiver<String> {
    let (tell, complaints) = channel();
    if let Some(stderr) = child.stderr.take() {
        widen(&stderr);
        std::thread::spawn(move || {
            let mut stderr = BufReader::new(stderr);
            let mut line = Vec::new();
            let mut follows = false;
            while matches!(stderr.read_until(b'\n', &mut line), Ok(1..)) {
                let text = String::from_utf8_lossy(&line);
                // The words of a panic stand on the line after its place.
                if text.contains("panicked at") || follows {
                    follows = !follows;
                    if tell.send(text.trim_end().to_owned()).is_err() {
                        break;
                    }
                }
                line.clear();
            }
            let _ = io::copy(&mut stderr, &mut io::sink());
        });
    }
    complaints
}

/// What a process uses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Largest resident set so far, bytes.
    pub(crate) peak_memory: u64,
    /// Descriptors open now.
    pub(crate) descriptors: usize,
    /// Processor time so far.
    pub(crate) processor: Duration,
}

impl Server {
    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// What it uses now; nothing if it has ended.
    pub(crate) fn usage(&self) -> Usage {
        usage(self.child.id()).unwrap_or_default()
    }

    /// What it said of defects, at most a few lines.
    pub(crate) fn complaints(&self) -> Vec<String> {
        self.complaints.try_iter().take(REMEMBERED).collect()
    }

    /// A look at the server, for whoever watches it from another thread.
    pub(crate) fn watch(&self) -> impl Fn() -> Usage + Send + 'static {
        let process = self.child.id();
        move || usage(process).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ended already, perhaps.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn usage(process: u32) -> io::Result<Usage> {
    let folder = PathBuf::from(format!("/proc/{process}"));
    Ok(Usage {
        peak_memory: peak_memory(&folder)?,
        descriptors: fs::read_dir(folder.join("fd"))?.count(),
        processor: processor(&folder)?,
    })
}

fn peak_memory(folder: &Path) -> io::Result<u64> {
    let status = fs::read_to_string(folder.join("status"))?;
    let kibibytes = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse::<u64>().ok());
    Ok(kibibytes.unwrap_or(0) << 10)
}

/// User and system time, the 14th and 15th field (`proc(5)`), in ticks.
fn processor(folder: &Path) -> io::Result<Duration> {
    let stat = fs::read_to_string(folder.join("stat"))?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_millis(1000 * ticks / per_second.max(1)))
}

/// Builds the command as it is shipped, without what only tests switch on, and says
/// where it is.
pub(crate) fn build_command() -> io::Result<PathBuf> {
    let example = std::env::current_exe()?;
    let profile = example
        .parent()
        .and_then(Path::parent)
        .ok_or_else(|| io::Error::other("the siege is not where cargo puts examples"))?;
    let program = profile.join("clearway");
    // Set by `cargo run`.
    if let Some(cargo) = std::env::var_os("CARGO") {
        let mut command = Command::new(cargo);
        command.args([
            "build",
            "--quiet",
            "--package",
            "clearway-cli",
            "--bin",
            "clearway",
        ]);
        if profile.ends_with("release") {
            command.arg("--release");
        }
        if !command.status()?.success() {
            return Err(io::Error::other("the server could not be built"));
        }
    }
    if program.exists() {
        Ok(program)
    } else {
        Err(io::Error::other(format!(
            "{} is missing: build it with `cargo build --release -p clearway-cli`, or name \
             another with --server",
            program.display()
        )))
    }
}

/// Whether `serve` of this command has an option.
pub(crate) fn has_option(program: &Path, option: &str) -> io::Result<bool> {
    let output = Command::new(program).args(["serve", "--help"]).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).contains(option))
}

/// The time between two looks at a server.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// The most that a server used while somebody looked.
pub(crate) fn watch_until(
    look: impl Fn() -> Usage,
    until: Instant,
    stop: impl Fn() -> bool,
) -> Usage {
    let mut most = Usage::default();
    while Instant::now() < until && !stop() {
        let now = look();
        most.peak_memory = most.peak_memory.max(now.peak_memory);
        most.descriptors = most.descriptors.max(now.descriptors);
        most.processor = most.processor.max(now.processor);
        std::thread::sleep(LOOK);
    }
    most
}
