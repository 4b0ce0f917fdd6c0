//! Flow control, as an observer sees it: offsets sent, and the limits that the peer gave.

use std::collections::BTreeMap;

use clearway_quic::Role;
use clearway_quic::wire::TransportParameters;
use clearway_recovery::limit::Limit;

use crate::event::{Frame, Packet};

/// Maximum number of streams that are remembered in each direction.
const MAX_STREAMS: usize = 4096;

/// A stream on which this end sends.
#[derive(Clone, Copy, Debug, Default)]
struct SendStream {
    end: u64,
    limit: Option<u64>,
    finished: bool,
    /// Where it ends, if it was reset at an offset.
    reset_at: Option<u64>,
}

impl SendStream {
    /// Nothing is sent beyond `last`. A repeated frame may only reduce it.
    fn reset_at(&mut self, last: u64) {
        let last = self.reset_at.map_or(last, |known| known.min(last));
        self.reset_at = Some(last);
        self.finished |= self.end >= last;
    }
}

/// Flow control of what one end sends.
#[derive(Debug)]
pub(super) struct Credit {
    role: Role,
    streams: BTreeMap<u64, SendStream>,
    /// Ends of the CRYPTO streams by packet type, to recognise repeated data.
    crypto: BTreeMap<u8, u64>,
    sent: u64,
    limit: Option<u64>,
    initial: [Option<u64>; 3],
    /// The stream of the last data sent.
    last: Option<u64>,
    /// The last packet said that it is blocked.
    says_blocked: Option<Limit>,
    /// Streams of the peer, to recognise a request.
    heard: BTreeMap<u64, ()>,
    request: bool,
}

impl Credit {
    pub(super) fn new(role: Role) -> Self {
        Self {
            role,
            streams: BTreeMap::new(),
            crypto: BTreeMap::new(),
            sent: 0,
            limit: None,
            initial: [None; 3],
            last: None,
            says_blocked: None,
            heard: BTreeMap::new(),
            request: false,
        }
    }

    /// The peer's transport parameters.
    pub(super) fn on_parameters(&mut self, peer: &TransportParameters) {
        self.limit = self.limit.max(Some(peer.initial_max_data));
        self.initial = [
            // Streams that the peer opens, that we open, unidirectional ones.
            Some(peer.initial_max_stream_data_bidi_local),
            Some(peer.initial_max_stream_data_bidi_remote),
            Some(peer.initial_max_stream_data_uni),
        ];
    }

    fn initial_limit(&self, stream: u64) -> Option<u64> {
        let [of_peer, of_us, one_way] = self.initial;
        let by_server = stream & 1 == 1;
        match (stream & 2 == 0, by_server == (self.role == Role::Server)) {
            (true, true) => of_us,
            (true, false) => of_peer,
            (false, _) => one_way,
        }
    }

    /// Whether it repeats data that was sent before.
    pub(super) fn is_repeated(&self, packet: &Packet) -> bool {
        let known = |frame: &Frame| match *frame {
            Frame::Stream {
                stream,
                offset,
                len,
                ..
            } => {
                let end = self.streams.get(&stream).map(|it| it.end);
                end.is_some_and(|end| offset.saturating_add(len) <= end)
            }
            Frame::Crypto { offset, len } => {
                let end = self.crypto.get(&(packet.kind as u8));
                end.is_some_and(|end| offset.saturating_add(len) <= *end)
            }
            _ => false,
        };
        packet.frames().iter().any(known)
    }

    pub(super) fn on_sent(&mut self, packet: &Packet) {
        let mut blocked = None;
        for frame in packet.frames() {
            match *frame {
                Frame::Stream {
                    stream,
                    offset,
                    len,
                    fin,
                } => self.on_stream(stream, offset.saturating_add(len), fin),
                Frame::Crypto { offset, len } => {
                    let end = self.crypto.entry(packet.kind as u8).or_default();
                    *end = offset.saturating_add(len).max(*end);
                }
                Frame::ResetStream { stream, .. } => {
                    if let Some(it) = self.streams.get_mut(&stream) {
                        it.finished = true;
                    }
                }
                Frame::ResetStreamAt {
                    stream,
                    reliable_size,
                    ..
                } => {
                    if let Some(it) = self.streams.get_mut(&stream) {
                        it.reset_at(reliable_size);
                    }
                }
                Frame::DataBlocked { .. } => blocked = Some(Limit::ConnectionFlowControl),
                Frame::StreamDataBlocked { .. } => {
                    blocked = blocked.or(Some(Limit::StreamFlowControl));
                }
                _ => {}
            }
        }
        self.says_blocked = blocked;
    }

