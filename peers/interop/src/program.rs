//! The program of a stack, in both roles.

use std::{
    ffi::OsStr,
    fmt,
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// How long a server may take to be ready.
const READY: Duration = Duration::from_secs(10);

/// How long a server may take to report a closed connection.
const REPORT: Duration = Duration::from_secs(3);

/// How long a client may take.
const RUN: Duration = Duration::from_secs(60);

/// How long a server may take to end once its output has.
const PARTING: Duration = Duration::from_millis(200);

/// Time between two polls of a client.
const LOOK: Duration = Duration::from_millis(10);

/// Exit code of a program whose stack does not support what is requested, as in the public interop
/// runner.
const UNSUPPORTED: i32 = 127;

/// What a program reports as unsupported.
#[derive(Debug)]
pub(crate) struct Unsupported(pub(crate) String);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}

/// The program of a stack, with the command line of `peers/README.md`.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
    /// The arguments for a server.
    pub(crate) serve: &'static [&'static str],
    /// The arguments for a client.
    pub(crate) get: &'static [&'static str],
}

impl Program {
    /// Starts a server on a free port of 127.0.0.1 and waits until it is ready.
    pub(crate) fn serve(&self, options: &[&str], certificates: &Path) -> Result<Server> {
        let complaints = certificates.join("server.stderr");
        let mut process = Command::new(&self.path)
            .args(self.serve)
            .args(["--listen", "127.0.0.1:0", "--json", "--cert"])
            .arg(certificates.join("cert.pem"))
            .arg("--key")
            .arg(certificates.join("key.pem"))
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&complaints)?)
            .spawn()
            .with_context(|| format!("starting {}", self.path.display()))?;
        let stdout = process.stdout.take().context("a server without stdout")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut server = Server {
            process,
            lines,
            complaints,
            address: String::new(),
        };
        server.address = server.ready()?;
        Ok(server)
    }

    /// Runs a client to its end, and returns its report.
    ///
    /// # Errors
    /// [`Unsupported`] if the program reports that, or what went wrong.
    pub(crate) fn get<S: AsRef<OsStr>>(
        &self,
        options: &[S],
        address: &str,
        certificates: &Path,
    ) -> Result<Value> {
        let (report, complaints) = (
            certificates.join("client.stdout"),
            certificates.join("client.stderr"),
        );
        let mut process = Command::new(&self.path)
            .args(self.get)
            .args([address, "--server-name", "localhost", "--json", "--ca"])
            .arg(certificates.join("ca.pem"))
            .args(options)
            .stdin(Stdio::null())
            .stdout(File::create(&report)?)
            .stderr(File::create(&complaints)?)
            .spawn()
            .with_context(|| format!("starting {}", self.path.display()))?;
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = process.try_wait()? {
                break status;
            }
            if begun.elapsed() > RUN {
                process.kill()?;
                process.wait()?;
                bail!("client: timed out after {} s", RUN.as_secs());
            }
            thread::sleep(LOOK);
        };
        if status.code() == Some(UNSUPPORTED) {
            return Err(Unsupported(last_line(&complaints)).into());
        }
        ensure!(status.success(), "client: {}", last_line(&complaints));
        let report = fs::read_to_string(&report)?;
        let line = report.lines().last().context("client: no report")?;
        serde_json::from_str(line).with_context(|| format!("client: not a report: {line}"))
    }
}

/// A running server; it is stopped on drop.
pub(crate) struct Server {
    process: Child,
    lines: Receiver<String>,
    complaints: PathBuf,
    pub(crate) address: String,
}

impl Server {
    fn ready(&mut self) -> Result<String> {
        let line = match self.lines.recv_timeout(READY) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                bail!("server: not ready after {} s", READY.as_secs());
            }
            // It has ended, or closed its output, which none does that means to go on.
            Err(RecvTimeoutError::Disconnected) => {
                thread::sleep(PARTING);
                let ended = self.process.try_wait()?;
                if ended.and_then(|status| status.code()) == Some(UNSUPPORTED) {
                    return Err(Unsupported(self.complaint()).into());
                }
                bail!("server: not ready: {}", self.complaint());
            }
        };
        let words = line.strip_prefix("listening on ").map(str::to_owned);
        let object = || {
            let object = serde_json::from_str::<Value>(&line).ok()?;
            let is_address = object["event"] == "listening";
            is_address.then(|| object["address"].as_str().map(str::to_owned))?
        };
        words
            .or_else(object)
            .with_context(|| format!("server: not an address: {line}"))
    }

    /// Returns the reports of this many closed connections, or of as many as arrive in time.
    pub(crate) fn closed(&self, connections: u64) -> Vec<Value> {
        let mut closed = Vec::new();
        while (closed.len() as u64) < connections {
            let Ok(line) = self.lines.recv_timeout(REPORT) else {
                break;
            };
            match serde_json::from_str::<Value>(&line) {
                Ok(object) if object["event"] == "closed" => closed.push(object),
                // A server may tell other things, too.
                Ok(_) | Err(_) => {}
            }
        }
        closed
    }

    /// Returns the last line on standard error.
    pub(crate) fn complaint(&self) -> String {
        last_line(&self.complaints)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only for a server that has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn last_line(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().last().unwrap_or("no word of why").to_owned()
}
