//! The balancer's data path: datagrams and trains from anybody, what backends and strangers send to its
//! ports, backends that come and go. Every datagram is forwarded or counted by the reason it was dropped for,
//! tables keep to their bounds, trains are not mixed, and a reply goes to a client that was sent to
//! this backend from that port.
#![no_main]

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arbitrary::Arbitrary;
use clearway_balancer::testing::DataPath;
use clearway_balancer::{
    Backend, BackendId, BackendState, FlowCapacity, Plan, RouterLimits, sample,
};
use clearway_quic::cid::quic_lb::{Config, ServerId};
use libfuzzer_sys::fuzz_target;

const SERVERS: u16 = 3;
const ENTRIES: usize = 16;
const FLOWS: usize = 24;

#[derive(Arbitrary, Debug)]
enum Datagram {
    Noise(Vec<u8>),
    /// A short header with a connection ID that names a server.
    Named {
        server: u8,
        nonce: [u8; 7],
        rest: u8,
    },
    /// A client's first packet.
    Initial {
        dcid: [u8; 8],
        scid: u8,
    },
    /// A later one, with the connection ID that a server has chosen.
    Handshake {
        server: u8,
        scid: u8,
    },
}

#[derive(Arbitrary, Debug)]
enum Event {
    Client {
        port: u8,
        train: Vec<Datagram>,
        stride: u16,
    },
    Backend {
        server: u8,
        socket: u8,
        to: u8,
        train: Vec<Datagram>,
        stride: u16,
    },
    Stranger {
        socket: u8,
        bytes: Vec<u8>,
    },
    State {
        server: u8,
        state: u8,
    },
    Wait {
        milliseconds: u16,
    },
}

#[derive(Arbitrary, Debug)]
struct Input {
    transparent: bool,
    encrypted: bool,
    sources: u8,
    events: Vec<Event>,
}

fn encoding(encrypted: bool) -> Config {
    let config = Config::new(0, 1, 7).expect("valid lengths");
    match encrypted {
        true => config.with_key(&[3; 16]).expect("16 bytes"),
        false => config,
    }
}

/// `None` = it is not in the configuration.
fn plan(states: &[Option<BackendState>], encrypted: bool) -> Arc<Plan> {
    let backends = (0..).zip(states).filter_map(|(n, &state)| {
        Some(Backend {
            id: BackendId(n),
            name: n.to_string(),
            address: address(n),
            weight: 1,
            state: state?,
            server_ids: vec![(0, ServerId::new(&[n as u8]).expect("a byte"))],
        })
    });
    Arc::new(Plan::new(backends.collect(), [encoding(encrypted)]).expect("distinct servers"))
}

fn address(server: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], server + 1))
}

fn client(port: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, port / 16], u16::from(port) + 1))
}

fn long(kind: u8, dcid: &[u8], scid: &[u8], len: usize) -> Vec<u8> {
    let mut packet = vec![0xc0 | kind << 4, 0, 0, 0, 1];
    for cid in [dcid, scid] {
        packet.push(cid.len() as u8);
        packet.extend(cid);
    }
    packet.resize(len.max(packet.len()), 0);
    packet
}

fn bytes(train: Vec<Datagram>, encrypted: bool) -> Vec<u8> {
    let id = |server: u8| ServerId::new(&[server % SERVERS as u8]).expect("a byte");
    let parts = train.into_iter().take(8).map(|datagram| match datagram {
        Datagram::Noise(bytes) => bytes,
        Datagram::Named {
            server,
            nonce,
            rest,
        } => {
            let cid = encoding(encrypted).encode(&id(server), &nonce, 0);
            [
                &[0x40],
                &cid.expect("lengths that fit")[..],
                &vec![7; rest.into()],
            ]
            .concat()
        }
        Datagram::Initial { dcid, scid } => long(0, &dcid, &[scid; 8], 1_200),
        Datagram::Handshake { server, scid } => long(2, &[server; 9], &[scid; 8], 100),
    });
    parts.collect::<Vec<_>>().concat()
}

