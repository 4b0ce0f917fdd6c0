//! Finds the processes that have UDP sockets, and reads their threads' times.

use core::time::Duration;
use std::collections::HashSet;
use std::fs;
use std::time::Instant;

use crate::sample::Missing;
use crate::socket::UdpSocket;
use crate::source::clean;
use crate::source::process::{Process, Thread, parse_schedstat, parse_socket_link, parse_stat};

/// Most processes whose threads are read.
const MAX_PROCESSES: usize = 512;
/// Most threads of one process that are read.
const MAX_THREADS: usize = 4_096;
/// Longest command line that is kept, in bytes.
const MAX_COMMAND: usize = 200;

/// A search may take at most one of so many parts of the time, where somebody watches.
const SEARCH_PART: u32 = 300;

/// When to search all descriptors of the host for sockets whose process is not known yet. It is what
/// costs most: milliseconds on a host with some hundred processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// Whenever there is such a socket.
    Always,
    /// Not for those that an earlier search did not find, and rarely enough to cost next to nothing.
    Rarely,
}

/// The processes that have the sockets of a network namespace.
#[derive(Debug, Default)]
pub(crate) struct Census {
    processes: Vec<Process>,
    /// Sockets that the last search found at no process: of the kernel, or of others' processes.
    unowned: HashSet<u64>,
    missing: Option<Missing>,
    /// When the next search may be, if it is to be rare.
    next: Option<Instant>,
}

impl Census {
    /// Returns the processes that have one of these sockets, with their threads' times of now, and what
    /// could not be read.
    pub(crate) fn update(
        &mut self,
        sockets: &[UdpSocket],
        search: Search,
    ) -> (&[Process], Option<&Missing>) {
        let open: HashSet<u64> = sockets.iter().map(|socket| socket.inode).collect();
        self.refresh(&open);
        let known = self.processes.iter().flat_map(|process| &process.sockets);
        let known: HashSet<u64> = known.copied().collect();
        let mut unknown = open
            .iter()
            .filter(|&&inode| inode != 0 && !known.contains(&inode));
        let due = match search {
            Search::Always => unknown.next().is_some(),
            Search::Rarely => {
                self.next.is_none_or(|next| Instant::now() >= next)
                    && unknown.any(|inode| !self.unowned.contains(inode))
            }
        };
        if due {
            let begun = Instant::now();
            (self.processes, self.missing) = processes(&open);
            let found: HashSet<u64> = self
                .processes
                .iter()
                .flat_map(|process| process.sockets.iter().copied())
                .collect();
            self.unowned = open.difference(&found).copied().collect();
            self.next = Some(begun + begun.elapsed() * SEARCH_PART);
        }
        (&self.processes, self.missing.as_ref())
    }

    /// Reads the threads of processes that are known, and forgets those that ended or closed their
    /// sockets.
    fn refresh(&mut self, open: &HashSet<u64>) {
        for process in &mut self.processes {
            process.threads = threads(process.pid);
        }
        self.processes.retain(|process| {
            !process.threads.is_empty() && process.sockets.iter().any(|inode| open.contains(inode))
        });
    }
}

/// Searches all processes for these sockets.
fn processes(wanted: &HashSet<u64>) -> (Vec<Process>, Option<Missing>) {
    let mut found = Vec::new();
    let mut refused = 0_usize;
    for pid in numbers("/proc") {
        match open_sockets(pid, wanted) {
            Ok(sockets) if sockets.is_empty() => {}
            Ok(sockets) => found.push(Process {
                pid,
                name: clean(read(format!("/proc/{pid}/comm")).trim_end()),
                command: command_line(pid),
                sockets,
                threads: threads(pid),
            }),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => refused += 1,
            // It ended meanwhile.
            Err(_) => {}
        }
        if found.len() == MAX_PROCESSES {
            break;
        }
    }
    let missing = (refused > 0).then(|| Missing {
        what: "which process has which socket".to_owned(),
        why: format!("{refused} processes of other users do not show their descriptors"),
        needs: Some("root, or the capability CAP_SYS_PTRACE".to_owned()),
    });
    (found, missing)
}

fn open_sockets(pid: u32, wanted: &HashSet<u64>) -> std::io::Result<Vec<u64>> {
    let mut sockets = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let Ok(target) = entry.and_then(|entry| fs::read_link(entry.path())) else {
            continue;
        };
        let inode = target.to_str().and_then(parse_socket_link);
        sockets.extend(inode.filter(|inode| wanted.contains(inode)));
    }
    sockets.sort_unstable();
    sockets.dedup();
    Ok(sockets)
}

fn threads(pid: u32) -> Vec<Thread> {
    let folder = format!("/proc/{pid}/task");
    let tids = numbers(&folder).take(MAX_THREADS);
    tids.filter_map(|tid| {
        let stat = parse_stat(&read(format!("{folder}/{tid}/stat"))).ok()?;
        // Finer than the clock's ticks, where the kernel has it.
        let times = parse_schedstat(&read(format!("{folder}/{tid}/schedstat"))).ok();
        Some(Thread {
            tid,
            name: clean(&stat.name),
            state: stat.state,
            run: times.map_or_else(|| ticks(stat.ticks), |(run, _)| run),
            wait: times.map(|(_, wait)| wait),
        })
    })
    .collect()
}

fn ticks(ticks: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_millis(ticks.saturating_mul(1_000) / per_second)
}

fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let bytes = bytes.get(..MAX_COMMAND).unwrap_or(&bytes);
    let words: Vec<_> = bytes
        .split(|&b| b == 0)
        .filter(|word| !word.is_empty())
        .map(String::from_utf8_lossy)
        .collect();
    clean(&words.join(" "))
}

fn numbers(folder: &str) -> impl Iterator<Item = u32> + use<> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn read(path: String) -> String {
    fs::read(path).map_or_else(
        |_| String::new(),
        |bytes| String::from_utf8_lossy(&bytes).into_owned(),
    )
}
