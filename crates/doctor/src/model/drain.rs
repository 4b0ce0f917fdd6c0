//! How fast one socket is read, from how the kernel gives its memory back.
//!
//! Reads are counted for the whole network namespace only. But what was read from a socket stays
//! charged to it for a while: memory is given back once a quarter of the buffer has gathered, or the
//! queue is empty (`udp_rmem_release`, net/ipv4/udp.c). The part that is charged and not in the queue
//! grows with every read, so two looks in quick succession measure the rate.

use crate::track::{Moment, Track};

/// Distances between two looks that are tried, the longest first, in seconds. Longer ones see more
/// reads, but must be short against the time in which memory is given back.
const APART: [f64; 4] = [0.25, 0.03, 0.006, 0.001_5];
/// Part of the time between two moments at which memory is given back that looks may be apart.
const PART_OF_PERIOD: f64 = 0.5;
/// Reads that must have been seen for a rate to mean something.
const ENOUGH: f64 = 25.0;

/// Returns how many are read from a socket per second, if enough was seen.
pub(super) fn reads_per_second(track: &Track, truesize: u64) -> Option<f64> {
    let quarter = track.limit()? as f64 / 4.0;
    let truesize = truesize.max(1) as f64;
    APART.iter().find_map(|&apart| {
        let (bytes, seconds) = grown(track, apart);
        let reads = bytes / truesize;
        // What is believed must fit: at this rate memory is given back more rarely than one looks.
        let fits = bytes / seconds * apart <= quarter * PART_OF_PERIOD;
        (seconds > 0.0 && reads >= ENOUGH && fits).then(|| reads / seconds)
    })
}

/// Adds up growth and time over looks at most this many seconds apart, and not much less. Pairs in
/// which memory was given back say nothing and are left out.
fn grown(track: &Track, apart: f64) -> (f64, f64) {
    let mut sum = (0.0, 0.0);
    for pair in track.looks.windows(2) {
        let [first, second] = pair else { continue };
        let seconds = second.at.saturating_sub(first.at).as_secs_f64();
        if (apart / 10.0..=apart).contains(&seconds)
            && let Some(bytes) = growth(first, second)
        {
            sum.0 += bytes as f64;
            sum.1 += seconds;
        }
    }
    sum
}

fn growth(first: &Moment, second: &Moment) -> Option<u64> {
    if first.queue == 0 || second.queue == 0 {
        return None;
    }
    second.unreleased()?.checked_sub(first.unreleased()?)
}
