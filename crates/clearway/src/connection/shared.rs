//! What a connection's handles and its shard share: the connection itself under
//! one lock, and who waits for what.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use clearway_quic::Instant;
use clearway_quic::connection::{Connection, ConnectionError, Event};
use clearway_quic::endpoint::Handle;
use clearway_quic::stream::{Directionality, StreamEvent, StreamId};
use rustc_hash::FxHashMap;

use super::bells::Bells;
use crate::http::layer::{Layer, View};
use crate::http::work::Arrived;
use crate::shard::Link;

/// What any number of tasks may wait for. Whoever wakes tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Signal {
    /// The handshake is complete.
    Connected,
    /// The connection has ended.
    Closed,
    /// The peer opened bidirectional streams.
    OpenedBi,
    /// The peer opened unidirectional streams.
    OpenedUni,
    /// The peer lets us open more bidirectional streams.
    AvailableBi,
    /// The peer lets us open more unidirectional streams.
    AvailableUni,
    /// A datagram has arrived.
    Datagram,
    /// The queue of outgoing datagrams has room.
    DatagramRoom,
    /// HTTP requests have arrived.
    Requests,
    /// The server takes more requests, or none at all any more.
    RequestRoom,
    /// No HTTP request is under way or undelivered.
    HttpIdle,
}

const SIGNALS: usize = 11;

/// Who waits for streams to open.
pub(crate) fn available(directionality: Directionality) -> Signal {
    match directionality {
        Directionality::Bidirectional => Signal::AvailableBi,
        Directionality::Unidirectional => Signal::AvailableUni,
    }
}

/// Waiters told at once that streams can be opened.
const TOLD_AT_ONCE: u64 = 64;

/// Who has to be woken; done after the lock is released, so that the woken find
/// it free.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    signals: u16,
    /// Of each so many waiters, the last of whom passes it on.
    relays: [u8; SIGNALS],
    wakers: Vec<Waker>,
}

impl Wakes {
    pub(crate) fn raise(&mut self, signal: Signal) {
        self.signals |= 1 << signal as u8;
    }

    /// Wakes the first who waits; whoever is served wakes the next with
    /// [`Shared::pass_on`], so that a crowd is not woken for one place.
    pub(crate) fn raise_first(&mut self, signal: Signal) {
        self.raise_some(signal, 1);
    }

    /// The same for `count` of them.
    fn raise_some(&mut self, signal: Signal, count: u8) {
        self.relays[signal as usize] = count;
    }

    pub(crate) fn wake(&mut self, waker: Option<Waker>) {
        self.wakers.extend(waker);
    }

    /// Wakes them all and is empty again.
    pub(crate) fn fire(&mut self, shared: &Shared) {
        let signals = std::mem::take(&mut self.signals);
        let relays = std::mem::take(&mut self.relays);
        if signals == 0 && relays == [0; SIGNALS] && self.wakers.is_empty() {
            return;
        }
        for (signal, bell) in shared.bells.iter() {
            if signals & 1 << signal as u8 != 0 {
                bell.notify_waiters();
            } else {
                (0..relays[signal as usize]).for_each(|_| bell.notify_one());
            }
        }
        self.wakers.drain(..).for_each(Waker::wake);
    }
}

/// How a sending half ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendEnd {
    /// Everything was acknowledged.
    Delivered,
    /// The peer did not want it.
    Stopped(u64),
}

/// What is remembered of a sending half while somebody cares.
#[derive(Debug, Default)]
pub(crate) struct SendSlot {
    pub(crate) writer: Option<Waker>,
    pub(crate) watchers: Vec<Waker>,
    pub(crate) end: Option<SendEnd>,
    /// The handle is gone, but what it finished is not delivered yet.
    pub(crate) detached: bool,
}

/// Under the lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) quic: Connection,
    /// Why the connection ended.
    pub(crate) error: Option<Box<ConnectionError>>,
    pub(crate) connected: bool,
    /// The sending halves that have a handle or a delivery to come.
    pub(crate) sends: FxHashMap<StreamId, SendSlot>,
    /// Who waits to read.
    pub(crate) readers: FxHashMap<StreamId, Waker>,
    /// HTTP/3, on endpoints that speak it.
    http: Option<Box<Layer>>,
    /// Every handle is gone.
    orphaned: bool,
    /// Streams that can be opened and that waiters were told of, by directionality.
    told: [u8; 2],
    link: Arc<Link>,
}

