//! One stream: its halves, and the control frames that it has to send.

use super::recv::RecvHalf;
use super::send::SendHalf;
use super::window::Window;
use crate::memory;

/// The control frames that a stream has to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PendingControl {
    pub(super) reset: bool,
    pub(super) stop: bool,
    pub(super) credit: bool,
    pub(super) blocked: bool,
}

impl PendingControl {
    pub(super) fn any(self) -> bool {
        self != Self::default()
    }
}

/// Both halves of a bidirectional stream.
pub(super) type HalfPair = (SendHalf, RecvHalf);

/// Largest number of allocations kept for later bidirectional streams: about as many as are open
/// at once by default. Consecutive requests then need no allocation for their stream.
const SPARES: usize = 128;

/// The halves of a stream by its type (RFC 9000 §2.1). They are boxed, so that unidirectional
/// streams, of which HTTP/3 keeps six open as long as the connection, need no memory for the
/// missing half, and growing the table of streams moves little.
#[derive(Debug)]
pub(super) enum Halves {
    /// The halves of a bidirectional stream.
    Both(Box<HalfPair>),
    /// The half of a unidirectional stream that we opened.
    Send(Box<SendHalf>),
    /// The half of a unidirectional stream that the peer opened.
    Recv(Box<RecvHalf>),
}

impl Halves {
    pub(super) fn send(&self) -> Option<&SendHalf> {
        match self {
            Self::Both(halves) => Some(&halves.0),
            Self::Send(half) => Some(half),
            Self::Recv(_) => None,
        }
    }

    pub(super) fn send_mut(&mut self) -> Option<&mut SendHalf> {
        match self {
            Self::Both(halves) => Some(&mut halves.0),
            Self::Send(half) => Some(half),
            Self::Recv(_) => None,
        }
    }

    pub(super) fn recv(&self) -> Option<&RecvHalf> {
        match self {
            Self::Both(halves) => Some(&halves.1),
            Self::Recv(half) => Some(half),
            Self::Send(_) => None,
        }
    }

    pub(super) fn recv_mut(&mut self) -> Option<&mut RecvHalf> {
        match self {
            Self::Both(halves) => Some(&mut halves.1),
            Self::Recv(half) => Some(half),
            Self::Send(_) => None,
        }
    }
}

/// One stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) halves: Halves,
    pub(super) control: PendingControl,
}

impl Stream {
    pub(super) fn new(halves: Halves) -> Self {
        Self {
            halves,
            control: PendingControl::default(),
        }
    }

    pub(super) fn send(&self) -> Option<&SendHalf> {
        self.halves.send()
    }

    pub(super) fn send_mut(&mut self) -> Option<&mut SendHalf> {
        self.halves.send_mut()
    }

    pub(super) fn recv(&self) -> Option<&RecvHalf> {
        self.halves.recv()
    }

    pub(super) fn recv_mut(&mut self) -> Option<&mut RecvHalf> {
        self.halves.recv_mut()
    }

    /// Returns whether both halves are in a terminal state.
    pub(super) fn is_over(&self) -> bool {
        let sent = self.send().is_none_or(|half| half.state().is_terminal());
        let received = self.recv().is_none_or(|half| half.state().is_terminal());
        sent && received
    }

    /// Returns the allocated memory of the halves without their buffers, in bytes.
    pub(super) fn memory(&self) -> usize {
        match &self.halves {
            Halves::Both(halves) => size_of_val(&**halves),
            Halves::Send(half) => size_of_val(&**half),
            Halves::Recv(half) => size_of_val(&**half),
        }
    }
}

/// Allocations of finished streams, kept for new ones.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "what is kept is the allocations")]
pub(super) struct SparePairs(Vec<Box<HalfPair>>);

impl SparePairs {
    /// Returns the halves of a new stream with these initial limits.
    pub(super) fn take(&mut self, max_data: u64, window: Window) -> Box<HalfPair> {
        match self.0.pop() {
            Some(mut pair) => {
                pair.0.reuse(max_data);
                pair.1.reuse(window);
                pair
            }
            None => Box::new((SendHalf::new(max_data), RecvHalf::new(window))),
        }
    }

    /// Keeps the allocation of a finished stream, without its buffers.
    pub(super) fn put(&mut self, halves: Halves) {
        if let Halves::Both(mut pair) = halves
            && self.0.len() < SPARES
        {
            pair.0.clear();
            pair.1.clear();
            self.0.push(pair);
        }
    }

    /// Returns the allocated memory in bytes.
    pub(super) fn memory(&self) -> usize {
        let pairs = self.0.iter().map(|pair| {
            let rings = pair.0.buffer.memory().saturating_add(pair.1.usage().memory);
            size_of::<HalfPair>().saturating_add(rings)
        });
        memory::vec(&self.0).saturating_add(pairs.sum())
    }

    /// Gives all of it back.
    pub(super) fn release_memory(&mut self) {
        self.0 = Vec::new();
    }
}
