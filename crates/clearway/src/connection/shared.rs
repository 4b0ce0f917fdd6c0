//! What a connection's handles and its shard share.
//!
//! Lock order (all of it is in CONTRIBUTING.md, "Lock order"): under a connection's lock only
//! leaves are taken, such as its shard's inbox; never the shard's routes, never another
//! connection's. Tasks are woken and connections dropped after it is released.

use std::fmt;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clearway_quic::Instant;
use clearway_quic::connection::{Connection, ConnectionError};
use clearway_quic::endpoint::ConnectionHandle;
use clearway_quic::error::{Code, TransportError};

use super::bells::Bells;
use super::on_lost::OnLost;
use super::remains::{Farewell, Remains};
use super::signal::{Signal, Wakes};
use super::state::State;
use crate::http::layer::{Layer, View};
use crate::panic::{CaughtPanic, catch};
use crate::shard::Link;

/// Changes of what a connection buffers that are not worth counting, bytes: counting
/// is an operation on memory that all shards write.
const GRAIN: u32 = 4 << 10;

const KIB: usize = 1 << 10;

/// A connection between its handles and its shard.
#[derive(Debug)]
pub(crate) struct Shared {
    slot: Mutex<Slot>,
    pub(super) bells: Bells,
    pub(crate) link: Arc<Link>,
    pub(crate) handle: ConnectionHandle,
    /// Memory counted for it, KiB.
    counted: AtomicU32,
    /// On the shard's dirty list.
    dirty: AtomicBool,
    /// Handles that the application holds.
    handles: AtomicU32,
}

/// What is under the lock.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "almost all are alive, and a box would be one more pointer to follow for each packet"
)]
enum Slot {
    Alive(State),
    /// There was a panic in it.
    Dead(Box<Remains>),
}

/// What is done with a connection, as its last error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(
    not(feature = "testing"),
    expect(unreachable_pub, reason = "public for tests only")
)]
pub enum Stage {
    /// Datagrams are received.
    Receive,
    /// A timer has gone off.
    Timeout,
    /// Its events are handed out and its packets written.
    Turn,
    /// HTTP/3 does its part.
    Http,
    /// A handle of it is used.
    Call,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Receive => "while datagrams were received",
            Self::Timeout => "while a timeout was handled",
            Self::Turn => "while packets were sent",
            Self::Http => "in HTTP/3",
            Self::Call => "in a call of the application's",
        })
    }
}

#[cfg(feature = "testing")]
impl Stage {
    /// Panics if this is where a test wants it.
    pub(super) fn strike(self, fault: Option<Self>) {
        assert!(fault != Some(self), "injected {self}");
    }
}

impl Shared {
    pub(crate) fn new(
        quic: Connection,
        handle: ConnectionHandle,
        link: Arc<Link>,
        http: Option<Box<Layer>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            slot: Mutex::new(Slot::Alive(State::new(quic, http))),
            bells: Bells::default(),
            link,
            handle,
            counted: AtomicU32::new(0),
            dirty: AtomicBool::new(false),
            handles: AtomicU32::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Slot> {
        // Panics in what is done under the lock end before it is released.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Instant {
        self.link.clock.now()
    }

    /// Works on the connection. A panic in `act` is the connection's end: its state
    /// is dropped, its handles and its shard hear of it.
    ///
    /// # Errors
    /// Why there is no connection to work on any more. One that ended without a
    /// panic still has its state, so that what it received can be read.
    pub(crate) fn visit<R>(
        &self,
        stage: Stage,
        act: impl FnOnce(&mut State) -> R,
    ) -> Result<R, ConnectionError> {
        let mut slot = self.lock();
        let state = match &mut *slot {
            Slot::Alive(state) => state,
            Slot::Dead(remains) => return Err(remains.error.clone()),
        };
        let done = catch(|| {
            #[cfg(feature = "testing")]
            stage.strike(state.fault);
            act(state)
        });
        done.map_err(|panic| self.bury(slot, stage, &panic))
    }

    /// Works on the connection for a handle.
    pub(crate) fn call<R: OnLost>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        self.visit(Stage::Call, act).unwrap_or_else(R::on_lost)
    }

