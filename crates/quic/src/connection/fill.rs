//! Which frames go into a packet, in which order.

use core::time::Duration;
use std::collections::VecDeque;

use clearway_recovery::Space;

use super::Connection;
use super::content::SentFrame;
use super::packet::{Draft, Permit, Shape};
use crate::Instant;
use crate::stream::Sendability;
use crate::wire::{PacketKind, Writer, frame};

/// A packet with nothing but ACKs asks for an acknowledgement once in so many,
/// so that the peer's ranges can be forgotten (RFC 9000 §13.2.4).
const PING_AMONG_ACKS: u32 = 32;

/// Control frames of the connection itself that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Control {
    pub(crate) handshake_done: bool,
    /// A NEW_TOKEN for the client, until acknowledged.
    pub(crate) new_token: Option<Vec<u8>>,
    pub(crate) new_token_due: bool,
    pub(crate) ack_frequency: Option<AckFrequencyRequest>,
    pub(crate) ack_frequency_due: bool,
    /// PATH_RESPONSE etc. live with their path; IMMEDIATE_ACK is one shot.
    pub(crate) immediate_ack: bool,
    /// RETIRE_CONNECTION_ID etc. live with the CID pools.
    pub(crate) datagrams_lost: VecDeque<()>,
}

/// What we ask the peer's acknowledgements to be (draft-ietf-quic-ack-frequency §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckFrequencyRequest {
    pub(crate) sequence: u64,
    pub(crate) threshold: u64,
    pub(crate) max_ack_delay: Duration,
    pub(crate) reordering: u64,
}

impl Control {
    fn is_due(&self) -> bool {
        self.handshake_done || self.new_token_due || self.ack_frequency_due
    }
}

impl Connection {
    /// Whether 0-RTT or 1-RTT frames wait that the window and the pacer decide on.
    pub(crate) fn wants_data(&self) -> bool {
        self.control.is_due()
            || self.local_cids.has_frames_due()
            || self.remote_cids.has_frames_due()
            || self.datagrams.has_outgoing()
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
        if shape == Shape::MtuProbe {
            frame::encode_ping(w);
            draft.ack_eliciting = true;
            return;
        }
        if shape == Shape::Train && draft.kind != PacketKind::ZeroRtt {
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
        let state = self.space(draft.space);
        let lonely = state.since_eliciting >= PING_AMONG_ACKS && w.written() > 0;
        if !draft.ack_eliciting && (probing || lonely || (state.ping && permit.is_open())) && w.remaining() > 0 {
            frame::encode_ping(w);
            draft.ack_eliciting = true;
        }
    }

    fn fill_ack(&mut self, now: Instant, draft: &mut Draft, w: &mut Writer<'_>) {
        let exponent = self.tls.local_ack_delay_exponent;
        let state = self.space(draft.space);
        if !state.ack.is_worth_bundling(now) {
            return;
        }
        let Some(largest) = state.received.max() else {
            return;
        };
        let delay = match draft.space {
            // RFC 9000 §13.2.5: the field is ignored there, so say nothing.
            Space::Initial | Space::Handshake => 0,
            Space::Data => {
                let delay = now.saturating_since(state.largest_received_at);
                (delay.as_micros() as u64) >> exponent
            }
        };
        let ecn = state.ack.ecn_counts();
        if frame::encode_ack(w, state.received.iter_descending(), delay, ecn) {
            state.ack.on_ack_sent();
            draft.content.push(SentFrame::Ack(largest));
        }
    }

    fn fill_path_frames(&mut self, now: Instant, draft: &mut Draft, w: &mut Writer<'_>) {
        let pto = self.pto_of(draft.path);
        let data = self.rng.u64().to_be_bytes();
        let Some(path) = self.paths.get_mut(draft.path) else {
            return;
        };
        if w.remaining() < 2 * frame::PATH_FRAME_LEN {
            return;
        }
        if let Some(data) = path.validation.take_response() {
            frame::encode_path_response(w, data);
            draft.ack_eliciting = true;
            draft.expand = true;
        }
        if path.validation.challenge_due() {
            path.validation.on_challenge_sent(data, now, pto);
            frame::encode_path_challenge(w, data);
            draft.ack_eliciting = true;
            draft.expand = true;
        }
    }

    fn fill_crypto(&mut self, draft: &mut Draft, w: &mut Writer<'_>) {
        let crypto = &mut self.space(draft.space).crypto;
        while let Some((offset, len)) = crypto.next_to_send() {
            let Some(len) = frame::fit_crypto(w.remaining(), offset, len) else {
                return;
            };
            frame::encode_crypto_header(w, offset, len);
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
        while let Some(data) = self.datagrams.pop_fitting(w.remaining()) {
            frame::encode_datagram(w, &data);
            draft.push(SentFrame::Datagram);
        }
        let rtt = self.recovery.active_rtt().smoothed();
        self.streams
            .fill(w, now, rtt, &mut |content| draft.push(SentFrame::Stream(content)));
    }

    fn fill_control(&mut self, draft: &mut Draft, w: &mut Writer<'_>) {
        let control = &mut self.control;
        if control.handshake_done && w.remaining() > 0 {
            frame::encode_handshake_done(w);
            control.handshake_done = false;
            draft.push(SentFrame::HandshakeDone);
        }
        if let Some(token) = &control.new_token
            && control.new_token_due
            && frame::new_token_len(token.len()) <= w.remaining()
        {
            frame::encode_new_token(w, token);
            control.new_token_due = false;
            draft.push(SentFrame::NewToken);
        }
        if let Some(request) = control.ack_frequency
            && control.ack_frequency_due
            && w.remaining() >= frame::ACK_FREQUENCY_MAX_LEN
        {
            frame::encode_ack_frequency(
                w,
                request.sequence,
                request.threshold,
                request.max_ack_delay.as_micros() as u64,
                request.reordering,
            );
            control.ack_frequency_due = false;
            draft.push(SentFrame::AckFrequency(request.sequence));
        }
    }

    fn fill_cids(&mut self, draft: &mut Draft, w: &mut Writer<'_>) {
        while w.remaining() >= frame::NEW_CONNECTION_ID_MAX_LEN {
            let Some(issue) = self.local_cids.next_to_send() else {
                break;
            };
            frame::encode_new_connection_id(w, &issue);
            draft.push(SentFrame::NewConnectionId(issue.sequence));
        }
        while w.remaining() >= frame::RETIRE_CONNECTION_ID_MAX_LEN {
            let Some(sequence) = self.remote_cids.next_to_retire() else {
                break;
            };
            frame::encode_retire_connection_id(w, sequence);
            draft.push(SentFrame::RetireConnectionId(sequence));
        }
    }
}
