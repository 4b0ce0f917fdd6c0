//! Packets in and out, acknowledgements, and the retransmission of what is lost.

use core::time::Duration;
use std::time::Instant;

use clearway_quic::wire::Frames;
use clearway_quic::wire::frame::{Ack, Frame};
use rustls::Side;

use super::assembler::Assembler;
use super::keys::Keyring;
use super::observed::{Kept, Observed, Reset, VersionNegotiation};
use super::tls::Tls;
use crate::wire::codes::ErrorSpace;
use crate::wire::hello::{self, HelloEdit};
use crate::wire::packet::{self, Header, Level, Plain};
use crate::wire::parameters::Parameters;
use crate::wire::{put_prefixed, put_varint};

/// Bytes of the connection IDs that we choose.
pub(crate) const CID_LEN: usize = 8;
/// Bytes of CRYPTO data in one packet.
const CRYPTO_CHUNK: usize = 1_000;
/// The first timeout of a packet; doubled each time.
const FIRST_TIMEOUT: Duration = Duration::from_millis(250);
/// How often a packet is repeated.
const MAX_TRIES: u32 = 6;
/// Most ranges in an ACK frame, and most that are remembered.
const MAX_RANGES: usize = 32;
/// Most datagrams that wait to be sent.
const MAX_OUTBOX: usize = 16_384;

/// A packet number space.
#[derive(Debug, Default)]
struct Space {
    next_number: u64,
    largest_received: Option<u64>,
    /// Received packet numbers, largest first.
    received: Vec<(u64, u64)>,
    ack_due: bool,
    crypto_sent: u64,
    crypto_received: Assembler,
}

impl Space {
    fn on_received(&mut self, number: u64) -> bool {
        if self
            .received
            .iter()
            .any(|(low, high)| (*low..=*high).contains(&number))
        {
            return false;
        }
        self.largest_received = self.largest_received.max(Some(number));
        self.received.push((number, number));
        self.received.sort_unstable_by(|a, b| b.cmp(a));
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (low, high) in self.received.drain(..) {
            match merged.last_mut() {
                Some(last) if high + 1 == last.0 => last.0 = low,
                Some(_) | None => merged.push((low, high)),
            }
        }
        merged.truncate(MAX_RANGES);
        self.received = merged;
        true
    }

    fn ack_frame(&self) -> Option<Vec<u8>> {
        let mut ranges = self.received.iter();
        let (low, high) = ranges.next()?;
        let mut out = Vec::new();
        put_varint(&mut out, 0x02);
        put_varint(&mut out, *high);
        put_varint(&mut out, 0);
        put_varint(&mut out, ranges.len() as u64);
        put_varint(&mut out, high - low);
        let mut smallest = *low;
        for (low, high) in ranges {
            put_varint(&mut out, smallest - high - 2);
            put_varint(&mut out, high - low);
            smallest = *low;
        }
        Some(out)
    }
}

/// A packet that waits for its acknowledgement.
#[derive(Debug)]
struct InFlight {
    level: Level,
    /// Every number that it was sent with.
    numbers: Vec<u64>,
    frames: Vec<u8>,
    /// Bits of the first byte that are inverted, every time.
    flip: u8,
    due: Instant,
    tries: u32,
}

/// How a packet differs from an ordinary one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PacketOptions {
    /// Bits of the first byte that are inverted before protection.
    pub(crate) flip: u8,
    /// Packet numbers that are left out before it.
    pub(crate) skip: u64,
    /// Whether it is repeated until it is acknowledged.
    pub(crate) reliable: bool,
}

/// One end of a connection.
pub(crate) struct RawConnection {
    side: Side,
    version: u32,
    local_cid: Vec<u8>,
    remote_cid: Vec<u8>,
    token: Vec<u8>,
    /// Whether a Retry has been followed: only one is (RFC 9000 §17.2.5.2).
    retried: bool,
    /// Datagrams with Initial packets are padded to this size.
    initial_size: usize,
    tls: Tls,
    keys: Keyring,
    spaces: [Space; 3],
    in_flight: Vec<InFlight>,
    outbox: Vec<Vec<u8>>,
    /// Whether TLS bytes of Handshake packets are held back.
    pub(crate) hold_handshake: bool,
    /// Whether received TLS bytes are ignored: the handshake stops after the ClientHello.
    pub(crate) hold_tls: bool,
    /// Whether what is received is acknowledged, and what is lost is repeated.
    pub(crate) responsive: bool,
    pub(crate) reset_tokens: Vec<[u8; 16]>,
    pub(crate) max_data: u64,
    pub(crate) max_streams: [u64; 2],
    pub(crate) peer_parameters: Option<Parameters>,
}

