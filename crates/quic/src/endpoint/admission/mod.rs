//! Limits on handshakes and connections, in total and by source: handshakes cost much
//! before the client has shown anything, and connections last.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::net::IpAddr;
use std::sync::Arc;

use super::limits::Limits;
use super::sources::{Source, SourceUsage, Sources};
use crate::Instant;
use crate::bucket::TokenBucket;
use crate::rng::Rng;

/// A source is refused at this many times [`Limits::per_source`] handshakes.
const REFUSE_SOURCE_FACTOR: usize = 8;

/// The answer to a client that is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denial {
    Retry,
    Refuse(Refusal),
}

/// The limit that a client exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Handshakes,
    HandshakesOfSource,
    Connections,
    ConnectionsOfSource,
}

impl Refusal {
    /// Returns the reason phrase for the client.
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Handshakes => "too many handshakes",
            Self::HandshakesOfSource => "too many handshakes from this address",
            Self::Connections => "too many connections",
            Self::ConnectionsOfSource => "too many connections from this address",
        }
    }
}

/// Decides which clients are admitted, by the number of their connections and of their
/// incomplete handshakes.
///
/// Each [`Endpoint`](super::Endpoint) has its own, unless several are
/// [given](super::Endpoint::with_admission) the same one. Its [`Limits`] then apply to all
/// of them together, as for the shards of a server with one endpoint per thread. A lock is
/// taken when a client's connection starts, when its handshake completes and when it ends,
/// and never for a packet of a connection.
#[derive(Debug)]
pub struct AdmissionControl {
    limits: Limits,
    sources: Sources,
    /// Clients' connections, including handshakes.
    connections: AtomicUsize,
    /// Incomplete handshakes.
    handshakes: AtomicUsize,
    /// Incomplete handshakes that were not reported as overdue.
    in_time: AtomicUsize,
    resets: TokenBucket,
    refusals: TokenBucket,
}

impl AdmissionControl {
    /// Creates an admission control without clients. The key for hashing sources is drawn
    /// from `rng`.
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

    /// Returns the limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the number of clients' connections, including handshakes and clients about
    /// to be accepted.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// Returns the number of incomplete handshakes with clients, including clients about to
    /// be accepted.
    #[must_use]
    pub fn handshakes(&self) -> usize {
        self.handshakes.load(Relaxed)
    }

    /// Returns the bytes allocated.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.sources.memory()
    }

    /// Returns the total limit that is reached, so that no client is admitted now.
    pub(super) fn reached_total(&self) -> Option<Refusal> {
        if self.connections() >= self.limits.connections {
            Some(Refusal::Connections)
        } else if self.handshakes() >= self.limits.refuse_above {
            Some(Refusal::Handshakes)
        } else {
            None
        }
    }

    /// Returns whether there are so many handshakes that they get less time.
    pub(super) fn is_under_load(&self) -> bool {
        self.in_time.load(Relaxed) >= self.limits.retry_above
    }

    /// Admits a client. Its connection and its handshake count until the guard is dropped.
    ///
    /// # Errors
    /// The answer to send instead.
    pub(super) fn admit(
        self: &Arc<Self>,
        ip: IpAddr,
        validated: bool,
        always_retry: bool,
    ) -> Result<AdmissionGuard, Denial> {
        if let Some(refusal) = self.reached_total() {
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
            validated,
            handshake: HandshakeStatus::UnderWay,
        })
    }

    /// Checks the limits on a client's source.
    fn check_source(&self, usage: SourceUsage, validated: bool, retry: bool) -> Result<(), Denial> {
        let per_source = self.limits.per_source;
        if usage.validated >= self.limits.connections_per_source {
            Err(Denial::Refuse(Refusal::ConnectionsOfSource))
        } else if usage.handshakes >= per_source.saturating_mul(REFUSE_SOURCE_FACTOR) {
            Err(Denial::Refuse(Refusal::HandshakesOfSource))
        } else if !validated && (retry || usage.handshakes >= per_source) {
            Err(Denial::Retry)
        } else {
            Ok(())
        }
    }

    /// Counts a connection and its handshake. If several endpoints do so at once, only one
    /// gets the last place.
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

    /// Returns the source that an address counts for; `None` if it is trusted
    /// ([`Limits::trusted`]).
    #[must_use]
    pub fn source_of(&self, ip: IpAddr) -> Option<Source> {
        let ip = ip.to_canonical();
        let trusted = self.limits.trusted.iter().any(|net| net.contains(&ip));
        (!trusted).then(|| Source::of(ip))
    }
}

/// The state of an admitted client's handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandshakeStatus {
    UnderWay,
    /// It was reported as overdue and is about to end.
    Overdue,
    Complete,
}

/// Counts an admitted client until this is dropped: from before its connection is created
/// until that is gone.
#[derive(Debug)]
pub(super) struct AdmissionGuard {
    control: Arc<AdmissionControl>,
    /// `None` = trusted, and not counted for any source.
    source: Option<Source>,
    /// Its address is validated, and counted as such.
    validated: bool,
    handshake: HandshakeStatus,
}

impl AdmissionGuard {
    /// Records that the handshake is complete, which validates the address.
    pub(super) fn complete_handshake(&mut self) {
        self.leave_handshakes();
        if let Some(source) = self.source
            && self.handshake != HandshakeStatus::Complete
        {
            let validates = !self.validated;
            self.control.sources.complete_handshake(source, validates);
            self.validated = true;
        }
        self.handshake = HandshakeStatus::Complete;
    }

    /// Records that the handshake takes too long and is about to be ended.
    pub(super) fn set_overdue(&mut self) {
        if self.handshake == HandshakeStatus::UnderWay {
            decrement(&self.control.in_time);
            self.handshake = HandshakeStatus::Overdue;
        }
    }

    /// Subtracts the handshake from the totals.
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
            self.control.sources.end(source, handshake, self.validated);
        }
    }
}

/// Adds one unless that would exceed `most`. Returns whether it did.
fn try_increment(count: &AtomicUsize, most: usize) -> bool {
    let raised = |now: usize| now.checked_add(1).filter(|raised| *raised <= most);
    count.fetch_update(Relaxed, Relaxed, raised).is_ok()
}

/// Subtracts one.
fn decrement(count: &AtomicUsize) {
    let lowered = |now: usize| Some(now.saturating_sub(1));
    let _ = count.fetch_update(Relaxed, Relaxed, lowered);
}

#[cfg(test)]
mod tests;
