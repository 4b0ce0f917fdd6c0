//! Counters of a socket.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter. Relaxed, since it orders nothing.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Totals since the socket was bound, at the time of the call.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The counters behind [`Counters`].
        #[derive(Debug, Default)]
        pub(crate) struct AtomicCounters {
            $(pub(crate) $name: Count,)*
        }

        impl AtomicCounters {
            pub(crate) fn snapshot(&self) -> Counters {
                Counters { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    /// Datagrams that the kernel accepted for sending; each segment of a train counts.
    sent_datagrams,
    /// UDP payload bytes that the kernel accepted for sending.
    sent_bytes,
    /// Send system calls, including failed ones.
    send_calls,
    /// Messages sent that carried more than one datagram.
    gso_trains,
    /// Times the kernel rejected a train whose segments it accepted one by one.
    gso_refusals,
    /// Sends that ended with [`crate::SendError::Dropped`].
    send_drops,
    /// Sends that ended with [`crate::SendError::TooLarge`].
    send_too_large,
    /// Sends that found the socket's send buffer full.
    send_blocked,
    /// Datagrams received, each segment of a train counted.
    received_datagrams,
    /// UDP payload bytes received.
    received_bytes,
    /// Receive system calls, including failed ones.
    receive_calls,
    /// Messages received that carried more than one datagram.
    gro_trains,
    /// Messages that the kernel dropped because the receive buffer was full, as far as reported:
    /// the count arrives with the next message received.
    receive_drops,
    /// Messages truncated because they were larger than a [`crate::RecvBatch`] slot.
    truncated,
    /// Pending ICMP errors that made a call fail.
    icmp_errors,
    /// Times ICMP errors were ignored for a second: because there were too many, or to tell one
    /// from an error of the call itself.
    icmp_pauses,
    /// Calls that failed with an error that is not documented for them.
    unexplained_errors,
}
