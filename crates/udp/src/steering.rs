//! Steering of datagrams to shards, by one rule in the kernel and in user space.
//!
//! A server's shards each own a socket of one `SO_REUSEPORT` group. The kernel hands a datagram
//! to the socket that [`shard_of`] names; a shard forwards a misdirected datagram by the same rule.
//! The rule reads the first eight bytes of the destination connection ID, wherever the header
//! form puts it (RFC 8999 §5.1, §5.2), and mixes them with a key: a connection ID that was drawn
//! until it mixes to its owner's shard does not show the shard to anyone without the key
//! (RFC 9000 §5.1), and the IDs clients choose for their first packets, at least eight bytes by
//! RFC 9000 §7.2, spread by the same rule.
//!
//! # The mix
//! With the eight bytes as two big-endian words `a` and `b`, in 32-bit arithmetic that wraps:
//!
//! ```text
//! h = (a ^ k0) * 0x9e3779b1
//! h = h ^ (h >> 15)
//! h = (h + b) ^ k1
//! h = h * 0x85ebca77
//! h = h ^ (h >> 13)
//! shard = h % shards
//! ```
//!
//! Test vectors for other implementations:
//!
//! | first eight bytes | `k0 k1` | `h` |
//! |---|---|---|
//! | `0000000000000000` | `00000000 00000000` | `00000000` |
//! | `0000000000000000` | `01234567 89abcdef` | `85f5bea1` |
//! | `ffffffffffffffff` | `01234567 89abcdef` | `ed95aa1b` |
//! | `0001020304050607` | `01234567 89abcdef` | `1c582f89` |
//! | `8394c8f03e515708` | `01234567 89abcdef` | `9d437538` |
//!
//! # By port
//! A shard that owns the sockets with its clients' port numbers gets all datagrams of these ports by
//! [`steer_by_port`]: `shard = ((port * 0x9e3779b1) >> 16) % shards`.
//!
//! # Steering is a hint
//! The kernel sees a train's first segment only, runs the program on no fragment but the first,
//! and renumbers its sockets when one closes; shards must check what they get.

use std::io;
use std::net::SocketAddr;

use crate::{Options, Socket};

/// Number of bytes of the connection ID that the rule uses.
pub const MIXED: usize = 8;

pub(crate) const HEADER_FORM_LONG: u8 = 0x80;
/// First byte, version, length, then the ID (RFC 8999 §5.1).
pub(crate) const DCID_LONG: usize = 6;
/// First byte, then the ID (RFC 8999 §5.2).
pub(crate) const DCID_SHORT: usize = 1;

/// Odd, so that multiplying loses nothing; bits without a pattern, so that every input bit
/// reaches the ones the shift folds down (2³² over the golden ratio, made prime).
pub(crate) const M1: u32 = 0x9e37_79b1;
/// A second one unlike the first.
pub(crate) const M2: u32 = 0x85eb_ca77;

/// The upper half of the product depends on all bits of the port.
pub(crate) const PORT_SHIFT: u32 = 16;

/// Hides from observers which shard a connection ID belongs to. Draw it at random; all shards of a
/// group, and whatever generates connection IDs for them, use the same key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SteeringKey {
    /// Mixed in with the first four bytes.
    pub k0: u32,
    /// Mixed in with the next four.
    pub k1: u32,
}

impl std::fmt::Debug for SteeringKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SteeringKey(..)")
    }
}

impl From<[u8; 8]> for SteeringKey {
    fn from(random: [u8; 8]) -> Self {
        let (k0, k1) = words(random);
        Self { k0, k1 }
    }
}

/// The keyed mix of a connection ID's first eight bytes; its remainder by the number of shards
/// is the shard. See the module's text for the arithmetic.
#[must_use]
pub fn mix(first8: [u8; MIXED], key: SteeringKey) -> u32 {
    let (a, b) = words(first8);
    let h = (a ^ key.k0).wrapping_mul(M1);
    let h = h ^ (h >> 15);
    let h = (h.wrapping_add(b) ^ key.k1).wrapping_mul(M2);
    h ^ (h >> 13)
}

/// The shard that owns a connection ID; 0 if it is too short to tell.
#[must_use]
pub fn shard_of_cid(cid: &[u8], key: SteeringKey, shards: usize) -> usize {
    match (cid.first_chunk(), u32::try_from(shards)) {
        // Without shards there is no remainder.
        (Some(first8), Ok(shards)) => mix(*first8, key).checked_rem(shards).unwrap_or(0) as usize,
        (_, _) => 0,
    }
}

