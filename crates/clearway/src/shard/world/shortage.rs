//! Who is closed while memory is short.

use std::time::Duration;

use super::{BUDGET, Scope, Shard};
use crate::shard::Clock;

/// Longer than an active connection pauses.
const PAUSE: Duration = Duration::from_secs(3);

impl Shard {
    /// Returns what others have to use so that only idle connections are to be closed.
    fn nearly_all(&self) -> usize {
        BUDGET - BUDGET / 32 - self.link.budget.used()
    }

    /// Has others use so much of the budget that only idle connections are to be closed.
    fn use_nearly_all(&mut self) {
        let others = self.nearly_all();
        self.link.budget.change(0, others);
        self.link.wake();
        self.settle();
        self.link.budget.change(others, 0);
    }

    /// Has a client send some stream data.
    fn send_some(&mut self, n: usize) {
        self.peers[n].write();
        self.receive_all(n);
    }

    fn is_alive(&mut self, n: usize) -> bool {
        let now = self.now;
        self.peers[n].receive_all(now, super::SERVER);
        self.peers[n].connection.error().is_none()
    }
}

#[test]
fn idle_connection_is_closed_before_the_budget_is_exceeded_and_an_active_one_is_not() {
    let mut shard = Shard::new(&Scope::new(2, |_| true));
    shard.send_some(0);
    shard.send_some(1);
    shard.use_nearly_all();
    assert!(shard.is_alive(0) && shard.is_alive(1));

    shard.now += PAUSE;
    shard.send_some(1);
    shard.use_nearly_all();
    assert!(!shard.is_alive(0) && shard.is_alive(1));
}

/// More idle connections than are closed in one turn.
const IDLE: usize = 10;

/// Most that are: each takes some time, in which everybody else waits.
const CLOSED_PER_TURN: usize = 4;

#[test]
fn few_idle_connections_are_closed_in_each_turn() {
    let mut shard = Shard::new(&Scope::new(IDLE, |_| true));
    shard.now += PAUSE;
    Clock::set(shard.now);
    let others = shard.nearly_all();
    shard.link.budget.change(0, others);
    let (mut closed, mut turns) = (0, 0);
    while closed < IDLE {
        let driver = shard.driver.as_mut().expect("runs");
        driver.turn().expect("the loop goes on");
        shard.sort_sent();
        let before = closed;
        closed = (0..IDLE).filter(|n| !shard.is_alive(*n)).count();
        assert!(
            closed <= before + CLOSED_PER_TURN,
            "{before}, then {closed}"
        );
        turns += 1;
        assert!(turns < 20, "{closed} of {IDLE} were closed");
    }
    shard.link.budget.change(others, 0);
}
