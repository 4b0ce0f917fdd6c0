//! What arrives: packets are opened, and their frames acted upon.

use std::time::Instant;

use clearway_quic::wire::Frames;
use clearway_quic::wire::frame::{Ack, Frame};
use rustls::Side;

use super::{PacketOptions, RawConnection};
use crate::raw::observed::{Kept, Observed, Reset, VersionNegotiation};
use crate::wire::codes::ErrorSpace;
use crate::wire::packet::{self, Header, Level};
use crate::wire::parameters::Parameters;
use crate::wire::put_varint;

impl RawConnection {
    /// Processes a datagram.
    pub(crate) fn receive(&mut self, datagram: &mut [u8], observed: &mut Observed) {
        let token = datagram.last_chunk::<16>().copied();
        let size = datagram.len();
        let mut at = 0;
        let mut understood = false;
        while at < datagram.len() {
            match packet::parse(datagram, at, self.local_cid.len()) {
                Some(Header::VersionNegotiation {
                    dcid,
                    scid,
                    versions,
                }) => {
                    observed.version_negotiation = Some(VersionNegotiation {
                        dcid,
                        scid,
                        versions,
                    });
                    return;
                }
                Some(Header::Retry { scid, token }) => {
                    observed.retries += 1;
                    self.on_retry(scid, token);
                    return;
                }
                Some(Header::Protected {
                    level,
                    scid,
                    number_at,
                    packet,
                    ..
                }) => {
                    at = packet.end;
                    let start = packet.start;
                    let Some(bytes) = datagram.get_mut(packet) else {
                        break;
                    };
                    let opened = self.open(level, bytes, number_at - start, observed);
                    if opened && self.side == Side::Client && level == Level::Initial {
                        self.remote_cid = scid;
                    }
                    understood |= opened;
                }
                None => break,
            }
        }
        if understood {
            return;
        }
        match token {
            Some(token) if size >= 21 && self.reset_tokens.contains(&token) => {
                observed.stateless_reset = Some(true);
            }
            Some(_) | None => observed.undecryptable.push(size),
        }
    }

    /// Begins anew with the token of a Retry (RFC 9000 §17.2.5.2).
    fn on_retry(&mut self, scid: Vec<u8>, token: Vec<u8>) {
        if self.side == Side::Server || self.retried || token.is_empty() {
            return;
        }
        self.keys
            .set_initial(packet::initial_keys(&scid, Side::Client));
        self.remote_cid = scid;
        self.retried = true;
        self.token = token;
        let now = Instant::now();
        for packet in &mut self.in_flight {
            packet.due = now;
        }
        self.repeat_lost(now);
    }

    fn open(
        &mut self,
        level: Level,
        packet: &mut [u8],
        number_at: usize,
        observed: &mut Observed,
    ) -> bool {
        let largest = self.spaces[level.space()].largest_received;
        let Some(opened) = self.keys.open(level, packet, number_at, largest) else {
            return false;
        };
        let space = &mut self.spaces[level.space()];
        if !space.on_received(opened.number) {
            return true;
        }
        if let Some(kept) = &mut observed.kept {
            kept.push(Kept {
                level,
                number: opened.number,
                first: opened.first,
                updated: opened.updated,
                payload: opened.payload.clone(),
            });
        }
        let mut eliciting = opened.payload.is_empty();
        for frame in Frames::new(&opened.payload) {
            let Ok(frame) = frame else {
                // Not for us to judge, but it wants an acknowledgement.
                eliciting = true;
                observed.on_frame(u64::MAX);
                break;
            };
            eliciting |= frame.is_ack_eliciting();
            observed.on_frame(frame.frame_type());
            self.on_frame(level, &frame, observed);
        }
        self.spaces[level.space()].ack_due |= eliciting;
        true
    }

