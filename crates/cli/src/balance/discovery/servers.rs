//! The servers that were found, and those that are not found any more.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;
use std::time::Instant;

use clearway_balancer::config::DiscoveredServer;

/// Most servers that are taken from a source.
const MOST: usize = 4_096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    weight: u32,
    draining: bool,
    /// Since when it is not found any more.
    missing: Option<Instant>,
}

/// Servers by address. One that is not found any more gets no new connections, and is removed later.
#[derive(Debug)]
pub(super) struct Servers {
    known: BTreeMap<SocketAddr, Known>,
    keep: Duration,
    changed: bool,
}

impl Servers {
    pub(super) fn new(keep: Duration) -> Self {
        Self {
            known: BTreeMap::new(),
            keep,
            changed: false,
        }
    }

    /// Takes over what a source has found: all of it. Nothing at all is believed to be a mistake of
    /// the source, and changes nothing.
    pub(super) fn update(&mut self, now: Instant, found: &[DiscoveredServer]) {
        if found.is_empty() {
            return;
        }
        let before = self.known.clone();
        for known in self.known.values_mut() {
            known.missing.get_or_insert(now);
        }
        for server in found {
            let full = self.known.len() >= MOST;
            let known = Known {
                weight: server.weight,
                draining: server.draining,
                missing: None,
            };
            if !full || self.known.contains_key(&server.address) {
                self.known.insert(server.address, known);
            }
        }
        self.changed |= self.known != before;
    }

    /// Returns the servers if they have changed since the last call.
    pub(super) fn take_changed(&mut self, now: Instant) -> Option<Vec<DiscoveredServer>> {
        let before = self.known.len();
        let keep = self.keep;
        self.known.retain(|_, known| {
            let missing = known
                .missing
                .map(|since| now.saturating_duration_since(since));
            missing.is_none_or(|missing| missing < keep)
        });
        let changed = core::mem::take(&mut self.changed) || self.known.len() != before;
        changed.then(|| self.list())
    }

    pub(super) fn list(&self) -> Vec<DiscoveredServer> {
        let server = |(address, known): (&SocketAddr, &Known)| DiscoveredServer {
            address: *address,
            weight: known.weight,
            draining: known.draining || known.missing.is_some(),
        };
        self.known.iter().map(server).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(port: u16) -> DiscoveredServer {
        DiscoveredServer {
            address: SocketAddr::from(([10, 0, 0, 1], port)),
            weight: 1,
            draining: false,
        }
    }

    fn states(servers: &[DiscoveredServer]) -> Vec<(u16, bool)> {
        let state = |server: &DiscoveredServer| (server.address.port(), server.draining);
        servers.iter().map(state).collect()
    }

    #[test]
    fn server_that_is_not_found_any_more_is_drained_and_then_removed() {
        let keep = Duration::from_secs(60);
        let now = Instant::now();
        let mut servers = Servers::new(keep);
        servers.update(now, &[server(1), server(2)]);
        let found = servers.take_changed(now).expect("a change");
        assert_eq!(states(&found), [(1, false), (2, false)]);
        assert_eq!(servers.take_changed(now), None);
        servers.update(now, &[server(2)]);
        let found = servers.take_changed(now).expect("a change");
        assert_eq!(states(&found), [(1, true), (2, false)]);
        servers.update(now + keep / 2, &[server(2)]);
        assert_eq!(servers.take_changed(now + keep / 2), None);
        let found = servers.take_changed(now + keep).expect("a change");
        assert_eq!(states(&found), [(2, false)]);
    }

    #[test]
    fn server_that_returns_is_active_again() {
        let now = Instant::now();
        let mut servers = Servers::new(Duration::from_secs(60));
        servers.update(now, &[server(1), server(2)]);
        servers.update(now, &[server(2)]);
        servers.update(now, &[server(1), server(2)]);
        let found = servers
            .take_changed(now + Duration::from_secs(90))
            .expect("a change");
        assert_eq!(states(&found), [(1, false), (2, false)]);
    }

    #[test]
    fn empty_answer_changes_nothing() {
        let now = Instant::now();
        let mut servers = Servers::new(Duration::from_secs(60));
        servers.update(now, &[server(1)]);
        servers.take_changed(now);
        servers.update(now, &[]);
        assert_eq!(servers.take_changed(now), None);
        assert_eq!(states(&servers.list()), [(1, false)]);
    }

    #[test]
    fn source_cannot_name_servers_without_bound() {
        let now = Instant::now();
        let mut servers = Servers::new(Duration::from_secs(60));
        let all: Vec<_> = (0..=u16::MAX).map(server).collect();
        servers.update(now, &all);
        assert_eq!(servers.list().len(), MOST);
    }
}
