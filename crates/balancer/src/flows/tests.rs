use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;

const NOW: Duration = Duration::from_secs(100);
const B1: BackendId = BackendId(1);
const B2: BackendId = BackendId(2);

fn flows(sources: u8, sockets: u32) -> Flows {
    let address = |n| Some(IpAddr::from([10, 0, 0, n]));
    Flows::new(FlowCapacity {
        sources: (0..sources).map(address).collect(),
        sockets,
        flows: 1_000,
        idle: Duration::from_secs(60),
        transparent: None,
    })
}

fn key(port: u16, backend: BackendId) -> FlowKey {
    let client = SocketAddr::from(([192, 0, 2, 1], port));
    let tuple = Tuple {
        client,
        service: None,
    };
    FlowKey { tuple, backend }
}

/// The backend answers with a connection ID, and the client uses it.
fn prove(flows: &mut Flows, now: Duration, key: FlowKey) {
    let upstream = flows.upstream(now, key).unwrap().upstream;
    let local = flows.source_for(upstream, key.tuple.client.ip());
    flows.client(key.backend, upstream.socket, local).unwrap();
    flows.offer(&key, &[7; 8]);
    flows.confirm(now, &key, &[7; 8]);
}

#[test]
fn client_keeps_its_port_and_replies_return_to_it() {
    let mut flows = flows(2, 3);
    let first = flows.upstream(NOW, key(1, B1)).unwrap();
    assert!(first.is_new);
    let again = flows.upstream(NOW, key(1, B1)).unwrap();
    assert_eq!((again.upstream, again.is_new), (first.upstream, false));
    let source = flows.source(first.upstream);
    let client = flows.client(B1, first.upstream.socket, source);
    assert_eq!(client, Ok(key(1, B1).tuple));
    let unknown = Err(DropReason::UnknownFlow);
    assert_eq!(flows.client(B2, first.upstream.socket, source), unknown);
    assert_eq!(flows.client(B1, first.upstream.socket + 1, source), unknown);
    let elsewhere = Some(IpAddr::from([10, 9, 9, 9]));
    assert_eq!(flows.client(B1, first.upstream.socket, elsewhere), unknown);
}

#[test]
fn other_address_of_a_client_gets_another_port_and_first_one_stays() {
    let mut flows = flows(2, 3);
    let first = flows.upstream(NOW, key(1, B1)).unwrap().upstream;
    let second = flows.upstream(NOW, key(2, B1)).unwrap().upstream;
    assert_ne!(first, second);
    let client = flows.client(B1, first.socket, flows.source(first));
    assert_eq!(client, Ok(key(1, B1).tuple));
}

#[test]
fn backends_share_ports() {
    let mut flows = flows(1, 1);
    let first = flows.upstream(NOW, key(1, B1)).unwrap().upstream;
    let second = flows.upstream(NOW, key(2, B2)).unwrap().upstream;
    assert_eq!(first, second);
    let full = flows.upstream(NOW, key(3, B1));
    assert_eq!(full, Err(DropReason::NoUpstreamPort));
    assert!(flows.usage() >= 1.0);
}

#[test]
fn unanswered_flows_give_their_ports_back_early() {
    let mut flows = flows(1, 2);
    prove(&mut flows, NOW, key(1, B1));
    flows.upstream(NOW, key(2, B1)).unwrap();
    let later = NOW + UNANSWERED;
    assert!(flows.upstream(later, key(3, B1)).unwrap().is_new);
    let full = flows.upstream(later, key(2, B1));
    assert_eq!(full, Err(DropReason::NoUpstreamPort));
    assert!(!flows.upstream(later, key(1, B1)).unwrap().is_new);
}

#[test]
fn flood_of_unanswered_flows_spares_answered_ones() {
    let mut flows = flows(100, 100);
    for port in 0..400 {
        let upstream = flows.upstream(NOW, key(port, B1)).unwrap().upstream;
        let source = flows.source(upstream);
        flows.client(B1, upstream.socket, source).unwrap();
    }
    for port in 1_000..9_000 {
        assert!(flows.upstream(NOW, key(port, B1)).unwrap().is_new);
    }
    assert_eq!(flows.len(), 400 + 500);
    assert!((0..400).all(|port| !flows.upstream(NOW, key(port, B1)).unwrap().is_new));
}

