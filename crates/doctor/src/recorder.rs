//! Takes the samples of a recording, at equal distances.

use core::time::Duration;
use std::collections::HashSet;
use std::time::Instant;

use crate::census::{Census, Search};
use crate::collector::{Depth, look, sample};
use crate::error::Error;
use crate::sample::{Recording, Sample};
use crate::socket::UdpSocket;
use crate::source::live::Live;

/// Shortest distance between two samples: each costs about a millisecond.
const SHORTEST_STEP: Duration = Duration::from_millis(50);
/// Samples of one recording, if they are not closer than that: enough to tell a burst from a
/// buffer that is always full.
const STEPS: u32 = 100;

/// With more sockets than this, quick samples have only those that had something in their queues so far:
/// tens of thousands, a hundred times each, would need much memory.
const MANY: usize = 1_000;

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
    census: Census,
    /// Inodes of sockets that had something in their queues.
    used: HashSet<u64>,
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
            census: Census::default(),
            used: HashSet::new(),
        };
        recorder.full()?;
        Ok(recorder)
    }

    /// Returns what was recorded so far.
    #[must_use]
    pub const fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Forgets samples that are older than `keep`. What is left begins with a full sample, which may be
    /// a little older than that.
    pub fn forget(&mut self, keep: Duration) {
        forget(&mut self.recording.samples, keep);
    }

    /// Adds a sample of what moves fast.
    ///
    /// # Errors
    /// If the counters of UDP cannot be read.
    pub fn quick(&mut self) -> Result<(), Error> {
        let mut sample = sample(&mut self.source, self.begun.elapsed(), Depth::Quick)?;
        if sample.sockets.len() > MANY {
            keep_used(&mut sample.sockets, &mut self.used);
        }
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
        self.add_full(Search::Always)
    }

    /// Adds a sample of everything, but leaves new sockets without their process where finding it would
    /// cost too much: for who watches all the time.
    ///
    /// # Errors
    /// If the counters of UDP cannot be read.
    pub fn full_cheaply(&mut self) -> Result<(), Error> {
        self.add_full(Search::Rarely)
    }

    fn add_full(&mut self, search: Search) -> Result<(), Error> {
        let mut sample = sample(&mut self.source, self.begun.elapsed(), Depth::Full)?;
        if !self.used.is_empty() {
            let open: HashSet<u64> = sample.sockets.iter().map(|socket| socket.inode).collect();
            self.used.retain(|inode| open.contains(inode));
        }
        let (processes, missing) = self.census.update(&sample.sockets, search);
        sample.processes = processes.to_vec();
        sample.missing.extend(missing.cloned());
        self.recording.samples.push(sample);
        Ok(())
    }
}

/// Keeps the sockets that are used, now or before: a queue that is empty now and then is known as such.
fn keep_used(sockets: &mut Vec<UdpSocket>, used: &mut HashSet<u64>) {
    sockets.retain(|socket| {
        let charged = socket.memory.map_or(socket.queue, |memory| memory.charged);
        let is_used = used.contains(&socket.inode) || charged > 0;
        if is_used {
            used.insert(socket.inode);
        }
        is_used
    });
    sockets.shrink_to_fit();
}

/// Keeps the samples from the last full one that is `keep` old or older.
fn forget(samples: &mut Vec<Sample>, keep: Duration) {
    let Some(last) = samples.last().map(|sample| sample.at) else {
        return;
    };
    let is_first = |sample: &Sample| sample.full && sample.at + keep <= last;
    if let Some(first) = samples.iter().rposition(is_first) {
        samples.drain(..first);
    }
}

fn kernel() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_is_kept_from_when_it_is_used_on() {
        let address = "127.0.0.1:1".parse().unwrap();
        let socket = |inode, queue| UdpSocket {
            local: address,
            remote: address,
            inode,
            uid: 0,
            queue,
            drops: 0,
            memory: None,
        };
        let mut used = HashSet::new();
        for (first, second, kept) in [
            (0, 0, &[][..]),
            (832, 0, &[1]),
            (0, 0, &[1]),
            (0, 1, &[1, 2]),
        ] {
            let mut sockets = vec![socket(1, first), socket(2, second), socket(3, 0)];
            keep_used(&mut sockets, &mut used);
            let inodes: Vec<u64> = sockets.iter().map(|socket| socket.inode).collect();
            assert_eq!(inodes, kept);
        }
    }

    #[test]
    fn what_is_kept_begins_with_a_full_sample() {
        // As in the live view: a full sample each second, three quick ones between, all a little late.
        let sample = |number: u64| Sample {
            at: Duration::from_micros(number * 250_100),
            full: number.is_multiple_of(4),
            ..Sample::default()
        };
        let mut samples = Vec::new();
        for number in 0..200 {
            samples.push(sample(number));
            forget(&mut samples, Duration::from_secs(10));
            let (first, last) = (&samples[0], samples.last().unwrap());
            assert!(first.full, "after {number}");
            let span = last.at - first.at;
            let least = last.at.min(Duration::from_secs(10));
            assert!(
                span >= least && span < Duration::from_millis(11_100),
                "{span:?}"
            );
        }
    }
}
