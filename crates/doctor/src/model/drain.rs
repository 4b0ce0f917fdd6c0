//! How fast one socket is read, from how the kernel gives its memory back.
//!
//! Reads are counted for the whole network namespace only. But what was read from a socket stays
//! charged to it for a while: memory is given back once a quarter of the buffer has gathered, or the
//! queue is empty (`udp_rmem_release`, net/ipv4/udp.c). The part that is charged and not in the queue
//! grows with every read, so two looks in quick succession measure the rate.

use crate::track::{Moment, Track};

/// Classes of distances between two looks, the shortest first, in seconds. Longer ones see more reads,
/// but must be short against the time in which memory is given back.
const APART: [core::ops::Range<f64>; 4] = [0.0..0.001, 0.001..0.006, 0.006..0.03, 0.03..0.3];
/// Part of the time between two moments at which memory is given back that looks may be apart.
const PART_OF_PERIOD: f64 = 0.5;
/// Reads that must have been seen for a rate to mean something.
const ENOUGH: f64 = 25.0;

/// Returns how many are read from a socket per second, if enough was seen.
pub(super) fn reads_per_second(track: &Track, truesize: u64) -> Option<f64> {
    let truesize = truesize.max(1);
    // The first multiple of what is read that is not less than a quarter.
    let given_back = (track.limit()? / 4).next_multiple_of(truesize);
    let most = given_back as f64 * PART_OF_PERIOD;
    let truesize = truesize as f64;
    let mut best = Seen::default();
    for apart in APART {
        let seen = Seen::new(track, &apart, given_back);
        // As far as the closer looks tell, memory is given back more rarely than one looks.
        let fits = best.rate() * seen.seconds / seen.pairs.max(1.0) <= most;
        if fits && seen.bytes > best.bytes {
            best = seen;
        }
    }
    (best.bytes / truesize >= ENOUGH).then(|| best.rate() / truesize)
}

/// What pairs of looks saw being read.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    bytes: f64,
    seconds: f64,
    pairs: f64,
}

impl Seen {
    /// Adds up growth and time.
    fn new(track: &Track, apart: &core::ops::Range<f64>, given_back: u64) -> Self {
        let mut seen = Self::default();
        for pair in track.looks.windows(2) {
            let [first, second] = pair else { continue };
            let seconds = second.at.saturating_sub(first.at).as_secs_f64();
            if apart.contains(&seconds)
                && let Some(bytes) = growth(first, second, given_back)
            {
                seen.bytes += bytes as f64;
                seen.seconds += seconds;
                seen.pairs += 1.0;
            }
        }
        seen
    }

    /// Bytes per second.
    fn rate(&self) -> f64 {
        if self.seconds > 0.0 {
            self.bytes / self.seconds
        } else {
            0.0
        }
    }
}

/// Returns what was read between two looks, in bytes. Where memory was given back between them, that is
/// added: leaving such pairs out would leave out most of all those in which much was read.
fn growth(first: &Moment, second: &Moment, given_back: u64) -> Option<u64> {
    // An empty queue gives back whatever has gathered.
    if first.queue == 0 || second.queue == 0 {
        return None;
    }
    let (before, after) = (first.unreleased()?, second.unreleased()?);
    if after >= before {
        return Some(after - before);
    }
    (after + given_back).checked_sub(before)
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::socket::{SocketMemory, UdpSocket};

    const LIMIT: u64 = 212_992;
    const TRUESIZE: u64 = 832;

    /// A reader of a queue that is never empty, which reads `per_second` while it runs: the first half
    /// of every `turn`. Looked at in fours, as the recorder does.
    fn track(per_second: f64, turn: f64) -> Track {
        let address = "0.0.0.0:4433".parse().unwrap();
        let socket = UdpSocket {
            local: address,
            remote: address,
            inode: 1,
            uid: 0,
            queue: 150_000,
            drops: 0,
            memory: Some(SocketMemory {
                charged: LIMIT,
                limit: LIMIT,
            }),
        };
        let read = |at: f64| {
            let turns = (at / turn).floor();
            let rest = (at - turns * turn).min(turn / 2.0);
            ((turns * turn / 2.0 + rest) * per_second) as u64 * TRUESIZE
        };
        let given_back = (LIMIT / 4).next_multiple_of(TRUESIZE);
        let look = |at: f64| Moment {
            at: Duration::from_secs_f64(at),
            queue: 150_000,
            charged: Some(150_000 + read(at) % given_back),
            drops: 0,
        };
        // Steps of an irrational length meet every phase of the reader's turns.
        let looks = (1..400).flat_map(|step| {
            let at = f64::from(step) * 0.0254142;
            [0.0, 0.000_4, 0.002_5, 0.012_6].map(|after| look(at + after))
        });
        Track {
            socket,
            moments: Vec::new(),
            looks: looks.collect(),
        }
    }

    #[test]
    fn rate_of_a_reader_in_turns_is_not_biased_by_memory_that_is_given_back() {
        for (per_second, turn) in [
            (2_000.0, 0.05),
            (40_000.0, 0.004),
            (40_000.0, 0.001),
            (100_000.0, 0.002),
        ] {
            let found = reads_per_second(&track(per_second, turn), TRUESIZE).unwrap();
            let truth = per_second / 2.0;
            assert!(
                (found - truth).abs() <= truth * 0.05,
                "{per_second} in turns of {turn} s: found {found}, truth {truth}"
            );
        }
    }
}