/// The shard a datagram belongs to, exactly as the kernel's program computes it: 0 for datagrams
/// that end before the eight bytes do.
///
/// The length byte of a long header is ignored: a connection ID under eight bytes is not one of
/// ours.
#[must_use]
pub fn shard_of(datagram: &[u8], key: SteeringKey, shards: usize) -> usize {
    let start = match datagram.first() {
        Some(first) if first & HEADER_FORM_LONG != 0 => DCID_LONG,
        _ => DCID_SHORT,
    };
    shard_of_cid(datagram.get(start..).unwrap_or_default(), key, shards)
}

/// The shard that datagrams from this remote port belong to.
#[must_use]
pub fn shard_of_port(port: u16, shards: usize) -> usize {
    let mixed = u32::from(port).wrapping_mul(M1) >> PORT_SHIFT;
    u32::try_from(shards).map_or(0, |shards| mixed.checked_rem(shards).unwrap_or(0) as usize)
}

/// Has the kernel steer between sockets that share one address
/// ([`Options::reuse_port`](crate::Options)), and are all that do: the socket at index `i` gets the
/// datagrams for which [`shard_of_port`] returns `i`. They must be in the order in which they were
/// bound, and stay open. It is a hint as well: IPv6 extension headers hide the port.
///
/// # Errors
/// `Unsupported` except on Linux; otherwise the system's error.
pub fn steer_by_port(sockets: &[Socket]) -> io::Result<()> {
    platform::steer_by_port(sockets)
}

fn words(bytes: [u8; 8]) -> (u32, u32) {
    let both = u64::from_be_bytes(bytes);
    ((both >> 32) as u32, both as u32)
}

/// Binds `shards` sockets to one address and lets the kernel steer between them; the socket at
/// index `i` gets the datagrams for which [`shard_of`] returns `i`. [`crate::Report::steered`] says
/// whether the kernel does so: where steering is not available, the sockets are handles to one, and
/// each shard forwards the datagrams of others.
///
/// Unless `options.reuse_port` is set, an address that another group already serves is an error.
/// With it the kernel includes that group's sockets, and steering is off for as long as the other
/// group exists.
///
/// # Errors
/// `InvalidInput` for no shards, or connection IDs under eight bytes; the system's error if it
/// cannot bind.
pub fn bind_shards(
    addr: SocketAddr,
    shards: usize,
    options: &Options,
    key: SteeringKey,
    cid_len: usize,
) -> io::Result<Vec<Socket>> {
    if shards == 0 || cid_len < MIXED {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "steering requires at least one shard and connection IDs of at least 8 bytes",
        ));
    }
    platform::bind_group(addr, shards, options, key)
}

#[cfg(target_os = "linux")]
mod platform {
    use std::io;
    use std::net::SocketAddr;
    use std::os::fd::AsFd;

    use super::SteeringKey;
    use crate::linux::{attach_by_port, attach_steering};
    use crate::options::{open, share_port};
    use crate::{Options, Socket};

    pub(super) fn bind_group(
        addr: SocketAddr,
        shards: usize,
        options: &Options,
        key: SteeringKey,
    ) -> io::Result<Vec<Socket>> {
        // The first binds alone, so that a port in use is an error, and is shared from then on.
        let first = open(addr, options, options.reuse_port)?;
        if shards == 1 {
            return Ok(vec![Socket::from_std(first.into(), options)?]);
        }
        share_port(&first)?;
        let first = Socket::from_std(first.into(), options)?;
        let addr = first.local_addr()?;
        let mut sockets = vec![first];
        for _ in 1..shards {
            sockets.push(Socket::from_std(
                open(addr, options, true)?.into(),
                options,
            )?);
        }
        let count = u32::try_from(shards).map_err(|_| io::ErrorKind::InvalidInput)?;
        let group = sockets.first().ok_or(io::ErrorKind::InvalidInput)?;
        match attach_steering(group.as_fd(), key, count) {
            Ok(()) => sockets
                .iter_mut()
                .for_each(|socket| socket.backend_mut().set_steered()),
            Err(error) => {
                tracing::warn!(%error, "the kernel does not support steering by connection ID");
            }
        }
        Ok(sockets)
    }

