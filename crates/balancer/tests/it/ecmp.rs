//! Several balancers behind one address, that share no state: the network spreads clients over them
//! by their addresses (ECMP), and spreads them anew whenever a balancer comes or goes.
//!
//! The worst case is modelled: the share of a client is a hash modulo the number of balancers, so
//! that nearly every client gets another one.
#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::hash::BuildHasher as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clearway_balancer::{Backend, BackendId, BackendState, Plan, Router, RouterLimits, Tuple};
use clearway_quic::cid::quic_lb::{Config, ServerId};
use foldhash::fast::FixedState;

const CONNECTIONS: u32 = 20_000;
const NOW: Duration = Duration::from_secs(1);

/// How servers make their connection IDs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cids {
    WithServerId,
    Random,
}

fn encoding() -> Config {
    Config::new(0, 1, 7).unwrap().with_key(&[3; 16]).unwrap()
}

/// A plan with backends of these numbers.
fn plan(backends: impl IntoIterator<Item = u16>) -> Arc<Plan> {
    let backends = backends.into_iter().map(|n| Backend {
        id: BackendId(n),
        name: format!("b{n}"),
        address: format!("10.0.0.1:{n}").parse().unwrap(),
        weight: 1,
        state: BackendState::Active,
        server_ids: vec![(0, ServerId::new(&[n as u8]).unwrap())],
    });
    Arc::new(Plan::new(backends.collect(), [encoding()]).unwrap())
}

struct Connection {
    tuple: Tuple,
    cid: Vec<u8>,
    backend: BackendId,
}

struct World {
    balancers: Vec<Router>,
    connections: Vec<Connection>,
    hasher: FixedState,
}

impl World {
    /// Connects everybody through `balancers` to `backends`.
    fn new(balancers: usize, backends: u16, cids: Cids) -> Self {
        let plan = plan(1..=backends);
        let mut this = Self {
            balancers: (0..balancers).map(|_| router(&plan)).collect(),
            connections: Vec::new(),
            hasher: FixedState::with_seed(7),
        };
        for number in 0..CONNECTIONS {
            let connection = this.connect(number, cids);
            this.connections.push(connection);
        }
        this
    }

    fn connect(&mut self, number: u32, cids: Cids) -> Connection {
        let tuple = tuple(0, number);
        let random = self.hasher.hash_one(number).to_be_bytes();
        let initial = [&[0xc0, 0, 0, 0, 1, 8][..], &random, &[4], &random[..4]].concat();
        let mut initial = initial;
        initial.resize(1_200, 0);
        let backend = self.route(tuple, &initial).unwrap();
        let cid = match cids {
            Cids::WithServerId => {
                let server = ServerId::new(&[backend.0 as u8]).unwrap();
                encoding()
                    .encode(&server, &random[..7], 0)
                    .unwrap()
                    .to_vec()
            }
            // The bits of a configuration that there is not.
            Cids::Random => [&[0xe0][..], &random].concat(),
        };
        let reply = [
            &[0xc0, 0, 0, 0, 1, 4][..],
            &random[..4],
            &[9],
            &cid,
            &[0; 9],
        ]
        .concat();
        let balancer = self.balancer_of(tuple);
        self.balancers[balancer].learn(NOW, backend, &reply);
        Connection {
            tuple,
            cid,
            backend,
        }
    }

    /// Which balancer the network chooses.
    fn balancer_of(&self, tuple: Tuple) -> usize {
        self.hasher.hash_one(tuple) as usize % self.balancers.len()
    }

    fn route(&mut self, tuple: Tuple, datagram: &[u8]) -> Option<BackendId> {
        let balancer = self.balancer_of(tuple);
        let route = self.balancers[balancer].route(NOW, tuple, datagram);
        route.ok().map(|route| route.backend)
    }

