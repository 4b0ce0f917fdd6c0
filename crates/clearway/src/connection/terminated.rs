//! What is kept of a connection that was terminated by a panic or an eviction, when its state
//! was dropped.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clearway_quic::connection::{Connection, ConnectionError, Stats, Transmit};
use clearway_quic::error::TransportError;
use clearway_quic::wire::Version;
use clearway_quic::{Instant, Role};
use rustls::pki_types::CertificateDer;

use crate::panic::catch;

/// The size of the buffer for the datagram that closes the connection, in bytes: the usual MTU
/// of Ethernet, which is more than it needs.
const MAX_CLOSE_DATAGRAM: usize = 1500;

/// A connection that was terminated by a panic or an eviction: what its handles can still ask
/// for, and the datagram that tells the peer. Its state was dropped.
#[derive(Debug)]
pub(crate) struct TerminatedConnection {
    pub(crate) error: ConnectionError,
    pub(crate) close_datagram: Option<CloseDatagram>,
    pub(crate) role: Role,
    pub(crate) remote: SocketAddr,
    pub(crate) resumed: bool,
    pub(crate) retried: bool,
    pub(crate) version: Version,
    pub(crate) zero_rtt_accepted: Option<bool>,
    pub(crate) alpn: Option<Vec<u8>>,
    pub(crate) server_name: Option<String>,
    pub(crate) certificates: Option<Vec<CertificateDer<'static>>>,
    pub(crate) stats: Stats,
}

/// A datagram with CONNECTION_CLOSE.
#[derive(Debug)]
pub(crate) struct CloseDatagram {
    pub(crate) remote: SocketAddr,
    pub(crate) local_ip: Option<IpAddr>,
    pub(crate) datagram: Vec<u8>,
}

impl TerminatedConnection {
    /// Copies from `quic` what can still be read; any part of it may panic again.
    pub(super) fn new(
        quic: &mut Connection,
        now: Instant,
        error: ConnectionError,
        sent_error: TransportError,
    ) -> Self {
        // The observer may be what panicked, and must not be called again.
        let observer = catch(|| quic.take_observer());
        let _ = catch(|| drop(observer));
        let stats = catch(|| quic.stats(now)).unwrap_or_default();
        // This may panic while it drops state; the error to send is set before.
        let _ = catch(|| quic.abort(now, sent_error));
        let close_datagram = catch(|| close_datagram(quic, now)).ok().flatten();
        Self {
            error,
            close_datagram,
            role: quic.role(),
            remote: catch(|| quic.remote_address()).unwrap_or(UNKNOWN),
            resumed: catch(|| quic.resumed()).unwrap_or(false),
            retried: catch(|| quic.retried()).unwrap_or(false),
            version: catch(|| quic.version()).unwrap_or(Version::V1),
            zero_rtt_accepted: catch(|| quic.zero_rtt_accepted()).unwrap_or(None),
            alpn: catch(|| quic.alpn().map(<[u8]>::to_vec)).unwrap_or(None),
            server_name: catch(|| quic.server_name().map(str::to_owned)).unwrap_or(None),
            certificates: catch(|| quic.peer_certificates().map(<[_]>::to_vec)).unwrap_or(None),
            stats,
        }
    }
}

/// The address of a peer whose address cannot be read any more.
const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Writes the datagram that closes an aborted connection.
///
/// It may use packet numbers again that were used when a panic interrupted writing. No nonce
/// is reused on the network, because those packets were never sent.
fn close_datagram(quic: &mut Connection, now: Instant) -> Option<CloseDatagram> {
    let mut datagram = vec![0; MAX_CLOSE_DATAGRAM];
    let Transmit {
        remote,
        local_ip,
        len,
        ecn: _,
        segment: _,
    } = quic.transmit(now, &mut datagram, 1)?;
    datagram.truncate(len);
    Some(CloseDatagram {
        remote,
        local_ip,
        datagram,
    })
}
