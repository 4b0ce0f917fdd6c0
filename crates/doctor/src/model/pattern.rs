//! Bursts or a lasting overload.

use serde::Serialize;

use crate::track::Track;

/// How a queue that overflows behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// It empties between the losses: a larger buffer helps.
    Bursts,
    /// It stays full: only faster reading helps.
    Sustained,
    /// Neither is plain.
    Mixed,
}

/// A queue over a recording.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shape {
    /// Share of the moments in which the buffer was full or nearly so. 0 if not known.
    pub full_share: f64,
    /// Share of the moments in which at most a tenth of the buffer was in use.
    pub empty_share: f64,
    /// Which pattern this is.
    pub pattern: Pattern,
    /// Most datagrams lost between two moments at which the queue was nearly empty.
    pub largest_burst_lost: u64,
}

/// From this share of the limit on the buffer counts as full. What is read is given back a quarter of
/// the limit at once, so the charge of a buffer that overflows moves between three quarters and all.
const FULL: f64 = 0.74;
/// Up to this share of the limit the queue counts as nearly empty.
const EMPTY: f64 = 0.1;
/// Share of the moments that make a pattern.
const MOST: f64 = 0.5;

impl Shape {
    /// Looks at a socket's moments.
    #[must_use]
    pub fn new(track: &Track) -> Self {
        // Without netlink the limit is not known: the fullest moment stands for it.
        let fullest = track.moments.iter().map(|moment| moment.queue).max();
        let limit = track.limit().or(fullest).unwrap_or(0).max(1) as f64;
        let (mut full, mut empty) = (0_u32, 0_u32);
        let (mut since_empty, mut largest) = (None, 0_u64);
        for moment in &track.moments {
            let charged = moment.charged.unwrap_or(moment.queue) as f64;
            if charged >= FULL * limit {
                full += 1;
            }
            if (moment.queue as f64) <= EMPTY * limit {
                empty += 1;
                let begin = since_empty.replace(moment.drops).unwrap_or(moment.drops);
                largest = largest.max(moment.drops.saturating_sub(begin));
            }
        }
        let moments = f64::from(u32::try_from(track.moments.len()).unwrap_or(u32::MAX)).max(1.0);
        let (full_share, empty_share) = (f64::from(full) / moments, f64::from(empty) / moments);
        let pattern = match (full_share >= MOST, empty_share >= MOST) {
            (true, _) => Pattern::Sustained,
            (false, true) => Pattern::Bursts,
            (false, false) => Pattern::Mixed,
        };
        Self {
            full_share,
            empty_share,
            pattern,
            largest_burst_lost: largest,
        }
    }
}