impl State {
    /// Hands the connection's events to who waits for them.
    pub(crate) fn dispatch(&mut self, now: Instant, wakes: &mut Wakes) {
        while let Some(event) = self.quic.poll_event() {
            if let Some(http) = &mut self.http {
                http.on_event(&mut self.quic, &event);
            }
            match event {
                Event::Connected => {
                    self.connected = true;
                    wakes.raise(Signal::Connected);
                }
                Event::Stream(event) if self.http.is_none() => {
                    self.dispatch_stream(event, wakes);
                }
                Event::DatagramReceived => wakes.raise(Signal::Datagram),
                Event::Closed(error) => self.fail(error, wakes),
                Event::Confirmed | Event::PathChanged { .. } | Event::ZeroRttRejected => {}
                // The transport may learn to say more than this layer needs.
                _ => {}
            }
        }
        if let Some(http) = &mut self.http {
            http.settle(now, &mut self.quic, wakes);
        }
        if self.quic.take_datagram_writable() {
            wakes.raise(Signal::DatagramRoom);
        }
        if self.quic.take_rested() {
            self.release_memory();
        }
        self.close_if_abandoned(now);
    }

    /// Gives back what is held for reuse, as the transport has just done.
    fn release_memory(&mut self) {
        self.sends.shrink_to_fit();
        self.readers.shrink_to_fit();
        if let Some(http) = &mut self.http {
            http.release_memory();
        }
    }

    fn dispatch_stream(&mut self, event: StreamEvent, wakes: &mut Wakes) {
        match event {
            StreamEvent::Opened(Directionality::Bidirectional) => wakes.raise(Signal::OpenedBi),
            StreamEvent::Opened(Directionality::Unidirectional) => wakes.raise(Signal::OpenedUni),
            StreamEvent::StreamsAvailable(directionality) => {
                wakes.raise_some(available(directionality), self.tell(directionality));
            }
            StreamEvent::Readable(id) => wakes.wake(self.readers.remove(&id)),
            StreamEvent::Writable(id) => {
                let slot = self.sends.get_mut(&id);
                wakes.wake(slot.and_then(|slot| slot.writer.take()));
            }
            StreamEvent::Finished(id) => self.end_send(id, SendEnd::Delivered, wakes),
            StreamEvent::Stopped { id, code } => self.end_send(id, SendEnd::Stopped(code), wakes),
        }
    }

    /// How many waiters to wake for streams that can be opened: together, for one after
    /// the other they would each send a datagram of their own. One even if there is
    /// none: only after somebody has met the limit is it said when it is raised.
    fn tell(&mut self, directionality: Directionality) -> u8 {
        let count = self.quic.openable(directionality).clamp(1, TOLD_AT_ONCE) as u8;
        self.told[directionality as usize] = count;
        count
    }

    /// Opens a stream; how many waiters to wake then, once all that were told of one
    /// have opened it.
    pub(crate) fn open(&mut self, directionality: Directionality) -> Option<(StreamId, u8)> {
        let id = self.quic.open(directionality)?;
        self.sends.insert(id, SendSlot::default());
        let told = &mut self.told[directionality as usize];
        *told = told.saturating_sub(1);
        let next = if *told == 0 {
            self.tell(directionality)
        } else {
            0
        };
        Some((id, next))
    }

    fn end_send(&mut self, id: StreamId, end: SendEnd, wakes: &mut Wakes) {
        let Some(slot) = self.sends.get_mut(&id) else {
            return;
        };
        slot.end.get_or_insert(end);
        wakes.wake(slot.writer.take());
        wakes.wakers.append(&mut slot.watchers);
        if slot.detached {
            self.sends.remove(&id);
        }
    }

    /// The connection is over: everybody who waits hears it.
    pub(crate) fn fail(&mut self, error: ConnectionError, wakes: &mut Wakes) {
        self.error.get_or_insert_with(|| Box::new(error));
        wakes.signals = u16::MAX;
        wakes
            .wakers
            .extend(self.readers.drain().map(|(_, waker)| waker));
        for slot in self.sends.values_mut() {
            wakes.wake(slot.writer.take());
            wakes.wakers.append(&mut slot.watchers);
        }
        if let Some(http) = &mut self.http {
            http.fail(wakes);
        }
    }

