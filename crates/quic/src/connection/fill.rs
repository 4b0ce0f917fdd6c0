//! Which frames go into a packet, in which order.

use clearway_recovery::Space;

use super::Connection;
use super::content::SentFrame;
use super::frequency::AckFrequencyRequest;
use super::packet::{Draft, Permit, Shape};
use super::transmit::MIN_DATAGRAM;
use crate::Instant;
use crate::stream::Sendability;
use crate::wire::frame::{ack, data};
use crate::wire::{Frame, PacketKind, Writer};

/// A packet with nothing but ACKs asks for an acknowledgement once in so many,
/// so that the peer's ranges can be forgotten (RFC 9000 §13.2.4).
const PING_AMONG_ACKS: u32 = 32;

/// Type and eight bytes.
const PATH_FRAME_LEN: usize = 9;

/// Type, two numbers, length, connection ID, token (RFC 9000 §19.15).
const NEW_CONNECTION_ID_MAX: usize = 1 + 8 + 8 + 1 + 20 + 16;

/// Type and number (RFC 9000 §19.16).
const RETIRE_CONNECTION_ID_MAX: usize = 1 + 8;

/// Control frames of the connection itself that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Control {
    pub(crate) handshake_done: bool,
    /// A NEW_TOKEN for the client, until acknowledged.
    pub(crate) new_token: Option<Box<[u8]>>,
    pub(crate) new_token_due: bool,
    pub(crate) ack_frequency: Option<AckFrequencyRequest>,
    pub(crate) ack_frequency_due: bool,
}

impl Control {
    /// Bytes allocated.
    pub(crate) fn memory(&self) -> usize {
        self.new_token.as_ref().map_or(0, |token| token.len())
    }

    fn is_due(&self) -> bool {
        self.handshake_done || self.new_token_due || self.ack_frequency_due
    }
}

impl Connection {
    /// Whether 0-RTT or 1-RTT frames wait that the window and the pacer decide on.
    pub(crate) fn wants_data(&self) -> bool {
        self.control.is_due()
            || self.local_cids.has_frames()
            || self.remote_cids.has_frames()
            || !self.datagrams_out.is_empty()
            || matches!(self.streams.sendability(), Sendability::Ready)
    }

    /// Writes the frames of one packet into `w`.
    pub(crate) fn fill(
        &mut self,
        now: Instant,
        draft: &mut Draft,
        w: &mut Writer<'_>,
        permit: Permit,
        shape: Shape,
    ) {
        if shape == Shape::Close {
            return self.fill_close(draft.kind, w);
        }
        if shape == Shape::MtuProbe {
            Frame::Ping.encode(w);
            draft.ack_eliciting = true;
            return;
        }
        let ordinary = matches!(shape, Shape::Train | Shape::Linked);
        if ordinary && draft.kind != PacketKind::ZeroRtt {
            self.fill_ack(now, draft, w);
        }
        if draft.kind == PacketKind::OneRtt {
            self.fill_path_frames(now, draft, w);
        }
        if shape == Shape::PathFrames {
            return;
        }
        let probing = self.space(draft.space).probes > 0;
        if permit.is_open() || probing {
            if draft.kind != PacketKind::ZeroRtt {
                self.fill_crypto(draft, w);
            }
            if draft.space == Space::Data {
                self.fill_data(now, draft, w);
            }
        }
        // While something else asks for one, its ACK does as well: a peer that
        // acknowledges nothing is not asked again and again.
        let lonely = w.written() > 0
            && self.space(draft.space).since_eliciting >= PING_AMONG_ACKS
            && !self.recovery.has_unacked(draft.space);
        let state = self.space(draft.space);
        if !draft.ack_eliciting
            && (probing || lonely || (state.ping && permit.is_open()))
            && w.remaining() > 0
        {
            Frame::Ping.encode(w);
            draft.ack_eliciting = true;
        }
    }

    fn fill_ack(&mut self, now: Instant, draft: &mut Draft, w: &mut Writer<'_>) {
        let exponent = self.tls.ack_delay_exponent;
        let state = self.space(draft.space);
        // Whoever asks whether it is heard says again what it heard: the ACKs that said
        // so are never repeated, and may be what got lost. Not in a handshake: its peer
        // may lack a first RTT sample, and would take the wait for the path's.
        let asks = draft.space == Space::Data && (state.probes > 0 || state.ping);
        if !state.ack.is_wanted() && !asks {
            return;
        }
        let Some(largest) = state.received.max() else {
            return;
        };
        let delay = (state.ack.ack_delay(now).as_micros() as u64) >> exponent;
        let ecn = state.ack.ecn_counts();
        if ack::encode(w, state.received.iter().rev(), delay, ecn) > 0 {
            state.ack.on_ack_sent();
            draft.content.push(SentFrame::Ack(largest));
        }
    }

