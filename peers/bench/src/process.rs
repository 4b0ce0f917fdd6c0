//! Pinned processes, and their memory and processor time.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::stack::Stack;

/// Clock ticks a second in /proc, the same on every Linux (USER_HZ).
const TICKS: f64 = 100.0;

/// Time between two polls of a process.
const LOOK: Duration = Duration::from_millis(2);

/// The cores of servers and clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cores {
    pub(crate) server: usize,
    pub(crate) client: usize,
}

/// A running process; it is stopped on drop.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
    complaints: PathBuf,
}

impl Process {
    /// Starts a stack's program on one core.
    pub(crate) fn start(
        stack: &Stack,
        core: usize,
        arguments: &[String],
        complaints: PathBuf,
    ) -> Result<Self> {
        let mut child = Command::new("taskset")
            .arg("-c")
            .arg(core.to_string())
            .arg(&stack.program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&complaints)?)
            .spawn()
            .context("starting taskset")?;
        let output = child.stdout.take().context("a process without output")?;
        Ok(Self {
            child,
            output: BufReader::new(output),
            complaints,
        })
    }

    /// Returns the next line it prints.
    pub(crate) fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("{}", self.complaint());
        }
        Ok(line.trim_end().to_owned())
    }

    /// Sends it an empty line.
    pub(crate) fn nudge(&mut self) -> Result<()> {
        let input = self
            .child
            .stdin
            .as_mut()
            .context("a process without input")?;
        input.write_all(b"\n")?;
        Ok(input.flush()?)
    }

    /// Returns the processor time it has used, in seconds.
    pub(crate) fn cpu(&self) -> Result<f64> {
        Ok(self.stat()?.cpu)
    }

    /// Returns its resident memory, in bytes.
    pub(crate) fn memory(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next());
        let kib: u64 = kib.context("no VmRSS")?.parse()?;
        Ok(kib * 1024)
    }

    /// Reads everything it prints until it ends. Returns that, and the processor time it has used,
    /// in seconds.
    pub(crate) fn finish(mut self) -> Result<(String, f64)> {
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        // Its times can be read until somebody waits for it.
        let cpu = loop {
            let stat = self.stat()?;
            if stat.ended {
                break stat.cpu;
            }
            thread::sleep(LOOK);
        };
        if !self.child.wait()?.success() {
            bail!("{}", self.complaint());
        }
        Ok((text, cpu))
    }

    fn stat(&self) -> Result<Stat> {
        Stat::parse(&fs::read_to_string(format!(
            "/proc/{}/stat",
            self.child.id()
        ))?)
    }

    /// Returns the last line on standard error.
    fn complaint(&self) -> String {
        last_line(&self.complaints)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only for a process that has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn last_line(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().last().unwrap_or("no word of why").to_owned()
}

/// Of a line of /proc/PID/stat.
#[derive(Debug, PartialEq)]
struct Stat {
    ended: bool,
    cpu: f64,
}

impl Stat {
    fn parse(line: &str) -> Result<Self> {
        // The program's name is in parentheses and may hold anything.
        let (_, rest) = line.rsplit_once(") ").context("not a stat line")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let ticks = |field: usize| -> Result<f64> {
            Ok(fields.get(field).context("a short stat line")?.parse()?)
        };
        Ok(Self {
            ended: fields.first() == Some(&"Z"),
            // The 14th and the 15th of the line: user and system time.
            cpu: (ticks(11)? + ticks(12)?) / TICKS,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_line_with_any_process_name_is_parsed() {
        let line = "7 (a) (b) c) Z 1 7 7 0 -1 4194560 1 2 3 4 150 25 0 0 20 0 1 0 5";
        let expected = Stat {
            ended: true,
            cpu: 1.75,
        };
        assert_eq!(Stat::parse(line).unwrap(), expected);
        assert!(Stat::parse("7 (a) S 1").is_err());
        assert!(!Stat::parse(&line.replace(" Z ", " S ")).unwrap().ended);
    }

    #[test]
    fn this_process_has_memory_and_time() {
        let text = fs::read_to_string("/proc/self/stat").unwrap();
        assert!(!Stat::parse(&text).unwrap().ended);
    }
}
