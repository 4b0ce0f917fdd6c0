//! A UDP socket as the kernel describes it.

use core::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A UDP socket at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpSocket {
    /// The address that it is bound to.
    pub local: SocketAddr,
    /// The address that it is connected to; unspecified, with port 0, if it is not.
    pub remote: SocketAddr,
    /// The number of its file, by which a process's descriptor is recognised. 0 if no process has it.
    pub inode: u64,
    /// The user who made it.
    pub uid: u32,
    /// Bytes in its receive queue, as the kernel charges them (with its overhead).
    pub queue: u64,
    /// Datagrams that were lost at this socket since it was made: buffer full, filter, checksum.
    pub drops: u64,
    /// What only netlink tells. `None` if the sockets were read from `/proc/net/udp`.
    pub memory: Option<SocketMemory>,
}

/// The memory of a socket, in bytes (`SK_MEMINFO_*`, include/uapi/linux/sock_diag.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketMemory {
    /// Charged for received datagrams. More than the queue: what was read is given back in steps of
    /// up to a quarter of the limit (`udp_rmem_release`, net/ipv4/udp.c).
    pub charged: u64,
    /// The limit, twice what the program asked for with `SO_RCVBUF`.
    pub limit: u64,
}

impl UdpSocket {
    /// Returns how full its buffer is, from 0 to 1, if known.
    #[must_use]
    pub fn fullness(&self) -> Option<f64> {
        let memory = self.memory?;
        (memory.limit > 0).then(|| memory.charged as f64 / memory.limit as f64)
    }

    /// Returns the bytes that were read but not given back yet, if known.
    #[must_use]
    pub fn unreleased(&self) -> Option<u64> {
        let memory = self.memory?;
        memory.charged.checked_sub(self.queue)
    }
}
