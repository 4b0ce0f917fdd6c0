//! What each frame of the peer does.

use bytes::Bytes;
use clearway_recovery::Space;

use super::keyring::space_of;
use super::life::{ConnectionError, Handshake};
use super::receive::Packet;
use super::{Connection, Event, work};
use crate::Instant;
use crate::ack::AckFrequency;
use crate::cid::NewCid;
use crate::count::Count;
use crate::error::TransportError;
use crate::wire::Frame;

impl Connection {
    /// Acts on one frame. Every frame type has its arm: a new one does not
    /// compile until somebody decides what it does.
    pub(crate) fn on_frame(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        frame: &Frame<'_>,
    ) -> Result<(), TransportError> {
        let space = space_of(packet.kind);
        match *frame {
            Frame::Padding { .. } | Frame::Ping => Ok(()),
            Frame::Ack(ref ack) => self.on_ack_frame(now, packet, ack),
            Frame::Crypto { offset, data } => self.on_crypto(now, space, offset, data),
            Frame::Stream {
                id,
                offset,
                fin,
                data,
            } => {
                self.end_silence();
                if self.streams.on_stream(id, offset, fin, data)? {
                    return Ok(());
                }
                self.charge_repeat(now, data.len())
            }
            Frame::ResetStream {
                id,
                code,
                final_size,
            } => self.streams.on_reset_stream(id, code, final_size),
            Frame::StopSending { id, code } => self.streams.on_stop_sending(id, code),
            Frame::MaxData(limit) => {
                self.streams.on_max_data(limit);
                Ok(())
            }
            Frame::MaxStreamData { id, limit } => self.streams.on_max_stream_data(id, limit),
            Frame::MaxStreams {
                directionality,
                limit,
            } => self.streams.on_max_streams(directionality, limit),
            Frame::DataBlocked { limit } => {
                self.streams.on_data_blocked(limit);
                Ok(())
            }
            Frame::StreamDataBlocked { id, limit } => {
                self.streams.on_stream_data_blocked(id, limit)
            }
            Frame::StreamsBlocked {
                directionality,
                limit,
            } => self.streams.on_streams_blocked(directionality, limit),
            Frame::NewToken(token) => {
                let kept = self.tls.store_token(token);
                self.counters.oversized_tokens.count(u64::from(!kept));
                Ok(())
            }
            Frame::NewConnectionId {
                sequence,
                retire_prior_to,
                cid,
                reset_token,
            } => {
                let new = NewCid {
                    sequence,
                    retire_prior_to,
                    cid,
                    reset_token,
                };
                self.remote_cids.on_new(new, self.paths.active_id())
            }
            Frame::RetireConnectionId { sequence } => {
                self.local_cids.on_retire(sequence, &self.receiving_cid)?;
                self.issue_cids();
                Ok(())
            }
            Frame::PathChallenge(data) => {
                self.on_path_challenge(now, packet, data);
                Ok(())
            }
            Frame::PathResponse(data) => {
                self.on_path_response(now, data);
                Ok(())
            }
            Frame::ConnectionClose {
                code,
                frame_type,
                reason,
            } => {
                self.on_peer_close(
                    now,
                    ConnectionError::PeerTransport(TransportError {
                        code,
                        frame: Some(frame_type).filter(|&kind| kind != 0),
                        reason: String::from_utf8_lossy(reason).into_owned().into(),
                    }),
                );
                Ok(())
            }
            Frame::ApplicationClose { code, reason } => {
                self.on_peer_close(
                    now,
                    ConnectionError::PeerApplication {
                        code,
                        reason: reason.to_vec(),
                    },
                );
                Ok(())
            }
            Frame::HandshakeDone => {
                self.on_handshake_done(now);
                Ok(())
            }
            Frame::Datagram(data) => self.on_datagram_frame(now, data),
            Frame::AckFrequency {
                sequence,
                ack_eliciting_threshold,
                request_max_ack_delay,
                reordering_threshold,
            } => self
                .space(Space::Data)
                .ack
                .on_ack_frequency(AckFrequency {
                    sequence,
                    ack_eliciting_threshold,
                    max_ack_delay_us: request_max_ack_delay,
                    reordering_threshold,
                })
                .map(|_| ()),
            Frame::ImmediateAck => {
                self.space(Space::Data).ack.on_immediate_ack();
                Ok(())
            }
        }
    }

    fn on_handshake_done(&mut self, now: Instant) {
        if self.handshake == Handshake::Complete {
            self.confirm(now);
        }
    }

    fn on_datagram_frame(&mut self, now: Instant, data: &[u8]) -> Result<(), TransportError> {
        let frame_len = Frame::Datagram(data).size();
        let data = Bytes::copy_from_slice(data);
        let dropped = self
            .datagrams_in
            .on_frame(data, frame_len, work::LARGE_DATA)?;
        self.charge_dropped(now, dropped)?;
        self.last_activity = now;
        if self.datagrams_in.take_readable() {
            self.events.push_back(Event::DatagramReceived);
        }
        Ok(())
    }
}
