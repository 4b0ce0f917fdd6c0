//! Flow control of a session: how many streams its ends may open, and how much data these may carry
//! (draft-ietf-webtrans-http3-16 §5).

use bytes::Bytes;
use clearway_quic::stream::{Directionality, GroupMarks, MAX_STREAM_COUNT};
use clearway_quic::wire::Reader;

use crate::capsule::Capsule;
use crate::count::Count;
use crate::error::{Code, StreamError};
use crate::frame::put_varint;

/// WT_MAX_DATA (§5.6.4).
pub const MAX_DATA: u64 = 0x190b_4d3d;
/// WT_MAX_STREAM_DATA, which HTTP/2 uses, and HTTP/3 forbids (§5.4).
const MAX_STREAM_DATA: u64 = 0x190b_4d3e;
/// WT_MAX_STREAMS for bidirectional streams (§5.6.2).
pub const MAX_STREAMS_BIDI: u64 = 0x190b_4d3f;
/// WT_MAX_STREAMS for unidirectional streams (§5.6.2).
pub const MAX_STREAMS_UNI: u64 = 0x190b_4d40;
/// WT_DATA_BLOCKED (§5.6.5).
pub const DATA_BLOCKED: u64 = 0x190b_4d41;
/// WT_STREAM_DATA_BLOCKED, which HTTP/2 uses, and HTTP/3 forbids (§5.4).
const STREAM_DATA_BLOCKED: u64 = 0x190b_4d42;
/// WT_STREAMS_BLOCKED for bidirectional streams (§5.6.3).
pub const STREAMS_BLOCKED_BIDI: u64 = 0x190b_4d43;
/// WT_STREAMS_BLOCKED for unidirectional streams (§5.6.3).
pub const STREAMS_BLOCKED_UNI: u64 = 0x190b_4d44;

/// A new limit is told once it is higher by this fraction of the window.
const UPDATES: u64 = 8;

/// Limits of each session on its peer. A session has flow control if both ends announce any that is
/// not 0 (§5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionLimits {
    /// Bytes of all streams of a session together that may be on their way or unread.
    pub data: u64,
    /// Bidirectional streams of the peer that may be open at once.
    pub bidi_streams: u64,
    /// Unidirectional streams of the peer that may be open at once.
    pub uni_streams: u64,
}

impl SessionLimits {
    /// Returns whether an end that announces these wants flow control.
    #[must_use]
    pub fn is_enabled(self) -> bool {
        self != Self::default()
    }

    /// Returns whether none of the limits is lower than in `earlier`.
    pub(crate) const fn covers(self, earlier: Self) -> bool {
        self.data >= earlier.data
            && self.bidi_streams >= earlier.bidi_streams
            && self.uni_streams >= earlier.uni_streams
    }
}

/// Whether a capsule is one of flow control, forbidden ones included.
pub(crate) const fn is_flow_control(kind: u64) -> bool {
    MAX_DATA <= kind && kind <= STREAMS_BLOCKED_UNI
}

/// What a capsule of the peer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowUpdate {
    /// The session may write this many bytes in all.
    Data(u64),
    /// More streams may be opened.
    Streams {
        kind: Directionality,
        /// At least half of those that were allowed before were opened.
        needed: bool,
    },
    /// The peer waits for what it will be told anyway.
    Blocked {
        /// It had not told so for this limit, which it was given.
        is_new: bool,
    },
}

/// The flow control of one session.
#[derive(Debug)]
pub(crate) struct SessionFlow {
    /// How much the peer may send, as it was told.
    granted: u64,
    /// The initial window.
    window: u64,
    /// What was consumed when the next limit is due.
    next: u64,
    /// Credit of streams that were rejected before they were counted.
    lost: u64,
    /// The highest limit of ours at which the peer has told to be blocked.
    peer_blocked: u64,
    /// The peer's limit on our data.
    limit: u64,
    /// The limit that the peer was last told to be too low.
    blocked_at: Option<u64>,
    bidi: StreamFlow,
    uni: StreamFlow,
}

