//! Which connection a datagram belongs to.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;

use clearway_quic::Role;
use clearway_quic::wire::header::HeaderKind;
use clearway_quic::wire::{PartialHeader, Version};

use super::datagram::Datagram;
use super::keys::OpeningKeys;

/// Maximum number of paths, and of connection IDs, that are remembered.
const MAX_ENTRIES: usize = 1 << 16;

/// A path as one end sees it: where a datagram came from and where it went.
type Path = (SocketAddr, SocketAddr);

/// Where a datagram belongs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// To the connection with this number, sent by this end.
    Known(usize, Role),
    /// It begins a connection.
    New { version: Version, dcid: Vec<u8> },
    /// To no connection whose beginning was captured, or it is not QUIC.
    Unknown,
}

/// Addresses and connection IDs of all connections.
#[derive(Debug, Default)]
pub(super) struct Demultiplexer {
    paths: HashMap<Path, (usize, Role)>,
    /// Connection IDs and who chose them.
    cids: HashMap<Vec<u8>, (usize, Role)>,
    cid_lens: BTreeSet<usize>,
}

impl Demultiplexer {
    /// Finds the connection of a datagram. Several paths are followed: a client may move to
    /// another address (RFC 9000 §9).
    pub(super) fn route(&mut self, datagram: &Datagram<'_>) -> Destination {
        let path = (datagram.source, datagram.destination);
        let known = self.paths.get(&path).copied();
        if let Some(dcid) = client_initial(datagram.payload) {
            let ours = self.cids.get(dcid.1).map(|(connection, _)| *connection);
            let of_known = known.is_some_and(|(connection, _)| ours == Some(connection));
            if !of_known && opens(dcid.0, dcid.1, datagram.payload) {
                return Destination::New {
                    version: dcid.0,
                    dcid: dcid.1.to_vec(),
                };
            }
        }
        if let Some((connection, sender)) = known {
            return Destination::Known(connection, sender);
        }
        let Some((connection, owner)) = self.by_cid(datagram.payload) else {
            return Destination::Unknown;
        };
        self.add_path(path, connection, owner.peer());
        Destination::Known(connection, owner.peer())
    }

    /// The connection of a short header packet on a new path.
    fn by_cid(&self, payload: &[u8]) -> Option<(usize, Role)> {
        if payload.first()? & 0x80 != 0 {
            return None;
        }
        let lens = self.cid_lens.iter().rev();
        lens.filter_map(|len| payload.get(1..)?.get(..*len))
            .find_map(|cid| self.cids.get(cid).copied())
    }

    /// A connection of this client begins.
    pub(super) fn add(&mut self, connection: usize, datagram: &Datagram<'_>, dcid: &[u8]) {
        let path = (datagram.source, datagram.destination);
        self.add_path(path, connection, Role::Client);
        self.add_cid(dcid, connection, Role::Server);
    }

    fn add_path(&mut self, path: Path, connection: usize, sender: Role) {
        if self.paths.len() < MAX_ENTRIES || self.paths.contains_key(&path) {
            self.paths.insert(path, (connection, sender));
            self.paths
                .insert((path.1, path.0), (connection, sender.peer()));
        }
    }

    /// A connection has this connection ID.
    pub(super) fn add_cid(&mut self, cid: &[u8], connection: usize, owner: Role) {
        if cid.is_empty() || self.cids.len() >= MAX_ENTRIES {
            return;
        }
        self.cid_lens.insert(cid.len());
        self.cids.insert(cid.to_vec(), (connection, owner));
    }
}

/// Version and destination connection ID, if this is an Initial.
fn client_initial(payload: &[u8]) -> Option<(Version, &[u8])> {
    let header = PartialHeader::parse(payload, 0).ok()?;
    matches!(header.kind, HeaderKind::Initial { .. })
        .then(|| (header.version, header.dcid.of(payload)))
}

/// Whether this is an Initial that a client sends to begin a connection with this ID.
fn opens(version: Version, dcid: &[u8], payload: &[u8]) -> bool {
    let keys = OpeningKeys::initial(version, dcid, Role::Client);
    let header = PartialHeader::parse(payload, 0);
    let (Some(mut keys), Ok(header)) = (keys, header) else {
        return false;
    };
    keys.open(&header, payload, &mut Vec::new()).is_some()
}
