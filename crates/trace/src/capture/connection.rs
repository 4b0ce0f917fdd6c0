//! The packets of one connection, decrypted in the order of the capture.

use std::collections::{BTreeSet, VecDeque};

use clearway_quic::Role;
use clearway_quic::wire::header::HeaderKind;
use clearway_quic::wire::{self, Frames, PartialHeader, TransportParameters, Version};

use super::crypto_stream::CryptoStream;
use super::hello::{self, Hello};
use super::key_log::{KeyLog, RANDOM_LEN};
use super::keys::{CipherSuite, OpeningKeys};
use super::wire::{DecryptedPacket, WireData};
use crate::event::{BySpace, Name, Packet, PacketType, Space};
use crate::recorder::summarise;

/// Maximum number of datagrams that wait for the handshake's keys.
const MAX_WAITING: usize = 64;
/// Number of packet numbers by which duplicates are recognised.
const MAX_NUMBERS: usize = 4096;
/// Sizes of datagrams that are tried where the capture holds a whole train of them.
const STRIDES: core::ops::RangeInclusive<usize> = 1200..=1500;

/// One value for each end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ByEnd<T> {
    pub(super) client: T,
    pub(super) server: T,
}

impl<T> ByEnd<T> {
    pub(super) const fn get(&self, role: Role) -> &T {
        match role {
            Role::Client => &self.client,
            Role::Server => &self.server,
        }
    }

    pub(super) const fn get_mut(&mut self, role: Role) -> &mut T {
        match role {
            Role::Client => &mut self.client,
            Role::Server => &mut self.server,
        }
    }
}

/// What a capture shows of a connection.
#[derive(Debug)]
pub(super) struct Observation {
    /// Nanoseconds since the connection's first packet.
    pub(super) time: u64,
    /// The end that sent it.
    pub(super) from: Role,
    pub(super) data: Observed,
}

#[derive(Clone, Debug)]
pub(super) enum Observed {
    /// A packet; without a number if it could not be opened.
    Packet(Packet),
    /// The sender's transport parameters.
    Parameters(Box<TransportParameters>),
    /// The application protocol that the server chose.
    Protocol(String),
    /// The sender updated its 1-RTT keys for this time.
    KeyUpdate(u64),
    /// The log says that the sender declared this packet lost.
    Lost(u64),
    /// The log says that the sender closed the connection.
    Closed {
        /// A code of the log's own.
        code: u64,
        reason: String,
    },
}

/// A datagram that came before its keys.
#[derive(Debug)]
struct Waiting {
    time: u64,
    from: Role,
    ecn: u8,
    packet: Vec<u8>,
}

/// Keys and TLS messages of one end.
#[derive(Debug, Default)]
struct SenderState {
    initial: Option<OpeningKeys>,
    early: Option<OpeningKeys>,
    handshake: Option<OpeningKeys>,
    one_rtt: Option<OpeningKeys>,
    initial_stream: CryptoStream,
    handshake_stream: CryptoStream,
    /// The length of the connection IDs that it chose for itself.
    cid_len: usize,
    ack_delay_exponent: Option<u8>,
    /// The size of its datagrams, where the capture holds trains of them.
    stride: Option<usize>,
    numbers: BySpace<BTreeSet<u64>>,
    key_updates: u64,
}

/// The packets of one connection.
#[derive(Debug)]
pub(super) struct Connection {
    version: Version,
    random: Option<[u8; RANDOM_LEN]>,
    suite: Option<CipherSuite>,
    /// Whether the keys after the handshake's first flight have been looked up.
    looked_up: bool,
    ends: ByEnd<SenderState>,
    waiting: VecDeque<Waiting>,
    buffer: Vec<u8>,
    /// Connection IDs of either end that became known, and their owner.
    pub(super) new_cids: Vec<(Vec<u8>, Role)>,
    /// Decrypted packets and TLS messages with their time and sender, where they are wanted.
    pub(super) witnessed: Option<Vec<(u64, Role, WireData)>>,
    pub(super) opened: u64,
    pub(super) unopened: u64,
    pub(super) duplicates: u64,
}

/// What happened to a packet.
enum Outcome {
    Opened(Packet),
    Duplicate,
    /// Its keys are not known yet.
    Early,
    Failed,
}

