//! What becomes of each kind of datagram in each state of a backend, and after each change.

use std::fmt::Write as _;

use super::tests::{NOW, engine, meta, short};
use super::*;
use crate::backend::{Backend, BackendState};
use crate::flows::FlowCapacity;
use crate::plan::tests::{backends, config};

/// The backend whose state changes.
const ITS: BackendId = BackendId(1);

/// A connection ID that a client chooses, with config rotation bits that no configuration has.
const CLIENT: [u8; 8] = [0xe0, 1, 2, 3, 4, 5, 6, 7];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    Drained,
    Down,
    Removed,
    /// It was not there before.
    Added,
    /// It was down for a moment, and nobody sent anything.
    DownAndUp,
    /// The balancer has been started again, without its tables.
    Restarted,
}

const CHANGES: [Change; 7] = [
    Change::None,
    Change::Drained,
    Change::Down,
    Change::Removed,
    Change::Added,
    Change::DownAndUp,
    Change::Restarted,
];

const NAMES: [&str; 7] = [
    "as it was",
    "drained",
    "down",
    "removed",
    "added",
    "down and up",
    "restarted",
];

/// Clients' ports: one with a connection to the backend by server ID, and others that `Maglev` gives
/// to it or to another, the first of each with a connection.
struct Ports {
    with_server_id: u16,
    its: [u16; 2],
    others: u16,
}

fn long(kind: u8, dcid: &[u8], scid: u8) -> Vec<u8> {
    let mut packet = vec![0xc0 | kind << 4, 0, 0, 0, 1, dcid.len() as u8];
    packet.extend(dcid);
    packet.extend([8, scid, 0, 0, 0, 0, 0, 0, 0]);
    packet.resize(1_200, 0);
    packet
}

fn plan(change: impl FnOnce(&mut Vec<Backend>)) -> Arc<Plan> {
    let mut all = backends(3);
    change(&mut all);
    Arc::new(Plan::new(all, [config()]).unwrap())
}

fn with_state(state: BackendState) -> Arc<Plan> {
    plan(|all| all[0].state = state)
}

fn without_it() -> Arc<Plan> {
    plan(|all| all.retain(|backend| backend.id != ITS))
}

fn ports() -> Ports {
    let router = engine().router;
    let tuple = |port| Tuple {
        client: meta(port, 0, 0).remote,
        service: None,
    };
    let mut its = (100..).filter(|&port| router.preferred(tuple(port)) == Some(ITS));
    let others = (100..).find(|&port| router.preferred(tuple(port)) != Some(ITS));
    Ports {
        with_server_id: 10,
        its: [its.next().unwrap(), its.next().unwrap()],
        others: others.unwrap(),
    }
}

/// Sends one datagram of a client, and says where it goes.
fn sent(engine: &mut Engine, port: u16, packet: &[u8]) -> &'static str {
    let before = engine.counts.up;
    let mut outgoing = Outgoing::default();
    let meta = meta(port, packet.len(), packet.len());
    engine.route_message(NOW, &meta, packet, &mut outgoing);
    let mut to = outgoing.trains().map(|(to, _)| to.backend);
    match to.next() {
        Some(ITS) => "it",
        Some(_) => "another",
        None => dropped(&before, &engine.counts.up),
    }
}

fn dropped(before: &crate::traffic::Traffic, after: &crate::traffic::Traffic) -> &'static str {
    let mut drops = after.drops();
    let new = drops.find(|drop| !before.drops().any(|former| former == *drop));
    new.map_or("lost", |(reason, _)| reason.name())
}

/// The backend sends something to the upstream port with this number.
fn replied(engine: &mut Engine, port: u32) -> &'static str {
    let before = engine.counts.down;
    let mut meta = meta(0, 40, 40);
    meta.remote = backends(3)[0].address;
    match engine.route_reply(NOW, port, &meta, &[0x40; 40]) {
        Some(_) => "client",
        None => dropped(&before, &engine.counts.down),
    }
}

fn engine_with_ports() -> Engine {
    let flows = Flows::new(FlowCapacity {
        sources: Vec::new(),
        sockets: 64,
        flows: 1_000,
        idle: Duration::from_secs(60),
        transparent: None,
    });
    Engine { flows, ..engine() }
}

