//! The model of a socket as a queue: what arrives, what is read, how long it holds.

mod drain;
mod pattern;
mod rates;
mod truesize;
mod unit;

pub use pattern::{Pattern, Shape};
pub use rates::{Basis, Rates};
pub use truesize::{Origin, Truesize};
pub use unit::Unit;

use serde::Serialize;

use crate::culprit::Owner;
use crate::sample::Recording;
use crate::track::Track;

/// A socket's model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Model {
    /// What arrives and what is read. `None` if nothing was read in the network namespace.
    pub rates: Option<Rates>,
    /// What the kernel charges for each.
    pub truesize: Truesize,
    /// How the queue behaves.
    pub shape: Shape,
    /// Limit of the buffer in bytes, if known.
    pub limit: Option<u64>,
    /// Seconds until the buffer overflows, if it fills.
    pub seconds_to_overflow: Option<f64>,
}

impl Model {
    /// Models a socket. `others` is what the kernel and the processes tell about who else reads.
    #[must_use]
    pub fn new(
        recording: &Recording,
        tracks: &[Track],
        track: &Track,
        owners: &[Owner<'_>],
    ) -> Self {
        let unit = Unit::new(recording);
        let truesize = Truesize::new(recording, track);
        let rates = Rates::new(recording, tracks, track, owners, unit, truesize);
        let shape = Shape::new(track);
        let limit = track.limit();
        let seconds_to_overflow = seconds_to_overflow(track);
        Self {
            rates,
            truesize,
            shape,
            limit,
            seconds_to_overflow,
        }
    }

    /// Returns for how long a buffer of `bytes` (what the kernel grants, twice `SO_RCVBUF`) would have
    /// delayed the loss, in seconds.
    #[must_use]
    pub fn delay_by_buffer(&self, bytes: u64) -> Option<f64> {
        let more = bytes.checked_sub(self.limit?)? as f64;
        let excess = self.rates?.excess_per_second * self.truesize.bytes as f64;
        (excess > 0.0).then(|| more / excess)
    }
}

/// `(limit - charged) / growth`, if the queue grew and nothing was lost yet.
fn seconds_to_overflow(track: &Track) -> Option<f64> {
    let memory = track.socket.memory?;
    let seconds = span(track)?;
    let growth = track.queue_growth();
    if growth <= 0 || track.lost() > 0 {
        return None;
    }
    let room = memory.limit.saturating_sub(memory.charged);
    Some(room as f64 / (growth as f64 / seconds))
}

/// The seconds over which a socket was seen.
fn span(track: &Track) -> Option<f64> {
    let (first, last) = (track.moments.first()?, track.moments.last()?);
    let seconds = last.at.saturating_sub(first.at).as_secs_f64();
    (seconds > 0.0).then_some(seconds)
}
