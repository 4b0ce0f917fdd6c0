//! A semaphore whose permits are handed out in turns.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

/// A semaphore that is fair between keys: a free permit goes to the next key in turn, not to the
/// one that asks most often. One key never has more than its share at a time. Clones share one
/// semaphore.
pub(crate) struct FairSemaphore<K: Eq + Hash + Copy> {
    inner: Arc<Inner<K>>,
}

struct Inner<K: Eq + Hash + Copy> {
    /// Maximum number of permits per key.
    share: usize,
    state: Mutex<State<K>>,
}

struct State<K: Eq + Hash + Copy> {
    free: usize,
    /// Permits in use.
    held: HashMap<K, usize>,
    /// The waiters, by ticket. A key is in here exactly as long as it is in `turns`, and may have
    /// no waiters left.
    waiting: HashMap<K, BTreeMap<u64, oneshot::Sender<Permit<K>>>>,
    turns: VecDeque<K>,
    next_ticket: u64,
}

/// A permit, returned when dropped.
#[must_use]
pub(crate) struct Permit<K: Eq + Hash + Copy> {
    semaphore: FairSemaphore<K>,
    key: K,
}

/// A future permit. Dropping it leaves the queue.
#[must_use]
pub(crate) struct Acquire<K: Eq + Hash + Copy> {
    semaphore: FairSemaphore<K>,
    key: K,
    ticket: u64,
    permit: oneshot::Receiver<Permit<K>>,
}

impl<K: Eq + Hash + Copy> FairSemaphore<K> {
    /// Creates a semaphore with `total` permits, of which a key may have `share` at a time. Both
    /// are at least one, so that nobody waits forever.
    pub(crate) fn new(total: usize, share: usize) -> Self {
        let state = State {
            free: total.max(1),
            held: HashMap::new(),
            waiting: HashMap::new(),
            turns: VecDeque::new(),
            next_ticket: 0,
        };
        let inner = Inner {
            share: share.max(1),
            state: Mutex::new(state),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        let state = self.inner.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// A permit, if one is free and this key is entitled to it.
    pub(crate) fn try_acquire(&self, key: K) -> Option<Permit<K>> {
        let taken = self.lock().take(key, self.inner.share);
        taken.then(|| self.permit(key))
    }

    /// A permit, once it is this key's turn.
    pub(crate) fn acquire(&self, key: K) -> Acquire<K> {
        let (tell, permit) = oneshot::channel();
        let mut state = self.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        if state.take(key, self.inner.share) {
            drop(state);
            // The receiver is at hand.
            let _ = tell.send(self.permit(key));
        } else {
            state.enqueue(key, ticket, tell);
        }
        Acquire {
            semaphore: self.clone(),
            key,
            ticket,
            permit,
        }
    }

    fn permit(&self, key: K) -> Permit<K> {
        Permit {
            semaphore: self.clone(),
            key,
        }
    }

    /// Returns a permit, and passes on what is free.
    fn release(&self, key: K) {
        let mut state = self.lock();
        state.give_back(key);
        let granted = state.next(self.inner.share);
        drop(state);
        if let Some((key, tell)) = granted {
            // The waiter has gone: the permit comes back by being dropped.
            let _ = tell.send(self.permit(key));
        }
    }
}

impl<K: Eq + Hash + Copy> State<K> {
    fn take(&mut self, key: K, share: usize) -> bool {
        let held = self.held.get(&key).copied().unwrap_or(0);
        if self.free == 0 || held >= share {
            return false;
        }
        self.free -= 1;
        self.held.insert(key, held + 1);
        true
    }

    fn give_back(&mut self, key: K) {
        self.free += 1;
        if let Some(held) = self.held.get_mut(&key) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                self.held.remove(&key);
            }
        }
    }

    fn enqueue(&mut self, key: K, ticket: u64, tell: oneshot::Sender<Permit<K>>) {
        let turns = &mut self.turns;
        let tickets = self.waiting.entry(key).or_insert_with(|| {
            turns.push_back(key);
            BTreeMap::new()
        });
        tickets.insert(ticket, tell);
    }

    /// The next waiter. Keys that have their share are skipped, and there are no more of these than
    /// permits.
    fn next(&mut self, share: usize) -> Option<(K, oneshot::Sender<Permit<K>>)> {
        for _ in 0..self.turns.len() {
            if self.free == 0 {
                return None;
            }
            let key = self.turns.pop_front()?;
            let Some(mut tickets) = self.waiting.remove(&key) else {
                continue;
            };
            // All waiters have gone.
            if tickets.is_empty() {
                continue;
            }
            let first = match self.take(key, share) {
                true => tickets.pop_first(),
                false => None,
            };
            if !tickets.is_empty() {
                self.waiting.insert(key, tickets);
                self.turns.push_back(key);
            }
            if let Some((_, tell)) = first {
                return Some((key, tell));
            }
        }
        None
    }
}

