//! Tests of the scheduler of turns.

use super::*;

const TENTH: Duration = Duration::from_micros(30);

/// Connections with a turn each, numbered.
struct Loop {
    scheduler: Scheduler,
    accounts: Vec<TimeAccount>,
}

impl Loop {
    fn new(connections: usize) -> Self {
        Self {
            scheduler: Scheduler::default(),
            accounts: vec![TimeAccount::default(); connections],
        }
    }

    fn push(&mut self, n: usize) {
        self.scheduler
            .push(ConnectionHandle(n as u64), &mut self.accounts[n]);
    }

    fn charge(&mut self, n: usize, time: Duration, moved: u64) {
        self.scheduler.charge(&mut self.accounts[n], time, moved);
    }

    fn should_wait(&mut self, n: usize, pressure: Pressure) -> bool {
        self.scheduler.should_wait(&mut self.accounts[n], pressure)
    }

    fn due(&mut self, handle: ConnectionHandle) -> Due {
        let n = handle.0 as usize;
        self.scheduler.check_due(handle, &mut self.accounts[n])
    }

    /// Serves whose turn it is for `time` and has it wait for another.
    fn serve_round(&mut self, time: Duration) -> usize {
        loop {
            let handle = self.scheduler.pop_round().expect("somebody waits");
            if self.due(handle) == Due::Now {
                let n = handle.0 as usize;
                self.charge(n, time, 0);
                self.push(n);
                return n;
            }
        }
    }
}

#[test]
fn connection_over_its_quantum_waits_for_the_next_round() {
    let mut event_loop = Loop::new(2);
    event_loop.charge(0, TENTH * 9, 0);
    event_loop.push(0);
    event_loop.charge(1, TENTH * 10, 0);
    event_loop.push(1);
    assert_eq!(
        (
            event_loop.scheduler.prompt(),
            event_loop.scheduler.waiting()
        ),
        (1, 1)
    );
    // What it uses while it is queued counts.
    event_loop.charge(0, TENTH, 0);
    let handle = event_loop.scheduler.pop_prompt().unwrap();
    assert_eq!(event_loop.due(handle), Due::Later);
    assert_eq!(
        (
            event_loop.scheduler.prompt(),
            event_loop.scheduler.waiting()
        ),
        (0, 2)
    );
}

#[test]
fn single_connection_never_waits() {
    let mut event_loop = Loop::new(1);
    for _ in 0..100 {
        event_loop.charge(0, TENTH * 10, 0);
        assert!(!event_loop.should_wait(0, Pressure::Drained));
        assert!(event_loop.should_wait(0, Pressure::MoreWaits));
        event_loop.push(0);
        let handle = event_loop
            .scheduler
            .pop_prompt()
            .or_else(|| event_loop.scheduler.pop_round());
        assert_eq!(event_loop.due(handle.unwrap()), Due::Now);
    }
}

#[test]
fn waiting_connections_get_equal_time_whatever_a_turn_costs() {
    let mut event_loop = Loop::new(3);
    let costs = [TENTH, TENTH * 5, TENTH * 10];
    for n in 0..3 {
        event_loop.charge(n, TENTH * 10, 0);
        event_loop.push(n);
    }
    let mut used = [Duration::ZERO; 3];
    for _ in 0..3_000 {
        // A connection within its quantum is in the other queue.
        let Some(handle) = event_loop
            .scheduler
            .pop_prompt()
            .or_else(|| event_loop.scheduler.pop_round())
        else {
            panic!("nobody waits");
        };
        if event_loop.due(handle) == Due::Now {
            let n = handle.0 as usize;
            event_loop.charge(n, costs[n], 0);
            used[n] += costs[n];
            event_loop.push(n);
        }
    }
    let most = used.iter().max().unwrap();
    let least = used.iter().min().unwrap();
    assert!(*most - *least <= 2 * QUANTUM, "{used:?}");
}

