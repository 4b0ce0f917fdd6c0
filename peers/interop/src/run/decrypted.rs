//! What was sent, decrypted with the secrets that the endpoints wrote down.

use std::net::SocketAddr;

use clearway_links::Ecn;
use clearway_quic::{
    Role,
    wire::{Frame, Frames, TransportParameters},
};
use clearway_trace::{
    capture::{DecryptedPacket, KeyLog, RecordedDatagram, Wire, WireData},
    event::PacketType,
};

use super::capture::{Capture, Sender};

/// TLS handshake messages (RFC 8446 §4).
const CLIENT_HELLO: u8 = 1;
const CERTIFICATE: u8 = 11;

/// Where a datagram went: the client's address as the server sees it, and the server's as the
/// client does.
pub(crate) type NetworkPath = (SocketAddr, SocketAddr);

/// A packet, and the datagram that it was in.
#[derive(Clone, Debug)]
pub(crate) struct SentPacket {
    pub(crate) connection: usize,
    pub(crate) sender: Sender,
    pub(crate) path: NetworkPath,
    pub(crate) ecn: Ecn,
    pub(crate) packet: DecryptedPacket,
}

impl SentPacket {
    /// Returns the frames, up to the first that is not valid.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        Frames::new(&self.packet.payload).map_while(Result::ok)
    }
}

/// A TLS handshake message.
#[derive(Clone, Debug)]
pub(crate) struct TlsMessage {
    pub(crate) connection: usize,
    pub(crate) sender: Sender,
    pub(crate) kind: u8,
    pub(crate) body: Vec<u8>,
}

/// Everything that could be decrypted, in the order in which it was sent.
#[derive(Debug, Default)]
pub(crate) struct Decrypted {
    pub(crate) packets: Vec<SentPacket>,
    pub(crate) messages: Vec<TlsMessage>,
    pub(crate) server_parameters: Vec<TransportParameters>,
    /// Packets for which no secrets are known.
    pub(crate) unopened: usize,
}

impl Decrypted {
    /// Decrypts a recording.
    pub(crate) fn new(capture: &Capture, secrets: KeyLog) -> Self {
        let mut this = Self::default();
        let mut wire = Wire::new(secrets);
        let mut events = Vec::new();
        for (number, datagram) in capture.datagrams.iter().enumerate() {
            // Without connection IDs of the client, addresses tell what belongs to a connection. The
            // server may use a new one before the client's next packet is recorded with it.
            let (source, destination) = match datagram.sender {
                Sender::Client => (datagram.client_inside, datagram.server),
                Sender::Server => (datagram.server, datagram.client_inside),
            };
            let recorded = RecordedDatagram {
                number: number as u64,
                source,
                destination,
                payload: &datagram.bytes,
            };
            wire.on_datagram(&recorded, &mut events);
        }
        for event in events {
            let connection = event.connection;
            let sender = match event.from {
                Role::Client => Sender::Client,
                Role::Server => Sender::Server,
            };
            let number = usize::try_from(event.datagram).unwrap_or(usize::MAX);
            let Some(datagram) = capture.datagrams.get(number) else {
                continue;
            };
            match event.data {
                WireData::Packet(packet) => this.packets.push(SentPacket {
                    connection,
                    sender,
                    path: (datagram.client, datagram.server),
                    ecn: datagram.ecn,
                    packet,
                }),
                WireData::TlsMessage { kind, body } => this.messages.push(TlsMessage {
                    connection,
                    sender,
                    kind,
                    body,
                }),
                WireData::Parameters(parameters) if sender == Sender::Server => {
                    this.server_parameters.push(*parameters);
                }
                WireData::Parameters(_) => {}
                WireData::Unopened(kind) if kind.space().is_some() => this.unopened += 1,
                WireData::Unopened(_) => {}
            }
        }
        this
    }

    /// Returns the packets of a type that an end sent.
    pub(crate) fn sent(
        &self,
        sender: Sender,
        kind: PacketType,
    ) -> impl Iterator<Item = &SentPacket> {
        let packets = self.packets.iter();
        packets.filter(move |sent| sent.sender == sender && sent.packet.kind == kind)
    }

    /// Returns the cipher suites of each ClientHello (RFC 8446 §4.1.2).
    pub(crate) fn offered_cipher_suites(&self) -> Vec<Vec<u16>> {
        let hellos = self
            .messages
            .iter()
            .filter(|it| it.sender == Sender::Client && it.kind == CLIENT_HELLO);
        hellos.filter_map(|it| cipher_suites(&it.body)).collect()
    }

    /// Returns the connections, by number, in which the server sent a certificate.
    pub(crate) fn connections_with_certificate(&self) -> Vec<usize> {
        let certificates = self
            .messages
            .iter()
            .filter(|it| it.sender == Sender::Server && it.kind == CERTIFICATE);
        certificates.map(|it| it.connection).collect()
    }
}

/// Version, random and session ID come before the cipher suites.
fn cipher_suites(hello: &[u8]) -> Option<Vec<u16>> {
    let rest = hello.get(34..)?;
    let (session, rest) = rest.split_first()?;
    let rest = rest.get(usize::from(*session)..)?;
    let (len, rest) = rest.split_first_chunk::<2>()?;
    let suites = rest.get(..usize::from(u16::from_be_bytes(*len)))?;
    let suites = suites.chunks_exact(2);
    Some(
        suites
            .map(|suite| {
                suite
                    .iter()
                    .fold(0, |sum, byte| sum << 8 | u16::from(*byte))
            })
            .collect(),
    )
}
