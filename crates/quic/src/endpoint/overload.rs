//! Handshakes cost much and prove little: how many at once, from whom.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::Instant;
use crate::memory;

/// Bounds on handshakes under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// From this many on, addresses have to be validated by Retry first.
    pub retry_above: usize,
    /// From this many on, even validated clients are refused.
    pub refuse_above: usize,
    /// From this many of one source (an IPv4 address, an IPv6 /56) on, that
    /// source is asked to validate by Retry; from eight times as many on it is
    /// refused.
    pub per_source: usize,
    /// Stateless resets per second.
    pub resets_per_second: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            retry_above: 1_000,
            refuse_above: 10_000,
            per_source: 256,
            resets_per_second: 1_000,
        }
    }
}

/// What to do with a client's first Initial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    Retry,
    Refuse,
}

/// Counts handshakes under way, in all and by source.
#[derive(Debug)]
pub(super) struct Overload {
    limits: Limits,
    handshakes: usize,
    by_source: BTreeMap<Source, usize>,
    /// The second that `resets` counts in.
    second: u64,
    resets: u64,
}

/// Addresses that one customer of a provider typically holds.
type Source = [u8; 7];

impl Overload {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            handshakes: 0,
            by_source: BTreeMap::new(),
            second: 0,
            resets: 0,
        }
    }

    pub(super) fn handshakes(&self) -> usize {
        self.handshakes
    }

    /// Bytes allocated.
    pub(super) fn memory(&self) -> usize {
        memory::map(&self.by_source)
    }

    pub(super) fn judge(&self, ip: IpAddr, validated: bool, always_retry: bool) -> Verdict {
        let source = self.by_source.get(&source(ip)).copied().unwrap_or(0);
        let Limits {
            retry_above,
            refuse_above,
            per_source,
            resets_per_second: _,
        } = self.limits;
        if self.handshakes >= refuse_above || source >= per_source.saturating_mul(8) {
            Verdict::Refuse
        } else if !validated
            && (always_retry || self.handshakes >= retry_above || source >= per_source)
        {
            Verdict::Retry
        } else {
            Verdict::Accept
        }
    }

    pub(super) fn begin(&mut self, ip: IpAddr) {
        self.handshakes += 1;
        *self.by_source.entry(source(ip)).or_default() += 1;
    }

    pub(super) fn end(&mut self, ip: IpAddr) {
        self.handshakes = self.handshakes.saturating_sub(1);
        let key = source(ip);
        if let Some(count) = self.by_source.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.by_source.remove(&key);
            }
        }
    }

    pub(super) fn may_reset(&mut self, now: Instant) -> bool {
        let second = now.as_nanos() / 1_000_000_000;
        if second != self.second {
            self.second = second;
            self.resets = 0;
        }
        self.resets += 1;
        self.resets <= self.limits.resets_per_second
    }
}

fn source(ip: IpAddr) -> Source {
    let mut key = [0; 7];
    match ip.to_canonical() {
        IpAddr::V4(v4) => key[3..].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => key.copy_from_slice(&v6.octets()[..7]),
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn one_source_cannot_use_up_the_handshakes_of_others() {
        let mut overload = Overload::new(Limits::default());
        for _ in 0..256 {
            assert_eq!(overload.judge(ip(1), false, false), Verdict::Accept);
            overload.begin(ip(1));
        }
        assert_eq!(overload.judge(ip(1), false, false), Verdict::Retry);
        assert_eq!(overload.judge(ip(1), true, false), Verdict::Accept);
        assert_eq!(overload.judge(ip(2), false, false), Verdict::Accept);
        overload.end(ip(1));
        assert_eq!(overload.judge(ip(1), false, false), Verdict::Accept);
    }

    #[test]
    fn above_the_budget_addresses_are_validated_then_refused() {
        let mut overload = Overload::new(Limits {
            retry_above: 10,
            refuse_above: 20,
            ..Limits::default()
        });
        for i in 0..10 {
            overload.begin(ip(i));
        }
        assert_eq!(overload.judge(ip(99), false, false), Verdict::Retry);
        assert_eq!(overload.judge(ip(99), true, false), Verdict::Accept);
        for i in 10..20 {
            overload.begin(ip(i));
        }
        assert_eq!(overload.judge(ip(99), true, false), Verdict::Refuse);
        for i in 0..20 {
            overload.end(ip(i));
        }
        assert_eq!(overload.handshakes(), 0);
        assert!(overload.by_source.is_empty());
    }

    #[test]
    fn resets_have_a_rate() {
        let mut overload = Overload::new(Limits::default());
        let sent = (0..5_000)
            .filter(|_| overload.may_reset(Instant::ZERO))
            .count();
        assert_eq!(sent, 1_000);
        assert!(overload.may_reset(Instant::from_nanos(1_000_000_000)));
    }
}
