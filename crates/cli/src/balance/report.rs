//! What a balancer has done, for people and for scripts.

use std::fmt::Write as _;

use clearway_balancer::{BackendState, BackendStatus, Status, Traffic};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The state of a balancer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Report {
    /// From clients.
    pub(super) up: Direction,
    /// From servers.
    pub(super) down: Direction,
    pub(super) flows: usize,
    pub(super) sockets: usize,
    pub(super) table_entries: usize,
    /// Packets of the balancer's own that had a server reset a connection of one that went down.
    #[serde(default)]
    pub(super) reset_requests: u64,
    /// Share of the upstream ports in use, from 0 to 1.
    pub(super) port_usage: f64,
    pub(super) backends: Vec<Backend>,
}

/// The datagrams of one direction.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Direction {
    pub(super) received: u64,
    pub(super) forwarded: u64,
    /// By reason.
    pub(super) dropped: BTreeMap<String, u64>,
    /// Messages that never arrived, because the socket's buffer was full.
    #[serde(default)]
    pub(super) overflowed: u64,
}

/// A backend.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Backend {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) state: String,
    pub(super) connections_assigned: u64,
    pub(super) datagrams_sent: u64,
    pub(super) datagrams_received: u64,
    /// Handshake packets whose connection ID does not name this backend.
    pub(super) without_server_id: u64,
}

impl Direction {
    fn new(traffic: &Traffic, overflowed: u64) -> Self {
        let named = |(reason, count): (clearway_balancer::DropReason, u64)| {
            (reason.name().to_owned(), count)
        };
        Self {
            received: traffic.received,
            forwarded: traffic.forwarded,
            dropped: traffic.drops().map(named).collect(),
            overflowed,
        }
    }

    fn drops(&self) -> String {
        let each = self.dropped.iter();
        let mut text = each.fold(String::new(), |mut text, (reason, count)| {
            let _ = write!(text, ", {count} dropped ({reason})");
            text
        });
        if self.overflowed > 0 {
            let _ = write!(
                text,
                "; {} more lost before, because the balancer was too slow and its socket's buffer full",
                self.overflowed
            );
        }
        text
    }
}

impl From<&BackendStatus> for Backend {
    fn from(status: &BackendStatus) -> Self {
        Self {
            name: status.name.clone(),
            address: status.address.to_string(),
            state: status.state.name().to_owned(),
            connections_assigned: status.assigned,
            datagrams_sent: status.sent,
            datagrams_received: status.received,
            without_server_id: status.unroutable,
        }
    }
}

impl From<&Status> for Report {
    fn from(status: &Status) -> Self {
        Self {
            up: Direction::new(&status.up, status.up_overflowed),
            down: Direction::new(&status.down, status.down_overflowed),
            flows: status.flows,
            sockets: status.sockets,
            table_entries: status.entries,
            reset_requests: status.reset_requests,
            port_usage: status.port_usage,
            backends: status.backends.iter().map(Into::into).collect(),
        }
    }
}

impl Report {
    /// The names of the backends that get no new connections.
    pub(super) fn draining(&self) -> Vec<String> {
        let draining = BackendState::Draining.name();
        let backends = self.backends.iter();
        backends
            .filter(|backend| backend.state == draining)
            .map(|backend| backend.name.clone())
            .collect()
    }

    /// The report in a few lines.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        for (name, direction) in [("clients", &self.up), ("servers", &self.down)] {
            let _ = writeln!(
                text,
                "from {name}: {} datagrams received, {} forwarded{}",
                direction.received,
                direction.forwarded,
                direction.drops()
            );
        }
        let _ = writeln!(
            text,
            "{} flows, {} sockets, {} table entries, {:.1} % of the upstream ports in use",
            self.flows,
            self.sockets,
            self.table_entries,
            self.port_usage * 100.0
        );
        if self.reset_requests > 0 {
            let _ = writeln!(
                text,
                "{} connections of servers that went down were reset by others",
                self.reset_requests
            );
        }
        for backend in &self.backends {
            let _ = writeln!(
                text,
                "{:<24} {:<9} {:>10} connections assigned, {:>12} datagrams sent, {:>12} received",
                backend.name,
                backend.state,
                backend.connections_assigned,
                backend.datagrams_sent,
                backend.datagrams_received
            );
            if backend.without_server_id > 0 {
                let _ = writeln!(text, "  {}", without_server_id(&backend.name));
            }
        }
        text
    }
}

/// What a backend without server IDs means.
pub(super) fn without_server_id(name: &str) -> String {
    format!(
        "migration cannot be followed for backend {name}: its connection IDs do not contain its \
         server ID (run it with the same file: clearway serve --lb FILE --server-id ID)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_balancer::DropReason;

    #[test]
    fn report_names_drops_and_backends_without_server_id() {
        let mut up = Traffic::default();
        up.received = 5;
        up.forwarded = 3;
        up.drop(DropReason::SmallInitial, 2);
        let report = Report::from(&Status {
            up,
            down: Traffic::default(),
            up_overflowed: 7,
            down_overflowed: 0,
            flows: 1,
            sockets: 2,
            entries: 3,
            reset_requests: 4,
            port_usage: 0.5,
            backends: vec![BackendStatus {
                name: "b1".to_owned(),
                address: "127.0.0.1:1".parse().expect("an address"),
                state: clearway_balancer::BackendState::Draining,
                assigned: 1,
                sent: 3,
                received: 0,
                unroutable: 1,
            }],
        });
        let text = report.text();
        for part in [
            "from clients: 5 datagrams received, 3 forwarded, 2 dropped (small-initial); 7 more lost before,",
            "50.0 % of the upstream ports",
            "draining",
            "4 connections of servers that went down were reset by others",
            "migration cannot be followed for backend b1",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let json = serde_json::to_string(&report).expect("JSON");
        assert_eq!(
            serde_json::from_str::<Report>(&json).expect("a report"),
            report
        );
    }
}
