//! Everything that came from the peer.

use std::collections::BTreeMap;

use super::assembler::Assembler;
use crate::wire::codes::{ErrorCode, ErrorSpace};
use crate::wire::frame::name_of;
use crate::wire::packet::Level;

/// Most frames and resets that are remembered one by one.
const MAX_REMEMBERED: usize = 10_000;

/// The peer's CONNECTION_CLOSE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) code: ErrorCode,
    /// The frame type at fault that a transport error names.
    pub(crate) frame_type: Option<u64>,
    pub(crate) reason: String,
    pub(crate) level: Level,
}

/// The peer's RESET_STREAM or STOP_SENDING.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reset {
    pub(crate) stream: u64,
    pub(crate) stop: bool,
    pub(crate) code: u64,
}

/// A Version Negotiation packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VersionNegotiation {
    pub(crate) dcid: Vec<u8>,
    pub(crate) scid: Vec<u8>,
    pub(crate) versions: Vec<u32>,
}

/// A packet that was received, for who judges packets themselves.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(feature = "testing"),
    expect(dead_code, reason = "servers are for tests")
)]
pub(crate) struct Kept {
    pub(crate) level: Level,
    pub(crate) number: u64,
    pub(crate) first: u8,
    pub(crate) updated: bool,
    pub(crate) payload: Vec<u8>,
}

/// What came from the peer, since the beginning or since a mark.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    pub(crate) closed: Option<Closed>,
    pub(crate) resets: Vec<Reset>,
    /// Frame types, with what was received before the last [`Observed::mark`] in front.
    frames: Vec<u64>,
    marked_frames: usize,
    pub(crate) streams: BTreeMap<u64, Assembler>,
    pub(crate) version_negotiation: Option<VersionNegotiation>,
    pub(crate) retries: u32,
    /// Whether the last stateless reset had a token that we know.
    pub(crate) stateless_reset: Option<bool>,
    /// Sizes of datagrams that could not be decrypted since the mark.
    pub(crate) undecryptable: Vec<usize>,
    pub(crate) datagrams: u64,
    marked_datagrams: u64,
    pub(crate) bytes: u64,
    /// Whether the server's host answered that nobody listens.
    pub(crate) refused: bool,
    pub(crate) handshake_done: bool,
    /// Every packet, if they are to be kept.
    pub(crate) kept: Option<Vec<Kept>>,
}

impl Observed {
    /// Keeps every packet, for who judges packets themselves.
    #[cfg(feature = "testing")]
    pub(crate) fn keeping_packets() -> Self {
        Self {
            kept: Some(Vec::new()),
            ..Self::default()
        }
    }

    /// Everything up to now is no answer to what follows.
    pub(crate) fn mark(&mut self) {
        self.marked_frames = self.frames.len();
        self.marked_datagrams = self.datagrams;
        self.undecryptable.clear();
    }

    pub(crate) fn on_frame(&mut self, kind: u64) {
        if self.frames.len() < MAX_REMEMBERED {
            self.frames.push(kind);
        }
    }

    pub(crate) fn on_reset(&mut self, reset: Reset) {
        if self.resets.len() < MAX_REMEMBERED && !self.resets.contains(&reset) {
            self.resets.push(reset);
        }
    }

    pub(crate) fn on_close(
        &mut self,
        level: Level,
        space: ErrorSpace,
        code: u64,
        frame_type: Option<u64>,
        reason: &[u8],
    ) {
        let reason = String::from_utf8_lossy(reason).chars().take(200).collect();
        let code = ErrorCode { space, code };
        self.closed.get_or_insert(Closed {
            code,
            frame_type,
            reason,
            level,
        });
    }

    /// Returns whether a frame of this name arrived after the mark.
    pub(crate) fn has_frame(&self, name: &str) -> bool {
        let new = self.frames.get(self.marked_frames..).unwrap_or_default();
        new.iter().any(|kind| name_of(*kind) == name)
    }

    /// Returns the names of the frames after the mark, each once, in the order of arrival.
    pub(crate) fn frame_names(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for kind in self.frames.get(self.marked_frames..).unwrap_or_default() {
            let name = name_of(*kind);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Returns how many datagrams arrived after the mark.
    pub(crate) fn new_datagrams(&self) -> u64 {
        self.datagrams - self.marked_datagrams
    }
}
