//! Processor affinity and priority: the server has a core to itself, everybody else
//! shares the others. As root, the server and its clients also go ahead of whatever else
//! runs on the machine, which would otherwise be measured too.

use std::io;

use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The lowest scheduling priority.
const LOWEST: i32 = 19;

/// The highest, which only root may take.
const HIGHEST: i32 = -20;

/// The cores of the server and of everybody else.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    server: CpuSet,
    others: CpuSet,
    /// Whether the server has a core to itself.
    pub(crate) apart: bool,
}

impl Cores {
    /// Gives the server the first core that this process may use, everybody else the
    /// rest. A single core is shared.
    pub(crate) fn split() -> io::Result<Self> {
        let all = sched_getaffinity(None)?;
        let mut usable = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu));
        let mut server = CpuSet::new();
        let mut others = CpuSet::new();
        if let Some(first) = usable.next() {
            server.set(first);
        }
        usable.for_each(|cpu| others.set(cpu));
        let apart = others.count() > 0;
        if !apart {
            others = server;
        }
        Ok(Self {
            server,
            others,
            apart,
        })
    }

    /// Keeps this thread, and those that it starts, off the server's core.
    pub(crate) fn pin_to_client_cores(&self) -> io::Result<()> {
        Ok(sched_setaffinity(None, &self.others)?)
    }

    /// Pins this thread, and processes that it starts, to the server's core.
    pub(crate) fn pin_to_server_core(&self) -> io::Result<()> {
        Ok(sched_setaffinity(None, &self.server)?)
    }
}

/// Gives this thread, and processes that it starts, the highest priority if that is
/// allowed.
pub(crate) fn raise_priority() {
    // Without it, only noise of other programs is greater.
    let _ = setpriority_process(None, HIGHEST);
}

/// Gives this thread, and processes that it starts, the lowest priority: well-behaved
/// clients on the same core go first.
pub(crate) fn lower_priority() {
    // It is always allowed to lower one's own priority.
    let _ = setpriority_process(None, LOWEST);
}
