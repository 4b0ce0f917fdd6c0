//! A flood on one connection delays another only a little, however long each step takes.

use std::time::Duration;

use super::{Scope, Shard};
use crate::connection::Stage;
use crate::shard::Clock;

/// How far each read of the clock advances it: the cost of an expensive packet.
const STEP: Duration = Duration::from_micros(100);

/// Datagrams of the flood.
const FLOOD: usize = 250;

impl Shard {
    /// Puts what a client sends now into the socket, `times` times.
    fn send(&mut self, n: usize, times: usize) {
        let peer = &mut self.peers[n];
        peer.write();
        let from = peer.address;
        let datagrams = peer.flush(self.now);
        let [datagram] = &datagrams[..] else {
            panic!("{} datagrams", datagrams.len());
        };
        let copies = std::iter::repeat_n((from, datagram.clone()), times);
        self.socket.queues().arrived.extend(copies);
        self.signal_readable();
    }

    /// Returns the packets that each connection of the server has received.
    fn received(&self) -> Vec<u64> {
        let driver = self.driver.as_ref().expect("runs");
        let mut entries: Vec<_> = driver.shard.table.iter().collect();
        entries.sort_by_key(|(handle, _)| **handle);
        let received = |shared: &crate::connection::ConnectionShared| {
            shared.with_state(Stage::Call, |state| {
                let counters = state.quic.stats(self.now).counters;
                counters.packets_received + counters.packets_dropped
            })
        };
        let all = entries.iter().map(|(_, entry)| received(&entry.shared));
        all.map(|count| count.expect("alive")).collect()
    }
}

#[test]
fn datagram_behind_a_flood_of_another_connection_is_received_before_the_flood_ends() {
    let mut shard = Shard::new(&Scope::new(2, |_| true));
    let before = shard.received();
    shard.send(0, FLOOD);
    shard.send(1, 1);
    let mut driver = shard.driver.take().expect("runs");
    Clock::set(shard.now);
    Clock::set_step(STEP);
    let mut turns = 0;
    let mut more = true;
    let (mut flood, mut other) = (0, 0);
    while other == 0 && more {
        more = driver.turn().expect("the loop goes on");
        turns += 1;
        shard.driver = Some(driver);
        let received = shard.received();
        (flood, other) = (received[0] - before[0], received[1] - before[1]);
        driver = shard.driver.take().expect("runs");
    }
    // The rest of the flood is received too.
    while more {
        more = driver.turn().expect("the loop goes on");
    }
    Clock::set_step(Duration::ZERO);
    shard.driver = Some(driver);
    assert_eq!(other, 1, "after {turns} turns");
    assert!(
        flood <= FLOOD as u64 / 2,
        "{flood} datagrams of the flood before it"
    );
    assert_eq!(shard.received()[0] - before[0], FLOOD as u64);
}

/// Connections that cause work without data.
const CROWD: usize = 30;

/// Datagrams of each.
const EACH: usize = 4;

#[test]
fn datagram_of_a_favored_connection_overtakes_those_of_many_within_their_quantum() {
    let mut shard = Shard::new(&Scope::new(CROWD + 1, |_| true));
    let before = shard.received();
    let mut driver = shard.driver.take().expect("runs");
    let mut handles: Vec<_> = driver.shard.table.keys().copied().collect();
    handles.sort();
    for handle in &handles[..CROWD] {
        let entry = driver.shard.table.get_mut(handle).expect("known");
        entry.account = super::super::scheduler::TimeAccount::default();
    }
    shard.driver = Some(driver);
    for n in 0..CROWD {
        shard.send(n, EACH);
    }
    shard.send(CROWD, 1);
    let mut driver = shard.driver.take().expect("runs");
    Clock::set(shard.now);
    Clock::set_step(STEP);
    let (mut crowd, mut favored, mut more) = (0, 0, true);
    while favored == 0 && more {
        more = driver.turn().expect("the loop goes on");
        shard.driver = Some(driver);
        let received = shard.received();
        let new = received.iter().zip(&before).map(|(now, then)| now - then);
        let new: Vec<u64> = new.collect();
        (crowd, favored) = (new[..CROWD].iter().sum(), new[CROWD]);
        driver = shard.driver.take().expect("runs");
    }
    while more {
        more = driver.turn().expect("the loop goes on");
    }
    Clock::set_step(Duration::ZERO);
    shard.driver = Some(driver);
    assert_eq!(favored, 1);
    assert!(
        crowd <= (CROWD * EACH / 2) as u64,
        "{crowd} datagrams of the others before it"
    );
    let after = shard.received();
    let received = after.iter().zip(&before).map(|(now, then)| now - then);
    assert_eq!(received.sum::<u64>(), (CROWD * EACH + 1) as u64);
}

/// Datagrams that several turns would receive: more than one turn does without a queue.
const QUEUE: usize = 300;

#[test]
fn queue_that_a_turn_does_not_empty_is_emptied_by_the_next() {
    let mut shard = Shard::new(&Scope::new(1, |_| true));
    let before = shard.received()[0];
    shard.send(0, QUEUE);
    Clock::set(shard.now);
    let mut received = Vec::new();
    for _ in 0..2 {
        let mut driver = shard.driver.take().expect("runs");
        driver.turn().expect("the loop goes on");
        shard.driver = Some(driver);
        received.push(shard.received()[0] - before);
    }
    assert!(received[0] < QUEUE as u64, "{received:?}");
    assert_eq!(received[1], QUEUE as u64, "{received:?}");
}
