//! The server: a process of the built command, and the resources it uses.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cores::{self, Cores};
use crate::site::Site;

/// Time within which a server has to listen.
const START: Duration = Duration::from_secs(20);

/// Lines kept of the panics that the server reports.
const REMEMBERED: usize = 3;

/// How to start servers.
#[derive(Clone, Debug)]
pub(crate) struct ServerCommand {
    /// The `clearway` command.
    pub(crate) program: PathBuf,
    /// Further options of `serve`.
    pub(crate) options: Vec<String>,
    /// The limit of open descriptors.
    pub(crate) descriptors: u64,
}

/// Where a server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the server's own core.
    OwnCore,
    /// On the attackers' cores, at their priority: the sink of the baseline.
    AmongAttackers,
}

/// A running server; dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    panics: Receiver<String>,
}

impl ServerCommand {
    /// Starts a server for `site`.
    pub(crate) fn start(&self, site: &Site, cores: &Cores, place: Place) -> io::Result<Server> {
        // Before it starts: it divides what it finds.
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!(
                "ulimit -n {} && exec \"$0\" \"$@\"",
                self.descriptors
            ))
            .arg(&self.program)
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
        match await_address(&mut child) {
            Ok(address) => Ok(Server {
                panics: watch(&mut child),
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
}

/// Starts a process on a thread with the affinity and priority that the process is to
/// inherit.
fn spawn(mut command: Command, cores: Cores, place: Place) -> io::Result<Child> {
    let thread = std::thread::spawn(move || {
        match place {
            Place::OwnCore => {
                cores.pin_to_server_core()?;
                cores::raise_priority();
            }
            Place::AmongAttackers => cores::lower_priority(),
        }
        command.spawn()
    });
    let started = thread.join();
    started.unwrap_or_else(|_| Err(io::Error::other("the server could not be started")))
}

/// Enlarges a pipe, so that a server that logs much does not wait for us.
fn widen(pipe: &impl AsFd) {
    // The default size works as well.
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, 1 << 20);
}

/// Reads the address from the first line of standard output. The access log that
/// follows is read and discarded.
fn await_address(child: &mut Child) -> io::Result<SocketAddr> {
    let stdout = child.stdout.take();
    let stdout = stdout.ok_or_else(|| io::Error::other("the server has no standard output"))?;
    let (tell, first) = channel();
    widen(&stdout);
    std::thread::spawn(move || {
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        let read = stdout.read_line(&mut line);
        // Nobody receives it if starting took too long.
        let _ = tell.send(read.map(|_| line));
        let _ = io::copy(&mut stdout, &mut io::sink());
    });
    let line = first.recv_timeout(START);
    let line = line.map_err(|_| io::Error::other("the server did not start in time"))??;
    let value: Value = serde_json::from_str(&line).map_err(|_| {
        io::Error::other(format!(
            "the server did not start: expected where it listens, found {line:?}"
        ))
    })?;
    let address = value["address"].as_str().unwrap_or_default();
    address.parse().map_err(io::Error::other)
}

/// Collects the panics that the server reports on standard error.
fn watch(child: &mut Child) -> Receiver<String> {
    let (tell, panics) = channel();
    if let Some(stderr) = child.stderr.take() {
        widen(&stderr);
        std::thread::spawn(move || {
            let mut stderr = BufReader::new(stderr);
            let mut line = Vec::new();
            let mut follows = false;
            while matches!(stderr.read_until(b'\n', &mut line), Ok(1..)) {
                let text = String::from_utf8_lossy(&line);
                // The message of a panic follows on the next line.
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
    panics
}

/// The resources that a process uses.
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
    /// The exit status, if the process has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Its usage now; zero if the process has ended.
    pub(crate) fn usage(&self) -> Usage {
        usage(self.child.id()).unwrap_or_default()
    }

    /// The first panics that it has reported.
    pub(crate) fn panics(&self) -> Vec<String> {
        self.panics.try_iter().take(REMEMBERED).collect()
    }

    /// Returns a function that samples the usage.
    pub(crate) fn watch(&self) -> impl Fn() -> Usage + Send + 'static {
        let process = self.child.id();
        move || usage(process).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
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

/// Builds the command as users get it, without features of tests, and returns its path.
pub(crate) fn build_command() -> io::Result<PathBuf> {
    let example = std::env::current_exe()?;
    let profile = example.parent().and_then(Path::parent).ok_or_else(|| {
        io::Error::other(
            "cannot find the clearway command: the siege is not in cargo's target directory; name \
             the command with --server",
        )
    })?;
    let program = profile.join("clearway");
    // `cargo run` says where cargo is.
    if let (Some(cargo), Some(target)) = (std::env::var_os("CARGO"), profile.parent()) {
        let name = match profile.file_name() {
            Some(name) if name != "debug" => name,
            _ => "dev".as_ref(),
        };
        let status = Command::new(cargo)
            .args(["build", "--quiet", "--package", "clearway-cli"])
            .args(["--bin", "clearway", "--profile"])
            .arg(name)
            .arg("--target-dir")
            .arg(target)
            .status()?;
        if !status.success() {
            return Err(io::Error::other("the clearway command could not be built"));
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

/// Whether `serve` has this option.
pub(crate) fn has_option(program: &Path, option: &str) -> io::Result<bool> {
    let output = Command::new(program).args(["serve", "--help"]).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).contains(option))
}

/// Interval at which usage is sampled.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Samples usage until a point in time or `stop`, and returns the maxima.
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
