//! The clients of a relay.

use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;

use clearway_links::{Direction, Time};

use super::Config;
use super::flow::Flow;
use super::stats::RelayStats;

/// Flows by client address, in a list that the worker walks at each waking.
///
/// A walk is linear, and so is the kernel's over the sockets to wait for; at
/// the few hundred clients a relay is for, both cost less than a system call.
#[derive(Debug)]
pub(super) struct Table {
    flows: Vec<Flow>,
    by_client: HashMap<SocketAddr, usize>,
    limit: usize,
    seed: u64,
}

impl Table {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            flows: Vec::new(),
            by_client: HashMap::new(),
            limit: config.max_flows,
            seed: config.seed,
        }
    }

    /// The flow of `client`, created if it is new; `None` if the limit is reached or no socket can
    /// be created.
    pub(super) fn flow(
        &mut self,
        config: &Config,
        client: SocketAddr,
        local_ip: Option<IpAddr>,
        now: Time,
        stats: &mut RelayStats,
    ) -> Option<&mut Flow> {
        if let Some(&index) = self.by_client.get(&client) {
            return self.flows.get_mut(index);
        }
        if self.flows.len() >= self.limit {
            return None;
        }
        let seed = self.seed.wrapping_add(stats.flows);
        let flow = Flow::new(config, client, local_ip, seed, now).ok()?;
        stats.flows += 1;
        self.by_client.insert(client, self.flows.len());
        self.flows.push(flow);
        self.flows.last_mut()
    }

    pub(super) fn flows(&self) -> &[Flow] {
        &self.flows
    }

    pub(super) fn flows_mut(&mut self) -> &mut [Flow] {
        &mut self.flows
    }

    /// When any flow has to be processed next.
    pub(super) fn next_event(&self) -> Option<Time> {
        self.flows.iter().map(Flow::next_event).min()
    }

    /// Removes flows without traffic; `stats` keeps their counters. Returns the bytes that were
    /// still in their links.
    pub(super) fn expire(&mut self, now: Time, stats: &mut RelayStats) -> u64 {
        let mut released = 0;
        let mut index = 0;
        while let Some(flow) = self.flows.get(index) {
            if flow.expires() > now {
                index += 1;
                continue;
            }
            released += flow.path.in_transit_bytes();
            count(flow, stats);
            self.by_client.remove(&flow.client);
            self.flows.swap_remove(index);
            if let Some(moved) = self.flows.get(index) {
                self.by_client.insert(moved.client, index);
            }
        }
        released
    }

    /// `stats` with the counters of the current flows added.
    pub(super) fn totals(&self, stats: &RelayStats) -> RelayStats {
        let mut totals = stats.clone();
        totals.live_flows = self.flows.len() as u64;
        for flow in &self.flows {
            count(flow, &mut totals);
        }
        totals
    }
}

fn count(flow: &Flow, stats: &mut RelayStats) {
    stats.up.absorb(flow.path.link(Direction::Up).stats());
    stats.down.absorb(flow.path.link(Direction::Down).stats());
    for socket in &flow.upstream {
        stats.own_losses.absorb(&socket.counters());
    }
}
