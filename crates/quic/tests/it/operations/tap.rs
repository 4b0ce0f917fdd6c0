//! An attacker on the path who sees the client's datagrams and sends copies of them from other addresses.
//! Without keys, this must not end the connection.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use clearway_links::{Direction, Packet};

use clearway_testing::World;

/// Datagrams that can be replayed: the newest.
const KEPT: usize = 64;

#[derive(Debug, Default)]
struct TapState {
    kept: VecDeque<Packet>,
    /// So many of the next datagrams are copied, as if from there.
    copying: (u8, u8),
    copies: Vec<Packet>,
}

/// What the third party has seen and is about to send.
#[derive(Clone, Debug, Default)]
pub(super) struct Tap(Rc<RefCell<TapState>>);

impl Tap {
    /// Listens to what the client sends.
    pub(super) fn install(&self, world: &mut World) {
        let seen = self.0.clone();
        world.filter = Some(Box::new(move |direction, packet| {
            if direction == Direction::Up {
                seen.borrow_mut().see(packet);
            }
            true
        }));
    }

    /// Copies the next `count` datagrams.
    pub(super) fn copy(&self, count: u8, from: u8) {
        self.0.borrow_mut().copying = (count, from);
    }

    /// Sends an earlier datagram again.
    pub(super) fn replay(&self, which: usize, from: u8) {
        let mut seen = self.0.borrow_mut();
        let packet = seen.kept.get(which).cloned();
        let copies = packet.map(|packet| disguised(packet, from));
        seen.copies.extend(copies);
    }

    /// Delivers what is to be sent: it overtakes whatever is on its way.
    pub(super) fn deliver(&self, world: &mut World) {
        // Taken first: delivery may make the client send, which is seen again.
        let copies = std::mem::take(&mut self.0.borrow_mut().copies);
        for packet in copies {
            world.deliver(Direction::Up, packet);
        }
    }
}

impl TapState {
    fn see(&mut self, packet: &Packet) {
        if self.copying.0 > 0 {
            self.copying.0 -= 1;
            self.copies.push(disguised(packet.clone(), self.copying.1));
        }
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(packet.clone());
    }
}

fn disguised(mut packet: Packet, from: u8) -> Packet {
    packet.src = SocketAddr::from(([198, 51, 100, 1 + from], 9000));
    packet
}
