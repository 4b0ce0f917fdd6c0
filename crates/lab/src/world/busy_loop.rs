//! Detection of busy loops.

use core::fmt;

use clearway_links::Time;

use super::NodeId;

/// Hosts keep acting without time advancing: a defect of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyLoop {
    /// The time.
    pub at: Time,
    /// The host whose timer is due again at once; `None` if it is a link.
    pub host: Option<NodeId>,
    /// The number of events at that time.
    pub calls: u32,
}

impl fmt::Display for BusyLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "busy loop: the hosts keep acting at {} without time advancing",
            self.at
        )
    }
}

impl std::error::Error for BusyLoop {}
