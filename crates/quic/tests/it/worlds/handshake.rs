//! The handshake, with and without Retry and 0-RTT, over a way that loses,
//! reorders, repeats and alters datagrams, and with an attacker who has seen the
//! client's first Initial and answers it with a Version Negotiation or a Retry of
//! their own (RFC 9000 §6, §7, §8.1, §17.2.5).
//!
//! Whole connections run. Whatever the order: nothing panics, the ledgers add up,
//! the server stays within three times what it received until the address is
//! validated, and honest datagrams alone never end the connection.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::cid::ConnectionId;
use clearway_quic::connection::{Connection, ConnectionError};
use clearway_quic::stream::Directionality;
use clearway_quic::testing::{MAX_TOKEN_LEN, retry_tag};

use clearway_testing::explore::{Bounds, ExpectClean, World, explore_by_replay, fingerprint_of};
use clearway_testing::{Filter, Setup, World as Pair, path};

/// Datagrams on their way in one direction; the sender's others are lost.
const IN_FLIGHT: usize = 4;

/// Timers that run out in one sequence.
const TIMEOUTS: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PacketDirection {
    Up,
    Down,
}

impl From<PacketDirection> for Direction {
    fn from(way: PacketDirection) -> Self {
        match way {
            PacketDirection::Up => Self::Up,
            PacketDirection::Down => Self::Down,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Event {
    /// The oldest datagram arrives.
    Arrives(PacketDirection),
    /// The newest overtakes the others.
    Overtakes(PacketDirection),
    /// The oldest arrives, and will again.
    IsRepeated(PacketDirection),
    IsLost(PacketDirection),
    /// One bit of the oldest is flipped.
    IsAltered(PacketDirection),
    /// The next timer runs out.
    Timeout,
    /// The attacker answers the client's first Initial.
    ForgedNegotiation,
    ForgedRetry(usize),
}

type Queue = Rc<RefCell<VecDeque<Packet>>>;

struct Handshake {
    pair: Pair,
    up: Queue,
    down: Queue,
    first: Option<Packet>,
    timeouts: u8,
    forged: u8,
    /// Bytes of the token of a forged Retry.
    forged_token: Option<usize>,
    received: usize,
    sent: Rc<RefCell<usize>>,
}

impl Handshake {
    fn new(retry: bool, early: bool) -> Self {
        let mut setup = Setup::new();
        setup.always_retry = retry;
        setup.client.grease = false;
        setup.server.grease = false;
        setup.client.mtu_discovery = false;
        setup.server.mtu_discovery = false;
        let mut pair = Pair::new(setup, path("rate=100M delay=1ms", 1), 1);
        if early {
            pair.handshake();
            pair.run_for(Duration::from_millis(50));
            let now = pair.now;
            pair.client.connection().close(now, 0, b"");
            pair.run_for(Duration::from_secs(2));
            pair.client.connections.clear();
            pair.server.connections.clear();
        }
        let (up, down, sent) = (Queue::default(), Queue::default(), Rc::default());
        pair.filter = Some(filter(&up, &down, &sent));
        pair.connect();
        if early && let Some(id) = pair.client.connection().open(Directionality::Bidirectional) {
            let client = pair.client.connection();
            client.write(id, b"early").expect("an open stream");
            client.finish(id).expect("an open stream");
        }
        pair.flush();
        let first = up.borrow().front().cloned();
        Self {
            pair,
            up,
            down,
            first,
            timeouts: 0,
            forged: 0,
            forged_token: None,
            received: 0,
            sent,
        }
    }

    fn queue(&self, way: PacketDirection) -> &Queue {
        match way {
            PacketDirection::Up => &self.up,
            PacketDirection::Down => &self.down,
        }
    }

    fn deliver(&mut self, way: PacketDirection, packet: Option<Packet>) {
        let Some(packet) = packet else { return };
        if way == PacketDirection::Up {
            self.received += packet.data.len();
        }
        self.pair.deliver(way.into(), packet);
        self.pair.flush();
    }

    /// Connection IDs of the client's first Initial: its choice for the server, its own.
    fn first_ids(&self) -> Option<(Vec<u8>, Vec<u8>, Packet)> {
        let first = self.first.clone()?;
        let len = usize::from(first.data[5]);
        let dcid = first.data[6..6 + len].to_vec();
        let at = 6 + len;
        let scid = first.data[at + 1..at + 1 + usize::from(first.data[at])].to_vec();
        Some((dcid, scid, first))
    }

    /// A long header of `first` and `version`, from the attacker to the client.
    fn forge(&mut self, first: u8, version: u32, retry_token: Option<usize>) {
        let Some((original, client, packet)) = self.first_ids() else {
            return;
        };
        let mut data = vec![first];
        data.extend_from_slice(&version.to_be_bytes());
        data.push(client.len() as u8);
        data.extend_from_slice(&client);
        match retry_token {
            None => {
                data.push(original.len() as u8);
                data.extend_from_slice(&original);
                data.extend_from_slice(&0x0a0a_0a0a_u32.to_be_bytes());
            }
            Some(len) => {
                data.push(8);
                data.extend_from_slice(&[0xee; 8]);
                data.extend(std::iter::repeat_n(0x77, len));
                let original = ConnectionId::new(&original).expect("an ID");
                let tag = retry_tag(&original, &data);
                data.extend_from_slice(&tag);
            }
        }
        self.deliver(
            PacketDirection::Down,
            Some(Packet::new(packet.dst, packet.src, data)),
        );
    }
}

fn filter(up: &Queue, down: &Queue, sent: &Rc<RefCell<usize>>) -> Filter {
    let (up, down, sent) = (up.clone(), down.clone(), sent.clone());
    Box::new(move |direction, packet| {
        let queue = match direction {
            Direction::Up => &up,
            Direction::Down => {
                *sent.borrow_mut() += packet.data.len();
                &down
            }
        };
        let mut queue = queue.borrow_mut();
        if queue.len() < IN_FLIGHT {
            queue.push_back(packet.clone());
        }
        false
    })
}

impl World for Handshake {
    type Event = Event;

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for way in [PacketDirection::Up, PacketDirection::Down] {
            let waiting = self.queue(way).borrow().len();
            if waiting > 0 {
                events.extend([
                    Event::Arrives(way),
                    Event::IsRepeated(way),
                    Event::IsLost(way),
                    Event::IsAltered(way),
                ]);
            }
            if waiting > 1 {
                events.push(Event::Overtakes(way));
            }
        }
        if self.timeouts < TIMEOUTS {
            events.push(Event::Timeout);
        }
        if self.forged == 0 {
            events.extend([
                Event::ForgedNegotiation,
                Event::ForgedRetry(1),
                Event::ForgedRetry(1170),
                Event::ForgedRetry(1400),
            ]);
        }
        events
    }

    fn apply(&mut self, event: &Event) {
        match *event {
            Event::Arrives(way) => {
                let packet = self.queue(way).borrow_mut().pop_front();
                self.deliver(way, packet);
            }
            Event::Overtakes(way) => {
                let packet = self.queue(way).borrow_mut().pop_back();
                self.deliver(way, packet);
            }
            Event::IsRepeated(way) => {
                let packet = self.queue(way).borrow().front().cloned();
                self.deliver(way, packet);
            }
            Event::IsLost(way) => {
                self.queue(way).borrow_mut().pop_front();
            }
            Event::IsAltered(way) => {
                let packet = self.queue(way).borrow_mut().pop_front();
                let packet = packet.map(|mut packet| {
                    let middle = packet.data.len() / 2;
                    packet.data[middle] ^= 1;
                    packet
                });
                self.deliver(way, packet);
            }
            Event::Timeout => {
                self.timeouts += 1;
                self.pair.step();
                self.pair.flush();
            }
            Event::ForgedNegotiation => {
                self.forged = 1;
                self.forge(0xc0, 0, None);
            }
            Event::ForgedRetry(len) => {
                self.forged = 2;
                self.forged_token = Some(len);
                self.forge(0xf0, 1, Some(len));
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        for host in [&self.pair.client, &self.pair.server] {
            for connection in host.connections.values() {
                connection.check_invariants();
            }
        }
        for connection in self.pair.client.connections.values() {
            match connection.error() {
                None => {}
                Some(ConnectionError::HandshakeTimeout) if self.timeouts > 0 => {}
                // Nothing authenticates a Version Negotiation that comes first.
                Some(ConnectionError::VersionMismatch) if self.forged == 1 => {}
                // A Retry that the server never sent shows in its transport
                // parameters, or in a token that it refuses (RFC 9000 §7.3, §8.1.3).
                Some(_) if self.forged == 2 => {}
                Some(error) => return Err(format!("the client gives up: {error}")),
            }
        }
        for connection in self.pair.server.connections.values() {
            match connection.error() {
                None => {}
                Some(_) if self.forged > 0 => {}
                // Half a ClientHello is not waited for.
                Some(ConnectionError::HandshakeTimeout) if self.timeouts > 0 => {}
                Some(error) => return Err(format!("the server gives up: {error}")),
            }
        }
        // A token that no Initial can carry would silence the client for ever.
        let oversized = self.forged_token.is_some_and(|len| len > MAX_TOKEN_LEN);
        let retried = |client: &Connection| client.retried();
        if oversized
            && !self.pair.setup.always_retry
            && self.pair.client.connections.values().any(retried)
        {
            return Err("the client takes a Retry whose token fits no Initial".into());
        }
        // Without Retry nothing is validated before the client's Handshake packet.
        let validated = self
            .pair
            .server
            .connections
            .values()
            .any(|server| !server.is_handshaking());
        let (sent, received) = (*self.sent.borrow(), self.received);
        if !validated && !self.pair.setup.always_retry && sent > 3 * received {
            return Err(format!(
                "{sent} bytes for {received} to an unvalidated address"
            ));
        }
        Ok(())
    }

    fn fingerprint(&self) -> Vec<u8> {
        let lens = |queue: &Queue| -> Vec<(usize, u8)> {
            let queue = queue.borrow();
            queue
                .iter()
                .map(|p| (p.data.len(), kind_of(p.data[0])))
                .collect()
        };
        let ends: Vec<_> = [&self.pair.client, &self.pair.server]
            .into_iter()
            .flat_map(|host| host.connections.values())
            .map(|connection| {
                let stats = connection.stats(self.pair.now);
                let life = (
                    connection.is_handshaking(),
                    connection.is_confirmed(),
                    connection.error().map(ToString::to_string),
                    connection.has_zero_rtt(),
                );
                let timer = connection
                    .next_timeout()
                    .map(|at| at.as_nanos().saturating_sub(self.pair.now.as_nanos()));
                (life, timer, stats.in_flight)
            })
            .collect();
        fingerprint_of(&(
            ends,
            lens(&self.up),
            lens(&self.down),
            (
                self.timeouts,
                self.forged,
                self.received,
                *self.sent.borrow(),
            ),
        ))
    }
}

/// The bits of a first byte that no key protects.
fn kind_of(first: u8) -> u8 {
    match first & 0x80 {
        0 => first & 0xc0,
        _ => first & 0xf0,
    }
}

fn depth() -> Bounds {
    Bounds::to_depth(if cfg!(debug_assertions) { 5 } else { 6 })
}

#[test]
fn any_order_of_datagrams_completes_handshake() {
    explore_by_replay("handshake", || Handshake::new(false, false), depth()).expect_clean();
}

#[test]
fn any_order_of_datagrams_completes_handshake_with_retry() {
    explore_by_replay(
        "handshake with Retry",
        || Handshake::new(true, false),
        depth(),
    )
    .expect_clean();
}

#[test]
fn any_order_of_datagrams_completes_resumption_with_early_data() {
    let bounds = depth();
    let bounds = Bounds {
        depth: bounds.depth - 1,
        ..bounds
    };
    explore_by_replay(
        "handshake with 0-RTT",
        || Handshake::new(false, true),
        bounds,
    )
    .expect_clean();
}
