//! Stream identifiers (RFC 9000 §2.1).

use core::fmt;

use crate::Role;

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
    /// The `index`th stream (from 0) of its kind.
    #[must_use]
    pub fn new(initiator: Role, directionality: Directionality, index: u64) -> Self {
        let initiator = u64::from(initiator == Role::Server);
        let directionality = u64::from(directionality == Directionality::Unidirectional) << 1;
        Self(index << 2 | directionality | initiator)
    }

    /// From the integer on the wire.
    #[must_use]
    pub const fn from_wire(id: u64) -> Self {
        Self(id)
    }

    /// The integer on the wire.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Who opened it.
    #[must_use]
    pub const fn initiator(self) -> Role {
        if self.0 & 1 == 0 {
            Role::Client
        } else {
            Role::Server
        }
    }

    /// One way or both ways.
    #[must_use]
    pub const fn directionality(self) -> Directionality {
        if self.0 & 2 == 0 {
            Directionality::Bidirectional
        } else {
            Directionality::Unidirectional
        }
    }

    /// How many streams of its kind were opened before it.
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
