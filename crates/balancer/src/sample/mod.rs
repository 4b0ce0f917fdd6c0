//! Sampling: counting the datagrams of one connection in N at each hop, so that a hop that loses can
//! be named.
//!
//! Client, balancer and server choose the same connections without asking each other: by a hash of
//! the first eight bytes of a datagram's destination connection ID, which are the same bytes at each
//! hop, and at the same place whatever the length of the connection ID is. The two directions have
//! connection IDs of their own, and are sampled apart. A connection ID that is replaced
//! is a connection of its own here.
//!
//! A connection ID of fewer than eight bytes is followed by encrypted bytes, which differ from packet
//! to packet: of such connections single packets are sampled, which cannot be compared.

mod log;
mod socket;

pub use log::{SampleLine, SampleLog};
pub use socket::SampledSocket;

use crate::header::Header;

/// Bytes of a connection ID that are hashed.
const HASHED: usize = 8;

/// Which way a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SampleDirection {
    /// From a client to a server.
    Up,
    /// From a server to a client.
    Down,
}

impl SampleDirection {
    /// Returns the direction's name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }

    fn opposite(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }
}

/// Returns the name of the connection that a datagram belongs to, which is the same at each hop, if
/// it is one of those that are sampled: one in `one_in`.
#[must_use]
pub fn sampled_name(datagram: &[u8], one_in: u64) -> Option<u64> {
    let cid = Header::parse(datagram)?.dcid();
    let (hashed, _) = cid.split_first_chunk::<HASHED>()?;
    let name = mix(u64::from_be_bytes(*hashed));
    name.is_multiple_of(one_in.max(1)).then_some(name)
}

/// Mixes the bits of a number, without two having the same result (the finalizer of SplitMix64,
/// <https://doi.org/10.1145/2660193.2660195>). It must be the same in all versions and on all hosts.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(cid: u64, rest: &[u8]) -> Vec<u8> {
        [&[0x40][..], &cid.to_be_bytes(), rest].concat()
    }

    #[test]
    fn one_connection_in_n_is_sampled() {
        let sampled = (0..100_000_u64).filter(|cid| sampled_name(&short(*cid, b""), 50).is_some());
        let count = sampled.count();
        assert!((1_800..2_200).contains(&count), "{count}");
        assert!((0..100).all(|cid| sampled_name(&short(cid, b""), 1).is_some()));
    }

    #[test]
    fn both_header_forms_and_all_lengths_have_the_same_name() {
        let cid = 0x0102_0304_0506_0708_u64;
        let expected = sampled_name(&short(cid, b""), 1);
        assert_eq!(expected, Some(0x8789_a02f_7d9d_450a), "a file format");
        assert_eq!(sampled_name(&short(cid, b"more"), 1), expected);
        for len in 8..=20_u8 {
            let mut packet = vec![0xc0, 0, 0, 0, 1, len];
            packet.extend(cid.to_be_bytes());
            packet.resize(6 + usize::from(len), 0xff);
            packet.push(0);
            assert_eq!(sampled_name(&packet, 1), expected);
        }
    }

    #[test]
    fn datagrams_without_eight_bytes_of_connection_id_are_not_sampled() {
        for datagram in [
            &b""[..],
            &[0x40; 8],
            &[0xc0, 0, 0, 0, 1, 7, 1, 2, 3, 4, 5, 6, 7, 0],
            &[0xc0, 0, 0, 0, 1, 200, 1],
        ] {
            assert_eq!(sampled_name(datagram, 1), None, "{datagram:?}");
        }
    }
}
