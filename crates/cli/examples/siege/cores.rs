//! Who runs where: the server has a core to itself, all others share the rest.

use std::io;

use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The least favourable scheduling priority: what it has runs when nobody else on
/// the core wants to.
const LOWEST: i32 = 19;

/// How the cores are shared.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    server: CpuSet,
    others: CpuSet,
    /// Whether they differ.
    pub(crate) apart: bool,
}

impl Cores {
    /// The first core that this process may use for the server, the rest for
    /// everybody else; with a single core all share it.
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

    /// Has this thread, and those that it starts, leave the server's core alone.
    pub(crate) fn keep_off(&self) -> io::Result<()> {
        Ok(sched_setaffinity(None, &self.others)?)
    }

    /// Has this thread, and processes that it starts, run on the server's core.
    pub(crate) fn take_server(&self) -> io::Result<()> {
        Ok(sched_setaffinity(None, &self.server)?)
    }
}

/// Has this thread, and processes that it starts, run when no well-behaved client
/// on the core wants to.
pub(crate) fn give_way() {
    // Lowering one's own priority is always allowed; without it the attack is only
    // less fair to the clients.
    let _ = setpriority_process(None, LOWEST);
}
