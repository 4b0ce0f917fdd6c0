//! Rates and queue over time, for charts.

use serde::Serialize;

use crate::model::Model;
use crate::sample::{Recording, Sample};
use crate::track::Track;

/// One step of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Seconds since recording began.
    pub at: f64,
    /// What arrived per second: λ.
    pub arriving: f64,
    /// What was read per second: μ.
    pub reading: f64,
    /// How full the buffer was, from 0 to 1.
    pub fullness: f64,
}

/// Shortest step: below, a rate is mostly noise. Seconds.
const SHORTEST: f64 = 0.04;

/// Returns the steps. `track` is the socket in question; without one losses of all sockets count, and
/// the fullest buffer is shown.
#[must_use]
pub fn series(recording: &Recording, track: Option<&Track>, model: Option<&Model>) -> Vec<Point> {
    let truesize = model.map_or(2_304, |model| model.truesize.bytes).max(1) as f64;
    let mut points = Vec::new();
    let Some(mut before) = recording.samples.first() else {
        return points;
    };
    // What others read is not the socket's: scaled as the model knows the socket's share.
    let share = share(recording, model);
    for sample in recording.samples.iter().skip(1) {
        let seconds = sample.at.saturating_sub(before.at).as_secs_f64();
        if seconds < SHORTEST {
            continue;
        }
        let grown = |names: [&str; 2]| {
            let sum: u64 = names.iter().map(|name| growth(before, sample, name)).sum();
            sum as f64
        };
        let reading = grown(["Udp.InDatagrams", "Udp6.InDatagrams"]) * share / seconds;
        let here = |sample: &Sample| {
            let mut sockets = sample.sockets.iter();
            let key = track.map(|track| (track.socket.inode, track.socket.local));
            sockets
                .find(|socket| Some((socket.inode, socket.local)) == key)
                .cloned()
        };
        let (excess, fullness) = match (here(before), here(sample)) {
            (Some(then), Some(now)) => {
                let lost = now.drops.saturating_sub(then.drops) as f64;
                let queued = (now.queue as f64 - then.queue as f64) / truesize;
                ((lost + queued) / seconds, now.fullness().unwrap_or(0.0))
            }
            _ => {
                let fullest = sample
                    .sockets
                    .iter()
                    .filter_map(crate::socket::UdpSocket::fullness);
                let lost = grown(["Udp.InErrors", "Udp6.InErrors"]);
                (lost / seconds, fullest.fold(0.0, f64::max))
            }
        };
        points.push(Point {
            at: sample.at.as_secs_f64(),
            arriving: (reading + excess).max(0.0),
            reading,
            fullness: fullness.clamp(0.0, 1.0),
        });
        before = sample;
    }
    points
}

/// By how much one counter grew between two samples. Asked for each point of a chart, so it looks only
/// at this counter.
fn growth(before: &Sample, sample: &Sample, name: &str) -> u64 {
    let Some(earlier) = before.counters.find(name) else {
        return 0;
    };
    let now = sample.counters.get(name);
    now.checked_sub(earlier).unwrap_or(now)
}

/// The socket's share of what the network namespace read.
fn share(recording: &Recording, model: Option<&Model>) -> f64 {
    let Some((first, last)) = recording.ends() else {
        return 1.0;
    };
    let seconds = last.at.saturating_sub(first.at).as_secs_f64();
    let names = ["Udp.InDatagrams", "Udp6.InDatagrams"];
    let read: u64 = names.iter().map(|name| growth(first, last, name)).sum();
    let read = read as f64;
    let ours = model
        .and_then(|model| model.rates)
        .map(|rates| rates.read_per_second * seconds);
    match ours {
        Some(ours) if read > 0.0 => (ours / read).clamp(0.0, 1.0),
        Some(_) | None => 1.0,
    }
}
