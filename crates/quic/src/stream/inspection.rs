//! Access to the state of streams, for tests only.

use super::recv::{BufferUsage, RecvHalf};
use super::send::SendHalf;
use super::state::{RecvState, SendState};
use super::{StreamId, Streams};

/// The productive work that refills a connection's budget for unproductive frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProductiveWork {
    /// Sum of the highest received offsets and final sizes, bytes.
    pub announced: u64,
    /// Bytes sent, each counted once.
    pub sent: u64,
    /// Streams opened by either end.
    pub opened: u64,
    /// Bytes buffered for the application now.
    pub stored: u64,
}

impl Streams {
    /// Returns what counts as useful of all that arrived and left.
    #[must_use]
    pub fn productive_work(&self) -> ProductiveWork {
        ProductiveWork {
            announced: self.bytes_announced(),
            sent: self.bytes_sent(),
            opened: self.opened(),
            stored: self.receive_usage.stored as u64,
        }
    }

    /// Returns the states of a stream's sending and receiving half, as far as it has them;
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
        let usage = halves()
            .filter_map(|stream| stream.recv())
            .fold(BufferUsage::default(), |sum, half| {
                sum.changed(BufferUsage::default(), half.usage())
            });
        if usage != self.receive_usage {
            return Err(format!(
                "the streams buffer {usage:?}, the connection counts {:?}",
                self.receive_usage
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
                return Err(format!("{id:?} is finished but was not removed"));
            }
            if stream.control.any() != self.control.contains(id) {
                return Err(format!(
                    "{id:?} has {:?}, which disagrees with the control queue",
                    stream.control
                ));
            }
        }
        self.sending
            .check_accounts(halves().filter_map(|stream| stream.send()))
    }
}
