//! What was sent, and what the headers of it show.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use clearway_links::Ecn;
use clearway_quic::wire::{PartialHeader, Version, header::HeaderKind};

/// Who sent a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sender {
    Client,
    Server,
}

/// A packet with a long header.
pub(crate) struct LongPacket {
    pub(crate) sender: Sender,
    pub(crate) header: PartialHeader,
    pub(crate) bytes: Vec<u8>,
}

/// A datagram, as its sender sent it.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) sender: Sender,
    /// The client's address as it is, which a rebinding does not change.
    pub(crate) client_inside: SocketAddr,
    /// The client's address as the server sees it.
    pub(crate) client: SocketAddr,
    /// The server's address as the client sees it.
    pub(crate) server: SocketAddr,
    pub(crate) ecn: Ecn,
    pub(crate) bytes: Vec<u8>,
}

/// What reached the server, or left it, in the order in which that happened.
#[derive(Clone, Copy, Debug)]
struct ServerTraffic {
    client: SocketAddr,
    sender: Sender,
    len: u64,
    /// Whether it proves that the client receives what is sent to its address.
    proof: bool,
}

/// Everything that was sent, in that order.
#[derive(Default)]
pub(crate) struct Capture {
    pub(crate) datagrams: Vec<Datagram>,
    packets: Vec<LongPacket>,
    at_server: Vec<ServerTraffic>,
    /// When the first and the last datagram with a 1-RTT packet reached the client.
    one_rtt_arrived: Option<(Duration, Duration)>,
}

impl Capture {
    /// Records a datagram that an end sends.
    pub(crate) fn record(&mut self, datagram: Datagram) {
        if datagram.sender == Sender::Server {
            self.at_server.push(ServerTraffic {
                client: datagram.client,
                sender: Sender::Server,
                len: datagram.bytes.len() as u64,
                proof: false,
            });
        }
        self.record_headers(datagram.sender, &datagram.bytes);
        self.datagrams.push(datagram);
    }

    /// Records that a datagram of the client reached the server.
    pub(crate) fn record_arrival_at_server(&mut self, client: SocketAddr, datagram: &[u8]) {
        self.at_server.push(ServerTraffic {
            client,
            sender: Sender::Client,
            len: datagram.len() as u64,
            proof: proves_address(datagram),
        });
    }

    /// Records that a datagram reached the client, at a time since the network began.
    pub(crate) fn record_arrival_at_client(&mut self, now: Duration, datagram: &[u8]) {
        if has_one_rtt_packet(datagram) {
            let (first, _) = self.one_rtt_arrived.unwrap_or((now, now));
            self.one_rtt_arrived = Some((first, now));
        }
    }

    /// Returns when the first and the last 1-RTT packet reached the client.
    pub(crate) fn one_rtt_arrived(&self) -> Option<(Duration, Duration)> {
        self.one_rtt_arrived
    }

    /// Returns the time between the first and the last 1-RTT packet that reached the client, which
    /// is what the public runner divides by.
    pub(crate) fn download_time(&self) -> Option<Duration> {
        let (first, last) = self.one_rtt_arrived()?;
        Some(last - first).filter(|time| !time.is_zero())
    }

    /// Returns the bytes that had reached the server from an address that it had not validated,
    /// and those that it had sent there, where it had first sent more than three times as much
    /// (RFC 9000 §8.1).
    pub(crate) fn amplified(&self) -> Option<(u64, u64)> {
        let mut accounts = std::collections::BTreeMap::<SocketAddr, (u64, u64, bool)>::new();
        for seen in &self.at_server {
            let (received, sent, validated) = accounts.entry(seen.client).or_default();
            match seen.sender {
                Sender::Client => *received += seen.len,
                Sender::Server => *sent += seen.len,
            }
            *validated |= seen.proof;
            if !*validated && *sent > 3 * *received {
                return Some((*received, *sent));
            }
        }
        None
    }

