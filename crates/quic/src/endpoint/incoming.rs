//! A client's first packet: authenticated, and then an attempt that the application
//! decides on.

use std::net::SocketAddr;

use clearway_recovery::controller::SavedPath;

use super::admission::AdmissionGuard;
use crate::Role;
use crate::cid::ConnectionId;
use crate::connection::RecvMeta;
use crate::crypto::{InitialKeys, initial_keys};
use crate::wire::header::{PartialHeader, UnprotectedHeader};
use crate::wire::{Frame, Frames, Version};

/// Which part of the ClientHello a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientHelloPart {
    /// None of it.
    Absent,
    /// Some bytes, but not the first.
    Later,
    /// The first byte. However a client splits or reorders its flight, exactly one
    /// packet of it carries this.
    Beginning,
}

/// A client's connection attempt that is within the [limits](super::Limits). It counts
/// towards them until this value, or the connection made from it, is dropped.
#[derive(Debug)]
pub struct Incoming {
    pub(super) initial: OpenedInitial,
    pub(super) admitted: AdmissionGuard,
}

/// A client's connection attempt that waits, and counts towards no limit meanwhile: see
/// [`Incoming::postpone`].
#[derive(Debug)]
pub struct Postponed {
    pub(super) initial: OpenedInitial,
}

/// An authenticated Initial packet of a client without a connection yet.
#[derive(Debug)]
pub(super) struct OpenedInitial {
    pub(super) from: RecvMeta,
    pub(super) version: Version,
    pub(super) original_dcid: ConnectionId,
    pub(super) dcid: ConnectionId,
    pub(super) scid: ConnectionId,
    pub(super) retry_scid: Option<ConnectionId>,
    pub(super) validated: bool,
    /// What an earlier connection measured of the path, from the token.
    pub(super) saved: Option<SavedPath>,
    pub(super) hello: ClientHelloPart,
    pub(super) unix_now: u64,
    /// The keys that opened it.
    pub(super) keys: Box<InitialKeys>,
}

impl Incoming {
    /// Returns the client's address.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        self.initial.from.remote
    }

    /// Returns the Destination Connection ID of its packets: chosen by the client, or by the Retry that
    /// it answers (RFC 9000 §7.2).
    #[must_use]
    pub fn destination_cid(&self) -> ConnectionId {
        self.initial.dcid
    }

    /// Leaves the decision for later, when [`Endpoint::reconsider`](super::Endpoint::reconsider) makes it anew. The
    /// packet is not opened again then, and its token, which is good for one use, has been read.
    #[must_use]
    pub fn postpone(self) -> Postponed {
        Postponed {
            initial: self.initial,
        }
    }

    /// Returns whether a token validated that address (RFC 9000 §8.1).
    #[must_use]
    pub fn is_validated(&self) -> bool {
        self.initial.validated
    }
}

/// Opens the first packet of `datagram` with the Initial keys of its Destination
/// Connection ID. Returns the keys and the payload, or `None` if it is not authentic.
pub(super) fn open(
    dcid: &ConnectionId,
    header: &PartialHeader,
    datagram: &[u8],
) -> Option<(Box<InitialKeys>, Vec<u8>)> {
    let keys = initial_keys(header.version, dcid, Role::Server);
    let keys = Box::new(InitialKeys::from(keys));
    let remote = &keys.current.remote;
    let mut packet = datagram.get(..header.packet_len)?.to_vec();
    remote.unprotect_header(&mut packet, header.number_at)?;
    let open = UnprotectedHeader::read(&packet, header.number_at)?;
    let number = open.number.recover(None);
    let len = remote.open(number, &mut packet, open.header_len)?;
    let payload = packet.get(open.header_len..)?.get(..len)?.to_vec();
    Some((keys, payload))
}

/// Returns the part of the ClientHello in a packet's frames. Frames after an invalid one
/// do not count, since the connection would fail at that one.
pub(super) fn hello(payload: &[u8]) -> ClientHelloPart {
    let mut hello = ClientHelloPart::Absent;
    for frame in Frames::new(payload) {
        match frame {
            Ok(Frame::Crypto { offset: 0, data }) if !data.is_empty() => {
                return ClientHelloPart::Beginning;
            }
            Ok(Frame::Crypto { data, .. }) if !data.is_empty() => hello = ClientHelloPart::Later,
            Ok(_) => {}
            Err(_) => break,
        }
    }
    hello
}