#[test]
fn quantum_is_restored_each_round() {
    let mut event_loop = Loop::new(3);
    for n in 0..2 {
        event_loop.charge(n, TENTH * 10, 0);
        event_loop.push(n);
    }
    event_loop.charge(2, TENTH * 10, 0);
    assert!(event_loop.should_wait(2, Pressure::Drained));
    event_loop.serve_round(TENTH * 10);
    event_loop.serve_round(TENTH * 10);
    event_loop.serve_round(TENTH * 10);
    assert!(!event_loop.should_wait(2, Pressure::Drained));
}

#[test]
fn round_ends_when_no_connection_waits() {
    let mut event_loop = Loop::new(2);
    event_loop.charge(0, TENTH * 10, 0);
    event_loop.scheduler.end_round_if_idle();
    event_loop.push(1);
    assert!(!event_loop.should_wait(0, Pressure::Drained));
}

#[test]
fn stream_data_pays_for_all_but_an_eighth_of_the_time() {
    let mut event_loop = Loop::new(2);
    event_loop.push(1);
    let enough = BYTES_PER_MICROSECOND * 30;
    // It is not favored any more.
    let recent = MAX_RECENT_OF_FAVORED / QUANTUM_NANOS + 1;
    for _ in 0..recent {
        event_loop.charge(0, QUANTUM, enough * 10);
        event_loop.scheduler.begin_round();
    }
    for _ in 0..79 {
        event_loop.charge(0, TENTH, enough);
    }
    assert!(!event_loop.should_wait(0, Pressure::Drained));
    event_loop.charge(0, TENTH, enough);
    event_loop.charge(0, TENTH, enough);
    assert!(event_loop.should_wait(0, Pressure::Drained));
}

#[test]
fn connection_that_asks_for_four_kilobytes_at_a_time_stays_favored_although_its_turns_are_interrupted()
 {
    let mut event_loop = Loop::new(1);
    event_loop.accounts[0] = TimeAccount::favored();
    for request in 0..1_000 {
        // A request and its response, an acknowledgement, and now and then another program.
        let interrupted = request % 10 == 0;
        let time = if interrupted { QUANTUM } else { TENTH * 5 };
        event_loop.charge(0, time, 4 << 10);
        event_loop.charge(0, TENTH, 0);
        event_loop.push(0);
        assert_eq!(
            event_loop.scheduler.pop_favored(),
            Some(ConnectionHandle(0))
        );
        event_loop.due(ConnectionHandle(0));
        event_loop.scheduler.epoch += 1;
    }
}

#[test]
fn connection_whose_data_pays_goes_before_those_within_their_quantum() {
    let mut event_loop = Loop::new(4);
    event_loop.push(0);
    event_loop.accounts[1] = TimeAccount::favored();
    event_loop.push(1);
    // Ten times its quantum, all of which its data has paid.
    for _ in 0..10 {
        event_loop.charge(2, QUANTUM, 1 << 20);
    }
    event_loop.push(2);
    event_loop.charge(3, QUANTUM, 0);
    event_loop.push(3);
    let scheduler = &mut event_loop.scheduler;
    let favored: Vec<_> = std::iter::from_fn(|| scheduler.pop_favored()).collect();
    let prompt: Vec<_> = std::iter::from_fn(|| scheduler.pop_prompt()).collect();
    let round: Vec<_> = std::iter::from_fn(|| scheduler.pop_round()).collect();
    let queues = [favored, prompt, round].map(|queue| {
        let numbers: Vec<u64> = queue.iter().map(|handle| handle.0).collect();
        numbers
    });
    assert_eq!(queues, [vec![1, 2], vec![0], vec![3]]);
    // Others do not delay what arrives for it.
    assert!(!event_loop.should_wait(2, Pressure::Overrun));
}

#[test]
fn favored_connections_that_have_used_least_lately_go_first() {
    let mut event_loop = Loop::new(3);
    let turns = LEVEL / QUANTUM_NANOS + 1;
    // A download that never ends, one that has used less, and one that begins.
    for (n, turns) in [(0, 3 * turns), (1, turns), (2, 1)] {
        for _ in 0..turns {
            event_loop.charge(n, QUANTUM, 1 << 20);
        }
        event_loop.push(n);
    }
    let order: Vec<_> = std::iter::from_fn(|| event_loop.scheduler.pop_favored()).collect();
    assert_eq!(order, [2, 1, 0].map(ConnectionHandle));
}