    fn record_headers(&mut self, sender: Sender, datagram: &[u8]) {
        let mut rest = datagram;
        // Short headers end a datagram; the length of their connection IDs does not matter.
        while let Ok(header) = PartialHeader::parse(rest, 0) {
            if matches!(header.kind, HeaderKind::Short { .. }) {
                break;
            }
            let (packet, tail) = rest.split_at(header.packet_len);
            self.packets.push(LongPacket {
                sender,
                header,
                bytes: packet.to_vec(),
            });
            rest = tail;
        }
    }

    fn by(&self, sender: Sender) -> impl Iterator<Item = &LongPacket> {
        self.packets.iter().filter(move |it| it.sender == sender)
    }

    /// Returns the number of handshakes that the server carried on: each of its connections has
    /// an ID of its own in its Handshake packets.
    pub(crate) fn handshakes(&self) -> usize {
        self.by(Sender::Server)
            .filter(|packet| packet.header.kind == HeaderKind::Handshake)
            .map(|packet| packet.header.scid.of(&packet.bytes).to_vec())
            .collect::<BTreeSet<_>>()
            .len()
    }

    /// Returns the versions in a sender's Initial, 0-RTT and Handshake packets, without
    /// repetitions.
    pub(crate) fn versions(&self, sender: Sender) -> Vec<Version> {
        let framed = self
            .by(sender)
            .filter(|it| it.header.kind.packet().is_some());
        let mut versions: Vec<_> = framed.map(|packet| packet.header.version).collect();
        versions.dedup();
        versions
    }

    /// Returns the versions of a sender's Handshake packets.
    pub(crate) fn handshake_versions(&self, sender: Sender) -> Vec<Version> {
        let handshake = self
            .by(sender)
            .filter(|packet| packet.header.kind == HeaderKind::Handshake);
        let mut versions: Vec<_> = handshake.map(|packet| packet.header.version).collect();
        versions.dedup();
        versions
    }

    /// Returns the tokens of Retry packets.
    pub(crate) fn retry_tokens(&self) -> Vec<Vec<u8>> {
        let of_server = self.by(Sender::Server);
        of_server
            .filter_map(|packet| match packet.header.kind {
                HeaderKind::Retry { token, .. } => Some(token.of(&packet.bytes).to_vec()),
                _ => None,
            })
            .collect()
    }

    /// Returns whether one of the client's Initial packets has this token.
    pub(crate) fn repeats_token(&self, wanted: &[u8]) -> bool {
        self.by(Sender::Client)
            .any(|packet| match packet.header.kind {
                HeaderKind::Initial { token } => token.of(&packet.bytes) == wanted,
                _ => false,
            })
    }

    /// Returns the bytes of 0-RTT packets.
    pub(crate) fn early_bytes(&self) -> usize {
        self.by(Sender::Client)
            .filter(|packet| packet.header.kind == HeaderKind::ZeroRtt)
            .map(|packet| packet.bytes.len())
            .sum()
    }

    /// Returns the bytes of all datagrams of the client.
    pub(crate) fn client_bytes(&self) -> usize {
        self.datagrams
            .iter()
            .filter(|datagram| datagram.sender == Sender::Client)
            .map(|datagram| datagram.bytes.len())
            .sum()
    }
}

/// Whether a client's datagram proves that it receives what is sent to its address: it has a
/// Handshake packet, or a token (RFC 9000 §8.1).
fn proves_address(datagram: &[u8]) -> bool {
    let mut rest = datagram;
    while let Ok(header) = PartialHeader::parse(rest, 0) {
        match header.kind {
            HeaderKind::Handshake => return true,
            HeaderKind::Initial { token } if !token.of(rest).is_empty() => return true,
            HeaderKind::Short { .. } => return false,
            _ => rest = rest.get(header.packet_len..).unwrap_or_default(),
        }
    }
    false
}

/// Whether a datagram has a packet with a short header, alone or after others.
fn has_one_rtt_packet(datagram: &[u8]) -> bool {
    let mut rest = datagram;
    while let Ok(header) = PartialHeader::parse(rest, 0) {
        if matches!(header.kind, HeaderKind::Short { .. }) {
            return true;
        }
        rest = rest.get(header.packet_len..).unwrap_or_default();
    }
    false
}