/// Connections are under way, then the change happens. Returns what becomes of each kind of datagram.
fn outcomes(change: Change, ports: &Ports) -> Vec<(&'static str, &'static str)> {
    let mut engine = engine_with_ports();
    if change == Change::Added {
        engine.set_plan(without_it());
    }
    sent(&mut engine, ports.with_server_id, &short(1, 50));
    sent(&mut engine, ports.its[0], &long(0, &CLIENT, 5));
    match change {
        Change::None => {}
        Change::Drained => engine.set_plan(with_state(BackendState::Draining)),
        Change::Down => engine.set_plan(with_state(BackendState::Down)),
        Change::Removed => engine.set_plan(without_it()),
        Change::Added => engine.set_plan(with_state(BackendState::Active)),
        Change::DownAndUp => {
            engine.set_plan(with_state(BackendState::Down));
            engine.set_plan(with_state(BackendState::Active));
        }
        Change::Restarted => engine = engine_with_ports(),
    }
    let told = match engine.next_orphan(NOW) {
        Some(_) => "asked for",
        None => "-",
    };
    let [known, new] = ports.its;
    let cid = &short(1, 50)[1..10];
    let named = long(0, cid, 9);
    let mut all = vec![("stateless reset for its clients", told)];
    let mut send = |what, port, packet: &[u8]| all.push((what, sent(&mut engine, port, packet)));
    send("its server ID", ports.with_server_id, &short(1, 50));
    send("its server ID, new address", 11, &short(1, 50));
    send("handshake under way", known, &long(2, &[0xe7; 8], 5));
    send("its Initial again", known, &long(0, &CLIENT, 5));
    send("unknown ID, known address", known, &[0x61; 40]);
    send("new Initial", new, &long(0, &[0xe5; 8], 6));
    send("new Initial that names it", ports.others, &named);
    send("Handshake that names it", 13, &long(2, cid, 9));
    send("Initial of 1,199 bytes", 14, &named[..1_199]);
    send("Version Negotiation", known, &[0x80, 0, 0, 0, 0, 0, 0]);
    all.push(("reply to a flow", replied(&mut engine, 0)));
    all.push(("reply to no flow", replied(&mut engine, 63)));
    assert!(engine.counts.up.received >= engine.counts.up.dropped());
    all
}

/// Rows are datagrams, columns are changes.
const EXPECTED: &str = "\
datagram                        | as it was      | drained        | down           | removed        | added          | down and up    | restarted      |
stateless reset for its clients | -              | -              | asked for      | asked for      | -              | -              | -              |
its server ID                   | it             | it             | another        | another        | it             | it             | it             |
its server ID, new address      | it             | it             | another        | another        | it             | it             | it             |
handshake under way             | it             | it             | another        | another        | another        | it             | it             |
its Initial again               | it             | it             | another        | another        | another        | it             | it             |
unknown ID, known address       | it             | it             | another        | another        | another        | it             | it             |
new Initial                     | it             | another        | another        | another        | it             | it             | it             |
new Initial that names it       | it             | another        | another        | another        | it             | it             | it             |
Handshake that names it         | it             | it             | another        | another        | it             | it             | it             |
Initial of 1,199 bytes          | small-initial  | small-initial  | small-initial  | small-initial  | small-initial  | small-initial  | small-initial  |
Version Negotiation             | unexpected-nego| unexpected-nego| unexpected-nego| unexpected-nego| unexpected-nego| unexpected-nego| unexpected-nego|
reply to a flow                 | client         | client         | client         | unknown-sender | client         | client         | client         |
reply to no flow                | unknown-flow   | unknown-flow   | unknown-flow   | unknown-sender | unknown-flow   | unknown-flow   | unknown-flow   |
";

#[test]
fn every_datagram_in_every_state_goes_where_it_should() {
    let ports = ports();
    let columns = CHANGES.map(|change| outcomes(change, &ports));
    let mut table = format!("{:<32}", "datagram");
    for change in NAMES {
        write!(table, "| {change:<15}").unwrap();
    }
    table.push_str("|\n");
    for row in 0..columns[0].len() {
        write!(table, "{:<32}", columns[0][row].0).unwrap();
        for column in &columns {
            write!(table, "| {:<15.15}", column[row].1).unwrap();
        }
        table.push_str("|\n");
    }
    assert_eq!(table, EXPECTED, "\n{table}");
}
