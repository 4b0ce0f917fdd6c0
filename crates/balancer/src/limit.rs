//! A limit on the rate of new connections, in all and by source.

use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::time::Duration;

use foldhash::fast::RandomState;

/// Number of buckets that the sources share. A flood from one source only affects sources with the
/// same hash, which nobody can choose.
const BUCKETS: usize = 4_096;

/// A bucket holds the allowance of this time, so that clients may come in bursts.
const BURST: Duration = Duration::from_secs(1);

/// Limits the rate of new connections.
#[derive(Debug)]
pub(crate) struct NewConnectionLimit {
    total: Bucket,
    by_source: Box<[Bucket]>,
    total_rate: u32,
    source_rate: u32,
    hasher: RandomState,
}

/// Allowance in billionths of a connection.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    nanos: u64,
    filled: Duration,
}

const ONE: u64 = 1_000_000_000;

impl Bucket {
    fn new(rate: u32) -> Self {
        Self {
            nanos: full(rate),
            filled: Duration::ZERO,
        }
    }

    fn fill(&mut self, now: Duration, rate: u32) {
        let passed = now.saturating_sub(self.filled).min(BURST).as_nanos() as u64;
        self.filled = now;
        self.nanos = (self.nanos + passed * u64::from(rate)).min(full(rate));
    }
}

fn full(rate: u32) -> u64 {
    u64::from(rate.max(1)) * ONE
}

impl NewConnectionLimit {
    /// Creates limits in connections per second; 0 = no limit.
    pub(crate) fn new(total_rate: u32, source_rate: u32) -> Self {
        Self {
            total: Bucket::new(total_rate),
            by_source: vec![Bucket::new(source_rate); BUCKETS].into_boxed_slice(),
            total_rate,
            source_rate,
            hasher: RandomState::default(),
        }
    }

    /// Returns whether a source may start another connection, and counts it if so.
    pub(crate) fn admit(&mut self, now: Duration, source: IpAddr) -> bool {
        let index = self.hasher.hash_one(network(source)) as usize % BUCKETS;
        let Some(bucket) = self.by_source.get_mut(index) else {
            return false;
        };
        bucket.fill(now, self.source_rate);
        self.total.fill(now, self.total_rate);
        let of_source = self.source_rate == 0 || bucket.nanos >= ONE;
        let of_all = self.total_rate == 0 || self.total.nanos >= ONE;
        if !(of_source && of_all) {
            return false;
        }
        bucket.nanos = bucket.nanos.saturating_sub(ONE);
        self.total.nanos = self.total.nanos.saturating_sub(ONE);
        true
    }
}

/// A customer's network: an IPv4 address, or the 64-bit prefix of an IPv6 address.
fn network(source: IpAddr) -> u128 {
    match source.to_canonical() {
        IpAddr::V4(ip) => u128::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip) >> 64 << 64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(limit: &mut NewConnectionLimit, now: Duration, source: &str) -> usize {
        let source = source.parse().unwrap();
        (0..1_000).filter(|_| limit.admit(now, source)).count()
    }

    #[test]
    fn source_is_limited_to_its_rate_and_burst() {
        let mut limit = NewConnectionLimit::new(0, 10);
        let start = Duration::from_secs(100);
        assert_eq!(admitted(&mut limit, start, "192.0.2.1"), 10);
        let later = start + Duration::from_millis(500);
        assert_eq!(admitted(&mut limit, later, "192.0.2.1"), 5);
        let idle = start + Duration::from_secs(3_600);
        assert_eq!(admitted(&mut limit, idle, "192.0.2.1"), 10);
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_a_limit() {
        let mut limit = NewConnectionLimit::new(0, 10);
        let now = Duration::from_secs(1);
        assert_eq!(admitted(&mut limit, now, "2001:db8::1"), 10);
        assert_eq!(admitted(&mut limit, now, "2001:db8::2"), 0);
        assert_eq!(admitted(&mut limit, now, "2001:db8:0:1::2"), 10);
    }

    #[test]
    fn total_is_limited_whatever_the_source() {
        let mut limit = NewConnectionLimit::new(20, 0);
        let now = Duration::from_secs(1);
        assert_eq!(admitted(&mut limit, now, "192.0.2.1"), 20);
        assert_eq!(admitted(&mut limit, now, "192.0.2.2"), 0);
    }

    #[test]
    fn zero_rate_is_no_limit() {
        let mut limit = NewConnectionLimit::new(0, 0);
        assert_eq!(admitted(&mut limit, Duration::ZERO, "192.0.2.1"), 1_000);
    }
}