fuzz_target!(|input: Input| {
    let encrypted = input.encrypted;
    let mut states = [Some(BackendState::Active); SERVERS as usize];
    let limits = RouterLimits {
        entries: ENTRIES,
        idle: Duration::from_secs(5),
        new_connections: 50,
        new_connections_by_source: 0,
    };
    let service = IpAddr::from([198, 51, 100, 1]);
    let sources = (0..input.sources % 3).map(|n| Some(IpAddr::from([10, 1, 0, n])));
    let capacity = FlowCapacity {
        sources: sources.collect(),
        sockets: 8,
        flows: FLOWS,
        idle: Duration::from_secs(5),
        transparent: input.transparent.then_some(service),
    };
    let mut path = DataPath::new(plan(&states, encrypted), limits, capacity);
    let mut now = Duration::from_secs(1);
    // Who was sent to a backend from a port last.
    let mut owners: HashMap<(BackendId, u32, Option<IpAddr>), SocketAddr> = HashMap::new();
    // Plans take milliseconds to make.
    let mut changes = 4;
    for event in input.events {
        match event {
            Event::Client {
                port,
                train,
                stride,
            } => {
                let train = bytes(train, encrypted);
                for part in train.chunks(1_200) {
                    let _ = sample::sampled_name(part, 1);
                }
                let from = (client(port), Some(service));
                let stride = usize::from(stride % 1_300);
                for sent in path.client_sends(now, from, &train, stride) {
                    let state = states[usize::from(sent.backend.0)];
                    assert!(state.is_some_and(BackendState::serves_connections));
                    let key = (sent.backend, sent.socket, sent.source);
                    owners.insert(key, client(port));
                    if input.transparent {
                        assert_eq!(sent.source, Some(client(port).ip()));
                        assert_eq!(sent.socket, u32::from(client(port).port()));
                    }
                }
            }
            Event::Backend {
                server,
                socket,
                to,
                train,
                stride,
            } => {
                let server = u16::from(server) % SERVERS;
                let ports: Vec<_> = owners
                    .keys()
                    .filter(|key| key.0.0 == server)
                    .copied()
                    .collect();
                let known = ports.get(usize::from(to) % ports.len().max(1));
                let (_, socket, local) = match known {
                    Some(known) => *known,
                    None => (
                        BackendId(server),
                        u32::from(socket),
                        Some(IpAddr::from([10, 1, 0, to])),
                    ),
                };
                let train = bytes(train, encrypted);
                let stride = usize::from(stride % 1_300);
                let from = (address(server), local);
                let got = path.backend_sends(now, from, socket, &train, stride);
                if let Some(got) = got {
                    let owner = owners.get(&(BackendId(server), socket, local));
                    if !input.transparent {
                        assert_eq!(owner, Some(&got));
                    }
                }
            }
            Event::Stranger { socket, bytes } => {
                let from = SocketAddr::from(([203, 0, 113, 1], 443));
                let got =
                    path.backend_sends(now, (from, Some(service)), socket.into(), &bytes, 1_200);
                assert_eq!(got, None);
            }
            Event::State { server, state } => {
                if changes > 0 {
                    changes -= 1;
                    use BackendState::{Active, Down, Draining};
                    states[usize::from(server) % states.len()] =
                        [Some(Active), Some(Draining), Some(Down), None][usize::from(state % 4)];
                    path.set_plan(plan(&states, encrypted));
                }
            }
            Event::Wait { milliseconds } => {
                now += Duration::from_millis(milliseconds.into());
                // Packets for resets are sent from ports of their own clients.
                if path.tick(now) > 0 {
                    owners.clear();
                    return;
                }
            }
        }
        let (flows, entries) = path.sizes();
        assert!(flows <= FLOWS && entries <= 3 * ENTRIES);
        assert!(path.traffic().iter().all(|traffic| traffic.is_conserved()));
    }
});