impl<K: Eq + Hash + Copy + Unpin> Future for Acquire<K> {
    type Output = Permit<K>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit<K>> {
        match Pin::new(&mut self.permit).poll(cx) {
            Poll::Ready(Ok(permit)) => Poll::Ready(permit),
            // The other half is kept until it is used or this is dropped.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}

impl<K: Eq + Hash + Copy> Drop for Acquire<K> {
    fn drop(&mut self) {
        let mut state = self.semaphore.lock();
        let tickets = state.waiting.get_mut(&self.key);
        let unused = tickets.and_then(|tickets| tickets.remove(&self.ticket));
        drop(state);
        drop(unused);
    }
}

impl<K: Eq + Hash + Copy> Drop for Permit<K> {
    fn drop(&mut self) {
        self.semaphore.release(self.key);
    }
}

impl<K: Eq + Hash + Copy> Clone for FairSemaphore<K> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<K: Eq + Hash + Copy> fmt::Debug for FairSemaphore<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("FairSemaphore")
            .field("free", &state.free)
            .field("keys", &state.held.len())
            .finish_non_exhaustive()
    }
}

impl<K: Eq + Hash + Copy> fmt::Debug for Permit<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit")
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    type Semaphore = FairSemaphore<u32>;

    fn poll(acquire: &mut Acquire<u32>) -> Option<Permit<u32>> {
        match Pin::new(acquire).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => Some(permit),
            Poll::Pending => None,
        }
    }

    /// Who has a permit of those who wait.
    fn served(waiting: &mut Vec<(u32, Acquire<u32>)>) -> Vec<(u32, Permit<u32>)> {
        let mut served = Vec::new();
        waiting.retain_mut(|(key, acquire)| match poll(acquire) {
            Some(permit) => {
                served.push((*key, permit));
                false
            }
            None => true,
        });
        served
    }

    #[test]
    fn freed_permits_go_to_keys_in_turn() {
        let semaphore = Semaphore::new(1, 1);
        let mut last = vec![(0, semaphore.try_acquire(0).unwrap())];
        let keys = [1, 1, 1, 1, 2, 2, 3];
        let mut waiting: Vec<_> = keys
            .into_iter()
            .map(|key| (key, semaphore.acquire(key)))
            .collect();
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(last);
            last = served(&mut waiting);
            order.extend(last.iter().map(|&(key, _)| key));
        }
        assert_eq!(order, [1, 2, 3, 1, 2, 1, 1]);
    }

    #[test]
    fn key_never_exceeds_its_share() {
        let semaphore = Semaphore::new(4, 3);
        let held: Vec<_> = (0..4).map_while(|_| semaphore.try_acquire(1)).collect();
        assert_eq!(held.len(), 3);
        let mut greedy = semaphore.acquire(1);
        assert!(poll(&mut greedy).is_none());
        let other = semaphore.try_acquire(2).unwrap();
        assert!(semaphore.try_acquire(3).is_none());
        let mut third = semaphore.acquire(3);
        // What key 2 gives back is not for key 1, which has its share.
        drop(other);
        assert!(poll(&mut greedy).is_none());
        let _third = poll(&mut third).unwrap();
        drop(held);
        assert!(poll(&mut greedy).is_some());
    }

    #[test]
    fn dropped_acquire_is_removed_from_the_queue_at_every_stage() {
        let semaphore = Semaphore::new(1, 1);
        let held = semaphore.try_acquire(1).unwrap();
        // Given up while waiting.
        for _ in 0..10_000 {
            drop(semaphore.acquire(2));
        }
        assert_eq!(semaphore.lock().turns.len(), 1, "it waits no more");
        // Given up with the permit on its way.
        let granted = semaphore.acquire(3);
        drop(held);
        drop(granted);
        let state = semaphore.lock();
        assert_eq!((state.free, state.held.len()), (1, 0));
        assert!(state.waiting.is_empty() && state.turns.is_empty());
    }

    /// Every sequence of six operations by three keys on two permits.
    #[test]
    fn any_sequence_of_operations_conserves_permits() {
        const OPERATIONS: u32 = 9;
        for sequence in 0..OPERATIONS.pow(6) {
            let semaphore = Semaphore::new(2, 1);
            let mut waiting = Vec::new();
            let mut held = Vec::new();
            let mut rest = sequence;
            for _ in 0..6 {
                let (key, operation) = (rest % 3, rest / 3 % 3);
                rest /= OPERATIONS;
                let first = |list: &[u32]| list.iter().position(|&other| other == key);
                match operation {
                    0 => waiting.push((key, semaphore.acquire(key))),
                    1 => {
                        let keys: Vec<_> = waiting.iter().map(|&(key, _)| key).collect();
                        first(&keys).map(|at| waiting.remove(at));
                    }
                    _ => {
                        let keys: Vec<_> = held.iter().map(|&(key, _)| key).collect();
                        first(&keys).map(|at| held.remove(at));
                    }
                }
                held.extend(served(&mut waiting));
                let state = semaphore.lock();
                assert_eq!(state.free + held.len(), 2, "{sequence}");
                for key in 0..3 {
                    let has = held.iter().filter(|&&(other, _)| other == key).count();
                    let waits = waiting.iter().any(|&(other, _)| other == key);
                    assert!(has <= 1, "{sequence}");
                    assert!(!waits || has == 1 || state.free == 0, "{sequence}");
                }
            }
        }
    }
}