    /// Has every connection send a datagram. Returns the share of those whose datagram does not
    /// reach their backend, of those whose backend still exists.
    fn broken(&mut self) -> f64 {
        let (mut broken, mut living) = (0, 0);
        for connection in std::mem::take(&mut self.connections) {
            let datagram = [&[0x40][..], &connection.cid, &[0; 30]].concat();
            let plan = self.balancers[0].plan();
            let lives = plan.serves_connections(connection.backend);
            let reached = self.route(connection.tuple, &datagram);
            living += u32::from(lives);
            broken += u32::from(lives && reached != Some(connection.backend));
            self.connections.push(connection);
        }
        f64::from(broken) / f64::from(living)
    }

    fn set_backends(&mut self, backends: impl IntoIterator<Item = u16>) {
        let plan = plan(backends);
        for balancer in &mut self.balancers {
            balancer.set_plan(plan.clone());
        }
    }

    fn add_balancer(&mut self) {
        let plan = self.balancers[0].plan().clone();
        self.balancers.push(router(&plan));
    }

    /// All clients get other addresses.
    fn migrate(&mut self, to: u32) {
        for (number, connection) in (0..).zip(&mut self.connections) {
            connection.tuple = tuple(to, number);
        }
    }
}

fn router(plan: &Arc<Plan>) -> Router {
    let limits = RouterLimits {
        new_connections: 0,
        new_connections_by_source: 0,
        ..RouterLimits::default()
    };
    Router::new(plan.clone(), limits)
}

fn tuple(network: u32, number: u32) -> Tuple {
    let ip = std::net::Ipv4Addr::from(0x6440_0000 + (network << 16) + number / 1_000);
    let port = 10_000 + (number % 1_000) as u16;
    Tuple {
        client: SocketAddr::from((ip, port)),
        service: None,
    }
}

#[test]
fn connections_with_server_ids_survive_every_change_around_their_backend() {
    let mut world = World::new(4, 10, Cids::WithServerId);
    assert_eq!(world.broken(), 0.0);
    world.balancers.remove(1);
    assert_eq!(world.broken(), 0.0, "a balancer left");
    world.migrate(1);
    assert_eq!(world.broken(), 0.0, "clients migrated");
    world.set_backends(1..=11);
    world.add_balancer();
    world.migrate(2);
    assert_eq!(world.broken(), 0.0, "a backend and a balancer came");
    world.set_backends(2..=11);
    world.balancers.truncate(1);
    world.migrate(3);
    assert_eq!(
        world.broken(),
        0.0,
        "a backend and all but one balancer left"
    );
}

/// Without server IDs a balancer that does not know a client decides by Maglev anew, which is right
/// as long as the address and the backends are the same.
#[test]
fn connections_without_server_ids_break_as_far_as_maglev_moves_them() {
    let mut world = World::new(4, 10, Cids::Random);
    world.balancers.remove(1);
    assert_eq!(world.broken(), 0.0, "the same backends");

    // Added: the new one takes a share of 1/11 of the table; balancers that know a client are not
    // concerned, and of three in the place of four they are a third or fewer.
    let mut world = World::new(4, 10, Cids::Random);
    world.set_backends(1..=11);
    world.add_balancer();
    let (broken, bound) = (world.broken(), 1.0 / 11.0);
    println!(
        "a backend added, and flows rehashed: {:.2} % broken",
        broken * 100.0
    );
    assert!(broken > bound / 2.0 && broken < bound * 1.05, "{broken}");

    // Removed: of the survivors' slots 0.20 % move with ten backends.
    let mut world = World::new(4, 10, Cids::Random);
    world.set_backends(2..=10);
    world.add_balancer();
    let broken = world.broken();
    println!(
        "a backend removed, and flows rehashed: {:.2} % broken",
        broken * 100.0
    );
    assert!(broken < 0.006, "{broken}");

    // Migrated: only the balancer that saw the handshake knows the connection ID, and another one
    // is right by chance.
    let mut world = World::new(4, 10, Cids::Random);
    world.migrate(1);
    let (broken, expected) = (world.broken(), 3.0 / 4.0 * 9.0 / 10.0);
    println!("all clients migrated: {:.1} % broken", broken * 100.0);
    assert!((broken - expected).abs() < 0.02, "{broken}");
}
