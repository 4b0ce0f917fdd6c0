//! One snapshot of everything that is read, with the reason where something could not be.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::counters::Counters;
use crate::socket::UdpSocket;
use crate::source::device::Device;
use crate::source::process::Process;

/// Everything at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When it was taken, since recording began.
    pub at: Duration,
    /// Whether everything was read. Others have only the sockets and the counters of UDP.
    #[serde(default)]
    pub full: bool,
    /// Every counter, in a full sample.
    pub counters: Counters,
    /// Levels, which go up and down. Only in a full sample.
    pub levels: Levels,
    /// The UDP sockets of the network namespace.
    pub sockets: Vec<UdpSocket>,
    /// The same, several times within milliseconds, if a buffer is filling: how fast a socket is read
    /// shows only at close quarters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub looks: Vec<Look>,
    /// Network devices. Only in a full sample.
    pub devices: Vec<Device>,
    /// Processes that have these sockets. Only in a full sample.
    pub processes: Vec<Process>,
    /// What could not be read.
    pub missing: Vec<Missing>,
}

/// A closer look at the sockets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// When it was taken, since recording began.
    pub at: Duration,
    /// The sockets that have something in their queues.
    pub sockets: Vec<UdpSocket>,
}

/// Levels, where the host has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Levels {
    /// Memory of all UDP sockets of the host, in pages.
    pub udp_pages: Option<u64>,
    /// Its limits (`udp_mem`), in pages.
    pub udp_limits: Option<[u64; 3]>,
    /// Bytes of a page.
    pub page_size: u64,
    /// Connections tracked in the network namespace.
    pub conntrack_count: Option<u64>,
    /// How many may be.
    pub conntrack_max: Option<u64>,
}

/// Something that could not be read, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// What is to be seen there.
    pub what: String,
    /// Why it could not be read.
    pub why: String,
    /// What would make it readable, if anything.
    pub needs: Option<String>,
}

/// Samples of one host, in the order they were taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// The kernel's release, such as `6.1.0-13-amd64`.
    pub kernel: String,
    /// The network namespace, for people.
    pub namespace: String,
    /// Two samples or more. The first and the last are full: what each stage lost is the difference.
    pub samples: Vec<Sample>,
}

impl Recording {
    /// Returns the first and the last sample, if there are two.
    #[must_use]
    pub fn ends(&self) -> Option<(&Sample, &Sample)> {
        match self.samples.as_slice() {
            [first, .., last] => Some((first, last)),
            [_] | [] => None,
        }
    }
}
