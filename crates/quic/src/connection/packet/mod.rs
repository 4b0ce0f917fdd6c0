//! Writing a datagram: its packets, headers, padding, sealing, and their entries in the
//! ledger.

#[cfg(feature = "testing")]
mod forge;

use clearway_recovery::{PathId, SentInfo, Space};

#[cfg(feature = "testing")]
pub use self::forge::Forgery;

use super::config::Config;
use super::keyring::Keyring;
use super::lifecycle::Lifecycle;
use super::network::{MIN_PACKET, Network};
use super::owners::FrameOwners;
use super::reports::Reports;
use super::sent_frame::{SentFrame, SentFrames};
use super::skipped_numbers::SkippedNumbers;
use super::timers::Timers;
use super::tls::Tls;
use crate::count::Count;
use crate::crypto::TAG_LEN;
use crate::error::{Code, TransportError};
use crate::event::TraceEvent;
use crate::path::ecn::Mark;
use crate::rng::Rng;
use crate::wire::header::{HeaderPositions, LongHeader, LongKind, ShortHeader};
use crate::wire::{MIN_MTU, PacketKind, TruncatedNumber, Writer};
use crate::{Instant, Role};

/// Fewest bytes of packet number and payload together (RFC 9001 §5.4.2).
const MIN_PAYLOAD: usize = 4;

/// Room below which no further packet is coalesced.
const MIN_PACKET_ROOM: usize = 128;

/// A datagram that is followed by more data is padded if at most this much room is left in
/// it: a shorter one ends its train, and another system call costs more than these bytes.
const MAX_FILL_PADDING: usize = 48;

/// What congestion window and pacer allow to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendPermit {
    /// This many more bytes in flight.
    Bytes(u64),
    /// Nothing but acknowledgements, path frames and probes.
    Closed,
}

impl SendPermit {
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Self::Bytes(bytes) if bytes > 0)
    }

    /// Closes it unless it allows a datagram of `size` bytes: a window that has room for half of
    /// one does not open for it (RFC 9002 §7).
    pub(crate) fn require(&mut self, size: usize) {
        if matches!(self, Self::Bytes(bytes) if *bytes < size as u64) {
            *self = Self::Closed;
        }
    }

    fn spend(&mut self, size: usize) {
        if let Self::Bytes(bytes) = self {
            *bytes = bytes.saturating_sub(size as u64);
        }
    }
}

/// The purpose of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatagramPurpose {
    /// Everything that is due.
    Ordinary,
    /// The same, and another datagram of its size may follow in the train.
    OrdinaryNotLast,
    /// Only path frames, padded to 1,200 bytes.
    PathFrames,
    /// PING and padding to the whole slot.
    MtuProbe,
    /// CONNECTION_CLOSE.
    Close,
}

/// A packet being written: its header is written, and its frames follow.
pub(crate) struct PacketDraft {
    pub(crate) kind: PacketKind,
    pub(crate) space: Space,
    pub(crate) path: PathId,
    number: u64,
    number_len: usize,
    at: HeaderPositions,
    pub(crate) content: SentFrames,
    pub(crate) ack_eliciting: bool,
    /// A frame in it requires a datagram of 1,200 bytes.
    pub(crate) expand: bool,
    /// Its last frame has no length and extends to the end of the packet, so padding comes
    /// before the frames.
    pub(crate) last_frame_is_open: bool,
}

impl PacketDraft {
    /// Returns the room for frames in a packet that fills `slot`, between header and tag;
    /// `None` if it is too small for the smallest payload.
    fn payload<'a>(&self, slot: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let end = slot.len().checked_sub(TAG_LEN)?;
        let payload = slot.get_mut(self.at.payload_at..end)?;
        (payload.len().saturating_add(self.number_len) >= MIN_PAYLOAD).then_some(payload)
    }

    /// Returns the size of the packet with a payload of `payload` bytes.
    fn size(&self, payload: usize) -> usize {
        payload
            .saturating_add(self.at.payload_at)
            .saturating_add(TAG_LEN)
    }

    /// Records an ack-eliciting frame.
    pub(crate) fn push(&mut self, frame: SentFrame) {
        self.ack_eliciting = true;
        self.content.push(frame);
    }
}