    fn fill_path_frames(&mut self, now: Instant, draft: &mut Draft, w: &mut Writer<'_>) {
        let Some(path) = self.paths.get_mut(draft.path) else {
            return;
        };
        if w.remaining() < 2 * PATH_FRAME_LEN {
            return;
        }
        if let Some(data) = path.responses.take() {
            Frame::PathResponse(data).encode(w);
            draft.ack_eliciting = true;
            draft.expand = true;
        }
        if path.validation.challenge_due(now) {
            let credit = path.amplification.available();
            let size = MIN_DATAGRAM.min(usize::try_from(credit).unwrap_or(usize::MAX));
            let data = path.validation.send_challenge(now, size, &mut self.rng);
            Frame::PathChallenge(data).encode(w);
            draft.ack_eliciting = true;
            draft.expand = true;
        }
    }

    fn fill_crypto(&mut self, draft: &mut Draft, w: &mut Writer<'_>) {
        let crypto = &mut self.space(draft.space).crypto;
        while let Some((offset, len)) = crypto.next_to_send() {
            let header = data::crypto_header_size(offset, len);
            let len = len.min(w.remaining().saturating_sub(header));
            if len == 0 {
                return;
            }
            data::encode_crypto_header(w, offset, len);
            crypto.take(offset, w.reserve(len));
            draft.push(SentFrame::Crypto {
                offset,
                len: len as u16,
            });
        }
    }

    fn fill_data(&mut self, now: Instant, draft: &mut Draft, w: &mut Writer<'_>) {
        if draft.kind == PacketKind::OneRtt {
            self.fill_control(draft, w);
            self.fill_cids(draft, w);
        }
        let full_room = self.datagram_room();
        while let Some(datagram) = self.datagrams_out.pop(w.remaining(), full_room) {
            let len = datagram.explicit_length.then_some(datagram.data.len());
            data::encode_datagram_header(w, len);
            w.bytes(&datagram.data);
            draft.push(SentFrame::Datagram);
            if len.is_none() {
                return;
            }
        }
        let rtt = self.active_recovery().rtt().smoothed();
        let mut push = |content| draft.push(SentFrame::Stream(content));
        if w.written() > 0 {
            self.streams.fill_hurried(w, now, rtt, &mut push);
        }
        self.streams.fill(w, now, rtt, &mut push);
    }

    fn fill_control(&mut self, draft: &mut Draft, w: &mut Writer<'_>) {
        let control = &mut self.control;
        if control.handshake_done && push(w, &Frame::HandshakeDone) {
            control.handshake_done = false;
            draft.push(SentFrame::HandshakeDone);
        }
        if let Some(token) = &control.new_token
            && control.new_token_due
            && push(w, &Frame::NewToken(token))
        {
            control.new_token_due = false;
            draft.push(SentFrame::NewToken);
        }
        if let Some(request) = control.ack_frequency
            && control.ack_frequency_due
            && push(w, &request.frame())
        {
            control.ack_frequency_due = false;
            draft.push(SentFrame::AckFrequency(request.sequence));
        }
    }

    fn fill_cids(&mut self, draft: &mut Draft, w: &mut Writer<'_>) {
        while w.remaining() >= NEW_CONNECTION_ID_MAX {
            let Some(issue) = self.local_cids.next_to_send() else {
                break;
            };
            push(
                w,
                &Frame::NewConnectionId {
                    sequence: issue.sequence,
                    retire_prior_to: issue.retire_prior_to,
                    cid: issue.cid,
                    reset_token: issue.reset_token,
                },
            );
            draft.push(SentFrame::NewConnectionId(issue.sequence));
        }
        while w.remaining() >= RETIRE_CONNECTION_ID_MAX {
            let Some(sequence) = self.remote_cids.next_retire() else {
                break;
            };
            push(w, &Frame::RetireConnectionId { sequence });
            draft.push(SentFrame::RetireConnectionId(sequence));
        }
    }
}

/// Writes `frame` if it fits.
fn push(w: &mut Writer<'_>, frame: &Frame<'_>) -> bool {
    let fits = frame.size() <= w.remaining();
    if fits {
        frame.encode(w);
    }
    fits
}