#[test]
fn replies_alone_do_not_extend_a_flow() {
    let mut flows = flows(1, 2);
    let upstream = flows.upstream(NOW, key(1, B1)).unwrap().upstream;
    let source = flows.source(upstream);
    for _ in 0..3 {
        flows.client(B1, upstream.socket, source).unwrap();
    }
    flows.expire(NOW + Duration::from_secs(59), 9);
    assert_eq!(flows.len(), 1);
    flows.expire(NOW + Duration::from_secs(60), 9);
    assert_eq!(flows.len(), 0);
    let gone = flows.client(B1, upstream.socket, source);
    assert_eq!(gone, Err(DropReason::UnknownFlow));
}

/// Servers answer spoofed addresses as well.
#[test]
fn flood_of_answered_flows_takes_no_port_of_a_client_that_exists() {
    for transparent_mode in [false, true] {
        let (mut flows, all) = match transparent_mode {
            false => (flows(1, 40), 1..=20),
            true => (transparent(40), 1..=20),
        };
        let key_of = |port| match transparent_mode {
            false => key(port, B1),
            true => client(1, port),
        };
        for port in all.clone() {
            prove(&mut flows, NOW, key_of(port));
        }
        let mut now = NOW;
        for spoofed in 1_000..1_500 {
            now += EVICTABLE / 20;
            let key = key_of(spoofed);
            let flow = flows.upstream(now, key).unwrap();
            let local = flows.source_for(flow.upstream, key.tuple.client.ip());
            flows.client(B1, flow.upstream.socket, local).unwrap();
            // Anything that is not the connection ID proves nothing.
            flows.offer(&key, &spoofed.to_be_bytes().repeat(4));
            flows.confirm(now, &key, &[7; 8]);
        }
        assert_eq!(flows.len(), 40);
        for port in all {
            assert!(!flows.upstream(now, key_of(port)).unwrap().is_new);
        }
        prove(&mut flows, now + EVICTABLE, key_of(99));
    }
}

/// Of more clients than there are ports, those that came first get to the end of their handshake.
#[test]
fn flows_that_were_used_just_now_keep_their_ports() {
    let mut flows = flows(1, 8);
    for port in 1..=8 {
        flows.upstream(NOW, key(port, B1)).unwrap();
    }
    let soon = NOW + EVICTABLE - Duration::from_millis(1);
    let full = Err(DropReason::NoUpstreamPort);
    assert_eq!(flows.upstream(soon, key(9, B1)), full);
    prove(&mut flows, soon, key(1, B1));
    let later = NOW + EVICTABLE;
    assert!(flows.upstream(later, key(9, B1)).unwrap().is_new);
    assert!(!flows.upstream(later, key(1, B1)).unwrap().is_new);
    // Ports of another backend are of no use.
    assert!(flows.upstream(later, key(10, B2)).is_ok());
    assert_eq!(flows.len(), 9);
}

#[test]
fn short_connection_id_proves_nothing() {
    let mut flows = flows(1, 1);
    let flow = flows.upstream(NOW, key(1, B1)).unwrap();
    let source = flows.source(flow.upstream);
    flows.client(B1, flow.upstream.socket, source).unwrap();
    flows.offer(&key(1, B1), &[7; UNGUESSABLE - 1]);
    flows.confirm(NOW, &key(1, B1), &[7; UNGUESSABLE - 1]);
    assert!(flows.upstream(NOW + EVICTABLE, key(2, B1)).is_ok());
}

