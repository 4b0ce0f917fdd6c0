//! What each call and each datagram takes of a core.

use std::time::Duration;

/// The time that calls take. Those of a socket are charged to the core on which they are made
/// ([`charge`](crate::cores::charge)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// A receive call.
    pub receive_call: Duration,
    /// Each datagram received: the kernel's share, decryption and frames.
    pub received: Duration,
    /// The handshake of each new client: key exchange, certificate and signature.
    pub handshake: Duration,
    /// A send call.
    pub send_call: Duration,
    /// Each datagram sent: frames, encryption and the kernel's share.
    pub sent: Duration,
    /// Each time a task is polled.
    pub poll: Duration,
    /// From the event that wakes an idle core until its task runs.
    pub wakeup: Duration,
}

impl Costs {
    /// Nothing takes time: the network alone decides.
    pub const FREE: Self = Self {
        receive_call: Duration::ZERO,
        received: Duration::ZERO,
        handshake: Duration::ZERO,
        send_call: Duration::ZERO,
        sent: Duration::ZERO,
        poll: Duration::ZERO,
        wakeup: Duration::ZERO,
    };

    /// About what a server core of 3 GHz takes with segmentation offload, from profiles of
    /// requests on loopback. What counts are the proportions: a call costs as much as some
    /// datagrams, and waking up more than a call.
    pub const SERVER: Self = Self {
        receive_call: Duration::from_nanos(1_500),
        received: Duration::from_nanos(1_200),
        handshake: Duration::from_micros(200),
        send_call: Duration::from_nanos(2_500),
        sent: Duration::from_nanos(1_000),
        poll: Duration::from_nanos(100),
        wakeup: Duration::from_nanos(5_000),
    };
}
