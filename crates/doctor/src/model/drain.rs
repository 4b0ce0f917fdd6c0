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
    let most = track.limit()? as f64 / 4.0 * PART_OF_PERIOD;
    let truesize = truesize.max(1) as f64;
    let mut best = Seen::default();
    for apart in APART {
        let seen = Seen::new(track, &apart);
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
    /// Adds up growth and time. Pairs in which memory was given back say nothing and are left out.
    fn new(track: &Track, apart: &core::ops::Range<f64>) -> Self {
        let mut seen = Self::default();
        for pair in track.looks.windows(2) {
            let [first, second] = pair else { continue };
            let seconds = second.at.saturating_sub(first.at).as_secs_f64();
            if apart.contains(&seconds)
                && let Some(bytes) = growth(first, second)
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

fn growth(first: &Moment, second: &Moment) -> Option<u64> {
    if first.queue == 0 || second.queue == 0 {
        return None;
    }
    second.unreleased()?.checked_sub(first.unreleased()?)
}
