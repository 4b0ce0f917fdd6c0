//! The sessions that clients may resume: in memory, bounded, each for one use.
//!
//! Tickets are references into this store instead of sealed state: taking a session out of the
//! store is what prevents a replay of 0-RTT data (RFC 8446 §8.1), and rustls accepts 0-RTT only
//! with such a store.

use core::hash::BuildHasher as _;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::{FxBuildHasher, FxHashMap};
use rustls::server::StoresServerSessions;

use crate::count::Count;

/// Sessions kept by default; two are made per handshake.
const DEFAULT_SESSIONS: usize = 32 * 1024;
/// Bytes allowed per session on average. Without client certificates a session
/// takes about 200; with them it is their size that has to be bounded.
const BYTES_PER_SESSION: usize = 1024;

/// A bounded store of resumable sessions. When it is full, the oldest are evicted.
pub struct ServerSessions {
    inner: Mutex<Inner>,
    max_sessions: usize,
    max_bytes: usize,
}

/// The content of the store.
#[derive(Default)]
struct Inner {
    /// Ordered by age, the oldest first; `None` once taken.
    by_age: VecDeque<Option<Session>>,
    /// The age of the first entry of `by_age`.
    oldest: u64,
    /// The age of each session by the hash of its key. Keys are drawn at random by
    /// rustls, never chosen by a peer, so that an unkeyed hash is safe; if two have
    /// the same one, the newer session is kept.
    ages: FxHashMap<u64, u64>,
    bytes: usize,
    evicted: u64,
}

/// A session. There are two for every handshake, so key and value are in one allocation.
struct Session {
    /// The key, followed by the value.
    bytes: Box<[u8]>,
    key_len: usize,
}

impl Session {
    fn new(key: &[u8], value: &[u8]) -> Self {
        Self {
            bytes: [key, value].concat().into(),
            key_len: key.len(),
        }
    }

    fn key(&self) -> &[u8] {
        self.bytes.get(..self.key_len).unwrap_or_default()
    }

    fn value(&self) -> &[u8] {
        self.bytes.get(self.key_len..).unwrap_or_default()
    }
}

impl Default for ServerSessions {
    fn default() -> Self {
        Self::new(DEFAULT_SESSIONS)
    }
}

impl ServerSessions {
    /// Creates a store for at most `max_sessions` sessions, of 1 KiB on average. With 0, nothing
    /// is stored and no ticket is sent.
    #[must_use]
    pub fn new(max_sessions: usize) -> Self {
        Self {
            inner: Mutex::default(),
            max_sessions,
            max_bytes: max_sessions.saturating_mul(BYTES_PER_SESSION),
        }
    }

    /// Returns the number of sessions that can be resumed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().ages.len()
    }

    /// Returns whether the store is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of sessions evicted so far because the store was full.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.lock().evicted
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code panics while holding the lock, and a half-made change could
        // at worst lose a session.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn insert(&mut self, key: &[u8], value: &[u8]) {
        let hash = FxBuildHasher.hash_one(key);
        self.remove(hash);
        let session = Session::new(key, value);
        self.bytes = self.bytes.saturating_add(session.bytes.len());
        let age = self.oldest.saturating_add(self.by_age.len() as u64);
        self.ages.insert(hash, age);
        self.by_age.push_back(Some(session));
    }

    /// Finds the session stored under `key`.
    fn find(&self, key: &[u8]) -> Option<(u64, &Session)> {
        let hash = FxBuildHasher.hash_one(key);
        let at = self.ages.get(&hash)?.checked_sub(self.oldest)?;
        let session = self.by_age.get(at as usize)?.as_ref()?;
        (session.key() == key).then_some((hash, session))
    }

    fn remove(&mut self, hash: u64) -> Option<Session> {
        let at = self.ages.remove(&hash)?.checked_sub(self.oldest)?;
        let session = self.by_age.get_mut(at as usize)?.take()?;
        self.bytes = self.bytes.saturating_sub(session.bytes.len());
        while self.by_age.front().is_some_and(Option::is_none) {
            self.pop_oldest();
        }
        Some(session)
    }

    fn pop_oldest(&mut self) -> Option<Session> {
        let oldest = self.by_age.pop_front()?;
        self.oldest = self.oldest.saturating_add(1);
        oldest
    }

    /// Evicts the oldest session. Returns false if there is none.
    fn evict_oldest(&mut self) -> bool {
        // The first entry is never empty: `remove` leaves no gap before it.
        let Some(session) = self.pop_oldest() else {
            return false;
        };
        self.bytes = self.bytes.saturating_sub(session.bytes.len());
        self.ages.remove(&FxBuildHasher.hash_one(session.key()));
        self.evicted.count_one();
        while self.by_age.front().is_some_and(Option::is_none) {
            self.pop_oldest();
        }
        true
    }
}