impl RawConnection {
    /// Starts a client's connection: its first Initial packets are in the outbox.
    pub(crate) fn client(
        mut tls: Tls,
        cids: [[u8; CID_LEN]; 2],
        version: u32,
        initial_size: usize,
        edits: &[HelloEdit],
    ) -> Result<Self, String> {
        let [local_cid, remote_cid] = cids;
        let mut keys = Keyring::default();
        keys.set_initial(packet::initial_keys(&remote_cid, Side::Client));
        keys.set_zero_rtt(tls.zero_rtt_keys());
        tls.collect(&mut keys);
        let mut connection =
            Self::new(Side::Client, tls, keys, local_cid.into(), remote_cid.into());
        connection.version = version;
        connection.initial_size = initial_size;
        let hello = connection.tls.take(Level::Initial);
        let hello = match edits {
            [] => hello,
            edits => hello::edit(&hello, edits).ok_or("TLS did not write a ClientHello")?,
        };
        connection.send_crypto(Level::Initial, &hello);
        Ok(connection)
    }

    /// Starts a server's connection.
    #[cfg(feature = "testing")]
    pub(crate) fn server(
        tls: Tls,
        original: &[u8],
        local_cid: Vec<u8>,
        remote_cid: Vec<u8>,
    ) -> Self {
        let mut keys = Keyring::default();
        keys.set_initial(packet::initial_keys(original, Side::Server));
        Self::new(Side::Server, tls, keys, local_cid, remote_cid)
    }

    fn new(side: Side, tls: Tls, keys: Keyring, local_cid: Vec<u8>, remote_cid: Vec<u8>) -> Self {
        Self {
            side,
            version: packet::VERSION_1,
            local_cid,
            remote_cid,
            token: Vec::new(),
            retried: false,
            initial_size: packet::MIN_INITIAL,
            tls,
            keys,
            spaces: Default::default(),
            in_flight: Vec::new(),
            outbox: Vec::new(),
            hold_handshake: false,
            hold_tls: false,
            responsive: true,
            reset_tokens: Vec::new(),
            max_data: 0,
            max_streams: [0; 2],
            peer_parameters: None,
        }
    }

    /// Sends Initial packets with a token. What is in flight already is sent again with it.
    pub(crate) fn set_token(&mut self, token: &[u8]) {
        if token.is_empty() {
            return;
        }
        self.token = token.to_vec();
        self.outbox.clear();
        let now = Instant::now();
        for packet in &mut self.in_flight {
            packet.due = now;
        }
        self.repeat_lost(now);
    }

    pub(crate) fn largest_received(&self, level: Level) -> Option<u64> {
        self.spaces[level.space()].largest_received
    }

    pub(crate) fn tls(&self) -> &Tls {
        &self.tls
    }

    pub(crate) fn has_keys(&self, level: Level) -> bool {
        self.keys.has(level)
    }

    pub(crate) fn remote_cid(&self) -> &[u8] {
        &self.remote_cid
    }

    pub(crate) fn next_number(&self, level: Level) -> u64 {
        self.spaces[level.space()].next_number
    }

    pub(crate) fn crypto_sent(&self, level: Level) -> u64 {
        self.spaces[level.space()].crypto_sent
    }

    /// Returns how often the peer has updated its keys.
    pub(crate) fn peer_key_updates(&self) -> usize {
        self.keys.remote_generation()
    }

    /// Protects what follows with the next keys.
    pub(crate) fn update_keys(&mut self) {
        self.keys.update();
    }

    /// Does not follow the peer's key updates, which is a defect.
    #[cfg(feature = "testing")]
    pub(crate) fn ignore_key_updates(&mut self) {
        self.keys.follows = false;
    }

    /// Waits no longer for acknowledgements of Initial and Handshake packets, whose keys the peer
    /// has discarded (RFC 9001 §4.9).
    pub(crate) fn forget_handshake(&mut self) {
        self.in_flight
            .retain(|packet| packet.level.space() == Level::OneRtt.space());
    }