#[test]
fn new_connection_from_a_source_of_many_is_not_favored_until_it_has_waited_or_transferred() {
    let mut event_loop = Loop::new(2);
    event_loop.scheduler.set_time(Instant::from_nanos(u64::MAX));
    event_loop.accounts[0] = event_loop.scheduler.account(true);
    event_loop.accounts[1] = event_loop.scheduler.account(false);
    let favored = |event_loop: &mut Loop, n: usize| {
        event_loop.scheduler.is_favored(&mut event_loop.accounts[n])
    };
    assert!(!favored(&mut event_loop, 0));
    assert!(favored(&mut event_loop, 1));
    // Data alone does not help at once.
    event_loop.charge(0, TENTH, 1 << 20);
    assert!(!favored(&mut event_loop, 0));
    event_loop
        .scheduler
        .set_time(Instant::from_nanos(1 << EPOCH_BITS));
    assert!(favored(&mut event_loop, 0));
}

#[test]
fn credit_of_a_new_connection_is_used_up_by_work_without_data() {
    let mut event_loop = Loop::new(2);
    event_loop.accounts[0] = TimeAccount::favored();
    event_loop.push(1);
    let mut turns = 0;
    while !event_loop.should_wait(0, Pressure::Overrun) {
        event_loop.charge(0, TENTH, 0);
        turns += 1;
    }
    let used = TENTH * turns;
    assert!((MAX_CREDIT..2 * MAX_CREDIT).contains(&(used.as_nanos() as u32)));
    // Time brings none back.
    event_loop.scheduler.set_time(Instant::from_nanos(u64::MAX));
    assert!(event_loop.should_wait(0, Pressure::Overrun));
}

#[test]
fn connection_that_takes_more_than_its_share_is_not_favored_until_it_has_paused() {
    let mut event_loop = Loop::new(1);
    let favored =
        |event_loop: &mut Loop| event_loop.scheduler.is_favored(&mut event_loop.accounts[0]);
    for _ in 0..MAX_RECENT_OF_FAVORED / QUANTUM_NANOS {
        assert!(favored(&mut event_loop) || event_loop.accounts[0].credit == 0);
        event_loop.charge(0, QUANTUM, 1 << 20);
    }
    event_loop.charge(0, QUANTUM, 1 << 20);
    assert!(!favored(&mut event_loop));
    event_loop
        .scheduler
        .set_time(Instant::from_nanos(1 << EPOCH_BITS));
    assert!(favored(&mut event_loop));
}

#[test]
fn only_connections_without_credit_wait_for_an_overrun_socket() {
    let mut event_loop = Loop::new(3);
    event_loop.push(1);
    assert!(!event_loop.should_wait(0, Pressure::Drained));
    assert!(!event_loop.should_wait(0, Pressure::MoreWaits));
    assert!(event_loop.should_wait(0, Pressure::Overrun));
    event_loop.charge(2, TENTH, 1 << 20);
    assert!(!event_loop.should_wait(2, Pressure::Overrun));
    // A single connection does not wait for itself.
    let mut alone = Loop::new(1);
    alone.push(0);
    assert!(!alone.should_wait(0, Pressure::Overrun));
}

#[test]
fn long_turn_is_charged_at_most_a_quantum() {
    let mut event_loop = Loop::new(2);
    event_loop.push(1);
    event_loop.charge(0, Duration::from_secs(100), 0);
    event_loop.charge(0, Duration::from_secs(100), 0);
    event_loop.scheduler.end_round_if_idle();
    assert!(event_loop.should_wait(0, Pressure::Drained));
    event_loop.scheduler.end_round_if_idle();
    assert!(!event_loop.should_wait(0, Pressure::Drained));
}