impl Connection {
    /// A connection whose client's first Initial has this destination connection ID.
    pub(super) fn new(version: Version, dcid: &[u8]) -> Self {
        let keys = |sender| OpeningKeys::initial(version, dcid, sender);
        let mut ends = ByEnd::<SenderState>::default();
        ends.client.initial = keys(Role::Client);
        ends.server.initial = keys(Role::Server);
        Self {
            version,
            random: None,
            suite: None,
            looked_up: false,
            ends,
            waiting: VecDeque::new(),
            buffer: Vec::new(),
            new_cids: Vec::new(),
            witnessed: None,
            opened: 0,
            unopened: 0,
            duplicates: 0,
        }
    }

    /// Whether the TLS secrets of this connection are known.
    pub(super) const fn has_secrets(&self) -> bool {
        self.ends.client.one_rtt.is_some() || self.ends.server.one_rtt.is_some()
    }

    /// Whether the client's first flight could be read.
    pub(super) const fn began(&self) -> bool {
        self.random.is_some()
    }

    /// Processes a datagram.
    pub(super) fn on_datagram(
        &mut self,
        (time, from, ecn): (u64, Role, u8),
        payload: &[u8],
        secrets: &KeyLog,
        out: &mut Vec<Observation>,
    ) {
        let mut rest = payload;
        while !rest.is_empty() {
            let used = self.packet((time, from, ecn), rest, secrets, out);
            rest = rest.get(used..).unwrap_or_default();
        }
    }

    /// Processes the first packet of `rest`; returns its length, or all of it if that is unknown.
    fn packet(
        &mut self,
        (time, from, ecn): (u64, Role, u8),
        rest: &[u8],
        secrets: &KeyLog,
        out: &mut Vec<Observation>,
    ) -> usize {
        let cid_len = self.ends.get(from.peer()).cid_len;
        let header = match PartialHeader::parse(rest, cid_len) {
            Ok(header) => header,
            Err(error) => {
                self.unopened = self.unopened.saturating_add(1);
                return error.packet_len().unwrap_or(rest.len()).max(1);
            }
        };
        let kind = match header.kind {
            HeaderKind::Initial { .. } => PacketType::Initial,
            HeaderKind::ZeroRtt => PacketType::ZeroRtt,
            HeaderKind::Handshake => PacketType::Handshake,
            HeaderKind::Short { .. } => PacketType::OneRtt,
            HeaderKind::Retry { .. } => PacketType::Retry,
            HeaderKind::VersionNegotiation { .. } => PacketType::VersionNegotiation,
            HeaderKind::UnsupportedVersion => PacketType::Unknown,
        };
        let Some(space) = kind.space() else {
            self.unnumbered(&header, kind, (time, from), rest, out);
            return header.packet_len.max(1);
        };
        if kind != PacketType::OneRtt {
            self.learn_cid(header.scid.of(rest), from);
        }
        let (outcome, used) = self.open((kind, space), (from, ecn), &header, rest, secrets);
        match outcome {
            Outcome::Opened(packet) => {
                self.opened = self.opened.saturating_add(1);
                self.witness((time, from), &packet, header.dcid.of(rest));
                self.key_update((time, from), out);
                let data = Observed::Packet(packet);
                out.push(Observation { time, from, data });
                self.read_payload((time, from), kind, secrets, out);
            }
            Outcome::Duplicate => self.duplicates = self.duplicates.saturating_add(1),
            Outcome::Early if self.waiting.len() < MAX_WAITING => {
                let packet = rest.get(..used).unwrap_or_default().to_vec();
                self.waiting.push_back(Waiting {
                    time,
                    from,
                    ecn,
                    packet,
                });
            }
            Outcome::Early | Outcome::Failed => {
                self.unopened = self.unopened.saturating_add(1);
                let data = Observed::Packet(unread(kind, used));
                out.push(Observation { time, from, data });
            }
        }
        used.max(1)
    }