/// Writes packets; borrows the parts of a connection that this needs.
pub(crate) struct PacketWriter<'a> {
    pub(super) now: Instant,
    pub(super) role: Role,
    pub(super) config: &'a Config,
    pub(super) rng: &'a mut Rng,
    pub(super) lifecycle: &'a Lifecycle,
    pub(super) tls: &'a Tls,
    pub(super) keys: &'a mut Keyring,
    pub(super) network: &'a mut Network,
    pub(super) frames: &'a mut FrameOwners,
    pub(super) skipped_numbers: &'a mut SkippedNumbers,
    pub(super) timers: &'a mut Timers,
    pub(super) reports: &'a mut Reports,
    /// Why a packet could not be written. Nothing more is written then, and the connection
    /// must be closed.
    pub(super) failed: Option<TransportError>,
}

impl PacketWriter<'_> {
    /// Fills `slot` with a datagram for path `id`. Returns its length; 0 if nothing was
    /// due.
    pub(crate) fn write_datagram(
        &mut self,
        id: PathId,
        slot: &mut [u8],
        permit: &mut SendPermit,
        purpose: DatagramPurpose,
    ) -> usize {
        if !self.frames.remote_cids.has_cid(id) {
            // The peer retired the connection ID and has not issued another yet.
            return 0;
        }
        if self.failed.is_some() {
            // An earlier datagram could not be written.
            return 0;
        }
        let room = slot.len();
        let mut rest = slot;
        let mut expand = 0;
        let mut spaces = self.keys.sending_spaces().iter();
        while let Some(&space) = spaces.next() {
            let len = room.saturating_sub(rest.len());
            // A datagram that must be larger gets another packet, even an empty one.
            let owed = expand > len && len > 0;
            let least = if len == 0 {
                MIN_PACKET
            } else {
                MIN_PACKET_ROOM
            };
            if rest.len() < least || !(owed || self.has_something_for(space, id, *permit, purpose))
            {
                continue;
            }
            let Some(kind) = self.keys.sending_kind(space) else {
                continue;
            };
            // The longest headers do not fit if there is little credit or room (RFC 9000
            // §8.1).
            let Some(mut draft) = self.start_packet(kind, space, id, rest) else {
                continue;
            };
            let Some(payload) = draft.payload(rest) else {
                continue;
            };
            let mut body = Writer::new(payload);
            self.fill(&mut draft, &mut body, *permit, purpose);
            if body.overflowed() {
                self.failed = Some(overflow());
                break;
            }
            let filled = body.written();
            if filled == 0 && !owed {
                continue;
            }
            if draft.expand
                || (kind == PacketKind::Initial
                    && (self.role == Role::Client || draft.ack_eliciting))
            {
                expand = usize::from(MIN_MTU).min(room);
            }
            let used = len.saturating_add(draft.size(filled));
            let left = room.saturating_sub(used);
            let more = spaces
                .as_slice()
                .iter()
                .any(|&later| self.has_something_for(later, id, *permit, purpose));
            let target = if purpose == DatagramPurpose::MtuProbe {
                room
            } else if more && left >= MIN_PACKET_ROOM {
                0
            } else if purpose == DatagramPurpose::OrdinaryNotLast
                && left <= MAX_FILL_PADDING
                && self.has_more_data(kind, *permit, room)
            {
                room
            } else {
                expand
            };
            let padding = target.saturating_sub(used);
            match self.finish_packet(draft, rest, filled, padding, purpose) {
                Ok(size) => {
                    permit.spend(size);
                    rest = core::mem::take(&mut rest)
                        .get_mut(size..)
                        .unwrap_or_default();
                }
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
        }
        let len = room.saturating_sub(rest.len());
        if len > 0 {
            self.on_datagram_sent(id, len);
        }
        len
    }

    /// Returns whether `space` has something that may be sent now.
    fn has_something_for(
        &self,
        space: Space,
        id: PathId,
        permit: SendPermit,
        purpose: DatagramPurpose,
    ) -> bool {
        let Some(kind) = self.keys.sending_kind(space) else {
            return false;
        };
        match purpose {
            DatagramPurpose::Ordinary | DatagramPurpose::OrdinaryNotLast => {}
            DatagramPurpose::PathFrames | DatagramPurpose::MtuProbe => return space == Space::Data,
            DatagramPurpose::Close => return self.lifecycle.sends_close_in(kind),
        }
        let early = kind == PacketKind::ZeroRtt;
        let Some(state) = self.frames.spaces.get(space) else {
            return false;
        };
        let path_frames = kind == PacketKind::OneRtt
            && self
                .network
                .paths
                .get(id)
                .is_some_and(|path| path.has_frames_due(self.now));
        if state.probes > 0 || (!early && state.ack.is_due(self.now)) || path_frames {
            return true;
        }
        permit.is_open()
            && (state.ping
                || (!early && state.crypto.has_data_to_send())
                || (space == Space::Data && self.frames.has_pending_data()))
    }

    /// Returns whether there is something to send on the active path if window and pacer allow it.
    pub(super) fn has_anything_for(&self, id: PathId) -> bool {
        let permit = SendPermit::Bytes(u64::MAX);
        let spaces = self.keys.sending_spaces();
        spaces
            .iter()
            .any(|&space| self.has_something_for(space, id, permit, DatagramPurpose::Ordinary))
    }

    /// Returns whether another datagram of `room` bytes may follow this one, and has data.
    fn has_more_data(&self, kind: PacketKind, permit: SendPermit, room: usize) -> bool {
        let both = (room as u64).saturating_mul(2);
        let allowed = matches!(permit, SendPermit::Bytes(bytes) if bytes >= both);
        kind == PacketKind::OneRtt && allowed && self.frames.has_pending_data()
    }

    fn start_packet(
        &mut self,
        kind: PacketKind,
        space: Space,
        id: PathId,
        slot: &mut [u8],
    ) -> Option<PacketDraft> {
        let number = self.network.recovery.next_number(space);
        let truncated = TruncatedNumber::new(number, self.network.recovery.largest_acked(space));
        self.write_header(kind, space, id, number, truncated, slot)
    }

    /// Writes the header of a packet. Returns `None` if it does not fit.
    pub(super) fn write_header(
        &mut self,
        kind: PacketKind,
        space: Space,
        id: PathId,
        number: u64,
        truncated: TruncatedNumber,
        slot: &mut [u8],
    ) -> Option<PacketDraft> {
        let fixed_bit = !(self.tls.grease_quic_bit && self.rng.coin());
        let (dcid, spin) = self.frames.remote_cids.cid_and_spin(id);
        let mut writer = Writer::new(slot);
        let long = match kind {
            PacketKind::Initial => Some(LongKind::Initial {
                token: &self.tls.token,
            }),
            PacketKind::ZeroRtt => Some(LongKind::ZeroRtt),
            PacketKind::Handshake => Some(LongKind::Handshake),
            PacketKind::OneRtt => None,
        };
        let at = match long {
            Some(long) => LongHeader {
                kind: long,
                version: self.tls.version_of(kind),
                dcid,
                scid: self.tls.local_cid,
                number: truncated,
                fixed_bit,
            }
            .encode(&mut writer)?,
            None => ShortHeader {
                spin,
                key_phase: self.keys.key_phase(),
                dcid,
                number: truncated,
                fixed_bit,
            }
            .encode(&mut writer)?,
        };
        Some(PacketDraft {
            kind,
            space,
            path: id,
            number,
            number_len: truncated.size(),
            at,
            content: SentFrames::new(),
            ack_eliciting: false,
            expand: false,
            last_frame_is_open: false,
        })
    }

    /// Pads the packet, writes its length, seals it, and enters it in the ledger. Returns
    /// its size.
    #[inline]
    pub(super) fn finish_packet(
        &mut self,
        draft: PacketDraft,
        slot: &mut [u8],
        filled: usize,
        padding: usize,
        purpose: DatagramPurpose,
    ) -> Result<usize, TransportError> {
        // The header-protection sample starts four bytes after the number's
        // start, so number and payload make four at least (RFC 9001 §5.4.2).
        let short = MIN_PAYLOAD.saturating_sub(filled.saturating_add(draft.number_len));
        let padding = padding.max(short);
        let size = draft.size(filled.saturating_add(padding));
        let packet = slot.get_mut(..size).ok_or_else(overflow)?;
        let payload = draft.payload(packet).ok_or_else(overflow)?;
        let padded = if draft.last_frame_is_open {
            payload.copy_within(..filled, padding);
            payload.get_mut(..padding)
        } else {
            payload.get_mut(filled..)
        };
        padded.ok_or_else(overflow)?.fill(0);
        if !draft.at.finish(packet, size) {
            return Err(overflow());
        }
        // PADDING alone also counts in flight (RFC 9002 §2).
        let in_flight = draft.ack_eliciting || (padding > 0 && purpose != DatagramPurpose::Close);
        // Sealing would hide the frames.
        let ecn = self
            .network
            .paths
            .get(draft.path)
            .map_or(Mark::NotEct, |path| path.train_mark);
        self.reports.trace(self.now, || TraceEvent::PacketSent {
            kind: draft.kind,
            number: draft.number,
            size: size as u16,
            ack_eliciting: draft.ack_eliciting,
            in_flight,
            mtu_probe: purpose == DatagramPurpose::MtuProbe,
            ecn,
            payload: packet
                .get(draft.at.payload_at..)
                .and_then(|payload| payload.get(..filled))
                .unwrap_or_default(),
        });
        let (header_len, number_len) = (draft.at.payload_at, draft.number_len);
        self.keys
            .seal(draft.kind, draft.number, packet, header_len, number_len)?;
        self.on_packet_sent(draft, size, in_flight, purpose);
        Ok(size)
    }

    fn on_packet_sent(
        &mut self,
        draft: PacketDraft,
        size: usize,
        in_flight: bool,
        purpose: DatagramPurpose,
    ) {
        let now = self.now;
        let pto = self.network.pto_of(draft.path);
        let mut ect = false;
        if let Some(path) = self.network.paths.get_mut(draft.path) {
            let mark = path.train_mark;
            ect = mark != Mark::NotEct;
            path.busy |= draft.ack_eliciting;
            let space = self.frames.spaces.get_mut(draft.space);
            path.ecn.on_sent(&mut space.ecn, mark, now, pto);
        }
        if draft.path == self.network.paths.active_id() {
            let ecn = self.network.paths.active().ecn.state();
            self.reports.trace.ecn(now, ecn);
        }
        let state = self.frames.spaces.get_mut(draft.space);
        if draft.ack_eliciting {
            state.probes = state.probes.saturating_sub(1);
            state.ping = false;
            state.since_eliciting = 0;
            self.timers.on_ack_eliciting_sent(now, self.config);
        } else {
            state.since_eliciting = state.since_eliciting.saturating_add(1);
        }
        self.reports.counters.packets_sent.count_one();
        self.network.recovery.on_sent(
            SentInfo {
                space: draft.space,
                path: draft.path,
                number: draft.number,
                now,
                size: size as u16,
                ack_eliciting: draft.ack_eliciting,
                in_flight,
                mtu_probe: purpose == DatagramPurpose::MtuProbe,
                ect,
            },
            draft.content,
        );
        self.maybe_skip_number(draft.space);
        if draft.kind == PacketKind::Handshake && self.role == Role::Client {
            // RFC 9001 §4.9.1: the client's first Handshake packet ends Initial.
            let (keys, frames) = (&mut *self.keys, &mut *self.frames);
            self.network
                .discard_space(now, Space::Initial, keys, frames, self.reports);
        }
    }

    /// Skips a packet number now and then, to detect a peer that acknowledges packets that
    /// it has not received (RFC 9000 §21.4).
    fn maybe_skip_number(&mut self, space: Space) {
        if space != Space::Data {
            return;
        }
        let next = self.network.recovery.next_number(space);
        if self.skipped_numbers.should_skip(next, self.rng) {
            self.network.recovery.skip_number(space);
        }
    }

    fn on_datagram_sent(&mut self, id: PathId, len: usize) {
        self.reports.counters.datagrams_sent.count_one();
        self.reports.counters.bytes_sent.count(len as u64);
        if let Some(path) = self.network.paths.get_mut(id) {
            path.on_sent(len);
        }
    }
}

/// Returns the error for a miscalculated size. The packet is not sent.
#[cold]
fn overflow() -> TransportError {
    TransportError::new(
        Code::INTERNAL_ERROR,
        "a packet did not fit into its datagram",
    )
}
