//! The state of a connection that its handles and its shard share.
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

use super::notifiers::Notifiers;
use super::on_lost::OnLost;
use super::state::State;
use super::terminated::{CloseDatagram, TerminatedConnection};
use super::wakeups::{Signal, Wakeups};
use crate::http::layer::{HttpLayer, HttpView};
use crate::panic::{CaughtPanic, catch};
use crate::shard::ShardLink;

/// Smallest change of a connection's buffers that is charged to the memory budget, in bytes:
/// charging writes to memory that all shards share.
const MIN_CHARGE: u32 = 4 << 10;

const KIB: usize = 1 << 10;

/// A connection as its handles and its shard share it.
#[derive(Debug)]
pub(crate) struct ConnectionShared {
    slot: Mutex<Slot>,
    pub(super) notifiers: Notifiers,
    pub(crate) link: Arc<ShardLink>,
    pub(crate) handle: ConnectionHandle,
    /// Memory charged for it, in KiB.
    charged: AtomicU32,
    /// Many connections came from its client's source lately.
    of_busy_source: AtomicBool,
    /// Whether it is on the shard's dirty list.
    dirty: AtomicBool,
    /// The number of handles that the application holds.
    handles: AtomicU32,
}

/// The state under the lock.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "almost all are active, and a box would be one more pointer to follow for each packet"
)]
enum Slot {
    Active(State),
    /// It ended by a panic or an eviction, and its state was dropped.
    Terminated(Box<TerminatedConnection>),
}

/// What was being done with a connection when it panicked, as its error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(
    not(feature = "testing"),
    expect(unreachable_pub, reason = "public for tests only")
)]
pub enum Stage {
    /// Datagrams are received.
    Receive,
    /// A timeout is handled.
    Timeout,
    /// Its events are dispatched and its packets written.
    Turn,
    /// HTTP/3 handles events.
    Http,
    /// A method of a handle is called.
    Call,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Receive => "while datagrams were received",
            Self::Timeout => "while a timeout was handled",
            Self::Turn => "while packets were sent",
            Self::Http => "in HTTP/3",
            Self::Call => "in a call of the application",
        })
    }
}

#[cfg(feature = "testing")]
impl Stage {
    /// Panics if a test has injected a fault here.
    pub(super) fn panic_if_injected(self, fault: Option<Self>) {
        assert!(fault != Some(self), "injected {self}");
    }
}

impl ConnectionShared {
    pub(crate) fn new(
        quic: Connection,
        handle: ConnectionHandle,
        link: Arc<ShardLink>,
        http: Option<Box<HttpLayer>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            slot: Mutex::new(Slot::Active(State::new(quic, http))),
            notifiers: Notifiers::default(),
            link,
            handle,
            charged: AtomicU32::new(0),
            of_busy_source: AtomicBool::new(false),
            dirty: AtomicBool::new(false),
            handles: AtomicU32::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Slot> {
        // Panics under the lock are caught before it is released.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Instant {
        self.link.clock.now()
    }

    /// Records that many connections came from its client's source lately.
    pub(crate) fn set_of_busy_source(&self) {
        self.of_busy_source.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_of_busy_source(&self) -> bool {
        self.of_busy_source.load(Ordering::Relaxed)
    }

    /// Calls `act` with the connection's state. A panic in it terminates the connection: its
    /// state is dropped, and its handles and its shard are notified.
    ///
    /// # Errors
    /// The reason why the connection was terminated. A connection that was closed in another
    /// way still has its state, so that received data can be read.
    pub(crate) fn with_state<R>(
        &self,
        stage: Stage,
        act: impl FnOnce(&mut State) -> R,
    ) -> Result<R, ConnectionError> {
        let mut slot = self.lock();
        let state = match &mut *slot {
            Slot::Active(state) => state,
            Slot::Terminated(terminated) => return Err(terminated.error.clone()),
        };
        let done = catch(|| {
            #[cfg(feature = "testing")]
            stage.panic_if_injected(state.fault);
            act(state)
        });
        done.map_err(|panic| self.terminate_after_panic(slot, stage, &panic))
    }

    /// The identifier of the connection's span, if a subscriber takes it.
    pub(crate) fn span_id(&self) -> Option<tracing::Id> {
        let id = self.with_state(Stage::Call, |state| state.span.id());
        id.ok().flatten()
    }

    /// Calls `act` with the connection's state, for a handle.
    pub(crate) fn call<R: OnLost>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        self.with_state(Stage::Call, act).unwrap_or_else(R::on_lost)
    }

    /// Does the same, and then has the shard send what can be sent.
    pub(crate) fn call_then_send<R: OnLost>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        self.call_then_send_if(|state| (act(state), true))
    }