    pub(super) fn steer_by_port(sockets: &[Socket]) -> io::Result<()> {
        let shards = u32::try_from(sockets.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let group = sockets.first().ok_or(io::ErrorKind::InvalidInput)?;
        attach_by_port(group.as_fd(), shards)
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use std::io;
    use std::net::SocketAddr;

    use super::SteeringKey;
    use crate::{Options, Socket};

    pub(super) fn bind_group(
        addr: SocketAddr,
        shards: usize,
        options: &Options,
        _key: SteeringKey,
    ) -> io::Result<Vec<Socket>> {
        let first = Socket::bind(addr, options)?;
        let mut sockets = Vec::with_capacity(shards);
        for _ in 1..shards {
            let handle = first.backend().std().try_clone()?;
            sockets.push(Socket::from_std(handle, options)?);
        }
        sockets.insert(0, first);
        Ok(sockets)
    }

    pub(super) fn steer_by_port(_sockets: &[Socket]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: SteeringKey = SteeringKey {
        k0: 0x0123_4567,
        k1: 0x89ab_cdef,
    };

    /// Worked out apart from this code; the module's text shows the same.
    const VECTORS: [([u8; 8], SteeringKey, u32); 5] = [
        ([0; 8], SteeringKey { k0: 0, k1: 0 }, 0x0000_0000),
        ([0; 8], KEY, 0x85f5_bea1),
        ([0xff; 8], KEY, 0xed95_aa1b),
        ([0, 1, 2, 3, 4, 5, 6, 7], KEY, 0x1c58_2f89),
        (
            [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08],
            KEY,
            0x9d43_7538,
        ),
    ];

    #[test]
    fn ports_spread_over_shards_whatever_their_parity() {
        for shards in 1..=8_usize {
            for step in [1, 2, 4] {
                let mut counts = vec![0; shards];
                let ports = (32_768..=60_999_u16).step_by(step);
                let all = ports.len();
                ports.for_each(|port| counts[shard_of_port(port, shards)] += 1);
                let fair = all / shards;
                let off = |count: &usize| count.abs_diff(fair) * 20 > fair;
                assert!(!counts.iter().any(off), "{shards} {step} {counts:?}");
            }
        }
        assert_eq!(shard_of_port(443, 0), 0);
    }

    #[test]
    fn steering_test_vectors() {
        for (bytes, key, expected) in VECTORS {
            assert_eq!(
                mix(bytes, key),
                expected,
                "{bytes:02x?}: {:#010x}",
                mix(bytes, key)
            );
        }
    }

    #[test]
    fn connection_ids_spread_evenly_over_shards() {
        for shards in [2, 3, 7, 16] {
            let mut load = vec![0usize; shards];
            for n in 0..16_000u64 {
                load[shard_of_cid(&n.to_be_bytes(), KEY, shards)] += 1;
            }
            let fair = 16_000 / shards;
            for (shard, count) in load.iter().enumerate() {
                assert!(
                    (fair * 8 / 10..=fair * 12 / 10).contains(count),
                    "shard {shard} of {shards} got {count}, {fair} would be fair"
                );
            }
        }
    }

    #[test]
    fn long_and_short_headers_steer_to_the_same_shard() {
        let cid = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
        let owner = shard_of_cid(&cid, KEY, 5);
        let long = [&[0xc3, 0, 0, 0, 1, 8][..], &cid, &[0; 20]].concat();
        let short = [&[0x43][..], &cid, &[0; 20]].concat();
        assert_eq!(shard_of(&long, KEY, 5), owner);
        assert_eq!(shard_of(&short, KEY, 5), owner);
    }

    #[test]
    fn short_datagrams_and_zero_shards_go_to_shard_0() {
        let datagram = [0x43, 1, 2, 3, 4, 5, 6, 7, 8];
        for len in 0..datagram.len() {
            assert_eq!(shard_of(&datagram[..len], KEY, 1000), 0);
        }
        assert_ne!(shard_of(&datagram, KEY, 1000), 0);
        assert_eq!(shard_of(&datagram, KEY, 0), 0);
    }

    #[test]
    fn invalid_shard_groups_are_rejected() {
        let addr = ([127, 0, 0, 1], 0).into();
        let options = Options::default();
        for (shards, cid_len) in [(0, 8), (2, 7)] {
            let error = bind_shards(addr, shards, &options, KEY, cid_len).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
