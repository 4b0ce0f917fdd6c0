//! A world in which time stands still.

use core::fmt;

use clearway_links::Time;

use super::NodeId;

/// The hosts keep acting without time passing: a defect of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// When.
    pub at: Time,
    /// The host whose timer is due again at once; `None` if it is a link's.
    pub host: Option<NodeId>,
    /// How often something was due at that moment.
    pub calls: u32,
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the hosts keep acting at {} without time passing",
            self.at
        )
    }
}

impl std::error::Error for Busy {}