    /// Returns whether nothing waits for an acknowledgement.
    pub(crate) fn is_acked(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Sends a packet with this payload. Returns its number, or `None` without keys.
    pub(crate) fn send(
        &mut self,
        level: Level,
        frames: &[u8],
        options: PacketOptions,
    ) -> Option<u64> {
        self.spaces[level.space()].next_number += options.skip;
        let number = self.packet(level, frames, options.flip)?;
        if options.reliable {
            self.in_flight.push(InFlight {
                level,
                numbers: vec![number],
                frames: frames.to_vec(),
                flip: options.flip,
                due: Instant::now() + FIRST_TIMEOUT,
                tries: 0,
            });
        }
        Some(number)
    }

    fn packet(&mut self, level: Level, frames: &[u8], flip: u8) -> Option<u64> {
        let space = &mut self.spaces[level.space()];
        let number = space.next_number;
        let mut payload = frames.to_vec();
        let mut plain = Plain {
            level,
            version: self.version,
            dcid: &self.remote_cid,
            scid: &self.local_cid,
            token: &self.token,
            number,
            key_phase: self.keys.phase(),
            flip,
            payload: &[],
        };
        if level == Level::Initial {
            let target = self.initial_size.saturating_sub(plain.overhead());
            payload.resize(payload.len().max(target), 0);
        }
        plain.payload = &payload;
        let packet = self.keys.seal(&plain)?;
        space.next_number += 1;
        if self.outbox.len() < MAX_OUTBOX {
            self.outbox.push(packet);
        }
        Some(number)
    }

    /// Sends handshake bytes in as many packets as they need.
    pub(crate) fn send_crypto(&mut self, level: Level, bytes: &[u8]) {
        for chunk in bytes.chunks(CRYPTO_CHUNK) {
            let space = &mut self.spaces[level.space()];
            let mut frame = Vec::new();
            put_varint(&mut frame, 0x06);
            put_varint(&mut frame, space.crypto_sent);
            put_prefixed(&mut frame, chunk);
            space.crypto_sent += chunk.len() as u64;
            let reliable = PacketOptions {
                reliable: true,
                ..PacketOptions::default()
            };
            self.send(level, &frame, reliable);
        }
    }

    /// Takes the datagrams that are to be sent now, handshake and acknowledgements included.
    pub(crate) fn flush(&mut self) -> Vec<Vec<u8>> {
        for level in [Level::Initial, Level::Handshake, Level::OneRtt] {
            let held = self.hold_tls || level == Level::Handshake && self.hold_handshake;
            if self.keys.has(level) && !held {
                let bytes = self.tls.take(level);
                self.send_crypto(level, &bytes);
            }
            let space = &mut self.spaces[level.space()];
            if self.responsive && space.ack_due {
                space.ack_due = false;
                if let Some(ack) = space.ack_frame() {
                    self.packet(level, &ack, 0);
                }
            }
        }
        core::mem::take(&mut self.outbox)
    }

    /// Returns when [`RawConnection::repeat_lost`] has something to do.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let due = self.in_flight.iter().map(|packet| packet.due).min();
        due.filter(|_| self.responsive)
    }

    /// Sends again what was not acknowledged in time.
    pub(crate) fn repeat_lost(&mut self, now: Instant) {
        if !self.responsive {
            return;
        }
        let mut packets = core::mem::take(&mut self.in_flight);
        packets.retain_mut(|packet| {
            if packet.due > now {
                return true;
            }
            if packet.tries == MAX_TRIES {
                return false;
            }
            packet.tries += 1;
            packet.due = now + FIRST_TIMEOUT * 2_u32.saturating_pow(packet.tries);
            let number = self.packet(packet.level, &packet.frames, packet.flip);
            packet.numbers.extend(number);
            true
        });
        packets.append(&mut self.in_flight);
        self.in_flight = packets;
    }

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

    /// Returns whether the client's ClientHello has a `legacy_session_id`.
    #[cfg(feature = "testing")]
    pub(crate) fn has_session_id(&self) -> bool {
        // Behind the message's type and length, the version and the random bytes.
        let hello = self.spaces[0].crypto_received.bytes();
        hello.get(4 + 2 + 32).is_some_and(|len| *len > 0)
    }

    /// Returns whether the peer has answered the ClientHello with TLS bytes.
    pub(crate) fn has_server_hello(&self) -> bool {
        !self.spaces[0].crypto_received.bytes().is_empty()
    }
}
