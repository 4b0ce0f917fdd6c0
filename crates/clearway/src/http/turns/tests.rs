//! Tests of the turns of connections.

use std::sync::atomic::AtomicUsize;

use super::*;

/// What each poll takes.
const POLL: Duration = Duration::from_micros(30);

const POLLS: usize = (QUANTUM_NANOS as u128 / POLL.as_nanos()) as usize;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}

fn turns() -> Arc<Turns> {
    Clock::set(Instant::ZERO);
    Clock::set_step(POLL);
    Turns::new(Clock::manual())
}

/// A task that wants to be polled again at once, and counts how often it was.
async fn busy(polls: Arc<AtomicUsize>, times: usize) {
    for _ in 0..times {
        polls.fetch_add(1, Ordering::Relaxed);
        let mut again = true;
        poll_fn(|cx| {
            if mem::take(&mut again) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }
}

fn spawn(account: &Arc<Account>, tasks: usize, times: usize) -> Arc<AtomicUsize> {
    let polls = Arc::new(AtomicUsize::new(0));
    for _ in 0..tasks {
        tokio::spawn(InTurn::new(account.clone(), busy(polls.clone(), times)));
    }
    polls
}

#[test]
fn single_request_does_not_wait_for_a_hundred_of_another_connection() {
    runtime().block_on(async {
        let turns = turns();
        let crowd = spawn(&Account::new(turns.clone()), 100, 1_000);
        let newcomer = Account::new(turns);
        let answered = tokio::spawn(InTurn::new(newcomer, async {}));
        answered.await.unwrap();
        let polls = crowd.load(Ordering::Relaxed);
        assert!((1..=POLLS).contains(&polls), "{polls} polls");
    });
}

#[test]
fn connections_get_equal_time_however_many_tasks_they_have() {
    runtime().block_on(async {
        let turns = turns();
        let many = spawn(&Account::new(turns.clone()), 100, 1_000);
        let few = spawn(&Account::new(turns.clone()), 2, 100_000);
        let one = spawn(&Account::new(turns), 1, 100_000);
        for _ in 0..1_000_000 {
            if one.load(Ordering::Relaxed) >= 5_000 {
                break;
            }
            tokio::task::yield_now().await;
        }
        let polls = one.load(Ordering::Relaxed);
        assert!(polls >= 5_000, "{polls} polls");
        for other in [many, few] {
            let polls = other.load(Ordering::Relaxed);
            assert!(polls.abs_diff(5_000) <= 2 * POLLS, "{polls} polls");
        }
    });
}

#[test]
fn every_task_ends_however_much_it_uses() {
    for workers in [1, 2] {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .build()
            .unwrap();
        runtime.block_on(async {
            // Real time: what a poll takes does not matter here.
            let turns = Turns::new(Clock::start());
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..20 {
                let account = Account::new(turns.clone());
                for _ in 0..20 {
                    let work = async {
                        for _ in 0..20 {
                            std::hint::black_box((0..5_000_u64).map(|n| n ^ 5).sum::<u64>());
                            tokio::task::yield_now().await;
                        }
                    };
                    tasks.spawn(InTurn::new(account.clone(), work));
                }
            }
            tasks.join_all().await;
            // The task that gives out turns may still be finding out that nobody waits.
            let is_empty = || lock(&turns.queue).waiting.is_empty();
            for _ in 0..100_000 {
                if is_empty() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            assert!(is_empty());
        });
    }
}

#[test]
fn tasks_do_not_wait_for_a_runtime_that_has_ended() {
    let turns = turns();
    let account = Account::new(turns.clone());
    let ended = runtime();
    // It ends with a task that gives out turns, and never will.
    ended.block_on(async {
        let _ = spawn(&account, 2, 2 * POLLS);
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
            if !lock(&turns.queue).waiting.is_empty() {
                return;
            }
        }
        panic!("no connection waits");
    });
    let runtime = runtime();
    let waiting = runtime.spawn(InTurn::new(account.clone(), async {}));
    runtime.block_on(tokio::task::yield_now());
    assert!(!waiting.is_finished());
    drop(ended);
    for _ in 0..1_000 {
        runtime.block_on(tokio::task::yield_now());
    }
    assert!(waiting.is_finished());
}

#[test]
fn debt_is_paid_by_rounds_and_bounded() {
    let turns = turns();
    let account = Account::new(turns.clone());
    account.charge(POLL, Instant::ZERO);
    assert!(account.has_quantum());
    for _ in 0..100 {
        account.charge(Duration::from_secs(100), Instant::ZERO);
    }
    for _ in 0..8 {
        assert!(!account.has_quantum());
        turns.round.fetch_add(1, Ordering::Relaxed);
    }
    assert!(account.has_quantum());
    // A thread that has not seen the last round yet pays nothing back.
    let owed = account.owed();
    assert_eq!(owed.in_round(owed.round.wrapping_sub(1)), owed);
}

#[test]
fn connection_that_has_used_little_lately_is_not_delayed() {
    let turns = turns();
    Clock::set_step(Duration::ZERO);
    let account = Account::new(turns.clone());
    let after = |epochs: u64| Instant::from_nanos(epochs << EPOCH_BITS);
    let use_quanta = |count, now| {
        for _ in 0..count {
            account.charge(POLL * 10, now);
        }
    };
    // A new one is, once it has used its quantum.
    use_quanta(3, after(0));
    assert!(!account.may_go_on());
    Clock::set(after(3));
    assert!(account.may_go_on() && !account.has_quantum());
    // A download of some MiB does not change that, one that never ends does.
    use_quanta(4, after(3));
    assert!(account.may_go_on() && !account.has_quantum());
    use_quanta(10, after(3));
    assert!(!account.may_go_on());
    Clock::set(after(5));
    assert!(account.may_go_on());
}