    /// A packet without a number: Retry changes the keys.
    fn unnumbered(
        &mut self,
        header: &PartialHeader,
        kind: PacketType,
        (time, from): (u64, Role),
        rest: &[u8],
        out: &mut Vec<Observation>,
    ) {
        if kind == PacketType::Retry && from == Role::Server {
            let dcid = header.scid.of(rest);
            for sender in [Role::Client, Role::Server] {
                let keys = OpeningKeys::initial(self.version, dcid, sender);
                self.ends.get_mut(sender).initial = keys;
            }
            self.new_cids.push((dcid.to_vec(), Role::Server));
        }
        let data = Observed::Packet(unread(kind, header.packet_len));
        out.push(Observation { time, from, data });
    }

    fn learn_cid(&mut self, cid: &[u8], owner: Role) {
        let end = self.ends.get_mut(owner);
        end.cid_len = cid.len();
        self.new_cids.push((cid.to_vec(), owner));
    }

    /// Opens a packet; also says how many bytes of the datagram it is.
    fn open(
        &mut self,
        (kind, space): (PacketType, Space),
        (from, ecn): (Role, u8),
        header: &PartialHeader,
        rest: &[u8],
        secrets: &KeyLog,
    ) -> (Outcome, usize) {
        if kind != PacketType::Initial {
            self.look_up(secrets);
        }
        let cid_len = self.ends.get(from.peer()).cid_len;
        let exponent = self.ends.get(from).ack_delay_exponent.unwrap_or(3);
        let end = self.ends.get_mut(from);
        let keys = match kind {
            PacketType::Initial => &mut end.initial,
            PacketType::ZeroRtt => &mut end.early,
            PacketType::Handshake => &mut end.handshake,
            _ => &mut end.one_rtt,
        };
        let used = header.packet_len;
        let Some(keys) = keys else {
            let early = kind != PacketType::Initial && !self.looked_up;
            let outcome = if early {
                Outcome::Early
            } else {
                Outcome::Failed
            };
            return (outcome, used);
        };
        let mut opened = keys
            .open(header, rest, &mut self.buffer)
            .map(|it| (it, used));
        if opened.is_none() && kind == PacketType::OneRtt {
            // Segments that the network card would have cut apart.
            let usual = end.stride.into_iter().filter(|stride| *stride < used);
            let guesses = STRIDES.filter(|stride| *stride < used && used > *STRIDES.end());
            opened = usual.chain(guesses).find_map(|stride| {
                let segment = rest.get(..stride)?;
                let header = PartialHeader::parse(segment, cid_len).ok()?;
                let opened = keys.open(&header, segment, &mut self.buffer)?;
                end.stride = Some(stride);
                Some((opened, stride))
            });
        }
        let Some((opened, used)) = opened else {
            return (Outcome::Failed, used);
        };
        if !remember(end.numbers.get_mut(space), opened.number) {
            return (Outcome::Duplicate, used);
        }
        let (start, len) = opened.payload;
        // The rest of the buffer is of no use any more: only the payload is read.
        self.buffer.truncate(start.saturating_add(len));
        self.buffer.drain(..start.min(self.buffer.len()));
        let mut packet = Packet::new(kind, opened.number, used as u64);
        let mut frames = Vec::new();
        summarise(&self.buffer, exponent, &mut frames);
        packet.frames = Some(frames);
        packet.ecn = match ecn {
            1 => Some(Name::Borrowed("ECT(1)")),
            2 => Some(Name::Borrowed("ECT(0)")),
            3 => Some(Name::Borrowed("CE")),
            _ => None,
        };
        (Outcome::Opened(packet), used)
    }

    /// Keeps the packet that was just opened, where that is wanted.
    fn witness(&mut self, (time, from): (u64, Role), packet: &Packet, dcid: &[u8]) {
        let (Some(witnessed), Some(number)) = (&mut self.witnessed, packet.number) else {
            return;
        };
        let keys = &self.ends.get(from).one_rtt;
        let packet = DecryptedPacket {
            kind: packet.kind,
            number,
            dcid: dcid.to_vec(),
            key_updates: keys.as_ref().map_or(0, OpeningKeys::updates),
            payload: self.buffer.clone(),
        };
        witnessed.push((time, from, WireData::Packet(packet)));
    }

    /// Reports a key update with the first packet that needed it.
    fn key_update(&mut self, (time, from): (u64, Role), out: &mut Vec<Observation>) {
        let end = self.ends.get_mut(from);
        let updates = end.one_rtt.as_ref().map_or(0, OpeningKeys::updates);
        if updates > end.key_updates {
            end.key_updates = updates;
            let data = Observed::KeyUpdate(updates);
            out.push(Observation { time, from, data });
        }
    }