proptest! {
    /// No two flows of one backend share a port, and every reply finds its client.
    #[test]
    fn each_port_has_one_client(
        steps in proptest::collection::vec((0_u16..12, 1_u16..3, 0_u64..40, any::<bool>()), 0..200),
    ) {
        let mut flows = flows(2, 3);
        let mut now = NOW;
        let mut last: HashMap<FlowKey, Upstream> = HashMap::new();
        for (port, backend, pause, reply) in steps {
            now += Duration::from_secs(pause);
            let key = key(port, BackendId(backend));
            if reply {
                if let Some(upstream) = last.get(&key) {
                    let source = flows.source(*upstream);
                    if let Ok(tuple) = flows.client(key.backend, upstream.socket, source) {
                        let owner = FlowKey { tuple, ..key };
                        prop_assert_eq!(last.get(&owner), Some(upstream));
                    }
                }
            } else if let Ok(flow) = flows.upstream(now, key) {
                prop_assert!(flow.upstream.socket < 3 && flow.upstream.source < 2);
                let source = flows.source(flow.upstream);
                let client = flows.client(key.backend, flow.upstream.socket, source);
                prop_assert_eq!(client, Ok(key.tuple));
                last.insert(key, flow.upstream);
            }
            prop_assert_eq!(flows.clients.len(), flows.len());
            let ports: HashSet<_> = flows.clients.keys().collect();
            prop_assert_eq!(ports.len(), flows.len());
        }
    }
}

const SERVICE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 1));

fn transparent(sockets: u32) -> Flows {
    Flows::new(FlowCapacity {
        sources: Vec::new(),
        sockets,
        flows: 1_000,
        idle: Duration::from_secs(60),
        transparent: Some(SERVICE),
    })
}

fn client(address: u8, port: u16) -> FlowKey {
    let tuple = Tuple {
        client: SocketAddr::from(([192, 0, 2, address], port)),
        service: Some(SERVICE),
    };
    FlowKey { tuple, backend: B1 }
}

#[test]
fn transparent_flow_has_its_clients_address_and_port() {
    let mut flows = transparent(10);
    for address in [1, 2] {
        let key = client(address, 4_433);
        let upstream = flows.upstream(NOW, key).unwrap().upstream;
        let ip = key.tuple.client.ip();
        assert_eq!(upstream.socket, 4_433);
        assert_eq!(flows.source_for(upstream, ip), Some(ip));
        assert_eq!(flows.client(B1, upstream.socket, Some(ip)), Ok(key.tuple));
    }
    assert_eq!(flows.len(), 2);
    assert!((flows.usage() - 0.1).abs() < 1e-9, "one socket of ten");
    let unknown = Err(DropReason::UnknownFlow);
    assert_eq!(flows.client(B1, 4_433, None), unknown);
    assert_eq!(flows.client(B1, 70_000, Some(SERVICE)), unknown);
    // Another process may have had its flow.
    let other = client(9, 4_433).tuple;
    assert_eq!(flows.client(B1, 4_433, Some(other.client.ip())), Ok(other));
}

#[test]
fn transparent_sockets_end_with_their_last_flow() {
    let mut flows = transparent(10);
    let (first, second) = (client(1, 7), client(2, 7));
    flows.upstream(NOW, first).unwrap();
    let later = NOW + UNANSWERED / 2;
    flows.upstream(later, second).unwrap();
    flows.expire(NOW + UNANSWERED, 64);
    assert!(flows.take_unused_sockets().is_empty());
    flows.expire(later + UNANSWERED, 64);
    assert_eq!(flows.take_unused_sockets(), [7]);
    assert!(flows.is_empty());
}

#[test]
fn spoofed_ports_do_not_take_the_sockets_of_answered_clients() {
    let mut flows = transparent(4);
    let known = [1, 2].map(|port| client(1, port));
    for key in known {
        flows.upstream(NOW, key).unwrap();
        let (port, ip) = (key.tuple.client.port(), key.tuple.client.ip());
        flows.client(B1, port.into(), Some(ip)).unwrap();
    }
    let mut now = NOW;
    for port in 1_000..1_020 {
        now += EVICTABLE;
        flows.upstream(now, client(9, port)).unwrap();
    }
    assert!(flows.len() <= 4);
    for key in known {
        assert!(!flows.upstream(now, key).unwrap().is_new);
    }
    now += EVICTABLE;
    for port in [3, 4] {
        let key = client(1, port);
        flows.upstream(now, key).unwrap();
        flows
            .client(B1, port.into(), Some(key.tuple.client.ip()))
            .unwrap();
    }
    for key in known {
        prove(&mut flows, now, key);
    }
    let full = flows.upstream(now, client(9, 5));
    assert_eq!(full, Err(DropReason::NoUpstreamPort));
    // The port of a known client is no further socket.
    assert!(flows.upstream(now, client(9, 3)).is_ok());
}