    /// Does the same, and then has the shard send only if `act` returns `true`.
    pub(crate) fn call_then_send_if<R: OnLost>(
        &self,
        act: impl FnOnce(&mut State) -> (R, bool),
    ) -> R {
        self.call_at(Stage::Call, |state| {
            let (result, changed) = act(state);
            (result, changed && state.quic.is_transmit_due())
        })
    }

    /// Does the same for calls that may add to the connection's buffers.
    pub(crate) fn write_then_send_if<R: OnLost>(
        &self,
        act: impl FnOnce(&mut State) -> (R, bool),
    ) -> R {
        self.call_at(Stage::Call, |state| {
            let (result, changed) = act(state);
            let grown = self.charge_growth(state);
            (result, grown || changed && state.quic.is_transmit_due())
        })
    }

    /// Does the same; `act` returns whether the shard has to give the connection a turn.
    fn call_at<R: OnLost>(&self, stage: Stage, act: impl FnOnce(&mut State) -> (R, bool)) -> R {
        let acted = self.with_state(stage, act);
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

    /// Reads from the connection's state, or from what is kept of a terminated one.
    pub(crate) fn read<R>(
        &self,
        active: impl Fn(&State) -> R,
        when_terminated: impl Fn(&TerminatedConnection) -> R,
    ) -> R {
        // At most twice, because a terminated connection stays terminated.
        loop {
            if let Ok(value) = self.with_state(Stage::Call, |state| active(state)) {
                return value;
            }
            if let Slot::Terminated(terminated) = &*self.lock() {
                return when_terminated(terminated);
            }
        }
    }

    /// Terminates a connection after a panic. The peer is told no details.
    fn terminate_after_panic(
        &self,
        slot: MutexGuard<'_, Slot>,
        stage: Stage,
        panic: &CaughtPanic,
    ) -> ConnectionError {
        let error = panic.as_connection_error(stage);
        let sent_error = TransportError::new(Code::INTERNAL_ERROR, "internal error");
        if let Some(peer) = self.terminate(slot, &error, sent_error) {
            self.link.count_panic();
            tracing::error!(connection = self.handle.0, %peer, %error, "a connection was closed because of a panic");
        }
        error
    }

    /// Ends the connection at once and drops its state. Its handles return `error`; its peer is
    /// sent `sent_error` in one datagram, and after that only stateless resets. Returns the
    /// peer's address, unless the connection was terminated before.
    fn terminate(
        &self,
        mut slot: MutexGuard<'_, Slot>,
        error: &ConnectionError,
        sent_error: TransportError,
    ) -> Option<SocketAddr> {
        let mut wakeups = Wakeups::default();
        let Slot::Active(state) = &mut *slot else {
            return None;
        };
        // After a panic any part of it may panic again.
        let _ = catch(|| state.fail(error.clone(), &mut wakeups));
        let terminated =
            TerminatedConnection::new(&mut state.quic, self.now(), error.clone(), sent_error);
        let peer = terminated.remote;
        let old = std::mem::replace(&mut *slot, Slot::Terminated(Box::new(terminated)));
        drop(slot);
        let _ = catch(|| drop(old));
        self.set_charged(0);
        self.wake(&mut wakeups);
        self.mark_dirty();
        Some(peer)
    }

    /// Evicts the connection, for the shard. Returns `false` if it was terminated before.
    pub(crate) fn evict(&self, reason: &TransportError) -> bool {
        let error = ConnectionError::Transport(reason.clone());
        self.terminate(self.lock(), &error, reason.clone())
            .is_some()
    }

    /// Charges the transport's buffers to the memory budget if they have changed by enough.
    /// Returns whether they have grown by that much.
    pub(crate) fn charge_buffers(&self, state: &mut State) -> bool {
        if !self.link.budget.is_limited() {
            return false;
        }
        let buffered = u32::try_from(state.buffered_bytes()).unwrap_or(u32::MAX);
        if buffered.abs_diff(state.buffered) < MIN_CHARGE {
            return false;
        }
        let grown = buffered > state.buffered;
        let other_memory = self.charged().saturating_sub(state.buffered as usize);
        state.buffered = buffered;
        self.set_charged(other_memory.saturating_add(buffered as usize));
        grown
    }

    /// Does the same after a call of the application, if the buffers have grown. It is cheaper,
    /// because there are several calls for each request.
    fn charge_growth(&self, state: &mut State) -> bool {
        if !self.link.budget.is_limited() {
            return false;
        }
        let payload = u32::try_from(state.quic.buffered_payload()).unwrap_or(u32::MAX);
        payload.saturating_sub(state.buffered) >= MIN_CHARGE && self.charge_buffers(state)
    }

    /// Charges the buffers and the other memory of the connection to the budget.
    pub(crate) fn charge_memory(&self, state: &mut State, now: Instant) {
        let budget = &self.link.budget;
        if budget.is_limited() {
            let other_memory = state.other_memory(now, budget.is_tight());
            self.set_charged(other_memory.saturating_add(state.buffered as usize));
            self.charge_buffers(state);
        }
    }

    /// Returns the memory charged for the connection, in bytes.
    pub(crate) fn charged(&self) -> usize {
        (self.charged.load(Ordering::Relaxed) as usize).saturating_mul(KIB)
    }

    /// Sets the memory charged. Called under the lock, or after the connection's end.
    fn set_charged(&self, bytes: usize) {
        let kib = u32::try_from(bytes.div_ceil(KIB)).unwrap_or(u32::MAX);
        let before = self.charged();
        self.charged.store(kib, Ordering::Relaxed);
        let after = self.charged();
        if before != after {
            self.link.budget.change(before, after);
        }
    }

    /// Terminates the connection because of a panic outside of it, for the shard.
    pub(crate) fn terminate_for_panic(&self, stage: Stage, panic: &CaughtPanic) {
        let slot = self.lock();
        self.terminate_after_panic(slot, stage, panic);
    }

    /// Takes the datagram that closes a terminated connection, for the shard.
    pub(crate) fn take_close_datagram(&self) -> Option<CloseDatagram> {
        match &mut *self.lock() {
            Slot::Active(_) => None,
            Slot::Terminated(terminated) => terminated.close_datagram.take(),
        }
    }

    /// Wakes the tasks that have to be woken. A waker that panics belongs to the application: its
    /// task is not woken, and the connection goes on.
    pub(crate) fn wake(&self, wakeups: &mut Wakeups) {
        wakeups.fire(&self.notifiers, |panic| {
            tracing::error!(connection = self.handle.0, %panic, "a waker of the application panicked");
        });
    }

    /// Queues the connection for a turn of its shard, once however often this is called.
    pub(crate) fn mark_dirty(&self) {
        if !self.dirty.swap(true, Ordering::AcqRel) {
            self.link.push_dirty(self.handle);
        }
    }

    /// Called before the shard gives the connection its turn.
    pub(crate) fn clear_dirty(&self) {
        // The swap reads what `mark_dirty` wrote, so that earlier changes are visible in the
        // turn that follows; a plain store would not do that.
        self.dirty.swap(false, Ordering::AcqRel);
    }

    /// Calls `act` with HTTP/3's state. If something is to be sent or a task to be woken after it,
    /// the shard does that in the connection's next turn. Only for connections of endpoints that
    /// speak HTTP/3.
    pub(crate) fn http<R: OnLost>(&self, act: impl FnOnce(&mut HttpView<'_>) -> R) -> R {
        let mut is_idle = false;
        let result = self.call_at(Stage::Http, |state| {
            let Some(mut view) = state.http_view() else {
                return (R::on_lost(no_http()), false);
            };
            let result = act(&mut view);
            let is_settled = view.layer.is_settled();
            is_idle = view.layer.is_idle();
            let grown = self.charge_growth(state);
            (result, grown || !is_settled || state.quic.is_transmit_due())
        });
        if is_idle {
            let mut wakeups = Wakeups::default();
            wakeups.raise(Signal::HttpIdle);
            self.wake(&mut wakeups);
        }
        result
    }

    /// Calls `act` with HTTP/3's state, for calls that change nothing but what a handle keeps: nothing
    /// has to be sent, and no task to be woken.
    pub(crate) fn look_at_http<R: OnLost>(&self, act: impl FnOnce(&mut HttpView<'_>) -> R) -> R {
        self.call(|state| match state.http_view() {
            Some(mut view) => act(&mut view),
            None => R::on_lost(no_http()),
        })
    }

    /// Does what [`Self::http`] does as soon as `act` returns a value; it is called again after each
    /// `signal`.
    pub(crate) fn http_when<T: OnLost>(
        &self,
        signal: Signal,
        mut act: impl FnMut(&mut HttpView<'_>) -> Option<T>,
    ) -> impl Future<Output = T> {
        let attempt =
            move |this: &Self| this.http(|view| act(view).map_or(Attempt::Later, Attempt::Done));
        self.until(signal, attempt)
    }

    /// Waits until `attempt` returns a value; it is called again after each `signal`.
    pub(crate) fn wait_for<T: OnLost>(
        &self,
        signal: Signal,
        mut attempt: impl FnMut(&mut State) -> Option<T>,
    ) -> impl Future<Output = T> {
        let attempt = move |this: &Self| match this.with_state(Stage::Call, &mut attempt) {
            Ok(Some(value)) => Attempt::Done(value),
            Ok(None) => Attempt::Later,
            Err(error) => Attempt::on_lost(error),
        };
        self.until(signal, attempt)
    }

    async fn until<T>(&self, signal: Signal, mut attempt: impl FnMut(&Self) -> Attempt<T>) -> T {
        loop {
            if let Attempt::Done(value) = attempt(self) {
                return value;
            }
            // Registered before the next attempt under the lock, so that a later change of
            // the state notifies it.
            let mut notified = pin!(self.notifiers.get(signal).notified());
            notified.as_mut().enable();
            // A change before `enable` does not notify it.
            if let Attempt::Done(value) = attempt(self) {
                return value;
            }
            notified.await;
        }
    }

    /// Wakes the next `count` tasks that wait for `signal`. They succeed, or they reach the
    /// limit, without which there is no event when it is raised.
    pub(crate) fn pass_on(&self, signal: Signal, count: u8) {
        if count > 0
            && let Some((_, notifier)) = self.notifiers.iter().find(|(other, _)| *other == signal)
        {
            (0..count).for_each(|_| notifier.notify_one());
        }
    }

    fn abandon(&self) {
        let now = self.now();
        self.call(|state| {
            state.orphaned = true;
            state.close_if_abandoned(&self.link, now);
            state.release_if_ended();
        });
        self.mark_dirty();
    }
}

impl Drop for ConnectionShared {
    fn drop(&mut self) {
        self.set_charged(0);
    }
}

/// The result of an attempt that may have to wait.
enum Attempt<T> {
    Done(T),
    Later,
}

impl<T: OnLost> OnLost for Attempt<T> {
    fn on_lost(error: ConnectionError) -> Self {
        Self::Done(T::on_lost(error))
    }
}

/// HTTP was used on a connection that does not speak it: a bug in this crate.
fn no_http() -> ConnectionError {
    ConnectionError::Transport(TransportError::new(
        Code::INTERNAL_ERROR,
        "the connection does not speak HTTP/3",
    ))
}

/// A handle that is counted: when the last is dropped, the connection is abandoned.
#[derive(Debug)]
pub(crate) struct ConnectionRef(Arc<ConnectionShared>);

impl ConnectionRef {
    pub(crate) fn new(shared: Arc<ConnectionShared>) -> Self {
        shared.handles.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }
}

impl Clone for ConnectionRef {
    fn clone(&self) -> Self {
        Self::new(self.0.clone())
    }
}

impl Drop for ConnectionRef {
    fn drop(&mut self) {
        if self.0.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.abandon();
        }
    }
}

impl std::ops::Deref for ConnectionRef {
    type Target = ConnectionShared;

    fn deref(&self) -> &ConnectionShared {
        &self.0
    }
}