impl StoresServerSessions for ServerSessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        if self.max_sessions == 0 || key.len().saturating_add(value.len()) > self.max_bytes {
            return false;
        }
        let mut inner = self.lock();
        inner.insert(&key, &value);
        // A session that is taken out of the middle leaves a gap. There may be as many gaps as
        // sessions.
        let most = self.max_sessions.saturating_mul(2);
        while inner.ages.len() > self.max_sessions
            || inner.bytes > self.max_bytes
            || inner.by_age.len() > most
        {
            if !inner.evict_oldest() {
                break;
            }
        }
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let inner = self.lock();
        inner.find(key).map(|(_, session)| session.value().to_vec())
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let mut inner = self.lock();
        let (hash, _) = inner.find(key)?;
        inner.remove(hash).map(|session| session.value().to_vec())
    }

    fn can_cache(&self) -> bool {
        self.max_sessions > 0
    }
}

impl core::fmt::Debug for ServerSessions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "ServerSessions({} of {})", self.len(), self.max_sessions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> Vec<u8> {
        n.to_be_bytes().to_vec()
    }

    #[test]
    fn session_is_taken_once() {
        let store = ServerSessions::new(8);
        assert!(store.put(key(1), vec![9]));
        assert_eq!(store.take(&key(1)), Some(vec![9]));
        assert_eq!(store.take(&key(1)), None);
        assert!(store.is_empty());
        assert_eq!(store.evicted(), 0);
    }

    #[test]
    fn oldest_session_is_evicted_and_counted() {
        let store = ServerSessions::new(3);
        for n in 0..5 {
            store.put(key(n), vec![n as u8]);
        }
        assert_eq!(store.len(), 3);
        assert_eq!(store.evicted(), 2);
        assert_eq!(store.get(&key(1)), None);
        assert_eq!(store.get(&key(2)), Some(vec![2]));
    }

    #[test]
    fn taken_sessions_free_their_memory() {
        let store = ServerSessions::new(4);
        for n in 0..1000 {
            store.put(key(n), vec![0; 100]);
            assert!(store.take(&key(n)).is_some());
        }
        let inner = store.lock();
        assert!(inner.by_age.is_empty());
        assert_eq!(inner.bytes, 0);
    }

    #[test]
    fn gaps_between_sessions_are_bounded() {
        let store = ServerSessions::new(4);
        store.put(key(0), vec![0]);
        for n in 1..1000 {
            store.put(key(n), vec![0]);
            assert!(store.take(&key(n)).is_some());
            assert!(store.lock().by_age.len() <= 8);
        }
        assert_eq!((store.len(), store.evicted()), (0, 1));
        store.put(key(1), vec![7]);
        assert_eq!(store.get(&key(1)), Some(vec![7]));
        assert_eq!(store.get(&[]), None);
    }

    #[test]
    fn large_sessions_are_bounded_by_bytes() {
        let store = ServerSessions::new(4);
        for n in 0..4 {
            assert!(store.put(key(n), vec![0; 1500]));
        }
        assert_eq!(store.len(), 2);
        assert!(!store.put(key(9), vec![0; 5000]));
        assert_eq!(store.len(), 2);
    }

    #[test]
    fn replaced_session_is_counted_once() {
        let store = ServerSessions::new(4);
        store.put(key(1), vec![1; 10]);
        store.put(key(1), vec![2; 20]);
        assert_eq!(store.len(), 1);
        assert_eq!(store.lock().bytes, 24);
        assert_eq!(store.take(&key(1)), Some(vec![2; 20]));
    }

    #[test]
    fn store_of_size_zero_keeps_nothing() {
        let store = ServerSessions::new(0);
        assert!(!store.can_cache());
        assert!(!store.put(key(1), vec![1]));
    }
}
