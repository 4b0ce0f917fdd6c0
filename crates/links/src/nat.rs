//! Network address translation that rebinds.

use core::net::SocketAddr;

use crate::{Packet, Time};

/// Translates the address of one host behind it, and changes the outside address at given times,
/// which the host does not notice (RFC 9000 §9.3.3).
///
/// A packet to an outside address that is no longer valid is dropped.
#[derive(Clone, Debug)]
pub struct Nat {
    inside: Option<SocketAddr>,
    /// Each outside address with the time from which it is valid, in order of time.
    outside: Vec<(Time, SocketAddr)>,
    stale: u64,
}

impl Nat {
    /// Creates a translation to `outside`.
    #[must_use]
    pub fn new(outside: SocketAddr) -> Self {
        Self {
            inside: None,
            outside: vec![(Time::ZERO, outside)],
            stale: 0,
        }
    }

    /// Changes the outside address to `outside` from `at` on.
    ///
    /// # Panics
    /// If `at` is not later than the previous change.
    #[must_use]
    pub fn rebind(mut self, at: Time, outside: SocketAddr) -> Self {
        let last = self.outside.last().map(|&(last, _)| last);
        assert!(
            last.is_none_or(|last| last < at),
            "address changes must be in order of time"
        );
        self.outside.push((at, outside));
        self
    }

    /// The outside address at `now`.
    #[must_use]
    pub fn outside(&self, now: Time) -> SocketAddr {
        let passed = self.outside.partition_point(|&(at, _)| at <= now);
        self.outside[passed.max(1) - 1].1
    }

    /// Translates the source of a packet on its way out.
    pub fn outward(&mut self, now: Time, packet: &mut Packet) {
        self.inside = Some(packet.src);
        packet.src = self.outside(now);
    }

    /// Translates the destination of a packet on its way in; false if it has
    /// to be dropped.
    #[must_use]
    pub fn inward(&mut self, now: Time, packet: &mut Packet) -> bool {
        match self.inside {
            Some(inside) if packet.dst == self.outside(now) => {
                packet.dst = inside;
                true
            }
            Some(_) | None => {
                self.stale += 1;
                false
            }
        }
    }

    /// Packets dropped because their address was no longer valid.
    #[must_use]
    pub const fn stale(&self) -> u64 {
        self.stale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rebinding_changes_the_source_and_drops_packets_to_the_old_one() {
        let at = |port: u16| SocketAddr::from(([10, 0, 0, 1], port));
        let mut nat = Nat::new(at(1000)).rebind(Time::from_secs(5), at(1001));
        let out = |nat: &mut Nat, now| {
            let mut packet = Packet::new(at(9), at(443), vec![]);
            nat.outward(now, &mut packet);
            packet.src
        };
        let mut answer = Packet::new(at(443), at(1000), vec![]);
        assert!(!nat.inward(Time::ZERO, &mut answer), "nobody asked yet");
        assert_eq!(out(&mut nat, Time::ZERO), at(1000));
        assert!(nat.inward(Time::from_secs(4), &mut answer.clone()));
        assert_eq!(out(&mut nat, Time::from_secs(5)), at(1001));
        assert!(!nat.inward(Time::from_secs(5), &mut answer));
        assert_eq!(nat.stale(), 2);
        answer.dst = at(1001);
        assert!(nat.inward(Time::from_secs(6), &mut answer));
        assert_eq!(answer.dst, at(9));
    }
}
