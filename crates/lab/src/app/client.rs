//! The client of the lab: opens a stream per job and reads every byte.

use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use clearway_links::Time;

use super::job::{Job, Start, UNBOUNDED, Workload};
use super::server::header;
use super::{Application, Conn, Next, pattern};
use crate::app::job::Pace;
use crate::stack::{ConnectionState, Read, Stream};

/// The record of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobRecord {
    /// When it started.
    pub began: Time,
    /// When its last byte had been read, at whichever end reads it.
    pub done: Option<Time>,
}

/// What the two applications of a flow recorded.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// When the client could use streams.
    pub connected: Option<Time>,
    /// The jobs started so far.
    pub jobs: Vec<JobRecord>,
    /// Bytes the client read.
    pub down: u64,
    /// Bytes the server read, headers excluded.
    pub up: u64,
    /// When all jobs were done.
    pub done: Option<Time>,
    /// What must never happen: wrong bytes, a stream that ended early.
    pub violations: Vec<String>,
    /// Why the connection ended, if it ended before all was done.
    pub failure: Option<String>,
}

/// A [`Record`] that both applications write to.
pub type Log = Rc<RefCell<Record>>;

/// The client of one flow.
#[derive(Debug)]
pub struct Client {
    workload: Workload,
    log: Log,
    /// The job to start next.
    next: usize,
    /// When the previous job was done.
    last_done: Option<Time>,
    running: Vec<RunningJob>,
}

/// A running job.
#[derive(Debug)]
struct RunningJob {
    index: usize,
    job: Job,
    stream: Stream,
    upload: Upload,
    read: u64,
    ended: bool,
}

impl Client {
    /// Creates a client that carries out `workload` and records into `log`.
    #[must_use]
    pub fn new(workload: Workload, log: Log) -> Self {
        Self {
            workload,
            log,
            next: 0,
            last_done: None,
            running: Vec::new(),
        }
    }

    /// When the next job starts, if that is known.
    fn next_start(&self) -> Option<Time> {
        let connected = self.log.borrow().connected?;
        match self.workload.jobs.get(self.next)?.start {
            Start::At(after) => Some(connected + after),
            Start::After(gap) => self.last_done.map(|done| done + gap),
        }
    }

    fn begin_due(&mut self, conn: &mut Conn<'_>, now: Time) {
        while self.next_start().is_some_and(|at| at <= now) {
            let Some(stream) = conn.open() else { return };
            let job = self.workload.jobs[self.next];
            self.log.borrow_mut().jobs.push(JobRecord {
                began: now,
                done: None,
            });
            self.running.push(RunningJob {
                index: self.next,
                job,
                stream,
                upload: Upload::new(self.next as u64, &job, now),
                read: 0,
                ended: false,
            });
            self.next += 1;
            // Jobs that start after this one wait for it.
            self.last_done = None;
        }
    }

    fn serve(&mut self, conn: &mut Conn<'_>, now: Time) -> Result<(), String> {
        for running in &mut self.running {
            running.upload.write(conn, running.stream, now)?;
            running.read_all(conn, &self.log)?;
        }
        let log = &self.log;
        let last_done = &mut self.last_done;
        self.running.retain(|running| {
            if running.ended {
                log.borrow_mut().jobs[running.index].done = Some(now);
                *last_done = Some(now);
            }
            !running.ended
        });
        Ok(())
    }
}