    fn on_frame(&mut self, level: Level, frame: &Frame<'_>, observed: &mut Observed) {
        match frame {
            Frame::Ack(ack) => self.on_ack(level, ack),
            Frame::Crypto { offset, data } => self.on_crypto(level, *offset, data),
            Frame::Stream {
                id,
                offset,
                fin,
                data,
            } => {
                let stream = observed.streams.entry(id.as_u64()).or_default();
                stream.push(*offset, data, *fin);
            }
            Frame::ResetStream { id, code, .. } | Frame::ResetStreamAt { id, code, .. } => observed
                .on_reset(Reset {
                    stream: id.as_u64(),
                    stop: false,
                    code: *code,
                }),
            Frame::StopSending { id, code } => observed.on_reset(Reset {
                stream: id.as_u64(),
                stop: true,
                code: *code,
            }),
            Frame::ConnectionClose {
                code,
                frame_type,
                reason,
            } => {
                observed.on_close(
                    level,
                    ErrorSpace::Transport,
                    code.0,
                    Some(*frame_type),
                    reason,
                );
            }
            Frame::ApplicationClose { code, reason } => {
                observed.on_close(level, ErrorSpace::Application, *code, None, reason);
            }
            Frame::PathChallenge(data) if self.responsive && self.side == Side::Client => {
                let mut answer = vec![0x1b];
                answer.extend_from_slice(data);
                // As large as the path has to be (RFC 9000 §8.2.2).
                answer.resize(1_150, 0);
                self.send(Level::OneRtt, &answer, PacketOptions::default());
            }
            Frame::MaxData(limit) => self.max_data = self.max_data.max(*limit),
            Frame::MaxStreams {
                directionality,
                limit,
            } => {
                let limits = &mut self.max_streams[*directionality as usize];
                *limits = (*limits).max(*limit);
            }
            Frame::HandshakeDone => {
                observed.handshake_done = true;
                self.forget_handshake();
            }
            Frame::NewConnectionId {
                cid,
                reset_token,
                retire_prior_to,
                ..
            } => {
                self.reset_tokens.push(reset_token.0);
                if *retire_prior_to > 0 {
                    self.remote_cid = cid.to_vec();
                    for sequence in 0..(*retire_prior_to).min(64) {
                        let mut retire = vec![0x19];
                        put_varint(&mut retire, sequence);
                        self.send(Level::OneRtt, &retire, PacketOptions::default());
                    }
                }
            }
            Frame::Padding { .. }
            | Frame::Ping
            | Frame::NewToken(_)
            | Frame::MaxStreamData { .. }
            | Frame::DataBlocked { .. }
            | Frame::StreamDataBlocked { .. }
            | Frame::StreamsBlocked { .. }
            | Frame::RetireConnectionId { .. }
            | Frame::PathChallenge(_)
            | Frame::PathResponse(_)
            | Frame::Datagram(_)
            | Frame::AckFrequency { .. }
            | Frame::ImmediateAck => {}
        }
    }

    fn on_ack(&mut self, level: Level, ack: &Ack<'_>) {
        let ranges: Vec<_> = ack.ranges().collect();
        self.in_flight.retain(|packet| {
            let acked = |number| ranges.iter().any(|range| range.contains(number));
            packet.level.space() != level.space() || !packet.numbers.iter().any(acked)
        });
    }

    fn on_crypto(&mut self, level: Level, offset: u64, data: &[u8]) {
        let stream = &mut self.spaces[level.space()].crypto_received;
        stream.push(offset, data, false);
        if self.hold_tls {
            return;
        }
        let bytes = stream.take();
        self.tls.read(&bytes, &mut self.keys);
        if self.peer_parameters.is_none()
            && let Some(bytes) = self.tls.peer_parameters()
        {
            let parameters = Parameters::decode(bytes);
            self.max_data = parameters.integer(0x04);
            self.max_streams = [parameters.integer(0x08), parameters.integer(0x09)];
            if let Some(token) = parameters.get(0x02).and_then(|token| token.try_into().ok()) {
                self.reset_tokens.push(token);
            }
            self.peer_parameters = Some(parameters);
        }
    }
}
