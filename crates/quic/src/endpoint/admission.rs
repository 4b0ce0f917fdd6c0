//! Handshakes cost much and prove little, and connections are held for long: how
//! many at once, from whom.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::net::IpAddr;
use std::sync::Arc;

use super::limits::Limits;
use super::sources::{Source, SourceUsage, Sources};
use crate::Instant;
use crate::bucket::TokenBucket;
use crate::rng::Rng;

/// How many times [`Limits::per_source`] handshakes of one source are refused.
const REFUSE_SOURCE_FACTOR: usize = 8;

/// What a client is answered that is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denial {
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

/// Who is let in, by how many connections clients have and how many of their
/// handshakes are under way.
///
/// Each [`Endpoint`](super::Endpoint) has one of its own unless several are
/// [given](super::Endpoint::with_admission) the same: then its [`Limits`] hold for all
/// of them together, as for the shards of a server that has one endpoint for each
/// thread. A lock is taken when a client's connection begins, when its handshake is
/// over and when it ends, and never for a packet of a connection.
#[derive(Debug)]
pub struct AdmissionControl {
    limits: Limits,
    sources: Sources,
    /// Clients' connections, handshakes included.
    connections: AtomicUsize,
    /// Handshakes under way.
    handshakes: AtomicUsize,
    /// Those of them that were not told to be overdue.
    in_time: AtomicUsize,
    resets: TokenBucket,
    refusals: TokenBucket,
}

impl AdmissionControl {
    /// Nobody is there yet. What sources are hashed with comes from `rng`.
    #[must_use]
    pub fn new(limits: Limits, rng: &mut Rng) -> Self {
        Self {
            resets: TokenBucket::new(limits.resets_per_second),
            refusals: TokenBucket::new(limits.refusals_per_second),
            limits,
            sources: Sources::new(rng),
            connections: AtomicUsize::new(0),
            handshakes: AtomicUsize::new(0),
            in_time: AtomicUsize::new(0),
        }
    }

    /// The bounds.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Clients' connections, handshakes and clients about to be accepted among them.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// Handshakes of clients under way, clients about to be accepted among them.
    #[must_use]
    pub fn handshakes(&self) -> usize {
        self.handshakes.load(Relaxed)
    }

    /// Bytes allocated.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.sources.memory()
    }

    /// The limit that lets nobody in now, whoever it is.
    pub(super) fn closed_by(&self) -> Option<Refusal> {
        if self.connections() >= self.limits.connections {
            Some(Refusal::Connections)
        } else if self.handshakes() >= self.limits.refuse_above {
            Some(Refusal::Handshakes)
        } else {
            None
        }
    }

    /// Whether there are so many handshakes that they get less time.
    pub(super) fn is_under_load(&self) -> bool {
        self.in_time.load(Relaxed) >= self.limits.retry_above
    }

    /// Lets a client in: its connection and its handshake count from now on, until what
    /// this returns is dropped.
    ///
    /// # Errors
    /// What to answer instead.
    pub(super) fn admit(
        self: &Arc<Self>,
        ip: IpAddr,
        validated: bool,
        always_retry: bool,
    ) -> Result<AdmissionGuard, Denial> {
        if let Some(refusal) = self.closed_by() {
            return Err(Denial::Refuse(refusal));
        }
        let retry = always_retry || self.handshakes() >= self.limits.retry_above;
        let enter = |usage| {
            self.check_source(usage, validated, retry)?;
            self.reserve_place().map_err(Denial::Refuse)
        };
        let source = self.source_of(ip);
        match source {
            Some(source) => self.sources.begin(source, validated, enter)?,
            None => enter(SourceUsage::default())?,
        }
        Ok(AdmissionGuard {
            control: self.clone(),
            source,
            proven: validated,
            handshake: HandshakeStatus::UnderWay,
        })
    }

    /// What to do with a client whose source has this much.
    fn check_source(&self, usage: SourceUsage, validated: bool, retry: bool) -> Result<(), Denial> {
        let per_source = self.limits.per_source;
        if usage.proven >= self.limits.connections_per_source {
            Err(Denial::Refuse(Refusal::ConnectionsOfSource))
        } else if usage.handshakes >= per_source.saturating_mul(REFUSE_SOURCE_FACTOR) {
            Err(Denial::Refuse(Refusal::HandshakesOfSource))
        } else if !validated && (retry || usage.handshakes >= per_source) {
            Err(Denial::Retry)
        } else {
            Ok(())
        }
    }

    /// Counts a connection and its handshake. Where several endpoints do so at once,
    /// only one gets the last place.
    fn reserve_place(&self) -> Result<(), Refusal> {
        if !try_increment(&self.connections, self.limits.connections) {
            return Err(Refusal::Connections);
        }
        if !try_increment(&self.handshakes, self.limits.refuse_above) {
            decrement(&self.connections);
            return Err(Refusal::Handshakes);
        }
        try_increment(&self.in_time, usize::MAX);
        Ok(())
    }

    pub(super) fn may_reset(&self, now: Instant) -> bool {
        self.resets.take(now)
    }

    pub(super) fn may_refuse(&self, now: Instant) -> bool {
        self.refusals.take(now)
    }

    pub(super) fn can_refuse(&self, now: Instant) -> bool {
        self.refusals.has_token(now)
    }

    /// On whose account an address is; `None` if it is trusted ([`Limits::trusted`]).
    #[must_use]
    pub fn source_of(&self, ip: IpAddr) -> Option<Source> {
        let ip = ip.to_canonical();
        let trusted = self.limits.trusted.iter().any(|net| net.contains(&ip));
        (!trusted).then(|| Source::of(ip))
    }
}

