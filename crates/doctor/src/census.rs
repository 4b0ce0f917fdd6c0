//! Finds the processes that have UDP sockets, and reads their threads' times.

use core::time::Duration;
use std::collections::HashSet;
use std::fs;

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

/// Returns the processes that have one of these sockets, with their threads, and what could not be
/// read.
#[must_use]
pub(crate) fn processes(sockets: &[UdpSocket]) -> (Vec<Process>, Option<Missing>) {
    let wanted: HashSet<u64> = sockets.iter().map(|socket| socket.inode).collect();
    let mut found = Vec::new();
    let mut refused = 0_usize;
    for pid in numbers("/proc") {
        match open_sockets(pid, &wanted) {
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

/// Reads the threads of processes that are known already.
pub(crate) fn refresh(processes: &mut [Process]) {
    for process in processes {
        process.threads = threads(process.pid);
    }
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
