//! What is left of a connection that ended at once: its state cannot be trusted any
//! more, or there is no room for it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clearway_quic::connection::{Connection, ConnectionError, Stats, Transmit};
use clearway_quic::error::TransportError;
use clearway_quic::{Instant, Role};
use rustls::pki_types::CertificateDer;

use crate::panic::catch;

/// Room for the one datagram that says goodbye, bytes: no path takes more before its
/// MTU was searched for, and what is larger is not needed.
const MAX_CLOSE_DATAGRAM: usize = 1500;

/// A connection after a panic in it or its eviction: what its handles still want to know, and what
/// is left to tell the peer. The state itself is gone.
#[derive(Debug)]
pub(crate) struct TerminatedConnection {
    pub(crate) error: ConnectionError,
    pub(crate) close_datagram: Option<CloseDatagram>,
    pub(crate) role: Role,
    pub(crate) remote: SocketAddr,
    pub(crate) resumed: bool,
    pub(crate) retried: bool,
    pub(crate) zero_rtt_accepted: Option<bool>,
    pub(crate) alpn: Option<Vec<u8>>,
    pub(crate) server_name: Option<String>,
    pub(crate) certificates: Option<Vec<CertificateDer<'static>>>,
    pub(crate) stats: Stats,
}

/// One datagram with CONNECTION_CLOSE.
#[derive(Debug)]
pub(crate) struct CloseDatagram {
    pub(crate) remote: SocketAddr,
    pub(crate) local_ip: Option<IpAddr>,
    pub(crate) datagram: Vec<u8>,
}

impl TerminatedConnection {
    /// Takes what can still be had of `quic`, whose every part may panic again.
    pub(super) fn new(
        quic: &mut Connection,
        now: Instant,
        error: ConnectionError,
        sent_error: TransportError,
    ) -> Self {
        // It may be what panicked, and must not be asked again.
        let observer = catch(|| quic.take_observer());
        let _ = catch(|| drop(observer));
        let stats = catch(|| quic.stats(now)).unwrap_or_default();
        // Letting go of what it holds may fail where the words do not.
        let _ = catch(|| quic.abort(now, sent_error));
        let close_datagram = catch(|| close_datagram(quic, now)).ok().flatten();
        Self {
            error,
            close_datagram,
            role: quic.role(),
            remote: catch(|| quic.remote_address()).unwrap_or(UNKNOWN),
            resumed: catch(|| quic.resumed()).unwrap_or(false),
            retried: catch(|| quic.retried()).unwrap_or(false),
            zero_rtt_accepted: catch(|| quic.zero_rtt_accepted()).unwrap_or(None),
            alpn: catch(|| quic.alpn().map(<[u8]>::to_vec)).unwrap_or(None),
            server_name: catch(|| quic.server_name().map(str::to_owned)).unwrap_or(None),
            certificates: catch(|| quic.peer_certificates().map(<[_]>::to_vec)).unwrap_or(None),
            stats,
        }
    }
}

/// The address of a peer that the state cannot tell any more.
const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// What a connection that was aborted has to say.
///
/// A panic while packets were written may have left their numbers to be used again.
/// That is no reuse of a nonce: those packets never left.
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
