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
        let crowd = spawn(&Account::new(turns.clone(), 1), 100, 1_000);
        let newcomer = Account::new(turns, 1);
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
        let many = spawn(&Account::new(turns.clone(), 1), 100, 1_000);
        let few = spawn(&Account::new(turns.clone(), 1), 2, 100_000);
        let one = spawn(&Account::new(turns, 1), 1, 100_000);
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
                let account = Account::new(turns.clone(), 1);
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
    let account = Account::new(turns.clone(), 1);
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
    let account = Account::new(turns.clone(), 1);
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
    let account = Account::new(turns.clone(), 1);
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

#[test]
fn beside_downloads_only_connections_that_use_little_go_on_once_the_time_is_used() {
    runtime().block_on(async {
        let turns = turns();
        let little = Account::new(turns.clone(), 1);
        Clock::set(Instant::from_nanos(3 << EPOCH_BITS));
        let many = [(); 4].map(|()| Account::new(turns.clone(), 1));
        turns.limit(POLL * 2);
        // Each poll takes one step of the clock, at least.
        let polled = many.each_ref().map(|account| spawn(account, 1, 1));
        let answered = tokio::spawn(InTurn::new(little, async {}));
        answered.await.unwrap();
        let polls = || polled.iter().map(|one| one.load(Ordering::Relaxed)).sum();
        let before: usize = polls();
        assert!((1..=2).contains(&before), "{before}");
        // The others get one turn for each pass of the runtime, however often the limit is used up.
        for _ in 0..2 * many.len() {
            turns.limit(Duration::ZERO);
            tokio::task::yield_now().await;
        }
        let after: usize = polls();
        assert_eq!(after, many.len());
    });
}

#[test]
fn while_turns_are_paused_only_connections_that_use_little_go_on() {
    runtime().block_on(async {
        let turns = turns();
        let many = Account::new(turns.clone(), 1);
        let first_of_its_source = Account::favored(turns.clone(), 1);
        turns.pause();
        let polled = spawn(&many, 1, 1);
        for _ in 0..10 {
            let answered = tokio::spawn(InTurn::new(first_of_its_source.clone(), async {}));
            answered.await.unwrap();
        }
        assert_eq!(polled.load(Ordering::Relaxed), 0);
        assert!(turns.has_waiting());
        turns.limit(POLL);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(polled.load(Ordering::Relaxed), 1);
        assert!(!turns.has_waiting());
    });
}

/// A task that waits `times` times, and counts how often it was polled and dropped.
struct Counted {
    times: usize,
    polled: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}

impl Future for Counted {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.polled.fetch_add(1, Ordering::Relaxed);
        match self.times.checked_sub(1) {
            Some(left) => {
                self.times = left;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn task_is_polled_at_once_on_a_runtime_with_one_thread_while_there_is_a_quantum() {
    runtime().block_on(async {
        let turns = turns();
        Clock::set_step(Duration::ZERO);
        // Threads, quanta owed, waits → polls at once, and in the end.
        for (threads, owed, times, at_once, in_the_end) in [
            (1, 0, 0, 1, 1),
            (1, 0, 2, 1, 3),
            (1, 1, 0, 0, 1),
            (2, 0, 0, 0, 1),
            (2, 0, 2, 0, 3),
        ] {
            let account = Account::new(turns.clone(), threads);
            let time = Duration::from_nanos(u64::from(owed * QUANTUM_NANOS));
            account.charge(time, Instant::ZERO);
            let (polled, dropped) = (Arc::default(), Arc::default());
            let task = Counted {
                times,
                polled: Arc::clone(&polled),
                dropped: Arc::clone(&dropped),
            };
            account.starter(Instant::ZERO).start(task);
            let counts = || [&polled, &dropped].map(|count| count.load(Ordering::Relaxed));
            let is_over = usize::from(in_the_end == at_once);
            assert_eq!(counts(), [at_once, is_over], "{threads} {owed} {times}");
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert_eq!(counts(), [in_the_end, 1], "{threads} {owed} {times}");
        }
    });
}

#[test]
fn task_that_panics_at_once_is_dropped_and_nothing_else() {
    struct Panics(Counted);
    impl Future for Panics {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            let _ = Pin::new(&mut self.0).poll(cx);
            panic!("on purpose");
        }
    }
    let account = Account::new(turns(), 1);
    let (polled, dropped) = (Arc::default(), Arc::default());
    let task = Counted {
        times: 0,
        polled: Arc::clone(&polled),
        dropped: Arc::clone(&dropped),
    };
    account.starter(Instant::ZERO).start(Panics(task));
    assert_eq!(polled.load(Ordering::Relaxed), 1);
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
}
