//! What happened to every datagram.

use std::fmt;

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// Why a datagram was not forwarded.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum DropReason {
            $($(#[$doc])* $variant,)*
        }

        impl DropReason {
            /// Every reason, in the order of [`Traffic::drops`].
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the reason's name in status and metrics.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

drop_reasons! {
    /// It had no bytes.
    Empty "empty",
    /// It ended within the fields that every version of QUIC has (RFC 8999 §5).
    Malformed "malformed",
    /// A client's Initial packet in less than 1,200 bytes (RFC 9000 §14.1).
    SmallInitial "small-initial",
    /// A Version Negotiation packet from a client.
    UnexpectedNegotiation "unexpected-negotiation",
    /// More new connections than the limit on their rate allows.
    InitialLimit "initial-limit",
    /// No backend takes new connections.
    NoBackend "no-backend",
    /// Every upstream port is in use.
    NoUpstreamPort "no-upstream-port",
    /// A datagram at an upstream port that was not sent by a backend.
    UnknownSender "unknown-sender",
    /// A backend's datagram to an upstream port that no client uses.
    UnknownFlow "unknown-flow",
    /// The queue to the forwarding thread was full: with [`Mode::Decoupled`](crate::Mode::Decoupled),
    /// or in [transparent](crate::Settings::transparent) mode where the datagram arrived at another
    /// shard than that of its client's port.
    QueueFull "queue-full",
    /// The socket's send buffer was full.
    SendBlocked "send-blocked",
    /// Larger than the link to the next host allows.
    TooLarge "too-large",
    /// The system refused to send it.
    SendFailed "send-failed",
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Counts the datagrams of one direction: each one received is forwarded or dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Datagrams received.
    pub received: u64,
    /// Datagrams sent on.
    pub forwarded: u64,
    drops: [u64; DropReason::ALL.len()],
}

impl Traffic {
    /// Counts datagrams that were not forwarded.
    pub fn drop(&mut self, reason: DropReason, datagrams: u64) {
        if let Some(count) = self.drops.get_mut(reason as usize) {
            *count = count.saturating_add(datagrams);
        }
    }

    /// Returns how many datagrams were dropped for each reason that occurred.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        let counts = DropReason::ALL.iter().copied().zip(self.drops);
        counts.filter(|&(_, count)| count > 0)
    }

    /// Returns how many datagrams were dropped for any reason.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.drops.iter().sum()
    }

    /// Returns whether every datagram received is accounted for.
    #[must_use]
    pub fn is_conserved(&self) -> bool {
        self.received == self.forwarded.saturating_add(self.dropped())
    }

    /// Adds the counts of another shard.
    pub fn add(&mut self, other: &Self) {
        self.received = self.received.saturating_add(other.received);
        self.forwarded = self.forwarded.saturating_add(other.forwarded);
        for (to, from) in self.drops.iter_mut().zip(other.drops) {
            *to = to.saturating_add(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_counter_and_a_name_of_its_own() {
        let mut names = std::collections::BTreeSet::new();
        for (n, &reason) in DropReason::ALL.iter().enumerate() {
            let mut traffic = Traffic {
                received: 5,
                forwarded: 2,
                ..Traffic::default()
            };
            assert!(!traffic.is_conserved());
            traffic.drop(reason, 3);
            assert!(traffic.is_conserved());
            assert_eq!(traffic.drops().collect::<Vec<_>>(), [(reason, 3)]);
            assert_eq!(reason as usize, n);
            assert!(names.insert(reason.name()));
        }
    }
}
