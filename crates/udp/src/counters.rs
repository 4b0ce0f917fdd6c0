//! What a socket has done so far.

use std::sync::atomic::{AtomicU64, Ordering};

/// One running total. Relaxed: a total orders nothing.
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
        /// Totals since the socket was bound, as they stood when asked for.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The living totals behind [`Counters`].
        #[derive(Debug, Default)]
        pub(crate) struct Tally {
            $(pub(crate) $name: Count,)*
        }

        impl Tally {
            pub(crate) fn snapshot(&self) -> Counters {
                Counters { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    /// Datagrams the kernel took to send, each segment of a train counted.
    sent_datagrams,
    /// UDP payload bytes the kernel took to send.
    sent_bytes,
    /// Send system calls, failed ones too.
    send_calls,
    /// Messages sent that carried more than one datagram.
    gso_trains,
    /// Times the kernel refused a train that its segments alone could pass.
    gso_refusals,
    /// Sends given up with [`crate::SendError::Dropped`].
    send_drops,
    /// Sends refused with [`crate::SendError::TooLarge`].
    send_too_large,
    /// Sends that met a full socket buffer.
    send_blocked,
    /// Datagrams received, each segment of a train counted.
    received_datagrams,
    /// UDP payload bytes received.
    received_bytes,
    /// Receive system calls, failed ones too.
    receive_calls,
    /// Messages received that carried more than one datagram.
    gro_trains,
    /// Messages the kernel dropped since the receive buffer was full, as far as it has told:
    /// the number comes with the next message that does arrive.
    receive_drops,
    /// Messages cut since they outgrew a [`crate::RecvBatch`] slot.
    truncated,
    /// Errors that an ICMP message left on the socket and a call then met.
    icmp_errors,
    /// Times ICMP errors were ignored for a second: too many came, or one had to be told from a
    /// call's own error.
    icmp_pauses,
    /// Calls that failed with an error which the system is not known to give.
    unexplained_errors,
}
