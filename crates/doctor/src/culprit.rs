//! Who it is: from a socket to its process and that process's busiest thread.

use core::time::Duration;

use serde::Serialize;

use crate::sample::Recording;
use crate::socket::UdpSocket;
use crate::source::process::{Process, Thread};

/// A process at the end of a recording, and at its beginning.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// At the end.
    pub process: &'a Process,
    before: Option<&'a Process>,
    /// The time between the two.
    span: Duration,
}

impl<'a> Owner<'a> {
    /// Returns the processes that have UDP sockets.
    #[must_use]
    pub fn all(recording: &'a Recording) -> Vec<Self> {
        let Some((_, last)) = recording.ends() else {
            return Vec::new();
        };
        // The first sample that has processes: not each does.
        let first = recording.samples.iter();
        let first = first.clone().find(|sample| !sample.processes.is_empty());
        let before = |pid| {
            let mut processes = first.iter().flat_map(|sample| &sample.processes);
            processes.find(|process| process.pid == pid)
        };
        let span = first.map_or(Duration::ZERO, |first| last.at.saturating_sub(first.at));
        let ended = first.iter().flat_map(|sample| &sample.processes);
        let ended = ended.filter(|process| last.processes.iter().all(|p| p.pid != process.pid));
        let owners = last.processes.iter().map(|process| Self {
            process,
            before: before(process.pid),
            span,
        });
        // Of one that ended only its name is known.
        let ended = ended.map(|process| Self {
            process,
            before: None,
            span,
        });
        owners.chain(ended).collect()
    }

    /// Whether it has this socket.
    #[must_use]
    pub fn has(&self, inode: u64) -> bool {
        inode != 0 && self.process.sockets.contains(&inode)
    }

    /// Returns the time that its threads had on processors during the recording.
    #[must_use]
    pub fn run(&self) -> Duration {
        self.threads()
            .map(|(thread, before)| grown(thread.run, before.map(|t| t.run)))
            .sum()
    }

    fn threads(&self) -> impl Iterator<Item = (&'a Thread, Option<&'a Thread>)> {
        let before = self.before.map_or(&[][..], |process| &process.threads);
        self.process
            .threads
            .iter()
            .map(move |thread| (thread, before.iter().find(|b| b.tid == thread.tid)))
    }
}

/// A thread that has not been there before began with the recording.
fn grown(now: Duration, before: Option<Duration>) -> Duration {
    now.saturating_sub(before.unwrap_or(Duration::ZERO))
}

/// What keeps the thread that should read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It uses a whole core.
    Saturated,
    /// It would, but other programs have the processors.
    Starved,
    /// The process takes all of one core that it can get, in turns on several threads: a runtime moves
    /// one task between them.
    Moving,
    /// It is stopped, by a signal or a debugger.
    Stopped,
    /// It waits for something else than this socket, most of the time.
    Waiting,
    /// It is busy, but not all the time.
    Busy,
}

/// The busiest thread of a process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BusyThread {
    /// Its number.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// Share of one core that it had, from 0 to 1.
    pub share: f64,
    /// Share of the time that it was ready and had no processor. `None` if the kernel does not say.
    pub waiting_share: Option<f64>,
    /// Share of one core that all threads of the process had together: more than 1 on several cores.
    pub process_share: f64,
    /// What keeps it.
    pub cause: Cause,
}

/// The program at a socket.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Culprit {
    /// The socket.
    pub socket: UdpSocket,
    /// The process. `None` if it could not be found.
    pub process: Option<ProcessName>,
    /// Its busiest thread. `None` if its times could not be read twice.
    pub thread: Option<BusyThread>,
}

/// A process, by number and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessName {
    /// Its number.
    pub pid: u32,
    /// The name that the kernel has for it.
    pub name: String,
    /// Its command line, shortened.
    pub command: String,
    /// How many threads it has.
    pub threads: usize,
}

/// From this share of one core on a thread is saturated. Measuring takes some of the rest.
const SATURATED: f64 = 0.85;
/// A thread that waits for a processor for this share of the time lacks one.
const STARVED: f64 = 0.25;
/// Of a thread with less than this share of one core it says nothing how long it waits for a processor: on a
/// busy machine, idle threads wait whenever they wake up.
const PART: f64 = 0.02;
/// A process whose threads together take no more than this takes one core, in turns.
const ONE_CORE: f64 = 1.15;
/// Up to this share of one core a thread mostly waits.
const IDLE: f64 = 0.5;

