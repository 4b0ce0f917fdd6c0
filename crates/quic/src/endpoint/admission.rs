//! Handshakes cost much and prove little, and connections are held for long: how
//! many at once, from whom.

use std::net::IpAddr;

use super::limits::Limits;
use super::sources::{Source, Sources};
use crate::Instant;
use crate::bucket::{Rate, TokenBucket};
use crate::rng::Rng;

/// How many times [`Limits::per_source`] handshakes of one source are refused.
const REFUSE_SOURCE: usize = 8;

/// What to do with a client's first Initial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    Retry,
    Refuse(Refusal),
}

/// Which limit a client exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Handshakes,
    HandshakesOfSource,
    Connections,
    ConnectionsOfSource,
}

impl Refusal {
    /// In words for the client.
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Handshakes => "too many handshakes",
            Self::HandshakesOfSource => "too many handshakes from this address",
            Self::Connections => "too many connections",
            Self::ConnectionsOfSource => "too many connections from this address",
        }
    }
}

/// What a connection of a client counts as.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    /// `None` = trusted: on nobody's account.
    source: Option<Source>,
    /// Its address is proven, and counted as such.
    proven: bool,
}

/// Who is let in.
#[derive(Debug)]
pub(super) struct AdmissionControl {
    limits: Limits,
    sources: Sources,
    /// Clients' connections, handshakes included.
    connections: usize,
    resets: TokenBucket,
    refusals: TokenBucket,
}

impl AdmissionControl {
    pub(super) fn new(limits: Limits, rng: &mut Rng) -> Self {
        Self {
            limits,
            sources: Sources::new(rng),
            connections: 0,
            resets: TokenBucket::new(Instant::ZERO),
            refusals: TokenBucket::new(Instant::ZERO),
        }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Bytes allocated.
    pub(super) fn memory(&self) -> usize {
        self.sources.memory()
    }

    /// The limit that lets nobody in now, whoever it is.
    pub(super) fn closed(&self, handshakes: usize) -> Option<Refusal> {
        if self.connections >= self.limits.connections {
            Some(Refusal::Connections)
        } else if handshakes >= self.limits.refuse_above {
            Some(Refusal::Handshakes)
        } else {
            None
        }
    }

    /// Whether so many handshakes are load.
    pub(super) fn is_loaded(&self, handshakes: usize) -> bool {
        handshakes >= self.limits.retry_above
    }

    /// What to do with a client, while `handshakes` are open.
    pub(super) fn judge(
        &self,
        ip: IpAddr,
        validated: bool,
        always_retry: bool,
        handshakes: usize,
    ) -> Verdict {
        if let Some(refusal) = self.closed(handshakes) {
            return Verdict::Refuse(refusal);
        }
        let usage = self.source_of(ip).map(|source| self.sources.usage(source));
        let usage = usage.unwrap_or_default();
        let Limits {
            per_source,
            connections_per_source,
            ..
        } = self.limits;
        if usage.proven >= connections_per_source {
            Verdict::Refuse(Refusal::ConnectionsOfSource)
        } else if usage.handshakes >= per_source.saturating_mul(REFUSE_SOURCE) {
            Verdict::Refuse(Refusal::HandshakesOfSource)
        } else if !validated
            && (always_retry || self.is_loaded(handshakes) || usage.handshakes >= per_source)
        {
            Verdict::Retry
        } else {
            Verdict::Accept
        }
    }

    /// A client is let in, and its handshake begins.
    pub(super) fn begin(&mut self, ip: IpAddr, validated: bool) -> Counted {
        self.connections = self.connections.saturating_add(1);
        let source = self.source_of(ip);
        if let Some(source) = source {
            self.sources.begin_handshake(source);
            if validated {
                self.sources.begin_proven(source);
            }
        }
        Counted {
            source,
            proven: validated,
        }
    }

    /// The handshake is over; `complete` proves the address.
    pub(super) fn end_handshake(&mut self, counted: &mut Counted, complete: bool) {
        let Some(source) = counted.source else {
            return;
        };
        if complete && !counted.proven {
            counted.proven = true;
            self.sources.begin_proven(source);
        }
        self.sources.end_handshake(source);
    }

    /// The connection is gone, and its handshake with it.
    pub(super) fn end(&mut self, counted: Counted) {
        self.connections = self.connections.saturating_sub(1);
        if let Some(source) = counted.source.filter(|_| counted.proven) {
            self.sources.end_proven(source);
        }
    }

    pub(super) fn may_reset(&mut self, now: Instant) -> bool {
        self.resets
            .take(now, per_second(self.limits.resets_per_second))
    }

    pub(super) fn may_refuse(&mut self, now: Instant) -> bool {
        let rate = per_second(self.limits.refusals_per_second);
        self.refusals.take(now, rate)
    }

    pub(super) fn could_refuse(&mut self, now: Instant) -> bool {
        let rate = per_second(self.limits.refusals_per_second);
        self.refusals.has_some(now, rate)
    }

    /// On whose account an address is; `None` if it is trusted.
    fn source_of(&self, ip: IpAddr) -> Option<Source> {
        let ip = ip.to_canonical();
        let trusted = self.limits.trusted.iter().any(|net| net.contains(&ip));
        (!trusted).then(|| Source::of(ip))
    }
}

fn per_second(per_second: u32) -> Rate {
    Rate {
        burst: per_second,
        per_second,
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
