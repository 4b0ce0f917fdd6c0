//! Paths under attack: addresses that flap, copies from elsewhere, addresses of
//! somebody else (RFC 9000 §8.2, §9, §21.5).

use std::net::SocketAddr;
use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::Role;
use clearway_quic::connection::Forgery;
use clearway_quic::wire::PacketKind;

use crate::hostile::duel::Duel;

const PING: &[u8] = &[0x01];

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

impl Duel {
    /// A 1-RTT packet of the client's with these frames arrives from `source`.
    fn say_from(&mut self, source: SocketAddr, payload: &[u8]) {
        let packet = self.forge(&Forgery::new(PacketKind::OneRtt, payload));
        let to = self.world.server.address;
        self.world
            .deliver(Direction::Up, Packet::new(source, to, packet));
    }

    /// Nothing reaches `address` any more.
    fn cut_off(&mut self, address: SocketAddr) {
        self.world.filter = Some(Box::new(move |_, packet: &mut Packet| {
            packet.dst != address
        }));
    }
}

/// A NAT that alternates between two addresses, of which one hears nothing.
#[test]
fn a_source_address_that_flaps_keeps_the_connection() {
    let mut duel = Duel::new(Role::Client);
    let (home, other) = (duel.world.client.address, address("10.9.9.9:9"));
    duel.cut_off(other);
    for pause in [0, 1, 10, 300, 1_000, 4_000, 7_000] {
        for source in [other, home, other, home] {
            duel.say_from(source, PING);
            duel.world.run_for(Duration::from_millis(pause));
        }
    }
    duel.world.run_for(Duration::from_secs(10));
    assert_eq!(duel.victim().remote_address(), home);
    duel.still_serves();
}
