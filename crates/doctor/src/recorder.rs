//! Takes the samples of a recording, at equal distances.

use core::time::Duration;
use std::time::Instant;

use crate::census;
use crate::collector::{Depth, look, sample};
use crate::error::Error;
use crate::sample::{Recording, Sample};
use crate::source::live::Live;
use crate::source::process::Process;

/// Shortest distance between two samples: each costs about a millisecond.
const SHORTEST_STEP: Duration = Duration::from_millis(50);
/// Samples of one recording, if they are not closer than that: enough to tell a burst from a
/// buffer that is always full.
const STEPS: u32 = 100;

/// How full a buffer must be for closer looks.
const BUSY: f64 = 0.5;
/// Pauses before each of four closer looks, for readers of every speed: the kernel gives memory back after a
/// quarter of the buffer, which is milliseconds of a fast reader and a tenth of a second of a slow one.
const LOOKS: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_micros(300),
    Duration::from_millis(2),
    Duration::from_millis(10),
];

/// Records samples over an interval, in the network namespace of the calling thread.
///
/// # Errors
/// If the counters of UDP cannot be read.
pub fn record(namespace: String, interval: Duration) -> Result<Recording, Error> {
    let mut recorder = Recorder::new(namespace)?;
    let step = (interval / STEPS).max(SHORTEST_STEP).min(interval);
    loop {
        let elapsed = recorder.begun.elapsed();
        let Some(left) = interval.checked_sub(elapsed).filter(|left| !left.is_zero()) else {
            break;
        };
        std::thread::sleep(step.min(left));
        if recorder.begun.elapsed() < interval {
            recorder.quick()?;
        }
    }
    recorder.full()?;
    Ok(recorder.recording)
}

/// A recording under way.
#[derive(Debug)]
pub struct Recorder {
    source: Live,
    begun: Instant,
    recording: Recording,
    known: Vec<Process>,
}

impl Recorder {
    /// Begins with a full sample.
    ///
    /// # Errors
    /// If the counters of UDP cannot be read.
    pub fn new(namespace: String) -> Result<Self, Error> {
        let mut recorder = Self {
            source: Live::default(),
            begun: Instant::now(),
            recording: Recording {
                kernel: kernel(),
                namespace,
                samples: Vec::new(),
            },
            known: Vec::new(),
        };
        recorder.full()?;
        Ok(recorder)
    }

    /// Returns what was recorded so far.
    #[must_use]
    pub const fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Forgets samples that are older than `keep`, but not the last one.
    pub fn forget(&mut self, keep: Duration) {
        let samples = &mut self.recording.samples;
        let Some(last) = samples.last().map(|sample| sample.at) else {
            return;
        };
        samples.retain(|sample| sample.at + keep >= last);
    }

    /// Adds a sample of what moves fast.
    ///
    /// # Errors
    /// If the counters of UDP cannot be read.
    pub fn quick(&mut self) -> Result<(), Error> {
        let mut sample = sample(&mut self.source, self.begun.elapsed(), Depth::Quick)?;
        if sample
            .sockets
            .iter()
            .any(|socket| socket.fullness() > Some(BUSY))
        {
            for pause in LOOKS {
                std::thread::sleep(pause);
                let before = self.begun.elapsed();
                let mut look = look(&mut self.source);
                // In the middle of reading.
                look.at = (before + self.begun.elapsed()) / 2;
                sample.looks.push(look);
            }
        }
        self.recording.samples.push(sample);
        Ok(())
    }

    /// Adds a sample of everything.
    ///
    /// # Errors
    /// If the counters of UDP cannot be read.
    pub fn full(&mut self) -> Result<(), Error> {
        let mut sample = sample(&mut self.source, self.begun.elapsed(), Depth::Full)?;
        self.add_processes(&mut sample);
        self.recording.samples.push(sample);
        Ok(())
    }

    /// Going through all descriptors of a host is what costs most: only for sockets that are new.
    fn add_processes(&mut self, sample: &mut Sample) {
        let known: Vec<u64> = self
            .known
            .iter()
            .flat_map(|process| process.sockets.iter().copied())
            .collect();
        let is_new = |inode: u64| inode != 0 && !known.contains(&inode);
        if sample.sockets.iter().any(|socket| is_new(socket.inode)) {
            let (processes, missing) = census::processes(&sample.sockets);
            self.known = processes;
            sample.missing.extend(missing);
        } else {
            census::refresh(&mut self.known);
        }
        sample.processes.clone_from(&self.known);
    }
}

fn kernel() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}
