//! All streams of a connection: limits, lookup, opening and removal.

use std::collections::BTreeSet;

use clearway_recovery::limit::Limit;
use rustc_hash::FxHashMap;

use super::concurrency::{LocalStreams, RemoteStreams};
use super::config::StreamLimits;
use super::event::{Events, StreamEvent};
use super::group::Groups;
use super::halves::{Halves, PendingControl, SparePairs, Stream};
use super::per_direction::PerDirection;
use super::recv::{BufferUsage, Received, RecvHalf};
use super::send::SendHalf;
use super::sending::Sending;
use super::window::Window;
use super::{Config, Directionality, PeerLimits, StreamId};
use crate::Role;
use crate::count::Count;
use crate::memory;
use crate::time::Instant;

/// While there are fewer streams than this, the allocations of finished streams are not kept: a
/// connection that does little should use little memory.
const FEW: usize = 16;

/// Number of streams for which the table never shrinks.
const SMALL_TABLE: usize = 256;

/// Whether [`Streams::fill`] has frames to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sendability {
    /// There are control frames, retransmissions, or data within credit.
    Ready,
    /// There is nothing to write, for this reason.
    Blocked(Limit),
}

/// Numbers and memory of the streams of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Streams of either end that are not finished.
    pub open: usize,
    /// Streams with data that wait for stream credit.
    pub stalled: usize,
    /// Memory of send buffers, bytes.
    pub send_buffered: usize,
    /// Memory of receive buffers, bytes.
    pub receive_buffered: usize,
    /// Receive window of the connection, bytes.
    pub receive_window: u64,
    /// Bytes that the application has read or discarded.
    pub consumed: u64,
}

/// All streams of one connection. Frames and time go in, frames and events come out.
#[derive(Debug)]
pub struct Streams {
    pub(super) role: Role,
    pub(super) config: Config,
    pub(super) streams: FxHashMap<StreamId, Stream>,
    spares: SparePairs,
    pub(super) local: PerDirection<LocalStreams>,
    pub(super) remote: PerDirection<RemoteStreams>,
    /// The peer's limits on each stream, once known.
    limits: Option<StreamLimits>,
    /// Whether the peer supports RESET_STREAM_AT.
    pub(super) reliable_resets: bool,
    pub(super) sending: Sending,
    /// Credit we grant for all streams together.
    pub(super) receive: Window,
    /// The sum of highest offsets received.
    pub(super) received: u64,
    /// What the receive buffers hold.
    pub(super) receive_usage: BufferUsage,
    /// Whether bytes arrived or were acknowledged for the first time.
    pub(super) progress: bool,
    /// Whether a MAX_DATA has to be sent.
    pub(super) credit_pending: bool,
    /// Whether the next packet should carry MAX_DATA. This alone does not cause a packet.
    pub(super) urgent_credit: bool,
    /// The same for MAX_STREAM_DATA of the streams [marked](RecvHalf::mark_urgent_credit).
    pub(super) hurried_streams: Vec<StreamId>,
    /// Streams with [`PendingControl`] frames to send.
    pub(super) control: BTreeSet<StreamId>,
    pub(super) events: Events,
    /// `None` while there are no groups.
    pub(super) groups: Option<Box<Groups>>,
    /// When [`Self::fill`] was last called.
    pub(super) now: Instant,
}

impl Streams {
    /// Creates the streams of a new connection, without credit until [`Self::set_peer_limits`].
    #[must_use]
    pub fn new(role: Role, config: Config) -> Self {
        let config = config.normalized();
        Self {
            role,
            streams: FxHashMap::default(),
            spares: SparePairs::default(),
            local: PerDirection::default(),
            remote: PerDirection::new(
                RemoteStreams::new(config.max_bidi_streams),
                RemoteStreams::new(config.max_uni_streams),
            ),
            limits: None,
            reliable_resets: false,
            sending: Sending::new(config.send_budget, config.send_limit),
            receive: Window::new(
                config.connection_window,
                config.receive_budget,
                Instant::ZERO,
            ),
            received: 0,
            receive_usage: BufferUsage::default(),
            progress: false,
            credit_pending: false,
            urgent_credit: false,
            hurried_streams: Vec::new(),
            control: BTreeSet::new(),
            events: Events::default(),
            groups: None,
            now: Instant::ZERO,
            config,
        }
    }

