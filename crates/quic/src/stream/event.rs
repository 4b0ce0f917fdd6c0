//! Events of streams for the application.

use std::collections::VecDeque;

use super::per_direction::PerDirection;
use super::{Directionality, StreamId};
use crate::memory;

/// An event that the application can act on. Events are edge-triggered: each is reported once,
/// until a call of the application has returned `Blocked` again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// The peer opened streams; call [`accept`](crate::connection::Connection::accept) until `None`.
    Opened(Directionality),
    /// Data, the end or a reset can be read; read until `Blocked` or the end.
    Readable(StreamId),
    /// A write that returned `Blocked` may succeed now.
    Writable(StreamId),
    /// All data and the end of the stream were acknowledged.
    Finished(StreamId),
    /// The peer does not want the data: the stream was reset with the peer's code.
    Stopped {
        /// The stream.
        id: StreamId,
        /// The peer's application error code.
        code: u64,
    },
    /// [`open`](crate::connection::Connection::open) failed earlier and would succeed now.
    StreamsAvailable(Directionality),
}

/// Events that have not been polled. Each kind is queued at most once per stream: `Readable` and
/// `Writable` need a call of the application in between, the others happen once; only a reset
/// makes a stream `Readable` a second time. So the stream limits bound the queue.
#[derive(Debug, Default)]
pub(super) struct Events {
    queue: VecDeque<StreamEvent>,
    opened: PerDirection<bool>,
    available: PerDirection<bool>,
}

impl Events {
    pub(super) fn push(&mut self, event: StreamEvent) {
        let repeated = match event {
            StreamEvent::Opened(dir) => core::mem::replace(&mut self.opened[dir], true),
            StreamEvent::StreamsAvailable(dir) => {
                core::mem::replace(&mut self.available[dir], true)
            }
            StreamEvent::Readable(_)
            | StreamEvent::Writable(_)
            | StreamEvent::Finished(_)
            | StreamEvent::Stopped { .. } => false,
        };
        if !repeated {
            self.queue.push_back(event);
        }
    }

    pub(super) fn poll(&mut self) -> Option<StreamEvent> {
        let event = self.queue.pop_front()?;
        match event {
            StreamEvent::Opened(dir) => self.opened[dir] = false,
            StreamEvent::StreamsAvailable(dir) => self.available[dir] = false,
            StreamEvent::Readable(_)
            | StreamEvent::Writable(_)
            | StreamEvent::Finished(_)
            | StreamEvent::Stopped { .. } => {}
        }
        Some(event)
    }

    /// Frees memory that is kept for reuse.
    pub(super) fn release_memory(&mut self) {
        self.queue.shrink_to_fit();
    }

    /// Returns the allocated memory in bytes.
    pub(super) fn memory(&self) -> usize {
        memory::vec_deque(&self.queue)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }
}
