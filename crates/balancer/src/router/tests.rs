use clearway_quic::cid::quic_lb::ServerId;
use proptest::prelude::*;

use super::*;
use crate::backend::Backend;
use crate::plan::tests::{backends, config};

const NOW: Duration = Duration::from_secs(1_000);

fn tuple(port: u16) -> Tuple {
    Tuple {
        client: SocketAddr::from(([192, 0, 2, 1], port)),
        service: None,
    }
}

fn limits() -> RouterLimits {
    RouterLimits {
        entries: 64,
        new_connections: 0,
        new_connections_by_source: 0,
        ..RouterLimits::default()
    }
}

fn router(count: u16) -> Router {
    let plan = Plan::new(backends(count), [config()]).unwrap();
    Router::new(Arc::new(plan), limits())
}

fn replan(router: &mut Router, change: impl FnOnce(&mut Vec<Backend>)) {
    let mut backends = router.plan().backends().to_vec();
    change(&mut backends);
    router.set_plan(Arc::new(Plan::new(backends, [config()]).unwrap()));
}

fn set_state(router: &mut Router, id: BackendId, state: BackendState) {
    replan(router, |backends| {
        let backend = backends.iter_mut().find(|backend| backend.id == id);
        backend.unwrap().state = state;
    });
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

fn initial(dcid: &[u8], scid: &[u8]) -> Vec<u8> {
    long(0, dcid, scid, 1_200)
}

fn short(dcid: &[u8]) -> Vec<u8> {
    [&[0x41], dcid, &[7; 30]].concat()
}

/// A client's own choice; its config rotation bits are not those of the configuration.
const CLIENT: [u8; 8] = [0xe0, 1, 2, 3, 4, 5, 6, 7];

fn server_cid(backend: BackendId, nonce: u8) -> ConnectionId {
    let server = ServerId::new(&[backend.0 as u8]).unwrap();
    config().encode(&server, &[nonce; 7], nonce).unwrap()
}

#[test]
fn cid_with_server_id_is_routed_from_any_address() {
    let mut router = router(5);
    for n in 1..=5 {
        for port in [1, 2, 3] {
            let cid = server_cid(BackendId(n), port as u8);
            for packet in [short(&cid), long(2, &cid, &[9; 4], 0), initial(&cid, &[])] {
                let routed = router.route(NOW, tuple(port), &packet).unwrap();
                assert_eq!(routed.backend, BackendId(n));
                assert_eq!(routed.step, RouteStep::ServerId);
                let (start, len) = routed.cid.unwrap();
                assert_eq!(packet[start..start + len], *cid);
            }
        }
    }
    assert_eq!(router.entries(), 0, "no state is needed");
}

#[test]
fn handshake_stays_with_its_backend_when_backends_change() {
    let mut router = router(1);
    let first = initial(&CLIENT, &[5; 8]);
    let assigned = router.route(NOW, tuple(1), &first).unwrap();
    assert_eq!(assigned.step, RouteStep::Assigned);
    replan(&mut router, |all| *all = backends(40));
    // Again, with another destination connection ID, and from another port with the same.
    for (port, packet, step) in [
        (1, first.clone(), RouteStep::Handshake),
        (1, initial(&[0xe1; 8], &[5; 8]), RouteStep::Handshake),
        (2, initial(&CLIENT, &[6; 8]), RouteStep::ConnectionId),
        (1, short(&[0xe2; 8]), RouteStep::Addresses),
    ] {
        let routed = router.route(NOW, tuple(port), &packet).unwrap();
        assert_eq!((routed.backend, routed.step), (assigned.backend, step));
    }
}

#[test]
fn two_connections_of_one_address_may_have_two_backends() {
    let mut router = router(2);
    let first = router
        .route(NOW, tuple(1), &initial(&CLIENT, &[5; 8]))
        .unwrap();
    // Another client's connection, which this address took over together with its ID.
    let other = BackendId(3 - first.backend.0);
    let cid = server_cid(other, 1);
    assert_eq!(
        router.route(NOW, tuple(1), &short(&cid)).unwrap().backend,
        other
    );
    let again = router
        .route(NOW, tuple(1), &long(2, &CLIENT, &[5; 8], 0))
        .unwrap();
    assert_eq!(again.backend, first.backend);
}

#[test]
fn unroutable_cid_of_backend_is_learned_and_followed_to_another_address() {
    let mut router = router(30);
    let chosen = [0xe9; 11];
    assert!(router.learn(NOW, BackendId(17), &long(2, &[5; 8], &chosen, 0)));
    for port in 1..20 {
        let routed = router.route(NOW, tuple(port), &short(&chosen)).unwrap();
        assert_eq!(routed.backend, BackendId(17));
        assert_eq!(
            (routed.step, routed.cid),
            (RouteStep::ConnectionId, Some((1, 11)))
        );
    }
    let routable = server_cid(BackendId(17), 4);
    assert!(!router.learn(NOW, BackendId(17), &long(2, &[5; 8], &routable, 0)));
    assert!(!router.learn(NOW, BackendId(17), &short(&chosen)));
    // The ID of another backend is not this one's.
    assert!(router.learn(NOW, BackendId(16), &long(2, &[5; 8], &routable, 0)));
}

#[test]
fn draining_backend_keeps_connections_and_gets_no_new_ones() {
    let mut router = router(2);
    let packet = initial(&CLIENT, &[5; 8]);
    let backend = router.route(NOW, tuple(1), &packet).unwrap().backend;
    set_state(&mut router, backend, BackendState::Draining);
    // What is under way continues.
    assert_eq!(
        router.route(NOW, tuple(1), &packet).unwrap().backend,
        backend
    );
    let cid = server_cid(backend, 1);
    assert_eq!(
        router.route(NOW, tuple(9), &short(&cid)).unwrap().backend,
        backend
    );
    assert_eq!(
        router
            .route(NOW, tuple(1), &short(&[0xe5; 8]))
            .unwrap()
            .backend,
        backend
    );
    // A new connection from the same port, and from others, goes elsewhere.
    for port in 1..50 {
        let new = initial(&[0xe0 | port as u8 & 0x1f; 8], &[port as u8, 77]);
        assert_ne!(
            router.route(NOW, tuple(port), &new).unwrap().backend,
            backend
        );
    }
}

/// One in 2,048 new connections has a connection ID that names a backend with a server ID of one byte.
#[test]
fn new_connection_that_names_a_draining_backend_by_chance_goes_elsewhere() {
    let mut router = router(2);
    let backend = BackendId(1);
    let cid = server_cid(backend, 1);
    let under_way = initial(&CLIENT, &[5; 8]);
    let port = (1..).find(|&port| {
        let routed = router.route(NOW, tuple(port), &under_way).unwrap();
        routed.backend == backend
    });
    set_state(&mut router, backend, BackendState::Draining);
    for scid in [&[6; 8][..], &[]] {
        let by_chance = router.route(NOW, tuple(900), &initial(&cid, scid)).unwrap();
        assert_ne!(by_chance.backend, backend);
    }
    // The second Initial of a handshake has the server's connection ID.
    let second = initial(&cid, &[5; 8]);
    let routed = router.route(NOW, tuple(port.unwrap()), &second).unwrap();
    assert_eq!(
        (routed.backend, routed.step),
        (backend, RouteStep::ServerId)
    );
}

/// Clients of servers without server IDs are followed by their address alone, once their connection
/// IDs have changed.
#[test]
fn forged_initial_does_not_move_connections_of_a_draining_backend() {
    let mut router = router(2);
    let first = initial(&CLIENT, &[5; 8]);
    let backend = router.route(NOW, tuple(1), &first).unwrap().backend;
    set_state(&mut router, backend, BackendState::Draining);
    let forged = router.route(NOW, tuple(1), &initial(&[0xe9; 8], &[6; 8]));
    assert_ne!(forged.unwrap().backend, backend);
    let rotated = router.route(NOW, tuple(1), &short(&[0xe5; 8])).unwrap();
    assert_eq!(
        (rotated.backend, rotated.step),
        (backend, RouteStep::Addresses)
    );
    set_state(&mut router, backend, BackendState::Down);
    let lost = router.route(NOW, tuple(1), &short(&[0xe5; 8])).unwrap();
    assert_ne!(lost.backend, backend);
}

/// A connection ID without a server ID that somebody has seen, of a connection that moved to it
/// without the balancer seeing that.
#[test]
fn forged_initial_does_not_claim_the_connection_id_of_another_client() {
    let mut router = router(30);
    let backend = router
        .route(NOW, tuple(1), &initial(&CLIENT, &[5; 8]))
        .unwrap()
        .backend;
    let seen = [0xe9; 8];
    for port in 2..40 {
        let forged = initial(&seen, &[port as u8; 8]);
        router.route(NOW, tuple(port), &forged).unwrap();
    }
    let routed = router.route(NOW, tuple(1), &short(&seen)).unwrap();
    assert_eq!(
        (routed.backend, routed.step),
        (backend, RouteStep::Addresses)
    );
}

#[test]
fn backend_does_not_take_the_connection_id_of_another_one() {
    let mut router = router(3);
    let cid = [0xe9; 8];
    let answer = long(2, &[5; 8], &cid, 0);
    assert!(router.learn(NOW, BackendId(2), &answer));
    assert!(router.learn(NOW, BackendId(3), &answer));
    let owner = |router: &mut Router| router.route(NOW, tuple(1), &short(&cid)).unwrap().backend;
    assert_eq!(owner(&mut router), BackendId(2));
    // One that is not there any more has no connections.
    set_state(&mut router, BackendId(2), BackendState::Down);
    assert!(router.learn(NOW, BackendId(3), &answer));
    assert_eq!(owner(&mut router), BackendId(3));
}

#[test]
fn connections_of_down_backend_go_to_others() {
    let mut router = router(2);
    let packet = initial(&CLIENT, &[5; 8]);
    let backend = router.route(NOW, tuple(1), &packet).unwrap().backend;
    let cid = server_cid(backend, 1);
    set_state(&mut router, backend, BackendState::Down);
    for packet in [packet, short(&cid), short(&[0xe5; 8])] {
        assert_ne!(
            router.route(NOW, tuple(1), &packet).unwrap().backend,
            backend
        );
    }
    let other = BackendId(3 - backend.0);
    set_state(&mut router, other, BackendState::Down);
    let dropped = router.route(NOW, tuple(1), &short(&cid));
    assert_eq!(dropped, Err(DropReason::NoBackend));
}

#[test]
fn invalid_datagrams_are_dropped_with_their_reason() {
    let mut router = router(2);
    let small = long(0, &CLIENT, &[5; 8], 0);
    let mut negotiation = initial(&CLIENT, &[]);
    negotiation[1..5].fill(0);
    for (datagram, reason) in [
        (vec![], DropReason::Empty),
        (vec![0xc0, 0, 0, 0, 1, 9, 1], DropReason::Malformed),
        (small, DropReason::SmallInitial),
        (negotiation, DropReason::UnexpectedNegotiation),
    ] {
        assert_eq!(router.route(NOW, tuple(1), &datagram), Err(reason));
    }
    assert_eq!(router.entries(), 0);
}

#[test]
fn rate_of_new_connections_is_limited_and_old_ones_go_on() {
    let plan = Arc::new(Plan::new(backends(3), [config()]).unwrap());
    let limits = RouterLimits {
        new_connections_by_source: 5,
        ..limits()
    };
    let mut router = Router::new(plan, limits);
    let results: Vec<_> = (0..9)
        .map(|n| router.route(NOW, tuple(n), &initial(&[0xe0 | n as u8; 8], &[1])))
        .collect();
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 5);
    assert_eq!(results[8], Err(DropReason::InitialLimit));
    assert!(router.route(NOW, tuple(0), &short(&[0xe0; 8])).is_ok());
    let cid = server_cid(BackendId(2), 1);
    assert!(router.route(NOW, tuple(99), &short(&cid)).is_ok());
}

