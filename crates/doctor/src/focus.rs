//! Which sockets to look at.

use crate::culprit::Owner;
use crate::sample::Recording;
use crate::socket::UdpSocket;

/// Which sockets to look at: all, or those of a process or on a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Focus {
    /// Only those of this process.
    pub pid: Option<u32>,
    /// Only those bound to this port.
    pub port: Option<u16>,
}

impl Focus {
    /// Whether a socket is to be looked at.
    #[must_use]
    pub fn includes(&self, socket: &UdpSocket, owners: &[Owner<'_>]) -> bool {
        let of_process = |pid| {
            let mut owners = owners.iter();
            owners.any(|owner| owner.process.pid == pid && owner.has(socket.inode))
        };
        self.port.is_none_or(|port| socket.local.port() == port) && self.pid.is_none_or(of_process)
    }

    /// Whether it is on all sockets.
    #[must_use]
    pub const fn is_everything(&self) -> bool {
        self.pid.is_none() && self.port.is_none()
    }

    /// Returns why no socket of the recording is included, or `None` if one is.
    #[must_use]
    pub fn complaint(&self, recording: &Recording) -> Option<String> {
        let last = recording.samples.last()?;
        let owners = Owner::all(recording);
        if self.is_everything() || last.sockets.iter().any(|s| self.includes(s, &owners)) {
            return None;
        }
        let namespace = &recording.namespace;
        Some(match (self.pid, self.port) {
            (Some(pid), None) => format!(
                "process {pid} has no UDP socket in {namespace}, or its \
                 descriptors cannot be read (run as root, or as its user)"
            ),
            (Some(pid), Some(port)) => {
                format!("process {pid} has no UDP socket on port {port} in {namespace}")
            }
            (None, _) => format!(
                "no program has a UDP socket on port {} in {namespace} \
                 (for another namespace, use --netns NAME or --pid PID)",
                self.port.unwrap_or_default()
            ),
        })
    }
}
