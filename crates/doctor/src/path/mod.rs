//! The path of a datagram through the host, in order, and what was lost on it.

mod deduce;
mod known;
mod walk;

use serde::Serialize;

pub use known::{Known, Role, classify};
pub use walk::walk;

/// A place on the path where a datagram can be lost, in the order in which one meets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Sending: socket, firewall, queueing discipline, device.
    Sender,
    /// The cable: damaged frames.
    Wire,
    /// The ring of the network card.
    Ring,
    /// XDP programs.
    Xdp,
    /// The queue between devices and protocols, per processor.
    Softnet,
    /// The device, and filters at its ingress.
    Device,
    /// IP: headers, routes, fragments.
    Ip,
    /// Firewall and connection tracking.
    Firewall,
    /// Nobody listens on the port.
    NoPort,
    /// Wrong checksums and lengths.
    Checksum,
    /// A filter that a program attached to its socket.
    SocketFilter,
    /// Memory of all UDP sockets together.
    Memory,
    /// The receive buffer of a socket.
    ReceiveBuffer,
    /// The program, behind the socket.
    Application,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Self; 14] = [
        Self::Sender,
        Self::Wire,
        Self::Ring,
        Self::Xdp,
        Self::Softnet,
        Self::Device,
        Self::Ip,
        Self::Firewall,
        Self::NoPort,
        Self::Checksum,
        Self::SocketFilter,
        Self::Memory,
        Self::ReceiveBuffer,
        Self::Application,
    ];

    /// Returns its place in the order, from 0.
    #[must_use]
    pub const fn number(self) -> usize {
        self as usize
    }

    /// Returns its name, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sender => "sending",
            Self::Wire => "cable",
            Self::Ring => "ring of the network card",
            Self::Xdp => "XDP programs",
            Self::Softnet => "queue of the processor",
            Self::Device => "network device",
            Self::Ip => "IP",
            Self::Firewall => "firewall",
            Self::NoPort => "port without a listener",
            Self::Checksum => "checksum and length",
            Self::SocketFilter => "socket filter",
            Self::Memory => "memory of all UDP sockets",
            Self::ReceiveBuffer => "receive buffer of the socket",
            Self::Application => "the program",
        }
    }
}

/// What a stage does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It loses now.
    Losing,
    /// It loses so little that it is not what anybody is looking for.
    Trickle,
    /// It has lost since the host was started, but not during the recording.
    Past,
    /// It has lost nothing.
    Clear,
    /// Nobody can tell.
    Unseen,
}

/// A counter of a stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CounterReport {
    /// Its name.
    pub name: String,
    /// What it counts. `None` if this program does not know it.
    pub meaning: Option<&'static str>,
    /// Whether it counts losses.
    pub role: Role,
    /// Since the host was started, or the object was made.
    pub total: u64,
    /// During the recording.
    pub grown: u64,
    /// Whether it was computed from other counters.
    pub deduced: bool,
}

/// A stage and its counters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageReport {
    /// Which stage.
    pub stage: Stage,
    /// What it does.
    pub state: State,
    /// What it lost during the recording.
    pub lost: u64,
    /// The same per second.
    pub lost_per_second: f64,
    /// What it has lost since the host was started.
    pub lost_before: u64,
    /// Its counters: those of losses that are not zero, and whatever moved.
    pub counters: Vec<CounterReport>,
    /// Why it cannot be seen, or what else there is to know.
    pub note: Option<String>,
}
