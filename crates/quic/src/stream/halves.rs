//! One stream: the halves it has, and what of it waits to be told.

use super::recv::RecvHalf;
use super::send::SendHalf;
use super::window::Window;
use crate::memory;

/// Control frames a stream has to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Control {
    pub(super) reset: bool,
    pub(super) stop: bool,
    pub(super) credit: bool,
    pub(super) blocked: bool,
}

impl Control {
    pub(super) fn any(self) -> bool {
        self != Self::default()
    }
}

/// Both halves of a bidirectional stream.
pub(super) type Pair = (SendHalf, RecvHalf);

/// Room kept for bidirectional streams to come: about as many as are open at once
/// by default. Requests that follow each other need no allocation for it.
const SPARES: usize = 128;

/// The halves of a stream by its kind (RFC 9000 §2.1). In a place of their own:
/// unidirectional streams, of which HTTP/3 keeps six open for as long as a
/// connection lives, take no room for a half they lack, and the table of streams
/// moves little when it grows.
#[derive(Debug)]
pub(super) enum Halves {
    /// Of a bidirectional stream.
    Both(Box<Pair>),
    /// Of a unidirectional stream of ours.
    Send(Box<SendHalf>),
    /// Of a unidirectional stream of the peer's.
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
    pub(super) control: Control,
}

impl Stream {
    pub(super) fn new(halves: Halves) -> Self {
        Self {
            halves,
            control: Control::default(),
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

    /// Nothing more will come of either half.
    pub(super) fn is_over(&self) -> bool {
        let sent = self.send().is_none_or(|half| half.state().is_terminal());
        let received = self.recv().is_none_or(|half| half.state().is_terminal());
        sent && received
    }

    /// Bytes allocated for the halves, their buffers left out.
    pub(super) fn memory(&self) -> usize {
        match &self.halves {
            Halves::Both(halves) => size_of_val(&**halves),
            Halves::Send(half) => size_of_val(&**half),
            Halves::Recv(half) => size_of_val(&**half),
        }
    }
}

/// The room of streams that are over.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "what is kept is the allocations")]
pub(super) struct Spares(Vec<Box<Pair>>);

impl Spares {
    /// The halves of a new stream: what the peer's limit and our window are at first.
    pub(super) fn take(&mut self, max_data: u64, window: Window) -> Box<Pair> {
        match self.0.pop() {
            Some(mut pair) => {
                pair.0.renew(max_data);
                pair.1.renew(window);
                pair
            }
            None => Box::new((SendHalf::new(max_data), RecvHalf::new(window))),
        }
    }

    /// Keeps the room of a stream that is over, without what it buffered.
    pub(super) fn put(&mut self, halves: Halves) {
        if let Halves::Both(mut pair) = halves
            && self.0.len() < SPARES
        {
            pair.0.let_go();
            pair.1.let_go();
            self.0.push(pair);
        }
    }

    /// Bytes allocated.
    pub(super) fn memory(&self) -> usize {
        let pairs = self.0.iter().map(|pair| {
            let rings = pair
                .0
                .buffer
                .memory()
                .saturating_add(pair.1.holding().memory);
            size_of::<Pair>().saturating_add(rings)
        });
        memory::vec(&self.0).saturating_add(pairs.sum())
    }

    /// Gives all of it back.
    pub(super) fn release_memory(&mut self) {
        self.0 = Vec::new();
    }
}
