//! The preferred_address parameter (RFC 9000 §9.6, §18.2).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

use crate::cid::{ConnectionId, ResetToken};
use crate::wire::{Reader, Writer};

/// A server's preferred address, with the connection ID to use there, which has
/// sequence number 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreferredAddress {
    /// IPv4 address and port; `None` is sent as 0.0.0.0:0.
    pub v4: Option<SocketAddrV4>,
    /// IPv6 address and port; `None` is sent as `[::]:0`.
    pub v6: Option<SocketAddrV6>,
    /// 1 to 20 bytes.
    pub cid: ConnectionId,
    /// The stateless reset token for `cid`.
    pub reset_token: ResetToken,
}

impl PreferredAddress {
    /// Largest encoding, in bytes.
    pub(super) const MAX_SIZE: usize = 4 + 2 + 16 + 2 + 1 + 20 + 16;

    /// Reads the value. Returns `None` if its layout is not that of RFC 9000 §18.2, or if the connection
    /// ID is empty.
    pub(super) fn decode(value: &[u8]) -> Option<Self> {
        let mut r = Reader::new(value);
        let v4 = SocketAddrV4::new(Ipv4Addr::from(r.u32()?), r.u16()?);
        let v6 = SocketAddrV6::new(Ipv6Addr::from(r.array::<16>()?), r.u16()?, 0, 0);
        let len = r.u8()?;
        let cid = ConnectionId::new(r.bytes(usize::from(len))?)?;
        let reset_token = ResetToken(r.array()?);
        if cid.is_empty() || !r.is_empty() {
            return None;
        }
        Some(Self {
            v4: (!v4.ip().is_unspecified() || v4.port() != 0).then_some(v4),
            v6: (!v6.ip().is_unspecified() || v6.port() != 0).then_some(v6),
            cid,
            reset_token,
        })
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        let v4 = self
            .v4
            .unwrap_or(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        let v6 = self
            .v6
            .unwrap_or(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0));
        w.bytes(&v4.ip().octets());
        w.u16(v4.port());
        w.bytes(&v6.ip().octets());
        w.u16(v6.port());
        w.u8(self.cid.len() as u8);
        w.bytes(&self.cid);
        w.bytes(&self.reset_token.0);
    }
}