    /// The same, and has the shard send what came of it.
    pub(crate) fn act<R: OnLost>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        self.act_if(|state| (act(state), true))
    }

    /// The same if something can have come of it, as `act` says.
    pub(crate) fn act_if<R: OnLost>(&self, act: impl FnOnce(&mut State) -> (R, bool)) -> R {
        self.act_at(Stage::Call, |state| {
            let (result, changed) = act(state);
            (result, changed && state.quic.is_transmit_due())
        })
    }

    /// The same for what can make the connection buffer more.
    pub(crate) fn write_if<R: OnLost>(&self, act: impl FnOnce(&mut State) -> (R, bool)) -> R {
        self.write_at(Stage::Call, act)
    }

    fn write_at<R: OnLost>(&self, stage: Stage, act: impl FnOnce(&mut State) -> (R, bool)) -> R {
        self.act_at(stage, |state| {
            let (result, changed) = act(state);
            let grown = self.count_growth(state);
            (result, grown || changed && state.quic.is_transmit_due())
        })
    }

    /// The same; `act` says whether the shard has to look.
    fn act_at<R: OnLost>(&self, stage: Stage, act: impl FnOnce(&mut State) -> (R, bool)) -> R {
        let acted = self.visit(stage, act);
        match acted {
            Ok((result, due)) => {
                if due {
                    self.mark_dirty();
                }
                result
            }
            Err(error) => R::on_lost(error),
        }
    }

    /// Reads from the connection, or from what is left of it.
    pub(crate) fn read<R>(&self, alive: impl Fn(&State) -> R, dead: impl Fn(&Remains) -> R) -> R {
        // Twice at most: a connection does not come back.
        loop {
            if let Ok(value) = self.visit(Stage::Call, |state| alive(state)) {
                return value;
            }
            if let Slot::Dead(remains) = &*self.lock() {
                return dead(remains);
            }
        }
    }

    /// The end of a connection by a panic. What exactly went wrong is no peer's
    /// business.
    fn bury(
        &self,
        slot: MutexGuard<'_, Slot>,
        stage: Stage,
        panic: &CaughtPanic,
    ) -> ConnectionError {
        let error = panic.as_connection_error(stage);
        let said = TransportError::new(Code::INTERNAL_ERROR, "internal error");
        if let Some(peer) = self.end(slot, &error, said) {
            self.link.count_panic();
            tracing::error!(connection = self.handle.0, %peer, %error, "a connection is given up");
        }
        error
    }

    /// Ends the connection at once and drops its state: `error` for its handles, and
    /// for its peer what is `said` in one datagram, and then nothing but stateless
    /// resets. Answers the peer's address, if the connection was still there.
    fn end(
        &self,
        mut slot: MutexGuard<'_, Slot>,
        error: &ConnectionError,
        said: TransportError,
    ) -> Option<SocketAddr> {
        let mut wakes = Wakes::default();
        let Slot::Alive(state) = &mut *slot else {
            return None;
        };
        // After a panic every part of it may panic again.
        let _ = catch(|| state.fail(error.clone(), &mut wakes));
        let remains = Remains::of(&mut state.quic, self.now(), error.clone(), said);
        let peer = remains.remote;
        let old = std::mem::replace(&mut *slot, Slot::Dead(Box::new(remains)));
        drop(slot);
        let _ = catch(|| drop(old));
        self.set_counted(0);
        wakes.fire(self);
        self.mark_dirty();
        Some(peer)
    }

    /// For the shard: ends a connection for want of room. Whether it was still there.
    pub(crate) fn evict(&self, reason: &TransportError) -> bool {
        let error = ConnectionError::Transport(reason.clone());
        self.end(self.lock(), &error, reason.clone()).is_some()
    }

    /// Counts what the transport buffers now, if it has changed by enough; whether it
    /// has grown so.
    pub(crate) fn count_buffers(&self, state: &mut State) -> bool {
        if !self.link.budget.is_counted() {
            return false;
        }
        let buffered = u32::try_from(state.quic.buffered()).unwrap_or(u32::MAX);
        if buffered.abs_diff(state.buffered) < GRAIN {
            return false;
        }
        let grown = buffered > state.buffered;
        let others = self.counted().saturating_sub(state.buffered as usize);
        state.buffered = buffered;
        self.set_counted(others.saturating_add(buffered as usize));
        grown
    }

    /// The same after a call of the application, if that made it buffer more: cheaper,
    /// for there are several calls to a request.
    fn count_growth(&self, state: &mut State) -> bool {
        if !self.link.budget.is_counted() {
            return false;
        }
        let payload = u32::try_from(state.quic.buffered_payload()).unwrap_or(u32::MAX);
        payload.saturating_sub(state.buffered) >= GRAIN && self.count_buffers(state)
    }

    /// Counts the same, and what else the connection holds.
    pub(crate) fn count_memory(&self, state: &mut State, now: Instant) {
        let budget = &self.link.budget;
        if budget.is_counted() {
            let others = state.others(now, budget.is_tight());
            self.set_counted(others.saturating_add(state.buffered as usize));
            self.count_buffers(state);
        }
    }

    /// Memory counted for the connection, bytes.
    pub(crate) fn counted(&self) -> usize {
        (self.counted.load(Ordering::Relaxed) as usize).saturating_mul(KIB)
    }

    /// Under the lock, or after the connection's end.
    fn set_counted(&self, bytes: usize) {
        let kib = u32::try_from(bytes.div_ceil(KIB)).unwrap_or(u32::MAX);
        let before = self.counted();
        self.counted.store(kib, Ordering::Relaxed);
        let after = self.counted();
        if before != after {
            self.link.budget.change(before, after);
        }
    }

    /// For the shard: ends a connection that cannot go on for a panic elsewhere.
    pub(crate) fn kill(&self, stage: Stage, panic: &CaughtPanic) {
        let slot = self.lock();
        self.bury(slot, stage, panic);
    }

    /// For the shard: what is left to tell the peer of a connection that is gone.
    pub(crate) fn take_farewell(&self) -> Option<Farewell> {
        match &mut *self.lock() {
            Slot::Alive(_) => None,
            Slot::Dead(remains) => remains.farewell.take(),
        }
    }

    /// A waker, which is the application's, panicked. Whoever it was to wake is lost;
    /// the connection is not.
    pub(super) fn on_waker_panic(&self, panic: &CaughtPanic) {
        tracing::error!(connection = self.handle.0, %panic, "a task could not be woken");
    }

    /// Has the shard look at the connection soon; once however often called.
    pub(crate) fn mark_dirty(&self) {
        if !self.dirty.swap(true, Ordering::AcqRel) {
            self.link.push_dirty(self.handle);
        }
    }

    /// The shard is about to look.
    pub(crate) fn clear_dirty(&self) {
        // Reading what `mark_dirty` wrote makes what came before it visible to
        // the look that follows; a plain store would not.
        self.dirty.swap(false, Ordering::AcqRel);
    }

    /// Calls HTTP/3, then sends what came of it and wakes whom it concerns. Only
    /// on connections of endpoints that speak it.
    pub(crate) fn http<R: OnLost>(&self, act: impl FnOnce(&mut View<'_>) -> R) -> R {
        let now = self.now();
        let mut wakes = Wakes::default();
        let result = self.write_at(Stage::Http, |state| {
            let Some(mut view) = state.http_view() else {
                return (R::on_lost(no_http()), false);
            };
            let result = act(&mut view);
            state.settle_http(now, &mut wakes);
            (result, true)
        });
        wakes.fire(self);
        result
    }

    /// Waits until `attempt` succeeds; it is made again after each `signal`.
    pub(crate) async fn wait_for<T: OnLost>(
        &self,
        signal: Signal,
        mut attempt: impl FnMut(&mut State) -> Option<T>,
    ) -> T {
        loop {
            if let Some(value) = self.attempt(&mut attempt) {
                return value;
            }
            // Made before the attempt under the lock that follows, so whoever
            // changes the state after it finds it.
            let mut notified = pin!(self.bells.of(signal).notified());
            notified.as_mut().enable();
            // What came before `enable` is not told again.
            if let Some(value) = self.attempt(&mut attempt) {
                return value;
            }
            notified.await;
        }
    }

    fn attempt<T: OnLost>(&self, attempt: impl FnOnce(&mut State) -> Option<T>) -> Option<T> {
        match self.visit(Stage::Call, attempt) {
            Ok(value) => value,
            Err(error) => Some(T::on_lost(error)),
        }
    }

    /// The next `count` who wait for `signal` may try: to be served, or to meet the
    /// limit, without which nobody hears when it is raised.
    pub(crate) fn pass_on(&self, signal: Signal, count: u8) {
        if count > 0
            && let Some((_, bell)) = self.bells.iter().find(|(other, _)| *other == signal)
        {
            (0..count).for_each(|_| bell.notify_one());
        }
    }

    fn abandon(&self) {
        let now = self.now();
        self.call(|state| {
            state.orphaned = true;
            state.close_if_abandoned(&self.link, now);
        });
        self.mark_dirty();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.set_counted(0);
    }
}

/// HTTP was asked for where it is not spoken: a defect of ours.
fn no_http() -> ConnectionError {
    ConnectionError::Transport(TransportError::new(
        Code::INTERNAL_ERROR,
        "the connection does not speak HTTP/3",
    ))
}

/// A counted handle: when the last is gone, so is the application's interest.
#[derive(Debug)]
pub(crate) struct Counted(Arc<Shared>);

impl Counted {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        shared.handles.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::new(self.0.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.abandon();
        }
    }
}

impl std::ops::Deref for Counted {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}
