//! The packets of a recording, decrypted, for checks of what was sent.

use std::net::SocketAddr;

use clearway_quic::Role;
use clearway_quic::wire::TransportParameters;

use super::connection::{Connection, Observation, Observed};
use super::datagram::Datagram;
use super::demultiplex::{Demultiplexer, Destination};
use super::key_log::KeyLog;
use super::reader::MAX_CONNECTIONS;
use crate::event::PacketType;

/// A datagram of a recording.
#[derive(Clone, Copy, Debug)]
pub struct RecordedDatagram<'a> {
    /// Names the datagram in the [`WireEvent`]s of its packets; datagrams are passed in
    /// increasing order.
    pub number: u64,
    /// Where it came from.
    pub source: SocketAddr,
    /// Where it went.
    pub destination: SocketAddr,
    /// The UDP payload.
    pub payload: &'a [u8],
}

/// Something that a recording shows.
#[derive(Clone, Debug)]
pub struct WireEvent {
    /// The number of the connection, from 0, in the order in which they begin.
    pub connection: usize,
    /// The end that sent it.
    pub from: Role,
    /// The [`RecordedDatagram::number`] of the datagram in which it was.
    pub datagram: u64,
    /// What it is.
    pub data: WireData,
}

/// What a recording shows.
#[derive(Clone, Debug)]
pub enum WireData {
    /// A packet that was decrypted.
    Packet(DecryptedPacket),
    /// A packet that could not be decrypted.
    Unopened(PacketType),
    /// A whole TLS handshake message from CRYPTO frames (RFC 8446 §4).
    TlsMessage {
        /// Its type.
        kind: u8,
        /// What follows its header.
        body: Vec<u8>,
    },
    /// The sender's transport parameters.
    Parameters(Box<TransportParameters>),
}

/// A packet that was decrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecryptedPacket {
    /// Its type.
    pub kind: PacketType,
    /// Its number.
    pub number: u64,
    /// The Destination Connection ID.
    pub dcid: Vec<u8>,
    /// Key updates of the sender's 1-RTT keys up to this packet (RFC 9001 §6).
    pub key_updates: u64,
    /// The decrypted payload: frames.
    pub payload: Vec<u8>,
}

/// Decrypts a recording, datagram by datagram. Packets that came before their keys follow those
/// that brought them.
///
/// Not decrypted are Handshake and 1-RTT packets of a connection whose version was negotiated
/// after its first packet (RFC 9368 §2.3).
///
/// Memory is bounded by [`MAX_CONNECTIONS`], whatever is passed.
#[derive(Debug)]
pub struct Wire {
    secrets: KeyLog,
    demultiplexer: Demultiplexer,
    connections: Vec<Connection>,
    observations: Vec<Observation>,
}

impl Wire {
    /// Creates a reader with the secrets of the connections.
    #[must_use]
    pub fn new(secrets: KeyLog) -> Self {
        Self {
            secrets,
            demultiplexer: Demultiplexer::default(),
            connections: Vec::new(),
            observations: Vec::new(),
        }
    }

    /// Number of connections so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Processes a datagram and adds what it shows to `events`. A datagram of no connection whose
    /// beginning was recorded shows nothing.
    pub fn on_datagram(&mut self, recorded: &RecordedDatagram<'_>, events: &mut Vec<WireEvent>) {
        let datagram = Datagram {
            source: recorded.source,
            destination: recorded.destination,
            ecn: 0,
            payload: recorded.payload,
        };
        let (number, from) = match self.demultiplexer.route(&datagram) {
            Destination::Known(number, from) => (number, from),
            Destination::New { version, dcid } if self.connections.len() < MAX_CONNECTIONS => {
                let number = self.connections.len();
                self.demultiplexer.add(number, &datagram, &dcid);
                let mut connection = Connection::new(version, &dcid);
                connection.witnessed = Some(Vec::new());
                self.connections.push(connection);
                (number, Role::Client)
            }
            Destination::New { .. } | Destination::Unknown => return,
        };
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        let about = (recorded.number, from, 0);
        let observations = &mut self.observations;
        connection.on_datagram(about, recorded.payload, &self.secrets, observations);
        for (cid, owner) in connection.new_cids.drain(..) {
            self.demultiplexer.add_cid(&cid, number, owner);
        }
        let witnessed = connection.witnessed.iter_mut().flat_map(|it| it.drain(..));
        events.extend(witnessed.map(|(datagram, from, data)| WireEvent {
            connection: number,
            from,
            datagram,
            data,
        }));
        events.extend(self.observations.drain(..).filter_map(|seen| {
            let data = match seen.data {
                Observed::Packet(packet) if packet.number.is_none() => {
                    WireData::Unopened(packet.kind)
                }
                Observed::Parameters(parameters) => WireData::Parameters(parameters),
                Observed::Packet(_)
                | Observed::Protocol(_)
                | Observed::KeyUpdate(_)
                | Observed::Lost(_)
                | Observed::Closed { .. } => return None,
            };
            Some(WireEvent {
                connection: number,
                from: seen.from,
                datagram: seen.time,
                data,
            })
        }));
    }
}
