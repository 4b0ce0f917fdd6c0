//! The network paths of a connection (RFC 9000 §8, §9, §13.4, §14).
//!
//! | file | what it owns |
//! |---|---|
//! | [`paths`] | which path carries data, what it returns to, what is being tried |
//! | [`validation`] | PATH_CHALLENGE and PATH_RESPONSE on one path |
//! | [`amplification`] | bytes that may go to an address not yet validated |
//! | [`ecn`] | whether marks get through |
//! | [`mtu`] | the largest datagram that gets through |

#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

pub mod amplification;
pub mod ecn;
pub mod mtu;
pub mod paths;
pub(crate) mod scope;
pub mod validation;

use std::net::{IpAddr, SocketAddr};

pub use clearway_recovery::PathId;

use self::amplification::Amplification;
use self::ecn::{Mark, PathEcn};
use self::mtu::MtuDiscovery;
use self::validation::{ChallengeData, PathResponses, PathValidation, Proof};
use crate::Instant;
use crate::rng::Rng;
use crate::wire::MIN_MTU;

/// Where a datagram came from, and where it came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The peer's address.
    pub remote: SocketAddr,
    /// The local address, where known.
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

/// One path: a pair of addresses and what is known of the way between them.
#[derive(Clone, Debug)]
pub struct Path {
    pub(crate) id: PathId,
    pub(crate) remote: SocketAddr,
    pub(crate) local_ip: Option<IpAddr>,
    pub(crate) validation: PathValidation,
    pub(crate) responses: PathResponses,
    pub(crate) amplification: Amplification,
    pub(crate) ecn: PathEcn,
    /// The mark of the train being written: all its datagrams share one, also
    /// if ECN testing ends with a packet in the middle of it.
    pub(crate) train_mark: Mark,
    pub(crate) mtu: MtuDiscovery,
    /// A data packet has left on it since everything was acknowledged.
    pub(crate) busy: bool,
}

impl Path {
    fn new(
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

    /// Which path it is. A number is never used for two paths.
    #[must_use]
    pub fn id(&self) -> PathId {
        self.id
    }

    /// Its two ends.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        Addresses {
            remote: self.remote,
            local_ip: self.local_ip,
        }
    }

    /// Where its validation stands.
    #[must_use]
    pub fn validation(&self) -> &PathValidation {
        &self.validation
    }

    /// What may be sent to its address.
    #[must_use]
    pub fn amplification(&self) -> &Amplification {
        &self.amplification
    }

    /// Whether a PATH_CHALLENGE or PATH_RESPONSE is to be sent now, which
    /// nothing holds back but the anti-amplification limit and the want of a
    /// connection ID.
    #[must_use]
    pub fn has_frames_due(&self, now: Instant) -> bool {
        self.responses.is_pending() || self.validation.challenge_due(now)
    }

    /// The next PATH_RESPONSE to send, taken as sent.
    pub fn next_response(&mut self) -> Option<ChallengeData> {
        self.responses.take()
    }

    /// The PATH_CHALLENGE to send, if one is due, taken as sent. It counts as
    /// one of full size if the anti-amplification limit allows that many bytes.
    pub fn next_challenge(&mut self, now: Instant, rng: &mut Rng) -> Option<ChallengeData> {
        if !self.validation.challenge_due(now) {
            return None;
        }
        let credit = usize::try_from(self.amplification.available()).unwrap_or(usize::MAX);
        let size = usize::from(MIN_MTU).min(credit);
        Some(self.validation.send_challenge(now, size, rng))
    }

    /// A datagram of `bytes` was sent on it.
    pub fn on_sent(&mut self, bytes: usize) {
        self.amplification.on_sent(bytes);
    }

    /// A train begins.
    pub(crate) fn begin_train(&mut self) {
        self.train_mark = self.ecn.mark();
    }

    /// A PATH_RESPONSE that may answer a challenge of this path.
    fn on_response(&mut self, now: Instant, data: ChallengeData) -> Option<Proof> {
        let proof = self.validation.on_response(now, data)?;
        self.amplification.validate();
        Some(proof)
    }

    /// Bytes of memory, itself included.
    fn memory(&self) -> usize {
        size_of::<Self>()
            .saturating_add(self.validation.memory())
            .saturating_add(self.responses.memory())
    }

    fn matches(&self, from: &Addresses) -> bool {
        self.remote == from.remote
            && match (self.local_ip, from.local_ip) {
                (Some(ours), Some(theirs)) => ours == theirs,
                (None, _) | (_, None) => true,
            }
    }

    /// Whether it is known to end at another address of ours than `other`.
    fn has_other_local_ip(&self, other: &Self) -> bool {
        match (self.local_ip, other.local_ip) {
            (Some(one), Some(two)) => one != two,
            (None, _) | (_, None) => false,
        }
    }
}
