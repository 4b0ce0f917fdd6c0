//! Which frames are written into a packet, and in which order.

use clearway_recovery::Space;

use super::control::push;
use super::packet::{DatagramPurpose, PacketDraft, PacketWriter, SendPermit};
use super::sent_frame::SentFrame;
use crate::cid::id::MAX_CID_LEN;
use crate::wire::frame::{ack, data};
use crate::wire::{Frame, PacketKind, Writer};

/// After this many packets with nothing but ACKs, a PING is added to one, so that the
/// peer's acknowledgement lets old ranges be forgotten (RFC 9000 §13.2.4).
const PING_AMONG_ACKS: u32 = 32;

/// Type and eight bytes.
const PATH_FRAME_LEN: usize = 9;

/// Type, two numbers, length, connection ID, token (RFC 9000 §19.15).
const NEW_CONNECTION_ID_MAX: usize = 1 + 8 + 8 + 1 + MAX_CID_LEN + 16;

/// Type and number (RFC 9000 §19.16).
const RETIRE_CONNECTION_ID_MAX: usize = 1 + 8;

impl PacketWriter<'_> {
    /// Writes the frames of one packet into `w`.
    pub(super) fn fill(
        &mut self,
        draft: &mut PacketDraft,
        w: &mut Writer<'_>,
        permit: SendPermit,
        purpose: DatagramPurpose,
    ) {
        if purpose == DatagramPurpose::Close {
            return self.lifecycle.fill_close(draft.kind, w);
        }
        if purpose == DatagramPurpose::MtuProbe {
            Frame::Ping.encode(w);
            draft.ack_eliciting = true;
            return;
        }
        let ordinary = matches!(
            purpose,
            DatagramPurpose::Ordinary | DatagramPurpose::OrdinaryNotLast
        );
        let has_news = ordinary && draft.kind != PacketKind::ZeroRtt && self.fill_ack(draft, w);
        if draft.kind == PacketKind::OneRtt {
            self.fill_path_frames(draft, w);
        }
        if purpose == DatagramPurpose::PathFrames {
            return;
        }
        let probing = self.frames.spaces.get_mut(draft.space).probes > 0;
        if permit.is_open() || probing {
            self.fill_queued(draft, w);
        }
        // Not while another ack-eliciting packet is unacknowledged, whose ACK serves as
        // well: a peer that acknowledges nothing is not asked again and again.
        let lonely = w.written() > 0
            && self.frames.spaces.get_mut(draft.space).since_eliciting >= PING_AMONG_ACKS
            && !self.network.recovery.has_unacked(draft.space);
        if probing && !draft.ack_eliciting {
            match draft.space {
                Space::Initial | Space::Handshake => self.repeat_crypto(draft, w),
                Space::Data => self.repeat_newest(draft, w),
            }
        }
        let state = self.frames.spaces.get_mut(draft.space);
        if !draft.ack_eliciting
            && (probing || lonely || (state.ping && permit.is_open()))
            && w.remaining() > 0
        {
            Frame::Ping.encode(w);
            draft.ack_eliciting = true;
        }
        if has_news && !draft.ack_eliciting {
            state.ack.on_sent_alone();
        }
    }

    /// Writes an ACK frame if one is wanted. Returns whether it acknowledges what none did before.
    fn fill_ack(&mut self, draft: &mut PacketDraft, w: &mut Writer<'_>) -> bool {
        let exponent = self.tls.ack_delay_exponent;
        let state = self.frames.spaces.get_mut(draft.space);
        // A probe or PING repeats the acknowledgements, since earlier ACK frames are never
        // retransmitted and may have been lost. Not during the handshake: the peer may lack
        // a first RTT sample, and would mistake the delay for the path's.
        let asks = draft.space == Space::Data && (state.probes > 0 || state.ping);
        // Nor during the handshake is what was sent alone repeated.
        let repeats = draft.space == Space::Data && state.ack.is_repeat_wanted();
        let has_news = state.ack.is_wanted();
        if !has_news && !asks && !repeats {
            return false;
        }
        let Some(largest) = state.received.max() else {
            return false;
        };
        let delay = (state.ack.ack_delay(self.now).as_micros() as u64) >> exponent;
        let ecn = state.ack.ecn_counts();
        let ranges = ack::encode(w, state.received.ranges_to_report(), delay, ecn);
        if ranges > 0 {
            state.ack.on_ack_sent();
            state.received.on_reported(ranges);
            draft.content.push(SentFrame::Ack(largest));
        }
        has_news && ranges > 0
    }

    fn fill_path_frames(&mut self, draft: &mut PacketDraft, w: &mut Writer<'_>) {
        let Some(path) = self.network.paths.get_mut(draft.path) else {
            return;
        };
        // Room for a challenge is left, which is what gets the path on.
        while w.remaining() >= 2 * PATH_FRAME_LEN
            && let Some(data) = path.next_response()
        {
            Frame::PathResponse(data).encode(w);
            draft.ack_eliciting = true;
            draft.expand = true;
        }
        if w.remaining() >= PATH_FRAME_LEN
            && let Some(data) = path.next_challenge(self.now, self.rng)
        {
            Frame::PathChallenge(data).encode(w);
            draft.ack_eliciting = true;
            draft.expand = true;
        }
    }

    /// Writes what is queued in the packet's space.
    fn fill_queued(&mut self, draft: &mut PacketDraft, w: &mut Writer<'_>) {
        if draft.kind != PacketKind::ZeroRtt {
            self.fill_crypto(draft, w);
        }
        if draft.space == Space::Data {
            self.fill_data(draft, w);
        }
    }

    fn fill_crypto(&mut self, draft: &mut PacketDraft, w: &mut Writer<'_>) {
        let crypto = &mut self.frames.spaces.get_mut(draft.space).crypto;
        while let Some((offset, len)) = crypto.next_to_send() {
            let header = data::crypto_header_size(offset, len);
            let len = len.min(w.remaining().saturating_sub(header));
            if len == 0 {
                return;
            }
            data::encode_crypto_header(w, offset, len);
            let Some(out) = w.reserve(len) else {
                return;
            };
            crypto.take(offset, out);
            draft.push(SentFrame::Crypto {
                offset,
                len: len as u16,
            });
        }
    }

    /// Repeats handshake data in a probe that would hold a PING alone. If the first of two probes
    /// is lost, the second still helps, and some servers refuse an Initial without CRYPTO
    /// (RFC 9002 §6.2.4: preferably data).
    fn repeat_crypto(&mut self, draft: &mut PacketDraft, w: &mut Writer<'_>) {
        let crypto = &mut self.frames.spaces.get_mut(draft.space).crypto;
        if draft.kind != PacketKind::ZeroRtt && crypto.has_unacked() {
            crypto.resend_all();
            self.fill_crypto(draft, w);
        }
    }

    /// Repeats the newest packet in a probe that would hold a PING alone, which is what the first of
    /// two probes carries. Of two that hold different frames, the one that matters may be the one
    /// that is lost, each time (RFC 9002 §6.2.4: preferably data).
    fn repeat_newest(&mut self, draft: &mut PacketDraft, w: &mut Writer<'_>) {
        let Some((_, newest)) = self.network.recovery.unacked(draft.space).last() else {
            return;
        };
        let counters = &mut self.reports.counters;
        self.frames.repeat(draft.space, newest, counters);
        self.fill_queued(draft, w);
    }

    fn fill_data(&mut self, draft: &mut PacketDraft, w: &mut Writer<'_>) {
        if draft.kind == PacketKind::OneRtt {
            let control = &mut self.frames.control;
            draft.ack_eliciting |= control.immediate_ack.fill(w);
            control.fill(w, |frame| draft.push(frame));
            self.fill_cids(draft, w);
        }
        let full_room = self.network.datagram_room(self.frames);
        while let Some(datagram) = self.frames.datagrams_out.pop(w.remaining(), full_room) {
            let len = datagram.explicit_length.then_some(datagram.data.len());
            data::encode_datagram_header(w, len);
            w.bytes(&datagram.data);
            draft.push(SentFrame::Datagram);
            if len.is_none() {
                draft.last_frame_is_open = true;
                return;
            }
        }
        let rtt = self.network.active_recovery().rtt().smoothed();
        let mut push = |content| draft.push(SentFrame::Stream(content));
        if w.written() > 0 {
            self.frames
                .streams
                .fill_urgent_credit(w, self.now, rtt, &mut push);
        }
        self.frames.streams.fill(w, self.now, rtt, &mut push);
    }

    fn fill_cids(&mut self, draft: &mut PacketDraft, w: &mut Writer<'_>) {
        while w.remaining() >= NEW_CONNECTION_ID_MAX {
            let Some(issue) = self.frames.local_cids.next_to_send() else {
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
            let Some(sequence) = self.frames.remote_cids.next_retire() else {
                break;
            };
            push(w, &Frame::RetireConnectionId { sequence });
            draft.push(SentFrame::RetireConnectionId(sequence));
        }
    }
}
