//! What each frame of the peer does.

use core::time::Duration;

use clearway_recovery::Space;

use super::keyring::space_of;
use super::life::{ConnectionError, Handshake};
use super::receive::Packet;
use super::{Connection, Event};
use crate::cid::ConnectionId;
use crate::error::{Code, TransportError};
use crate::wire::{Frame, PacketKind};
use crate::Instant;

impl Connection {
    /// Acts on one frame. Every frame type has its arm: a new one does not
    /// compile until somebody decides what it does.
    pub(crate) fn on_frame(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        frame: Frame<'_>,
    ) -> Result<(), TransportError> {
        let space = space_of(packet.kind);
        match frame {
            Frame::Padding { .. } | Frame::Ping => Ok(()),
            Frame::Ack(ack) => self.on_ack_frame(now, space, &ack),
            Frame::Crypto { offset, data } => self.on_crypto(now, space, offset, data),
            Frame::Stream {
                id,
                offset,
                fin,
                data,
            } => self.streams.on_stream(id, offset, fin, data),
            Frame::ResetStream {
                id,
                error_code,
                final_size,
            } => self.streams.on_reset_stream(id, error_code, final_size),
            Frame::StopSending { id, error_code } => self.streams.on_stop_sending(id, error_code),
            Frame::MaxData { maximum } => {
                self.streams.on_max_data(maximum);
                Ok(())
            }
            Frame::MaxStreamData { id, maximum } => self.streams.on_max_stream_data(id, maximum),
            Frame::MaxStreams { directionality, maximum } => {
                self.streams.on_max_streams(directionality, maximum)
            }
            Frame::DataBlocked { .. } => Ok(()),
            Frame::StreamDataBlocked { id, limit } => self.streams.on_stream_data_blocked(id, limit),
            Frame::StreamsBlocked { directionality, limit } => {
                self.streams.on_streams_blocked(directionality, limit)
            }
            Frame::NewToken { token } => self.on_new_token(token),
            Frame::NewConnectionId {
                sequence,
                retire_prior_to,
                cid,
                reset_token,
            } => {
                self.remote_cids
                    .on_new(sequence, retire_prior_to, cid, reset_token)?;
                Ok(())
            }
            Frame::RetireConnectionId { sequence } => self.on_retire_cid(packet, sequence),
            Frame::PathChallenge { data } => {
                self.on_path_challenge(now, packet, data);
                Ok(())
            }
            Frame::PathResponse { data } => {
                self.on_path_response(now, packet, data);
                Ok(())
            }
            Frame::ConnectionClose {
                error_code,
                frame_type,
                reason,
            } => {
                self.on_peer_close(now, ConnectionError::PeerTransport(TransportError {
                    code: Code(error_code),
                    frame: Some(frame_type).filter(|&kind| kind != 0),
                    reason: String::from_utf8_lossy(reason).into_owned().into(),
                }));
                Ok(())
            }
            Frame::ApplicationClose { error_code, reason } => {
                self.on_peer_close(now, ConnectionError::PeerApplication {
                    code: error_code,
                    reason: reason.to_vec(),
                });
                Ok(())
            }
            Frame::HandshakeDone => self.on_handshake_done(now),
            Frame::Datagram { data } => self.on_datagram_frame(data),
            Frame::AckFrequency {
                sequence,
                ack_eliciting_threshold,
                request_max_ack_delay,
                reordering_threshold,
            } => self.on_ack_frequency(
                sequence,
                ack_eliciting_threshold,
                request_max_ack_delay,
                reordering_threshold,
            ),
            Frame::ImmediateAck => {
                self.space(Space::Data).ack.on_immediate_ack();
                Ok(())
            }
        }
    }

    fn on_new_token(&mut self, token: &[u8]) -> Result<(), TransportError> {
        if !self.is_client() {
            return Err(TransportError::new(
                Code::PROTOCOL_VIOLATION,
                "NEW_TOKEN from a client",
            ));
        }
        self.tls.store_token(token);
        Ok(())
    }

    fn on_retire_cid(&mut self, packet: &Packet<'_>, sequence: u64) -> Result<(), TransportError> {
        let _ = packet;
        let dcid: Option<ConnectionId> = self.receiving_cid;
        self.local_cids.on_retire(sequence, dcid.as_ref())?;
        self.issue_cids();
        Ok(())
    }

    fn on_handshake_done(&mut self, now: Instant) -> Result<(), TransportError> {
        if !self.is_client() {
            return Err(TransportError::new(
                Code::PROTOCOL_VIOLATION,
                "HANDSHAKE_DONE from a client",
            ));
        }
        if self.handshake == Handshake::Complete {
            self.confirm(now);
        }
        Ok(())
    }

    fn on_datagram_frame(&mut self, data: &[u8]) -> Result<(), TransportError> {
        if self.config.datagram_buffer == 0 {
            return Err(TransportError::new(
                Code::PROTOCOL_VIOLATION,
                "DATAGRAM although max_datagram_frame_size was not offered",
            ));
        }
        if self.datagrams.receive(data) {
            self.events.push_back(Event::DatagramReceived);
        }
        Ok(())
    }

    fn on_ack_frequency(
        &mut self,
        sequence: u64,
        threshold: u64,
        max_ack_delay: u64,
        reordering: u64,
    ) -> Result<(), TransportError> {
        if !self.config.ack_frequency {
            return Err(TransportError::new(
                Code::PROTOCOL_VIOLATION,
                "ACK_FREQUENCY although min_ack_delay was not offered",
            ));
        }
        let delay = Duration::from_micros(max_ack_delay);
        self.space(Space::Data)
            .ack
            .on_ack_frequency(sequence, threshold, delay, reordering);
        Ok(())
    }
}

/// Whether a packet of this type may carry CRYPTO for TLS of the handshake.
pub(crate) fn carries_handshake(kind: PacketKind) -> bool {
    matches!(kind, PacketKind::Initial | PacketKind::Handshake)
}