#[test]
fn entries_expire_and_floods_do_not_grow_the_tables() {
    let mut router = router(3);
    for n in 0..10_000_u32 {
        let n = n.to_be_bytes();
        let from = Tuple {
            client: SocketAddr::from(([10, n[1], n[2], n[3]], 9)),
            service: None,
        };
        let cid = [0xe0, 0, 0, 0, n[0], n[1], n[2], n[3]];
        router.route(NOW, from, &initial(&cid, &cid)).unwrap();
        assert!(router.entries() <= 3 * 64);
    }
    let later = NOW + limits().idle;
    for port in 0..200 {
        router
            .route(later, tuple(port % 3), &short(&[0xe7; 8]))
            .unwrap();
        router.learn(later, BackendId(1), &long(2, &[], &[0xe7, port as u8], 0));
    }
    assert!(router.by_handshake.is_empty());
    assert!(router.by_tuple.len() <= 3);
}

proptest! {
    /// Whatever arrives is routed to a backend that serves, or dropped for a reason; and what is
    /// said of the connection ID's place is inside the datagram.
    #[test]
    fn every_datagram_is_routed_or_dropped(
        datagrams in proptest::collection::vec(
            (any::<u16>(), proptest::collection::vec(any::<u8>(), 0..60), any::<bool>(), 0_u8..4),
            0..60,
        ),
    ) {
        let mut router = router(4);
        set_state(&mut router, BackendId(2), BackendState::Down);
        for (port, mut datagram, version_1, event) in datagrams {
            if version_1 && datagram.len() > 5 {
                datagram[1..5].copy_from_slice(&[0, 0, 0, 1]);
                datagram.resize(1_200, 1);
            }
            if event == 0 {
                router.learn(NOW, BackendId(port % 5), &datagram);
            }
            if let Ok(routed) = router.route(NOW, tuple(port % 8), &datagram) {
                prop_assert!(router.plan().serves_connections(routed.backend));
                if let Some((start, len)) = routed.cid {
                    prop_assert!(start + len <= datagram.len());
                }
            }
        }
    }
}