    /// Returns the limits for our own transport parameters.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn initial_limits(&self) -> PeerLimits {
        self.config.initial_limits()
    }

    /// Sets the peer's limits: first the remembered ones for 0-RTT, if any, then those of its
    /// transport parameters. A limit is never reduced.
    pub fn set_peer_limits(&mut self, limits: PeerLimits) {
        let known = self.limits.unwrap_or_default();
        self.limits = Some(known.raised_to(StreamLimits::from(limits)));
        self.sending.raise_max_data(limits.max_data);
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        for id in ids {
            let initial = self.initial_send_limit(id);
            self.with_send(id, |half| half.raise_max_data(initial));
            self.wake_writer(id);
        }
        self.raise_stream_limit(Directionality::Bidirectional, limits.streams_bidi);
        self.raise_stream_limit(Directionality::Unidirectional, limits.streams_uni);
    }

    /// Sets whether the peer supports RESET_STREAM_AT. Not remembered for 0-RTT.
    pub fn set_reliable_resets(&mut self, supported: bool) {
        self.reliable_resets = supported;
    }

    /// Called when the server rejects 0-RTT (RFC 9001 §4.6.2): everything sent has to be sent again,
    /// under limits that are still to be set. The application does not notice.
    pub fn on_zero_rtt_rejected(&mut self) {
        self.limits = None;
        self.sending.forget_credit();
        self.local.iter_mut().for_each(LocalStreams::forget_limit);
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        for id in ids {
            self.with_send(id, SendHalf::on_rejected);
            let Some(stream) = self.streams.get_mut(&id) else {
                continue;
            };
            let reset = stream.send().is_some_and(SendHalf::is_resetting);
            let stop = stream.recv().is_some_and(RecvHalf::wants_stop);
            stream.control = PendingControl {
                reset,
                stop,
                ..PendingControl::default()
            };
            self.sync_control(id);
        }
    }

    /// Returns whether [`Self::fill`] has frames to write, and if not, why. O(1).
    #[must_use]
    pub fn sendability(&self) -> Sendability {
        if self.has_control() || !self.sending.free.is_empty() {
            return Sendability::Ready;
        }
        if !self.sending.paid.is_empty() {
            return if self.sending.credit() > 0 {
                Sendability::Ready
            } else {
                Sendability::Blocked(Limit::ConnectionFlowControl)
            };
        }
        if self.sending.stalled > 0 {
            return Sendability::Blocked(Limit::StreamFlowControl);
        }
        if self.local.iter().any(LocalStreams::is_blocked) {
            return Sendability::Blocked(Limit::StreamLimit);
        }
        Sendability::Blocked(Limit::Application)
    }

    /// Sets the congestion window in bytes. Writers together may buffer twice as much.
    pub fn set_send_window_hint(&mut self, bytes: u64) {
        self.sending.set_hint(bytes);
        self.wake_writers();
    }

    /// Returns the next event for the application.
    pub fn poll_event(&mut self) -> Option<StreamEvent> {
        self.events.poll()
    }

    /// Returns the allocated memory in bytes for streams: buffers, the streams themselves, turns, events.
    #[must_use]
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "sizes of what is in memory together"
    )]
    pub fn memory(&self) -> usize {
        self.sending.memory()
            + self.receive_usage.memory
            + memory::hash_map(&self.streams)
            + self.streams.values().map(Stream::memory).sum::<usize>()
            + self.spares.memory()
            + memory::btree_set(&self.control)
            + memory::vec(&self.hurried_streams)
            + self.events.memory()
            + self.groups.as_ref().map_or(0, |groups| groups.memory())
    }

    /// Returns numbers and memory of the streams.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            open: self.streams.len(),
            stalled: self.sending.stalled,
            send_buffered: self.sending.buffered(),
            receive_buffered: self.receive_usage.memory,
            receive_window: self.receive.size(),
            consumed: self.receive.consumed(),
        }
    }

    /// Returns the number of bytes of stream data that the peer has sent at most, by the highest offsets and
    /// final sizes it told.
    pub(crate) const fn bytes_announced(&self) -> u64 {
        self.received
    }

    /// Streams opened so far, by either end.
    pub(crate) fn opened(&self) -> u64 {
        let local = self.local.iter().map(|streams| streams.opened);
        let remote = self.remote.iter().map(|streams| streams.opened);
        local.chain(remote).fold(0, u64::saturating_add)
    }

    /// Returns whether a bidirectional stream was ever opened here.
    pub(crate) fn has_own_requests(&self) -> bool {
        self.local[Directionality::Bidirectional].opened > 0
    }

    /// Returns whether a bidirectional stream opened here has not received everything.
    pub(crate) fn awaits_answer(&self) -> bool {
        self.streams.iter().any(|(id, stream)| {
            id.directionality() == Directionality::Bidirectional
                && id.initiator() == self.role
                && (stream.recv()).is_some_and(|half| half.state().is_receiving())
        })
    }

    /// Returns whether the peer has yet to acknowledge all of a stream that was finished or reset
    /// here. Takes time proportional to the number of streams.
    pub(crate) fn has_undelivered_ends(&self) -> bool {
        let mut halves = self.streams.values().filter_map(Stream::send);
        halves.any(SendHalf::is_ending)
    }

    fn has_control(&self) -> bool {
        self.credit_pending
            || self.sending.blocked_pending
            || !self.control.is_empty()
            || self.local.iter().any(|l| l.blocked_pending)
            || self.remote.iter().any(|r| r.pending)
    }

    /// Returns how many streams of this directionality the peer may open, counted from the first.
    pub fn peer_limit(&self, directionality: Directionality) -> u64 {
        self.remote[directionality].granted
    }

    pub(super) fn limits_known(&self) -> bool {
        self.limits.is_some()
    }

    /// Adds the stream `id` with the halves of its type.
    pub(super) fn insert(&mut self, id: StreamId) {
        let local = id.initiator() == self.role;
        let both = id.directionality() == Directionality::Bidirectional;
        let max_data = self.initial_send_limit(id);
        let window = || {
            // As announced, whatever the limit is now: credit cannot be revoked.
            let size = self.config.stream_window;
            let mut window = Window::new(size, size, self.now);
            window.limit(0, self.receive.max());
            window
        };
        let halves = if both {
            let window = window();
            let mut pair = self.spares.take(max_data, window);
            // A list of blocks that is used again is allocated already.
            self.sending.admit(&mut pair.0);
            let none = BufferUsage::default();
            self.receive_usage = self.receive_usage.changed(none, pair.1.usage());
            Halves::Both(pair)
        } else if local {
            Halves::Send(Box::new(SendHalf::new(max_data)))
        } else {
            Halves::Recv(Box::new(RecvHalf::new(window())))
        };
        self.streams.insert(id, Stream::new(halves));
    }

    /// Returns the peer's initial limit for a stream (RFC 9000 §18.2). Streams that are local to
    /// the peer are remote to us.
    fn initial_send_limit(&self, id: StreamId) -> u64 {
        let limits = self.limits.unwrap_or_default();
        match (id.directionality(), id.initiator() == self.role) {
            (Directionality::Bidirectional, true) => limits.bidi_remote,
            (Directionality::Bidirectional, false) => limits.bidi_local,
            (Directionality::Unidirectional, _) => limits.uni,
        }
    }

    /// Returns whether the peer's stream limit allows frames for `id`. Streams beyond the limit exist
    /// only after 0-RTT was rejected.
    fn is_admitted(&self, id: StreamId) -> bool {
        id.initiator() != self.role || id.index() < self.local[id.directionality()].limit
    }

    pub(super) fn raise_stream_limit(&mut self, dir: Directionality, limit: u64) {
        let local = &mut self.local[dir];
        let old = local.raise(limit);
        let admitted = old..local.limit.min(local.opened);
        if local.take_available() {
            self.events.push(StreamEvent::StreamsAvailable(dir));
        }
        for index in admitted {
            let id = StreamId::new(self.role, dir, index);
            self.with_send(id, |_| ());
            self.sync_control(id);
        }
    }

    /// Changes a sending half and keeps the shared accounts right.
    pub(super) fn with_send<R>(
        &mut self,
        id: StreamId,
        change: impl FnOnce(&mut SendHalf) -> R,
    ) -> Option<R> {
        let admitted = self.is_admitted(id);
        let known = self.limits_known();
        let Stream { halves, control } = self.streams.get_mut(&id)?;
        let half = halves.send_mut()?;
        let held = half.held();
        let result = change(half);
        self.sending.settle(id, half, held, admitted);
        let blocked =
            known && half.schedule_state.stalled && half.blocked_at != Some(half.max_data());
        if blocked != control.blocked {
            control.blocked = blocked;
            self.sync_control(id);
        }
        Some(result)
    }

    /// Changes a receiving half and keeps the shared accounts right.
    pub(super) fn with_recv<R>(
        &mut self,
        id: StreamId,
        change: impl FnOnce(&mut RecvHalf) -> R,
    ) -> Option<R> {
        let Stream { halves, control } = self.streams.get_mut(&id)?;
        let half = halves.recv_mut()?;
        let before = half.usage();
        let result = change(half);
        self.receive_usage = self.receive_usage.changed(before, half.usage());
        let wanted = PendingControl {
            stop: control.stop && half.wants_stop(),
            credit: half.wants_credit() && (control.credit || half.window.is_due()),
            ..*control
        };
        if wanted != *control {
            *control = wanted;
            self.sync_control(id);
        }
        Some(result)
    }

    /// Updates the accounts after a frame has changed a receiving half.
    pub(super) fn apply_received(&mut self, id: StreamId, news: Received) {
        self.received.count(news.raised);
        self.progress |= news.fresh > 0;
        self.consume(news.discarded);
        if let Some(groups) = &mut self.groups {
            groups.on_received(id, news.raised, news.discarded);
        }
        if news.readable {
            self.events.push(StreamEvent::Readable(id));
        }
    }

    /// Counts consumed bytes, for which the peer may be granted new credit.
    pub(super) fn consume(&mut self, bytes: u64) {
        self.receive.consume(bytes);
        self.credit_pending |= bytes > 0 && self.receive.is_due();
    }

    /// Adds a stream to the control queue or removes it.
    pub(super) fn sync_control(&mut self, id: StreamId) {
        let any = self.streams.get(&id).is_some_and(|s| s.control.any());
        if any && self.is_admitted(id) {
            self.control.insert(id);
        } else {
            self.control.remove(&id);
        }
    }

    pub(super) fn mark(&mut self, id: StreamId, mark: impl FnOnce(&mut PendingControl)) {
        if let Some(stream) = self.streams.get_mut(&id) {
            mark(&mut stream.control);
            self.sync_control(id);
        }
    }

    /// Reports `id` as writable if its writer waited for what has just changed.
    pub(super) fn wake_writer(&mut self, id: StreamId) {
        let half = self.streams.get_mut(&id).and_then(Stream::send_mut);
        if let Some(half) = half {
            self.sending.wake(id, half, &mut self.events);
        }
    }

    /// Reports streams as writable whose writers waited for the shared budget.
    #[inline]
    pub(super) fn wake_writers(&mut self) {
        if self.sending.has_writers() {
            self.wake_queued_writers();
        }
    }

    fn wake_queued_writers(&mut self) {
        for _ in 0..self.sending.writers_to_wake() {
            let Some(id) = self.sending.next_writer() else {
                break;
            };
            let half = self.streams.get_mut(&id).and_then(Stream::send_mut);
            if let Some(half) = half {
                half.ticket = None;
                self.sending.wake(id, half, &mut self.events);
            }
        }
    }

    /// Records that new data arrived or was acknowledged.
    pub(crate) fn note_progress(&mut self) {
        self.progress = true;
    }

    /// Returns true once after stream data arrived or was acknowledged for the first time, which
    /// shows that the peer is active.
    pub fn take_progress(&mut self) -> bool {
        core::mem::take(&mut self.progress)
    }

    /// Removes a stream if both halves are finished.
    pub(super) fn prune(&mut self, id: StreamId) {
        if !self.streams.get(&id).is_some_and(Stream::is_over) {
            return;
        }
        self.control.remove(&id);
        if let Some(groups) = &mut self.groups {
            groups.leave(id);
        }
        let Some(stream) = self.streams.remove(&id) else {
            return;
        };
        if let Some(half) = stream.recv() {
            let none = BufferUsage::default();
            self.receive_usage = self.receive_usage.changed(half.usage(), none);
        }
        if let Some(half) = stream.send() {
            self.sending.forget(half);
        }
        if self.streams.len() >= FEW {
            self.spares.put(stream.halves);
        }
        self.shrink_table();
        if id.initiator() != self.role {
            self.remote[id.directionality()].close();
        }
    }

    /// Frees memory that is kept for reuse, when the connection becomes idle.
    pub fn release_memory(&mut self) {
        for stream in self.streams.values_mut() {
            if let Some(half) = stream.send_mut() {
                self.sending.release_memory(half);
            }
            if let Some(half) = stream.recv_mut() {
                let before = half.usage();
                half.release_memory();
                self.receive_usage = self.receive_usage.changed(before, half.usage());
            }
        }
        self.streams.shrink_to_fit();
        self.spares.release_memory();
        self.hurried_streams.shrink_to_fit();
        if self.control.is_empty() {
            // A tree that was emptied keeps a node.
            self.control = BTreeSet::new();
        }
        self.events.release_memory();
        self.sending.free.release_memory();
        self.sending.paid.release_memory();
    }

    /// Shrinks the table to half its size when only an eighth is in use. The amortized cost for each
    /// finished stream is constant.
    fn shrink_table(&mut self) {
        let capacity = self.streams.capacity();
        if capacity > SMALL_TABLE && self.streams.len() < capacity / 8 {
            self.streams.shrink_to(capacity / 2);
        }
    }
}

#[cfg(test)]
impl Streams {
    /// Bidirectional streams granted to the peer so far.
    pub(super) fn remote_limit_for_test(&self) -> u64 {
        self.remote[Directionality::Bidirectional].granted
    }

    /// Events not yet polled.
    pub(super) fn pending_events_for_test(&self) -> usize {
        self.events.len()
    }
}