    /// HTTP/3 on this connection, for a call.
    pub(crate) fn http_view(&mut self) -> Option<View<'_>> {
        Some(View {
            layer: self.http.as_deref_mut()?,
            quic: &mut self.quic,
            lost: self.error.as_deref(),
        })
    }

    /// The HTTP requests that have arrived.
    pub(crate) fn take_requests(&mut self) -> VecDeque<Arrived> {
        let http = self.http.as_deref_mut();
        http.map(Layer::take_arrived).unwrap_or_default()
    }

    /// Whether no HTTP request is under way or undelivered.
    pub(crate) fn http_is_idle(&self) -> bool {
        self.http.as_ref().is_none_or(|http| http.is_idle())
    }

    /// Whether an HTTP request may be begun, at once or when the server has room.
    pub(crate) fn takes_requests(&self) -> bool {
        self.error.is_none() && self.http.as_ref().is_some_and(|http| !http.is_going_away())
    }

    /// Whether an HTTP request may be sent before the handshake is complete.
    pub(crate) fn takes_early_requests(&self) -> bool {
        let http = self.http.as_ref();
        self.quic.has_zero_rtt() && http.is_some_and(|http| http.remembers())
    }

    /// Nobody holds the connection and nothing is left to deliver.
    fn close_if_abandoned(&mut self, now: Instant) {
        let done = self.sends.is_empty() && self.http_is_idle();
        if self.orphaned && self.error.is_none() && done {
            self.orphaned = false;
            let (code, reason) = match (self.link.farewell(), &self.http) {
                (Some(close), _) => (close.code, &close.reason[..]),
                (None, Some(_)) => (clearway_http3::Code::NO_ERROR.0, &b""[..]),
                (None, None) => (0, &b""[..]),
            };
            self.quic.close(now, code, reason);
        }
    }
}

/// A connection between its handles and its shard.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    bells: Bells,
    pub(crate) link: Arc<Link>,
    pub(crate) handle: Handle,
    /// On the shard's dirty list.
    dirty: AtomicBool,
    /// Handles that the application holds.
    handles: AtomicUsize,
}

impl Shared {
    pub(crate) fn new(
        quic: Connection,
        handle: Handle,
        link: Arc<Link>,
        http: Option<Box<Layer>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                quic,
                error: None,
                connected: false,
                sends: FxHashMap::default(),
                readers: FxHashMap::default(),
                http,
                orphaned: false,
                told: [0; 2],
                link: link.clone(),
            }),
            bells: Bells::default(),
            link,
            handle,
            dirty: AtomicBool::new(false),
            handles: AtomicUsize::new(0),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock is a defect of ours; the others would rather
        // see their connection fail by the protocol than panic as well.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Instant {
        self.link.clock.now()
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

    /// Marks the connection dirty if what was just done under the lock gives
    /// the shard something to send, and releases the lock.
    pub(crate) fn release(&self, state: MutexGuard<'_, State>) {
        let due = state.quic.is_transmit_due();
        drop(state);
        if due {
            self.mark_dirty();
        }
    }

    /// Calls HTTP/3, then sends what came of it and wakes whom it concerns. Only
    /// on connections of endpoints that speak it.
    pub(crate) fn http<R>(&self, act: impl FnOnce(&mut View<'_>) -> R) -> R {
        let now = self.now();
        let mut wakes = Wakes::default();
        let mut state = self.lock();
        let mut view = state
            .http_view()
            .expect("exchanges exist on endpoints with HTTP only");
        let result = act(&mut view);
        let View { layer, quic, .. } = view;
        layer.settle(now, quic, &mut wakes);
        self.release(state);
        wakes.fire(self);
        result
    }

    /// Waits until `attempt` succeeds; it is made again after each `signal`.
    pub(crate) async fn wait_for<T>(
        &self,
        signal: Signal,
        mut attempt: impl FnMut(&mut State) -> Option<T>,
    ) -> T {
        loop {
            if let Some(value) = attempt(&mut self.lock()) {
                return value;
            }
            // Made before the attempt under the lock that follows, so whoever
            // changes the state after it finds it.
            let mut notified = pin!(self.bells.of(signal).notified());
            notified.as_mut().enable();
            // What came before `enable` is not told again.
            if let Some(value) = attempt(&mut self.lock()) {
                return value;
            }
            notified.await;
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
        let mut state = self.lock();
        state.orphaned = true;
        state.close_if_abandoned(now);
        drop(state);
        self.mark_dirty();
    }
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
