//! The balancer's routing: whatever clients and servers send, tables keep to their bounds, a datagram
//! goes to a server that is up, and replies go to the client whose port it is.
#![no_main]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arbitrary::Arbitrary;
use clearway_balancer::{
    Backend, BackendId, BackendState, DropReason, FlowCapacity, FlowKey, Flows, Plan, Router,
    RouterLimits, Tuple, config,
};
use clearway_quic::cid::quic_lb::{Config, ServerId};
use libfuzzer_sys::fuzz_target;

const SERVERS: u8 = 3;
const ENTRIES: usize = 16;
const FLOWS: usize = 32;

#[derive(Arbitrary, Debug)]
enum Event {
    /// A client sends any bytes.
    Noise {
        port: u8,
        datagram: Vec<u8>,
    },
    /// It sends a short header with a connection ID that names a server.
    Named {
        port: u8,
        server: u8,
        nonce: [u8; 7],
        rest: Vec<u8>,
    },
    /// A server sends any bytes to the client it was sent something of last.
    Reply {
        server: u8,
        datagram: Vec<u8>,
    },
    /// A server goes down, comes up, or is drained.
    State {
        server: u8,
        state: u8,
    },
    Wait {
        milliseconds: u16,
    },
}

fn encoding() -> Config {
    Config::new(0, 1, 7).expect("valid lengths")
}

fn plan(states: &[BackendState]) -> Arc<Plan> {
    let backends = (0..).zip(states).map(|(n, &state)| Backend {
        id: BackendId(n),
        name: n.to_string(),
        address: SocketAddr::from(([10, 0, 0, 1], n + 1)),
        weight: 1,
        state,
        server_ids: vec![(0, ServerId::new(&[n as u8]).expect("a byte"))],
    });
    Arc::new(Plan::new(backends.collect(), [encoding()]).expect("distinct servers"))
}

fuzz_target!(|input: (String, Vec<Event>)| {
    let (text, events) = input;
    if let Ok(file) = config::File::parse(&text) {
        let _ = (file.settings(None), file.server());
    }
    let mut states = [BackendState::Active; SERVERS as usize];
    let mut router = Router::new(
        plan(&states),
        RouterLimits {
            entries: ENTRIES,
            idle: Duration::from_secs(5),
            new_connections: 50,
            new_connections_by_source: 0,
        },
    );
    let mut flows = Flows::new(FlowCapacity {
        sources: Vec::new(),
        sockets: 8,
        flows: FLOWS,
        idle: Duration::from_secs(5),
        transparent: None,
    });
    let mut now = Duration::from_secs(1);
    let mut last = [None; SERVERS as usize];
    // Plans take milliseconds to make.
    let mut changes = 4;
    for event in events {
        let (port, datagram) = match event {
            Event::Noise { port, datagram } => (port, datagram),
            Event::Named {
                port,
                server,
                nonce,
                rest,
            } => {
                let id = ServerId::new(&[server % SERVERS]).expect("a byte");
                let cid = encoding().encode(&id, &nonce, 0).expect("lengths that fit");
                (port, [&[0x40], &cid[..], &rest].concat())
            }
            Event::Reply { server, datagram } => {
                let server = server % SERVERS;
                router.learn(now, BackendId(server.into()), &datagram);
                if let Some((tuple, socket)) = last[server as usize] {
                    let client = flows.client(BackendId(server.into()), socket, None);
                    assert!(client == Ok(tuple) || client == Err(DropReason::UnknownFlow));
                }
                continue;
            }
            Event::State { server, state } => {
                if changes > 0 {
                    changes -= 1;
                    use BackendState::{Active, Down, Draining};
                    states[(server % SERVERS) as usize] =
                        [Active, Draining, Down][(state % 3) as usize];
                    router.set_plan(plan(&states));
                }
                continue;
            }
            Event::Wait { milliseconds } => {
                now += Duration::from_millis(milliseconds.into());
                flows.expire(now, 4);
                last = [None; SERVERS as usize];
                continue;
            }
        };
        let tuple = Tuple {
            client: SocketAddr::from(([192, 0, 2, port / 16], u16::from(port) + 1)),
            service: None,
        };
        let Ok(route) = router.route(now, tuple, &datagram) else {
            continue;
        };
        let server = usize::from(route.backend.0);
        assert_ne!(states[server], BackendState::Down);
        if let Some((start, len)) = route.cid {
            assert!(
                start + len <= datagram.len(),
                "the connection ID is in the datagram"
            );
        }
        let backend = route.backend;
        if let Ok(flow) = flows.upstream(now, FlowKey { tuple, backend }) {
            last = [None; SERVERS as usize];
            last[server] = Some((tuple, flow.upstream.socket));
        }
        assert!(router.entries() <= 3 * ENTRIES);
        assert!(flows.len() <= FLOWS);
    }
});