impl Culprit {
    /// Finds out who has a socket.
    #[must_use]
    pub fn new(socket: &UdpSocket, owners: &[Owner<'_>]) -> Self {
        let owner = owners.iter().find(|owner| owner.has(socket.inode));
        Self {
            socket: socket.clone(),
            process: owner.map(|owner| ProcessName {
                pid: owner.process.pid,
                name: owner.process.name.clone(),
                command: owner.process.command.clone(),
                threads: owner.process.threads.len(),
            }),
            thread: owner.and_then(busiest),
        }
    }
}

fn busiest(owner: &Owner<'_>) -> Option<BusyThread> {
    let seconds = owner.span.as_secs_f64();
    owner.before.filter(|_| seconds > 0.0)?;
    let share = |time: Duration| time.as_secs_f64() / seconds;
    let threads: Vec<(&Thread, f64, Option<f64>)> = owner
        .threads()
        .map(|(thread, before)| {
            let run = share(grown(thread.run, before.map(|t| t.run)));
            let wait = thread.wait;
            let wait = wait.map(|wait| share(grown(wait, before.and_then(|t| t.wait))));
            (thread, run, wait)
        })
        .collect();
    let demand = |run: f64, wait: Option<f64>| match wait {
        Some(wait) if run >= PART => run + wait,
        Some(_) | None => run,
    };
    let process_share = threads.iter().map(|thread| thread.1).sum();
    let together: f64 = threads
        .iter()
        .map(|thread| demand(thread.1, thread.2))
        .sum();
    let busiest = threads.into_iter();
    let (thread, run, wait) =
        busiest.max_by(|a, b| demand(a.1, a.2).total_cmp(&demand(b.1, b.2)))?;
    let cause = match wait {
        _ if matches!(thread.state, 'T' | 't') => Cause::Stopped,
        Some(wait) if wait >= STARVED && run + wait >= IDLE => Cause::Starved,
        _ if demand(run, wait) >= SATURATED => Cause::Saturated,
        _ if together >= SATURATED && process_share <= ONE_CORE => Cause::Moving,
        _ if run <= IDLE => Cause::Waiting,
        _ => Cause::Busy,
    };
    Some(BusyThread {
        tid: thread.tid,
        name: thread.name.clone(),
        share: run,
        waiting_share: wait,
        process_share,
        cause,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    /// The busiest of threads that ran and waited for these shares of ten seconds.
    fn busiest_of(shares: &[(f64, f64)]) -> BusyThread {
        let sample = |seconds: u64| {
            let threads = shares.iter().zip(1..).map(|(&(run, wait), tid)| Thread {
                tid,
                name: format!("thread-{tid}"),
                state: 'S',
                run: Duration::from_secs(seconds).mul_f64(run),
                wait: Some(Duration::from_secs(seconds).mul_f64(wait)),
            });
            let process = Process {
                pid: 1,
                threads: threads.collect(),
                ..Process::default()
            };
            Sample {
                at: Duration::from_secs(seconds),
                processes: vec![process],
                ..Sample::default()
            }
        };
        let recording = Recording {
            samples: vec![sample(0), sample(10)],
            ..Recording::default()
        };
        busiest(&Owner::all(&recording)[0]).unwrap()
    }

    #[test]
    fn cause_is_told_from_the_times_of_all_threads() {
        let idle = [(0.001, 0.2); 12];
        for (shares, cause) in [
            (&[(0.98, 0.01), (0.02, 0.0)][..], Cause::Saturated),
            (&[(0.5, 0.48)], Cause::Starved),
            (&[(0.4, 0.3)], Cause::Starved),
            (&[(0.4, 0.05), (0.3, 0.02), (0.25, 0.02)], Cause::Moving),
            (&[(0.71, 0.01), (0.7, 0.01)], Cause::Busy),
            (&[(0.1, 0.1)], Cause::Waiting),
        ] {
            assert_eq!(busiest_of(shares).cause, cause, "{shares:?}");
            // Idle threads that wait long for a processor, on a busy machine, change nothing.
            let all = [shares, &idle].concat();
            let thread = busiest_of(&all);
            assert_eq!((thread.cause, thread.tid), (cause, 1), "{shares:?}");
        }
    }
}
