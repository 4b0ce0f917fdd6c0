//! Connection IDs of a server behind a load balancer, and their replacement.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::Instant;
use clearway_quic::cid::quic_lb::{Config, Server, ServerId};
use clearway_quic::error::ConnectionError;
use clearway_quic::rng::Rng;
use clearway_testing::{Bulk, Setup, World, path};

const LINK: &str = "rate=20M delay=10ms queue=100";

/// A server behind a load balancer in virtual time.
struct Behind {
    world: World,
    cids: Arc<Server>,
    /// The first octets of the destination connection IDs that reached the server in short
    /// headers since this was last cleared, without their low bits.
    codepoints: Rc<RefCell<BTreeSet<u8>>>,
}

fn config(id: u8, nonce_len: usize) -> Config {
    let config = Config::new(id, 2, nonce_len).expect("valid lengths");
    config.with_key(&[id + 1; 16]).expect("a key")
}

fn server_id() -> ServerId {
    ServerId::new(&[0xab, 0xcd]).expect("two bytes")
}

impl Behind {
    fn new(lifetime: Option<Duration>, seed: u64) -> Self {
        let cids = Arc::new(Server::unconfigured(lifetime));
        let mut setup = Setup::new();
        setup.load_balancer = Some(cids.clone());
        let mut this = Self {
            world: World::new(setup, path(LINK, seed), seed),
            cids,
            codepoints: Rc::default(),
        };
        let seen = this.codepoints.clone();
        this.world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
            if direction == Direction::Up && packet.data[0] & 0x80 == 0 {
                seen.borrow_mut().insert(packet.data[1] >> 5);
            }
            true
        }));
        this
    }

    fn configure(&self, config: &Config) {
        let mut rng = Rng::from_seed([config.id(); 32]);
        let done = self.cids.configure(config, server_id(), [], &mut rng);
        done.expect("a valid configuration");
    }

    fn codepoints(&self) -> Vec<u8> {
        std::mem::take(&mut *self.codepoints.borrow_mut())
            .into_iter()
            .collect()
    }

    fn assert_undisturbed(&mut self) {
        let counters = self.world.server.endpoint.counters();
        assert_eq!((counters.resets, counters.dropped), (0, 0));
        let stats = self.world.server.connection().stats(Instant::ZERO);
        assert_eq!(stats.counters.migrations, 0);
        assert_eq!(self.world.client.connection().error(), None);
    }
}

#[test]
fn rotation_to_cids_of_another_length_during_download_loses_nothing() {
    let mut behind = Behind::new(None, 1);
    behind.configure(&config(0, 6));
    behind.world.handshake();
    let mut bulk = Bulk::begin(&mut behind.world);
    assert!(bulk.run_for(&mut behind.world, Duration::from_secs(1)) > 0);
    assert_eq!(behind.codepoints(), [0]);

    behind.configure(&config(1, 17));
    assert!(bulk.run_for(&mut behind.world, Duration::from_secs(1)) > 0);
    assert_eq!(
        behind.codepoints(),
        [0, 1],
        "both lengths during the rotation"
    );
    assert!(bulk.run_for(&mut behind.world, Duration::from_secs(1)) > 0);
    assert_eq!(behind.codepoints(), [1], "the client has replaced all");

    // Shorter again, and a third configuration on top.
    behind.configure(&config(2, 5));
    assert!(bulk.run_for(&mut behind.world, Duration::from_secs(1)) > 0);
    behind.codepoints();
    assert!(bulk.run_for(&mut behind.world, Duration::from_secs(1)) > 0);
    assert_eq!(behind.codepoints(), [2]);
    behind.assert_undisturbed();
}

#[test]
fn cids_are_replaced_after_their_lifetime_when_peer_is_heard() {
    let mut behind = Behind::new(Some(Duration::from_secs(2)), 2);
    behind.configure(&config(3, 6));
    behind.world.handshake();
    behind.world.run_for(Duration::from_secs(1));
    let current = |behind: &mut Behind| {
        let stats = behind.world.server.connection().stats(Instant::ZERO);
        stats.counters.packets_sent
    };
    let before = current(&mut behind);
    behind.world.run_for(Duration::from_secs(9));
    assert_eq!(
        current(&mut behind),
        before,
        "a quiet connection stays quiet"
    );

    let log = Rc::new(RefCell::new(BTreeSet::new()));
    let seen = log.clone();
    let decoder = config(3, 6);
    behind.world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        if direction == Direction::Up && packet.data[0] & 0x80 == 0 {
            let cid = &packet.data[1..1 + decoder.cid_len()];
            assert_eq!(decoder.decode(cid), Some(server_id()));
            seen.borrow_mut().insert(cid.to_vec());
        }
        true
    }));
    for _ in 0..2 {
        behind.world.client.connection().ping();
        behind.world.run_for(Duration::from_secs(1));
    }
    assert_eq!(log.borrow().len(), 2, "the former ID, then its replacement");
    behind.assert_undisturbed();
}

#[test]
fn server_without_configuration_serves_under_unroutable_cid() {
    let mut behind = Behind::new(None, 3);
    behind.world.handshake();
    let mut bulk = Bulk::begin(&mut behind.world);
    assert!(bulk.run_for(&mut behind.world, Duration::from_secs(1)) > 0);
    assert_eq!(behind.codepoints(), [7]);
    // The configuration arrives later.
    behind.configure(&config(4, 12));
    assert!(bulk.run_for(&mut behind.world, Duration::from_secs(1)) > 0);
    behind.codepoints();
    assert!(bulk.run_for(&mut behind.world, Duration::from_secs(1)) > 0);
    assert_eq!(behind.codepoints(), [4]);
    behind.assert_undisturbed();
}

#[test]
fn restarted_server_resets_connections_with_cids_of_both_lengths() {
    for rotate in [false, true] {
        let mut behind = Behind::new(None, 4);
        behind.configure(&config(0, 6));
        behind.world.handshake();
        behind.world.run_for(Duration::from_secs(1));
        if rotate {
            behind.configure(&config(1, 16));
            behind.world.client.connection().ping();
            behind.world.run_for(Duration::from_secs(1));
        }
        behind.world.restart_server(100);
        behind.world.client.connection().ping();
        behind.world.run_for(Duration::from_secs(1));
        let error = behind.world.client.connection().error();
        assert_eq!(error, Some(&ConnectionError::StatelessReset), "{rotate}");
    }
}