    /// Takes from the payload that was just opened what later packets need.
    fn read_payload(
        &mut self,
        (time, from): (u64, Role),
        kind: PacketType,
        secrets: &KeyLog,
        out: &mut Vec<Observation>,
    ) {
        let mut messages = Vec::new();
        let payload = core::mem::take(&mut self.buffer);
        for frame in Frames::new(&payload).map_while(Result::ok) {
            match frame {
                wire::Frame::NewConnectionId { cid, .. } => {
                    self.new_cids.push((cid.to_vec(), from));
                }
                wire::Frame::Crypto { offset, data } => {
                    let end = self.ends.get_mut(from);
                    let stream = match kind {
                        PacketType::Initial => &mut end.initial_stream,
                        PacketType::Handshake => &mut end.handshake_stream,
                        _ => continue,
                    };
                    stream.add(offset, data);
                    while let Some((kind, body)) = stream.next_message() {
                        messages.extend(hello::read(kind, &body));
                        if let Some(witnessed) = &mut self.witnessed {
                            let data = WireData::TlsMessage { kind, body };
                            witnessed.push((time, from, data));
                        }
                    }
                }
                _ => {}
            }
        }
        self.buffer = payload;
        for message in messages {
            self.on_hello(message, (time, from), secrets, out);
        }
    }

    fn on_hello(
        &mut self,
        message: Hello,
        (time, from): (u64, Role),
        secrets: &KeyLog,
        out: &mut Vec<Observation>,
    ) {
        let mut tell = |data| out.push(Observation { time, from, data });
        let parameters = match message {
            Hello::Client { random, parameters } if from == Role::Client => {
                self.random = Some(random);
                parameters
            }
            Hello::Server { cipher_suite } if from == Role::Server => {
                self.suite = CipherSuite::of(cipher_suite);
                None
            }
            Hello::Extensions {
                protocol,
                parameters,
            } if from == Role::Server => {
                if let Some(protocol) = protocol {
                    tell(Observed::Protocol(protocol));
                }
                parameters
            }
            Hello::Client { .. } | Hello::Server { .. } | Hello::Extensions { .. } => None,
        };
        if let Some(parameters) = parameters {
            let exponent = parameters.ack_delay_exponent;
            self.ends.get_mut(from).ack_delay_exponent = Some(exponent);
            if let Some(preferred) = &parameters.preferred_address {
                self.new_cids.push((preferred.cid.to_vec(), from));
            }
            tell(Observed::Parameters(parameters));
        }
        self.look_up(secrets);
        if self.looked_up {
            for waiting in core::mem::take(&mut self.waiting) {
                let about = (waiting.time, waiting.from, waiting.ecn);
                self.packet(about, &waiting.packet, secrets, out);
            }
        }
    }

    /// Makes the keys after the first flight, once the session and its suite are known.
    fn look_up(&mut self, secrets: &KeyLog) {
        let (Some(random), Some(suite)) = (&self.random, self.suite) else {
            return;
        };
        if core::mem::replace(&mut self.looked_up, true) {
            return;
        }
        let Some(session) = secrets.session(random) else {
            return;
        };
        let version = self.version;
        let keys = |secret: &Option<Vec<u8>>| OpeningKeys::new(version, suite, secret.clone()?);
        let [client, server] = &session.handshake;
        self.ends.client.handshake = keys(client);
        self.ends.server.handshake = keys(server);
        let [client, server] = &session.traffic;
        self.ends.client.one_rtt = keys(client);
        self.ends.server.one_rtt = keys(server);
        self.ends.client.early = keys(&session.early);
    }
}

/// Whether this packet number is new.
fn remember(numbers: &mut BTreeSet<u64>, number: u64) -> bool {
    let forgotten = numbers.len() >= MAX_NUMBERS && numbers.first() > Some(&number);
    if forgotten || !numbers.insert(number) {
        return false;
    }
    if numbers.len() > MAX_NUMBERS {
        numbers.pop_first();
    }
    true
}

/// A packet of which only type and size are known.
fn unread(kind: PacketType, size: usize) -> Packet {
    Packet {
        number: None,
        ..Packet::new(kind, 0, size as u64)
    }
}