    fn on_stream(&mut self, stream: u64, end: u64, fin: bool) {
        self.last = Some(stream);
        let initial = self.initial_limit(stream);
        if self.streams.len() >= MAX_STREAMS && !self.streams.contains_key(&stream) {
            self.streams.pop_first();
        }
        let it = self.streams.entry(stream).or_default();
        it.limit = it.limit.max(initial);
        it.finished |= fin;
        let new = end.saturating_sub(it.end);
        it.end = it.end.max(end);
        it.finished |= it.reset_at.is_some_and(|last| it.end >= last);
        self.sent = self.sent.saturating_add(new);
    }

    pub(super) fn on_received(&mut self, frame: &Frame) {
        match *frame {
            Frame::MaxData { limit } => {
                self.limit = self.limit.max(Some(limit));
                self.says_blocked = None;
            }
            Frame::MaxStreamData { stream, limit } => {
                if let Some(it) = self.streams.get_mut(&stream) {
                    it.limit = it.limit.max(Some(limit));
                }
                self.says_blocked = None;
            }
            Frame::Stream { stream, fin, .. } => {
                if self.heard.len() >= MAX_STREAMS {
                    self.heard.pop_first();
                }
                self.request |= self.heard.insert(stream, ()).is_none() || fin;
            }
            _ => {}
        }
    }

    /// Whether the peer began or ended a stream since the last call: perhaps a request, after
    /// which the application has something to send.
    pub(super) fn take_request(&mut self) -> bool {
        core::mem::take(&mut self.request)
    }

    /// The limit that keeps this end from sending, after what it sent last.
    pub(super) fn blocked(&self) -> Option<Limit> {
        if let Some(limit) = self.says_blocked {
            return Some(limit);
        }
        let last = self.last.and_then(|last| self.streams.get(&last))?;
        if last.finished {
            return None;
        }
        if self.limit.is_some_and(|limit| self.sent >= limit) {
            return Some(Limit::ConnectionFlowControl);
        }
        let full = last.limit.is_some_and(|limit| last.end >= limit);
        full.then_some(Limit::StreamFlowControl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::PacketType;

    /// A client that has sent `sent` bytes of stream 0, which has credit for as many.
    fn blocked_after(sent: u64) -> Credit {
        let mut credit = Credit::new(Role::Client);
        credit.on_parameters(&TransportParameters {
            initial_max_data: 1 << 30,
            initial_max_stream_data_bidi_remote: sent,
            ..TransportParameters::default()
        });
        credit.on_sent(&packet(Frame::Stream {
            stream: 0,
            offset: 0,
            len: sent,
            fin: false,
        }));
        credit
    }

    fn packet(frame: Frame) -> Packet {
        Packet {
            frames: Some(vec![frame]),
            ..Packet::new(PacketType::OneRtt, 1, 1_200)
        }
    }

    fn reset_at(reliable_size: u64) -> Packet {
        packet(Frame::ResetStreamAt {
            stream: 0,
            code: 7,
            final_size: 9_000,
            reliable_size,
        })
    }

    #[test]
    fn stream_reset_at_an_offset_waits_for_credit_up_to_that_offset() {
        for (reliable, expected) in [
            (0, None),
            (1_000, None),
            (1_001, Some(Limit::StreamFlowControl)),
        ] {
            let mut credit = blocked_after(1_000);
            assert_eq!(credit.blocked(), Some(Limit::StreamFlowControl));
            credit.on_sent(&reset_at(reliable));
            assert_eq!(credit.blocked(), expected, "{reliable}");
        }
    }

    #[test]
    fn reduced_reliable_size_counts_and_a_larger_one_does_not() {
        let mut credit = blocked_after(1_000);
        credit.on_sent(&reset_at(2_000));
        assert_eq!(credit.blocked(), Some(Limit::StreamFlowControl));
        credit.on_sent(&reset_at(900));
        credit.on_sent(&reset_at(2_000));
        assert_eq!(credit.blocked(), None);
    }

    #[test]
    fn data_up_to_the_reliable_size_ends_the_stream() {
        let mut credit = blocked_after(1_000);
        credit.on_sent(&reset_at(1_500));
        let (stream, limit) = (0, 1_500);
        credit.on_received(&Frame::MaxStreamData { stream, limit });
        assert_eq!(credit.blocked(), None);
        credit.on_sent(&packet(Frame::Stream {
            stream,
            offset: 1_000,
            len: 500,
            fin: false,
        }));
        assert_eq!(credit.blocked(), None, "nothing is left to send");
    }
}