impl RunningJob {
    fn read_all(&mut self, conn: &mut Conn<'_>, log: &Log) -> Result<(), String> {
        while !self.ended {
            match conn.read(self.stream)? {
                Read::Data(data) => {
                    let mut log = log.borrow_mut();
                    if !pattern::matches(down_key(self.index as u64), self.read, &data) {
                        log.violations.push(format!(
                            "job {}: wrong bytes at offset {}",
                            self.index, self.read
                        ));
                    }
                    self.read += data.len() as u64;
                    log.down += data.len() as u64;
                }
                Read::Blocked => return Ok(()),
                Read::End => {
                    self.ended = true;
                    if self.read != self.job.down {
                        log.borrow_mut().violations.push(format!(
                            "job {}: the stream ended after {} of {} bytes",
                            self.index, self.read, self.job.down
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The key of the pattern that the server sends for job `index`.
pub(super) const fn down_key(index: u64) -> u64 {
    2 * index + 1
}

/// The key of the pattern that the client sends for job `index`.
pub(super) const fn up_key(index: u64) -> u64 {
    2 * index
}

/// Bytes being written to a stream.
#[derive(Debug)]
pub(super) struct Upload {
    key: u64,
    header: Bytes,
    written: u64,
    total: u64,
    pace: Pace,
    began: Time,
    finished: bool,
}

impl Upload {
    fn new(index: u64, job: &Job, now: Time) -> Self {
        Self {
            key: up_key(index),
            header: header::encode(index, job),
            written: 0,
            total: job.up,
            // Requests are written at once; only bulk data is paced.
            pace: if job.up > job.down {
                job.pace
            } else {
                Pace::Greedy
            },
            began: now,
            finished: false,
        }
    }

    pub(super) fn answer(index: u64, total: u64, pace: Pace, now: Time) -> Self {
        Self {
            key: down_key(index),
            header: Bytes::new(),
            written: 0,
            total,
            pace,
            began: now,
            finished: false,
        }
    }

    /// Bytes that may have been written by `now`.
    fn allowed(&self, now: Time) -> u64 {
        match self.pace {
            Pace::Greedy => self.total,
            Pace::Every { chunk, interval } => {
                let passed = (now - self.began).as_nanos() / interval.as_nanos().max(1);
                let chunks = u64::try_from(passed).unwrap_or(u64::MAX).saturating_add(1);
                self.total.min(chunks.saturating_mul(u64::from(chunk)))
            }
        }
    }

    /// When more may be written, if only the pace is the limit.
    pub(super) fn wakes(&self, now: Time) -> Option<Time> {
        match self.pace {
            Pace::Greedy => None,
            Pace::Every { interval, .. } => {
                let due = !self.finished && self.written >= self.allowed(now);
                let passed = (now - self.began).as_nanos() / interval.as_nanos().max(1);
                let next = u32::try_from(passed).unwrap_or(u32::MAX).saturating_add(1);
                due.then(|| self.began + interval.saturating_mul(next))
            }
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    pub(super) fn write(
        &mut self,
        conn: &mut Conn<'_>,
        stream: Stream,
        now: Time,
    ) -> Result<(), String> {
        if self.finished {
            return Ok(());
        }
        if !self.header.is_empty() {
            conn.write(stream, &mut self.header)?;
            if !self.header.is_empty() {
                return Ok(());
            }
        }
        let allowed = self.allowed(now);
        while self.written < allowed {
            let mut data = pattern::piece(self.key, self.written, allowed - self.written);
            let offered = data.len();
            conn.write(stream, &mut data)?;
            self.written += (offered - data.len()) as u64;
            if !data.is_empty() {
                return Ok(());
            }
        }
        if self.written == self.total && self.total != UNBOUNDED {
            conn.finish(stream)?;
            self.finished = true;
        }
        Ok(())
    }
}

impl Application for Client {
    fn poll(&mut self, conn: &mut Conn<'_>, now: Time) -> Next {
        match conn.life() {
            ConnectionState::Handshaking => return Next::Wait,
            ConnectionState::Closed(why) => {
                self.log.borrow_mut().failure = Some(why);
                return Next::Done;
            }
            ConnectionState::Connected => {
                self.log.borrow_mut().connected.get_or_insert(now);
            }
        }
        self.begin_due(conn, now);
        if let Err(error) = self.serve(conn, now) {
            self.log.borrow_mut().failure = Some(error);
            return Next::Done;
        }
        // A job may start at once after the one just done.
        if self.running.is_empty() && self.next_start().is_some_and(|at| at <= now) {
            return Next::At(now + Duration::from_nanos(1));
        }
        if self.running.is_empty() && self.next == self.workload.jobs.len() {
            self.log.borrow_mut().done = Some(now);
            return Next::Done;
        }
        let writes = self.running.iter().filter_map(|r| r.upload.wakes(now));
        let starts = self.next_start().filter(|&at| at > now);
        match writes.chain(starts).min() {
            Some(at) => Next::At(at),
            None => Next::Wait,
        }
    }
}