/// How far the handshake of a client that was let in has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandshakeStatus {
    UnderWay,
    /// It was told to be overdue, and is about to end.
    Overdue,
    Complete,
}

/// A client that counts until this is dropped: from before its connection is made to
/// when that is gone.
#[derive(Debug)]
pub(super) struct AdmissionGuard {
    control: Arc<AdmissionControl>,
    /// `None` = trusted: on nobody's account.
    source: Option<Source>,
    /// Its address is proven, and counted as such.
    proven: bool,
    handshake: HandshakeStatus,
}

impl AdmissionGuard {
    /// The handshake is complete, which proves the address.
    pub(super) fn complete_handshake(&mut self) {
        self.leave_handshakes();
        if let Some(source) = self.source
            && self.handshake != HandshakeStatus::Complete
        {
            let prove = !self.proven;
            self.control.sources.complete_handshake(source, prove);
            self.proven = true;
        }
        self.handshake = HandshakeStatus::Complete;
    }

    /// The handshake is about to be ended because it takes too long.
    pub(super) fn set_overdue(&mut self) {
        if self.handshake == HandshakeStatus::UnderWay {
            decrement(&self.control.in_time);
            self.handshake = HandshakeStatus::Overdue;
        }
    }

    /// The totals of handshakes go down.
    fn leave_handshakes(&self) {
        match self.handshake {
            HandshakeStatus::UnderWay => {
                decrement(&self.control.in_time);
                decrement(&self.control.handshakes);
            }
            HandshakeStatus::Overdue => decrement(&self.control.handshakes),
            HandshakeStatus::Complete => {}
        }
    }
}

impl Drop for AdmissionGuard {
    fn drop(&mut self) {
        self.leave_handshakes();
        decrement(&self.control.connections);
        if let Some(source) = self.source {
            let handshake = self.handshake != HandshakeStatus::Complete;
            self.control.sources.end(source, handshake, self.proven);
        }
    }
}

/// Adds one unless that would be more than `most`; whether it did.
fn try_increment(count: &AtomicUsize, most: usize) -> bool {
    let raised = |now: usize| now.checked_add(1).filter(|raised| *raised <= most);
    count.fetch_update(Relaxed, Relaxed, raised).is_ok()
}

/// Takes one away.
fn decrement(count: &AtomicUsize) {
    let lowered = |now: usize| Some(now.saturating_sub(1));
    let _ = count.fetch_update(Relaxed, Relaxed, lowered);
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
