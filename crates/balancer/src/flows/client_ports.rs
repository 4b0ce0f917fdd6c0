//! The ports that clients have, in transparent mode: each needs a socket while a flow uses it.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// Port numbers of clients, with the number of flows that use each.
#[derive(Debug, Default)]
pub(super) struct ClientPorts {
    flows: HashMap<u16, u32, RandomState>,
    /// Ports whose last flow has ended. One may be in use again.
    unused: Vec<u16>,
}

impl ClientPorts {
    /// Returns how many ports are in use.
    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    /// Counts one more flow of a port. Returns whether there was room: at most `most` ports are in
    /// use.
    pub(super) fn take(&mut self, port: u16, most: usize) -> bool {
        let room = self.flows.len() < most;
        match self.flows.get_mut(&port) {
            Some(flows) => *flows += 1,
            None if room => {
                self.flows.insert(port, 1);
            }
            None => return false,
        }
        true
    }

    /// Counts one flow less.
    pub(super) fn release(&mut self, port: u16) {
        let Some(flows) = self.flows.get_mut(&port) else {
            return;
        };
        *flows = flows.saturating_sub(1);
        if *flows == 0 {
            self.flows.remove(&port);
            self.unused.push(port);
        }
    }

    /// Returns the ports that no flow uses any more, each once.
    pub(super) fn take_unused(&mut self) -> Vec<u32> {
        if self.unused.is_empty() {
            return Vec::new();
        }
        let mut unused = std::mem::take(&mut self.unused);
        unused.retain(|port| !self.flows.contains_key(port));
        unused.sort_unstable();
        unused.dedup();
        unused.into_iter().map(u32::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_is_unused_after_its_last_flow() {
        let mut ports = ClientPorts::default();
        assert!(ports.take(7, 2) && ports.take(7, 2) && ports.take(8, 2));
        assert!(!ports.take(9, 2), "no third port");
        ports.release(7);
        assert!(ports.take_unused().is_empty());
        ports.release(7);
        assert!(ports.take(9, 2));
        assert_eq!(ports.take_unused(), [7]);
        assert!(ports.take_unused().is_empty(), "each once");
    }

    #[test]
    fn port_in_use_again_is_not_reported() {
        let mut ports = ClientPorts::default();
        for _ in 0..2 {
            assert!(ports.take(7, 1));
            ports.release(7);
        }
        assert!(ports.take(7, 1));
        assert!(ports.take_unused().is_empty());
        ports.release(7);
        ports.release(7);
        assert_eq!(ports.take_unused(), [7]);
    }
}
