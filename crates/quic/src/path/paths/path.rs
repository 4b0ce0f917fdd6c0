//! One path: its addresses, and what is known about the network between them.

use std::net::{IpAddr, SocketAddr};

use crate::Instant;
use crate::path::PathId;
use crate::path::amplification::Amplification;
use crate::path::ecn::{Mark, PathEcn};
use crate::path::mtu::MtuDiscovery;
use crate::path::validation::{ChallengeData, PathResponses, PathValidation, Proof};
use crate::rng::Rng;
use crate::wire::MIN_MTU;

/// The two addresses of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The peer's address.
    pub remote: SocketAddr,
    /// The local address, if known.
    pub local_ip: Option<IpAddr>,
}

/// The settings that every new path starts with.
#[derive(Clone, Copy, Debug)]
pub struct PathDefaults {
    /// Largest datagram to send, in bytes of UDP payload.
    pub max_mtu: u16,
    /// Whether to search for a larger MTU once the path is validated.
    pub mtu_discovery: bool,
    /// The ECN mark to test the path with.
    pub mark: Mark,
}

/// A network path: a pair of addresses and what is known about the path between them.
#[derive(Clone, Debug)]
pub struct Path {
    pub(crate) id: PathId,
    pub(crate) remote: SocketAddr,
    pub(crate) local_ip: Option<IpAddr>,
    pub(crate) validation: PathValidation,
    pub(crate) responses: PathResponses,
    pub(crate) amplification: Amplification,
    pub(crate) ecn: PathEcn,
    /// The ECN mark of the train being written. All its datagrams have the same, even if
    /// ECN testing ends with a packet in the middle of it.
    pub(crate) train_mark: Mark,
    pub(crate) mtu: MtuDiscovery,
    /// An ack-eliciting packet was sent on it since everything was acknowledged.
    pub(crate) busy: bool,
}

impl Path {
    pub(super) fn new(
        id: PathId,
        addresses: Addresses,
        amplification: Amplification,
        defaults: &PathDefaults,
    ) -> Self {
        Self {
            id,
            remote: addresses.remote,
            local_ip: addresses.local_ip,
            validation: PathValidation::new(),
            responses: PathResponses::default(),
            amplification,
            ecn: PathEcn::new(defaults.mark),
            train_mark: Mark::NotEct,
            mtu: MtuDiscovery::new(defaults.max_mtu),
            busy: false,
        }
    }

    /// Returns the path's ID. No two paths of a connection have the same ID at a time.
    #[must_use]
    pub fn id(&self) -> PathId {
        self.id
    }

    /// Returns its addresses.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        Addresses {
            remote: self.remote,
            local_ip: self.local_ip,
        }
    }

    /// Returns the state of its validation.
    #[must_use]
    pub fn validation(&self) -> &PathValidation {
        &self.validation
    }

    /// Returns its anti-amplification limit.
    #[must_use]
    pub fn amplification(&self) -> &Amplification {
        &self.amplification
    }

    /// Returns whether a PATH_CHALLENGE or PATH_RESPONSE is due. Only the
    /// anti-amplification limit or a missing connection ID can hold it back.
    #[must_use]
    pub fn has_frames_due(&self, now: Instant) -> bool {
        self.responses.is_pending() || self.validation.challenge_due(now)
    }

    /// Takes the next PATH_RESPONSE to send.
    pub fn next_response(&mut self) -> Option<ChallengeData> {
        self.responses.take()
    }

    /// Takes the PATH_CHALLENGE to send, if one is due. It counts as one of full size if
    /// the anti-amplification limit allows that many bytes.
    pub fn next_challenge(&mut self, now: Instant, rng: &mut Rng) -> Option<ChallengeData> {
        if !self.validation.challenge_due(now) {
            return None;
        }
        let credit = usize::try_from(self.amplification.available()).unwrap_or(usize::MAX);
        let size = usize::from(MIN_MTU).min(credit);
        Some(self.validation.send_challenge(now, size, rng))
    }

    /// Counts a datagram of `bytes` sent on it.
    pub fn on_sent(&mut self, bytes: usize) {
        self.amplification.on_sent(bytes);
    }

    /// Starts a train: its datagrams all get the current ECN mark.
    pub(crate) fn begin_train(&mut self, now: Instant) {
        self.train_mark = self.ecn.begin_train(now);
    }

    /// Handles a PATH_RESPONSE that may answer a challenge of this path.
    pub(super) fn on_response(&mut self, now: Instant, data: ChallengeData) -> Option<Proof> {
        let proof = self.validation.on_response(now, data)?;
        self.amplification.validate();
        Some(proof)
    }

    /// Returns the bytes of memory, including itself.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>()
            .saturating_add(self.validation.memory())
            .saturating_add(self.responses.memory())
    }

    pub(super) fn matches(&self, from: &Addresses) -> bool {
        self.remote == from.remote
            && match (self.local_ip, from.local_ip) {
                (Some(ours), Some(theirs)) => ours == theirs,
                (None, _) | (_, None) => true,
            }
    }

    /// Returns whether its local address is known to differ from that of `other`.
    pub(super) fn has_other_local_ip(&self, other: &Self) -> bool {
        match (self.local_ip, other.local_ip) {
            (Some(one), Some(two)) => one != two,
            (None, _) | (_, None) => false,
        }
    }
}
