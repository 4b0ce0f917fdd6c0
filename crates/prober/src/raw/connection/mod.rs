//! Packets in and out, acknowledgements, and the retransmission of what is lost.

mod receive;
mod space;

use core::time::Duration;
use std::time::Instant;

use rustls::Side;

use self::space::Space;
use super::keys::Keyring;
use super::tls::Tls;
use crate::wire::hello::{self, HelloEdit};
use crate::wire::packet::{self, Level, Plain};
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
/// Most datagrams that wait to be sent.
const MAX_OUTBOX: usize = 16_384;

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
