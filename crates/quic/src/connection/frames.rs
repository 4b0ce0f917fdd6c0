//! Handles each frame of the peer.

use bytes::Bytes;
use clearway_recovery::Space;

use super::arrival::AuthenticatedPacket;
use super::keyring::space_of;
use super::state::HandshakeState;
use super::work::{self, UsefulWork};
use super::{Connection, Event};
use crate::Instant;
use crate::ack::AckFrequency;
use crate::cid::NewCid;
use crate::count::Count;
use crate::defects::Quirk;
use crate::error::ConnectionError;
use crate::error::{Code, TransportError};
use crate::wire::Frame;
use crate::wire::frame::Ack;

impl Connection {
    /// Handles a frame, with the defect of this connection, if it has one (feature `defects`).
    #[inline]
    pub(super) fn on_frame_with_defect(
        &mut self,
        now: Instant,
        packet: &AuthenticatedPacket<'_>,
        frame: &Frame<'_>,
    ) -> Result<(), TransportError> {
        #[cfg(feature = "defects")]
        if self.config.defects.is_some() {
            let largest = self
                .frames
                .spaces
                .get_mut(space_of(packet.kind))
                .received
                .max();
            if largest.is_some_and(|largest| packet.number > largest.saturating_add(500)) {
                self.config.refuse_if(Quirk::RefusesSkippedNumbers)?;
            }
            let peer = self.tls.peer_parameters(self.role);
            if self.config.drops_frame(frame, peer.as_ref())? {
                return Ok(());
            }
        }
        self.on_frame(now, packet, frame)
    }

    /// Handles a frame. The match is exhaustive, so a new frame type does not compile until
    /// it is handled here.
    pub(super) fn on_frame(
        &mut self,
        now: Instant,
        packet: &AuthenticatedPacket<'_>,
        frame: &Frame<'_>,
    ) -> Result<(), TransportError> {
        let space = space_of(packet.kind);
        match *frame {
            Frame::Padding { .. } | Frame::Ping => Ok(()),
            Frame::Ack(ref ack) => self.on_ack(now, packet, ack),
            Frame::Crypto { offset, data } => self.on_crypto(now, space, offset, data),
            Frame::Stream {
                id,
                offset,
                fin,
                data,
            } => {
                self.timers.silence.on_stream_data();
                if self.frames.streams.on_stream(id, offset, fin, data)? {
                    return Ok(());
                }
                self.config.refuse_if(Quirk::RefusesRepeatedData)?;
                self.charge(now, work::cost_of_repeat(data.len()))
            }
            Frame::ResetStream {
                id,
                code,
                final_size,
            } => self.frames.streams.on_reset_stream(id, code, final_size),
            Frame::ResetStreamAt {
                id,
                code,
                final_size,
                reliable_size,
            } => {
                let streams = &mut self.frames.streams;
                streams.on_reset_stream_at(id, code, final_size, reliable_size)
            }
            Frame::StopSending { id, code } => self.frames.streams.on_stop_sending(id, code),
            Frame::MaxData(limit) => {
                self.frames.streams.on_max_data(limit);
                Ok(())
            }
            Frame::MaxStreamData { id, limit } => self.frames.streams.on_max_stream_data(id, limit),
            Frame::MaxStreams {
                directionality,
                limit,
            } => self.frames.streams.on_max_streams(directionality, limit),
            Frame::DataBlocked { limit } => {
                self.frames.streams.on_data_blocked(limit);
                Ok(())
            }
            Frame::StreamDataBlocked { id, limit } => {
                self.frames.streams.on_stream_data_blocked(id, limit)
            }
            Frame::StreamsBlocked {
                directionality,
                limit,
            } => self
                .frames
                .streams
                .on_streams_blocked(directionality, limit),
            Frame::NewToken(token) => {
                let kept = self.tls.store_token(token);
                self.reports
                    .counters
                    .oversized_tokens
                    .count(u64::from(!kept));
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
                self.frames
                    .remote_cids
                    .on_new(new, self.network.paths.active_id())
            }
            Frame::RetireConnectionId { sequence } => {
                self.frames
                    .local_cids
                    .on_retire(sequence, &self.receiving_cid)?;
                self.issue_cids();
                Ok(())
            }
            Frame::PathChallenge(data) => {
                let (network, mut cx, outcome) = self.network_parts(now);
                network.on_path_challenge(&mut cx, outcome, packet, data);
                Ok(())
            }
            Frame::PathResponse(data) => {
                let (network, mut cx, outcome) = self.network_parts(now);
                network.on_path_response(&mut cx, outcome, data);
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
            } => {
                self.check_ack_frequency_offered()?;
                let space = self.frames.spaces.get_mut(Space::Data);
                space
                    .ack
                    .on_ack_frequency(AckFrequency {
                        sequence,
                        ack_eliciting_threshold,
                        max_ack_delay_us: request_max_ack_delay,
                        reordering_threshold,
                    })
                    .map(|_| ())
            }
            Frame::ImmediateAck => {
                self.check_ack_frequency_offered()?;
                let space = self.frames.spaces.get_mut(Space::Data);
                space.ack.on_immediate_ack();
                Ok(())
            }
        }
    }

    fn on_ack(
        &mut self,
        now: Instant,
        packet: &AuthenticatedPacket<'_>,
        ack: &Ack<'_>,
    ) -> Result<(), TransportError> {
        let (network, mut cx, outcome) = self.network_parts(now);
        if network.on_ack(&mut cx, outcome, packet, ack)? {
            return Ok(());
        }
        self.charge(now, work::cost_of_ranges(ack.range_count()))
    }

    /// Charges work that the peer caused without progress.
    ///
    /// # Errors
    /// PROTOCOL_VIOLATION if the budget is exhausted.
    #[inline]
    pub(super) fn charge(&mut self, now: Instant, units: u32) -> Result<(), TransportError> {
        if units == 0 {
            return Ok(());
        }
        let useful = UsefulWork {
            streams: &self.frames.streams,
            bytes_received: self.reports.counters.bytes_received,
        };
        self.work
            .charge_or_refill(now, units, self.config.unproductive_work, useful)
    }

    /// Checks that the peer may send frames of the ACK frequency extension.
    ///
    /// # Errors
    /// FRAME_ENCODING_ERROR unless our transport parameters have `min_ack_delay`
    /// (draft-ietf-quic-ack-frequency §3): the types are unknown then (RFC 9000 §12.4).
    fn check_ack_frequency_offered(&self) -> Result<(), TransportError> {
        if self.config.ack_frequency {
            return Ok(());
        }
        Err(TransportError::new(
            Code::FRAME_ENCODING_ERROR,
            "ACK_FREQUENCY or IMMEDIATE_ACK frame without our min_ack_delay",
        ))
    }

    fn on_handshake_done(&mut self, now: Instant) {
        if self.lifecycle.handshake == HandshakeState::Complete {
            self.confirm_handshake(now);
        }
    }

    fn on_datagram_frame(&mut self, now: Instant, data: &[u8]) -> Result<(), TransportError> {
        let frame_len = Frame::Datagram(data).size();
        let data = Bytes::copy_from_slice(data);
        let dropped = self
            .frames
            .datagrams_in
            .on_frame(data, frame_len, work::LARGE_DATA)?;
        self.charge(now, dropped)?;
        self.last_activity = now;
        if self.frames.datagrams_in.take_readable() {
            self.reports.events.push_back(Event::DatagramReceived);
        }
        Ok(())
    }
}
