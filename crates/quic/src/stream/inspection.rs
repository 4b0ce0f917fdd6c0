//! What tests want to know of streams and nobody else.

use super::recv::{Holding, RecvHalf};
use super::send::SendHalf;
use super::state::{RecvState, SendState};
use super::{StreamId, Streams};

/// What a connection's budget for unproductive frames is filled from, in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Useful {
    /// Highest offsets received and final sizes, bytes.
    pub announced: u64,
    /// Bytes sent, each counted once.
    pub sent: u64,
    /// Streams opened by either end.
    pub opened: u64,
    /// Bytes that are held for the application now.
    pub stored: u64,
}

impl Streams {
    /// What counts as useful of all that arrived and left.
    #[must_use]
    pub fn useful(&self) -> Useful {
        Useful {
            announced: self.bytes_announced(),
            sent: self.bytes_sent(),
            opened: self.opened(),
            stored: self.receive_held.stored as u64,
        }
    }

    /// The states of a stream's sending and receiving half, as far as it has them;
    /// `None` once it is over, and before it is opened.
    #[must_use]
    pub fn states(&self, id: StreamId) -> Option<(Option<SendState>, Option<RecvState>)> {
        let stream = self.streams.get(&id)?;
        let sending = stream.send().map(SendHalf::state);
        let receiving = stream.recv().map(RecvHalf::state);
        Some((sending, receiving))
    }

    /// Recomputes what all streams share from the streams that there are.
    ///
    /// # Errors
    /// The first account that is wrong.
    pub fn check_accounts(&self) -> Result<(), String> {
        let halves = || self.streams.values();
        let holding = halves()
            .filter_map(|stream| stream.recv())
            .fold(Holding::default(), |sum, half| {
                sum.changed(Holding::default(), half.holding())
            });
        if holding != self.receive_held {
            return Err(format!(
                "the streams hold {holding:?}, the connection counts {:?}",
                self.receive_held
            ));
        }
        if self.receive.consumed() > self.received {
            return Err(format!(
                "{} bytes consumed of {} received",
                self.receive.consumed(),
                self.received
            ));
        }
        if self.received > self.receive.granted() {
            return Err(format!(
                "{} bytes received, {} granted",
                self.received,
                self.receive.granted()
            ));
        }
        for (id, stream) in &self.streams {
            if stream.is_over() {
                return Err(format!("{id:?} is over and still there"));
            }
            if stream.control.any() != self.control.contains(id) {
                return Err(format!(
                    "{id:?} has {:?} and no turn, or one too many",
                    stream.control
                ));
            }
        }
        self.sending
            .check_accounts(halves().filter_map(|stream| stream.send()))
    }
}