/// The streams of one directionality.
#[derive(Debug)]
struct StreamFlow {
    opened: u64,
    limit: u64,
    blocked_at: Option<u64>,
    /// Streams of the peer.
    arrived: u64,
    closed: u64,
    granted: u64,
    window: u64,
    peer_blocked: u64,
}

impl SessionFlow {
    /// `rejected` are the peer's streams that were rejected before the session was accepted.
    pub(crate) fn new(own: SessionLimits, peer: SessionLimits, rejected: [u64; 2]) -> Self {
        let [bidi, uni] = rejected;
        Self {
            granted: own.data,
            window: own.data,
            next: 0,
            lost: if bidi.saturating_add(uni) > 0 {
                own.data
            } else {
                0
            },
            peer_blocked: 0,
            limit: peer.data,
            blocked_at: None,
            bidi: StreamFlow::new(own.bidi_streams, peer.bidi_streams, bidi),
            uni: StreamFlow::new(own.uni_streams, peer.uni_streams, uni),
        }
    }

    /// Returns the peer's limit on our data.
    pub(crate) const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns when the account of the session has to be looked at.
    pub(crate) const fn marks(&self) -> GroupMarks {
        GroupMarks {
            received: self.granted,
            consumed: self.next,
        }
    }

    /// Checks how much data the peer has sent.
    pub(crate) const fn check_received(&self, received: u64) -> Result<(), StreamError> {
        if received > self.granted {
            return Err(violation("more stream data than WT_MAX_DATA allows"));
        }
        Ok(())
    }

    /// Returns the capsule that grants more data, if it is due. `window` in bytes.
    pub(crate) fn grant_data(&mut self, consumed: u64, window: u64) -> Option<Capsule> {
        let window = window.max(self.window);
        let limit = consumed.saturating_add(self.lost).saturating_add(window);
        let step = (window / UPDATES).max(1);
        if limit.saturating_sub(self.granted) < step {
            self.next =
                consumed.saturating_add(step.saturating_sub(limit.saturating_sub(self.granted)));
            return None;
        }
        self.granted = limit;
        self.next = consumed.saturating_add(step);
        Some(capsule(MAX_DATA, limit))
    }

    /// Returns the capsule that tells the peer that a writer waits, once for each limit.
    pub(crate) fn data_blocked(&mut self) -> Option<Capsule> {
        if self.blocked_at.replace(self.limit) == Some(self.limit) {
            return None;
        }
        Some(capsule(DATA_BLOCKED, self.limit))
    }

    /// Returns whether another stream may be opened.
    pub(crate) fn may_open(&mut self, kind: Directionality) -> bool {
        let streams = self.streams(kind);
        streams.opened < streams.limit
    }

    pub(crate) fn on_opened(&mut self, kind: Directionality) {
        self.streams(kind).opened.count_one();
    }

    /// Returns the capsule that tells the peer that a stream could not be opened, once for each
    /// limit.
    pub(crate) fn streams_blocked(&mut self, kind: Directionality) -> Option<Capsule> {
        let streams = self.streams(kind);
        let limit = streams.limit;
        if streams.blocked_at.replace(limit) == Some(limit) {
            return None;
        }
        let kind = match kind {
            Directionality::Bidirectional => STREAMS_BLOCKED_BIDI,
            Directionality::Unidirectional => STREAMS_BLOCKED_UNI,
        };
        Some(capsule(kind, limit))
    }

    /// The peer has opened a stream.
    pub(crate) fn on_arrived(&mut self, kind: Directionality) -> Result<(), StreamError> {
        let streams = self.streams(kind);
        streams.arrived.count_one();
        if streams.arrived > streams.granted {
            return Err(violation("more streams than WT_MAX_STREAMS allows"));
        }
        Ok(())
    }

    /// A stream of the peer is done.
    pub(crate) fn on_closed(&mut self, kind: Directionality) {
        self.streams(kind).closed.count_one();
    }

