//! Stream identifiers (RFC 9000 §2.1).

use core::fmt;

use crate::Role;

/// Most streams of a kind that an ID can number (RFC 9000 §4.6).
pub const MAX_STREAM_COUNT: u64 = 1 << 60;

/// Whether data flows one way or both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Directionality {
    /// Both ends send.
    Bidirectional,
    /// Only the initiator sends.
    Unidirectional,
}

/// A stream identifier: initiator, directionality and index in one integer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u64);

impl StreamId {
    /// Creates the ID of the stream number `index` (from 0) of its type.
    #[must_use]
    pub fn new(initiator: Role, directionality: Directionality, index: u64) -> Self {
        let initiator = u64::from(initiator == Role::Server);
        let directionality = u64::from(directionality == Directionality::Unidirectional) << 1;
        Self(index << 2 | directionality | initiator)
    }

    /// Creates an ID from its integer on the wire.
    #[must_use]
    pub const fn from_wire(id: u64) -> Self {
        Self(id)
    }

    /// Returns the integer on the wire.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Returns which end opens the stream.
    #[must_use]
    pub const fn initiator(self) -> Role {
        if self.0 & 1 == 0 {
            Role::Client
        } else {
            Role::Server
        }
    }

    /// Returns whether the stream is bidirectional or unidirectional.
    #[must_use]
    pub const fn directionality(self) -> Directionality {
        if self.0 & 2 == 0 {
            Directionality::Bidirectional
        } else {
            Directionality::Unidirectional
        }
    }

    /// Returns the number of the stream among those of its type, from 0.
    #[must_use]
    pub const fn index(self) -> u64 {
        self.0 >> 2
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