    /// Returns the capsule that lets the peer open more streams, if it is due.
    pub(crate) fn grant_streams(&mut self, kind: Directionality) -> Option<Capsule> {
        let streams = self.streams(kind);
        let limit = streams.closed.saturating_add(streams.window);
        let limit = limit.min(MAX_STREAM_COUNT);
        if limit.saturating_sub(streams.granted) < (streams.window / UPDATES).max(1) {
            return None;
        }
        streams.granted = limit;
        Some(match kind {
            Directionality::Bidirectional => capsule(MAX_STREAMS_BIDI, limit),
            Directionality::Unidirectional => capsule(MAX_STREAMS_UNI, limit),
        })
    }

    /// Reads a capsule of the peer. Limits have to rise (§5.6.2, §5.6.4).
    pub(crate) fn on_capsule(
        &mut self,
        kind: u64,
        value: &Bytes,
    ) -> Result<FlowUpdate, StreamError> {
        let mut reader = Reader::new(value);
        let number = reader.varint().filter(|_| reader.is_empty());
        let Some(number) = number else {
            return Err(StreamError::malformed(
                "a capsule of flow control must have one integer",
            ));
        };
        match kind {
            MAX_DATA if number <= self.limit => Err(violation("WT_MAX_DATA does not rise")),
            MAX_DATA => {
                self.limit = number;
                Ok(FlowUpdate::Data(number))
            }
            MAX_STREAMS_BIDI => self.raise_streams(Directionality::Bidirectional, number),
            MAX_STREAMS_UNI => self.raise_streams(Directionality::Unidirectional, number),
            STREAMS_BLOCKED_BIDI | STREAMS_BLOCKED_UNI if number > MAX_STREAM_COUNT => {
                Err(violation("WT_STREAMS_BLOCKED above 2^60"))
            }
            MAX_STREAM_DATA | STREAM_DATA_BLOCKED => Err(StreamError::malformed(
                "WT_MAX_STREAM_DATA and WT_STREAM_DATA_BLOCKED are not for HTTP/3",
            )),
            STREAMS_BLOCKED_BIDI => Ok(self.bidi.on_peer_blocked(number)),
            STREAMS_BLOCKED_UNI => Ok(self.uni.on_peer_blocked(number)),
            _ => Ok(peer_blocked(&mut self.peer_blocked, number, self.granted)),
        }
    }

    fn raise_streams(
        &mut self,
        kind: Directionality,
        limit: u64,
    ) -> Result<FlowUpdate, StreamError> {
        let streams = self.streams(kind);
        if limit > MAX_STREAM_COUNT {
            return Err(violation("WT_MAX_STREAMS above 2^60"));
        }
        if limit <= streams.limit {
            return Err(violation("WT_MAX_STREAMS does not rise"));
        }
        let needed = streams.opened >= streams.limit / 2;
        streams.limit = limit;
        Ok(FlowUpdate::Streams { kind, needed })
    }

    fn streams(&mut self, kind: Directionality) -> &mut StreamFlow {
        match kind {
            Directionality::Bidirectional => &mut self.bidi,
            Directionality::Unidirectional => &mut self.uni,
        }
    }
}

/// The peer tells to be blocked at a limit, up to `granted`.
fn peer_blocked(highest: &mut u64, limit: u64, granted: u64) -> FlowUpdate {
    let is_new = limit > *highest && limit <= granted;
    if is_new {
        *highest = limit;
    }
    FlowUpdate::Blocked { is_new }
}

impl StreamFlow {
    fn on_peer_blocked(&mut self, limit: u64) -> FlowUpdate {
        peer_blocked(&mut self.peer_blocked, limit, self.granted)
    }

    const fn new(own: u64, peer: u64, rejected: u64) -> Self {
        Self {
            opened: 0,
            limit: peer,
            blocked_at: None,
            arrived: rejected,
            closed: rejected,
            granted: own,
            window: own,
            peer_blocked: 0,
        }
    }
}

const fn violation(reason: &'static str) -> StreamError {
    StreamError::new(Code::WEBTRANSPORT_FLOW_CONTROL_ERROR, reason)
}

fn capsule(kind: u64, value: u64) -> Capsule {
    let mut bytes = Vec::with_capacity(8);
    put_varint(&mut bytes, value);
    Capsule {
        kind,
        value: bytes.into(),
    }
}

#[cfg(test)]
mod tests;
