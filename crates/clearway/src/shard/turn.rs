//! The turn of a connection: its events are dispatched and its trains sent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clearway_quic::connection::{EndpointEvent, RecvMeta};
use clearway_quic::endpoint::ConnectionHandle;
use clearway_quic::{Instant, Role};
use clearway_udp::DatagramSocket;

use rustc_hash::FxHashMap;

use super::chores::{Chore, Leisure};
use super::connections::{Connections, Entry};
use super::link::count;
use super::scheduler::{Due, Pressure, QUANTUM, Scheduler};
use super::strays::QueuedDatagram;
use super::transmitter::{NotSent, send_datagram};
use crate::connection::{Activity, ConnectionRef, ConnectionShared, EventSlice, Stage, State};
use crate::panic::catch;

/// Trains that one connection may send in a turn.
const TRAINS_PER_TURN: usize = 4;

/// The same for a favored connection: 768 KiB. It has used little time lately, and a download that
/// takes few turns waits for few, however long the rest of each takes.
const TRAINS_PER_FAVORED_TURN: usize = 12;

/// Time for favored connections before others get a turn.
const FAVORED_TIME: Duration = Duration::from_millis(2);

/// Time for connections within their quantum before the socket is read again: the sender of a
/// datagram that just arrived may be one of them.
const PROMPT_TIME: Duration = Duration::from_millis(2);

/// The same while connections wait: what arrives for a favored one waits for all of this.
const CROWDED_PROMPT_TIME: Duration = Duration::from_micros(600);

/// Time for connections that wait in the round.
const ROUND_TIME: Duration = Duration::from_micros(600);

/// The same while datagrams wait for connections.
const CROWDED_ROUND_TIME: Duration = Duration::from_micros(300);

/// What the shard needs to know of a connection after its turn.
#[derive(Clone, Copy)]
struct TurnSummary {
    deadline: Option<Instant>,
    /// It may be passed to the application.
    usable: bool,
    activity: Activity,
}

/// How a turn ended.
enum TurnOutcome {
    Done,
    /// The connection was terminated, by a panic or an eviction.
    Gone,
}

/// The next step of a turn.
enum Step {
    /// Sends the trains that were written.
    Send,
    /// Leaves what else it may send to its next turn.
    Pause(TurnSummary),
    /// Waits until the socket sends the train before.
    Wait(TurnSummary),
    /// Ends the turn: nothing more may be sent now.
    Done(TurnSummary),
}

/// What is left of a turn.
struct Turn {
    /// Of events.
    slice: EventSlice,
    trains_left: usize,
    /// Trains that are sent together.
    batch: usize,
}

/// Tells a connection that its train was not sent.
fn on_not_sent(
    table: &FxHashMap<ConnectionHandle, Entry>,
    now: Instant,
    handle: ConnectionHandle,
    not_sent: NotSent,
) {
    let Some(entry) = table.get(&handle) else {
        return;
    };
    // If it panics, its next turn notices.
    let _ = entry
        .shared
        .with_state(Stage::Turn, |state| match not_sent {
            NotSent::Blocked => state.quic.on_scheduling_limited(now),
            NotSent::TooLarge(size) => state.quic.on_datagram_too_large(now, size),
        });
}

impl Connections {
    /// Gives connections their turns: first one each to favored ones, then to those within their
    /// quantum, then to those that wait in the round, each as long as there is time.
    ///
    /// # Errors
    /// If the socket fails permanently.
    pub(super) fn serve(&mut self, leisure: Leisure) -> io::Result<()> {
        let began = self.link.clock.now();
        let (favored, prompt) = (self.scheduler.favored(), self.scheduler.prompt());
        self.link.busy.record(favored.saturating_add(prompt));
        let (prompt_time, round_time) = if self.backlog.is_empty() {
            (PROMPT_TIME, ROUND_TIME)
        } else {
            (CROWDED_PROMPT_TIME, CROWDED_ROUND_TIME)
        };
        let prompt_time = leisure.limit(Chore::Prompt).unwrap_or(prompt_time);
        let round_time = leisure.limit(Chore::Round).unwrap_or(round_time);
        let at = self.serve_queue(Scheduler::pop_favored, favored, began, FAVORED_TIME)?;
        if prompt > 0 || self.scheduler.waiting() > 0 {
            // What they send does not wait for the others.
            self.send_trains(at)?;
        }
        let began = self.serve_queue(Scheduler::pop_prompt, prompt, at, prompt_time)?;
        let mut at = began;
        while !self.transmitter.is_blocked()
            && at.saturating_since(began) < round_time
            && let Some(handle) = self.scheduler.pop_round()
        {
            at = self.serve_if_due(handle, at)?;
        }
        self.send_trains(at)?;
        self.scheduler.end_round_if_idle();
        self.count_backlog();
        Ok(())
    }

    /// Gives at most `count` connections of a queue a turn, until `time` has passed since `began`.
    /// Returns the time afterwards.
    fn serve_queue(
        &mut self,
        pop: fn(&mut Scheduler) -> Option<ConnectionHandle>,
        count: usize,
        began: Instant,
        time: Duration,
    ) -> io::Result<Instant> {
        let mut at = began;
        for _ in 0..count {
            if at.saturating_since(began) >= time {
                break;
            }
            let Some(handle) = pop(&mut self.scheduler) else {
                break;
            };
            at = self.serve_if_due(handle, at)?;
        }
        Ok(at)
    }

    /// Serves a connection that was queued, unless it owes too much. Returns the time
    /// afterwards.
    fn serve_if_due(&mut self, handle: ConnectionHandle, at: Instant) -> io::Result<Instant> {
        let Some(entry) = self.table.get_mut(&handle) else {
            return Ok(at);
        };
        let trains = match self.scheduler.check_due(handle, &mut entry.account) {
            Due::First => {
                self.favored_at = Some(at);
                TRAINS_PER_FAVORED_TURN
            }
            Due::Now => TRAINS_PER_TURN,
            Due::Later => return Ok(at),
        };
        self.serve_now(handle, trains, at)
    }

    /// Gives a connection that has just begun a turn, without a place in a queue. What it sends waits for
    /// other trains.
    pub(super) fn serve_begun(&mut self, handle: ConnectionHandle) -> io::Result<()> {
        if !self.transmitter.is_blocked() {
            let at = self.link.clock.now();
            self.serve_now(handle, TRAINS_PER_TURN, at)?;
        }
        Ok(())
    }

    /// Gives a connection a turn, and charges it for that. Returns the time afterwards.
    fn serve_now(
        &mut self,
        handle: ConnectionHandle,
        trains: usize,
        at: Instant,
    ) -> io::Result<Instant> {
        let Some(entry) = self.table.get(&handle) else {
            return Ok(at);
        };
        let before = entry.activity.moved;
        let shared = entry.shared.clone();
        shared.clear_dirty();
        let now = if self.backlog.has(handle) {
            self.receive_backlog(&shared);
            self.link.clock.now()
        } else {
            at
        };
        let served = self.take_turn(&shared, trains, now);
        if let Ok(TurnOutcome::Gone) = served {
            self.forget_terminated(&shared);
        }
        self.release(shared);
        served?;
        let entry = self.table.get(&handle);
        let moved = entry.map_or(0, |entry| entry.activity.moved.saturating_sub(before));
        let of_offender = entry.is_some_and(|entry| entry.of_offender);
        let at = self.charge(handle, at, moved);
        if moved > 0 {
            self.handshake_pace.on_transfer(at, moved);
            if !of_offender {
                self.pending_clients.offenders.on_transfer_of_others(at);
            }
        }
        if self.backlog.has(handle) {
            self.mark_ready(handle);
        }
        Ok(at)
    }

    /// Charges a connection for the time since `from`, in which it has transferred `moved`
    /// bytes of stream data. Returns the time now.
    pub(super) fn charge(
        &mut self,
        handle: ConnectionHandle,
        from: Instant,
        moved: u64,
    ) -> Instant {
        let now = self.link.clock.now();
        if let Some(entry) = self.table.get_mut(&handle) {
            let time = now.saturating_since(from);
            self.scheduler.charge(&mut entry.account, time, moved);
            if entry.is_silent_client() || entry.activity.moved == 0 && entry.role == Role::Server {
                self.handshake_pace.on_unused(time);
            }
        }
        now
    }

    /// Whether connections wait for their turns, so that datagrams for them are set aside.
    pub(super) fn is_crowded(&self) -> bool {
        self.scheduler.waiting() > 0 || !self.backlog.is_empty()
    }

    /// Whether a datagram that arrived at `now` has to wait for its connection's turn. Beside downloads
    /// and uploads it has to as if the socket were overrun: reading it now would delay them.
    pub(super) fn must_wait(&mut self, handle: ConnectionHandle, now: Instant) -> bool {
        if self.backlog.has(handle) {
            return true;
        }
        let pressure = if self.must_hurry(now) {
            Pressure::Overrun
        } else {
            self.pressure
        };
        let entry = self.table.get_mut(&handle);
        entry.is_some_and(|entry| self.scheduler.should_wait(&mut entry.account, pressure))
    }

    /// Sets a datagram aside until the turn of its connection, which is queued.
    pub(super) fn set_aside(&mut self, handle: ConnectionHandle, from: RecvMeta, datagram: &[u8]) {
        let kept = self.backlog.push(handle, from, datagram);
        count(if kept {
            &self.link.counts.datagrams_deferred
        } else {
            &self.link.counts.datagrams_dropped
        });
    }

    /// Passes the datagrams set aside to their connection, for at most a quantum.
    fn receive_backlog(&mut self, shared: &ConnectionShared) {
        let Some(mut queue) = self.backlog.take(shared.handle) else {
            return;
        };
        let clock = self.link.clock.clone();
        let began = clock.now();
        // If it panics, the turn that follows notices.
        let _ = shared.with_state(Stage::Receive, |state| {
            let mut now = began;
            while now.saturating_since(began) < QUANTUM
                && let Some(QueuedDatagram { from, mut datagram }) = queue.pop()
            {
                state.quic.receive(now, from, &mut datagram);
                now = clock.now();
            }
            shared.charge_buffers(state);
        });
        self.backlog.put_back(shared.handle, queue);
        self.evict_for_memory(began);
    }

    /// Charges the datagrams that wait to the memory budget.
    pub(super) fn count_backlog(&mut self) {
        let bytes = self.backlog.bytes();
        let before = std::mem::replace(&mut self.backlog_counted, bytes);
        if before != bytes {
            self.link.budget.change(before, bytes);
        }
    }

    /// Drops the shard's reference to a connection, and then counts connections that have
    /// ended: whoever waits for the last one to end finds nothing left of it.
    pub(super) fn release(&mut self, shared: Arc<ConnectionShared>) {
        // It may contain code of the application, such as its observer.
        if let Err(panic) = catch(|| drop(shared)) {
            tracing::error!(%panic, "dropping a connection panicked");
        }
        for _ in 0..std::mem::take(&mut self.ended) {
            self.endpoint_shared.connection_count.remove();
        }
    }

    /// Dispatches the connection's events, sends up to so many trains and sets its deadline. Time is read anew
    /// only where some may have passed: after a system call.
    fn take_turn(
        &mut self,
        shared: &Arc<ConnectionShared>,
        trains: usize,
        mut now: Instant,
    ) -> io::Result<TurnOutcome> {
        let busy = self.link.busy.get();
        let turn = &mut Turn {
            slice: EventSlice::beside(busy),
            batch: self.trains_together(busy, now),
            trains_left: trains,
        };
        loop {
            let step = shared.with_state(Stage::Turn, |state| self.step(shared, state, turn, now));
            shared.wake(&mut self.wakeups);
            let (summary, again) = match step {
                Ok(Step::Send) => {
                    // Outside of the lock, because the system call takes long.
                    self.send_trains(now)?;
                    now = self.link.clock.now();
                    continue;
                }
                Ok(Step::Wait(summary) | Step::Pause(summary)) => (summary, true),
                Ok(Step::Done(summary)) => (summary, turn.slice.is_used_up()),
                Err(_) => return Ok(TurnOutcome::Gone),
            };
            self.finish_turn(shared, &summary);
            if again {
                self.mark_ready(shared.handle);
            }
            return Ok(TurnOutcome::Done);
        }
    }

    /// Takes one step of a turn, under the connection's lock.
    fn step(
        &mut self,
        shared: &ConnectionShared,
        state: &mut State,
        turn: &mut Turn,
        now: Instant,
    ) -> Step {
        loop {
            if turn.trains_left == 0 {
                return Step::Pause(self.settle(shared, state, now));
            }
            state.dispatch(&self.link, now, &mut self.wakeups, &mut turn.slice);
            if self.transmitter.is_blocked() {
                if state.quic.is_transmit_due() {
                    state.quic.on_scheduling_limited(now);
                }
                return Step::Wait(self.settle(shared, state, now));
            }
            let segments = self.socket.get_ref().gso_segments();
            let Some(train) = state.quic.transmit(now, self.transmitter.room(), segments) else {
                state.dispatch(&self.link, now, &mut self.wakeups, &mut turn.slice);
                return Step::Done(self.settle(shared, state, now));
            };
            turn.trains_left = turn.trains_left.saturating_sub(1);
            if self.transmitter.push(shared.handle, &train, turn.batch) {
                return Step::Send;
            }
        }
    }

    /// Returns what the shard needs to know of the connection after its turn.
    fn settle(
        &mut self,
        shared: &ConnectionShared,
        state: &mut State,
        now: Instant,
    ) -> TurnSummary {
        let activity = state.activity();
        state.set_buffer_limit(self.eviction.buffer_limit.for_transferred(activity.moved));
        shared.charge_memory(state, now);
        while let Some(event) = state.quic.poll_endpoint_event() {
            self.endpoint_events.push(event);
        }
        TurnSummary {
            deadline: state.next_wakeup(),
            usable: state.connected || state.quic.has_readable_zero_rtt(),
            activity,
        }
    }

    /// Returns how many trains are sent together if `busy` connections have work: a third of them,
    /// so that one third is with the peers while another is worked on. Handshakes are not waited for
    /// in this way, so all of a turn leave together.
    fn trains_together(&self, busy: u8, now: Instant) -> usize {
        if self.handshake_pace.is_beside_transfers(now) {
            usize::from(busy / 3).max(1)
        } else {
            usize::MAX
        }
    }

    /// Sends the trains that wait. While the socket is blocked, they go on waiting.
    ///
    /// # Errors
    /// If the socket fails permanently.
    pub(super) fn send_trains(&mut self, now: Instant) -> io::Result<()> {
        if self.transmitter.is_blocked() {
            return Ok(());
        }
        let table = &self.table;
        let socket = self.socket.get_ref();
        self.transmitter.send(socket, now, |handle, not_sent| {
            on_not_sent(table, now, handle, not_sent);
        })
    }

    /// Ends a connection's turn: sets its deadline, updates its routes, and passes it to the
    /// application if it is new.
    fn finish_turn(&mut self, shared: &Arc<ConnectionShared>, summary: &TurnSummary) {
        let handle = shared.handle;
        if let Some(entry) = self.table.get_mut(&handle) {
            self.deadlines
                .set(handle, &mut entry.deadline, summary.deadline);
            entry.activity = summary.activity;
            if entry.unannounced && summary.usable {
                entry.unannounced = false;
                self.endpoint_shared
                    .accept_queue
                    .push(ConnectionRef::new(shared.clone()));
            }
        }
        if !self.endpoint_events.is_empty() {
            self.apply_endpoint_events(shared);
        }
    }

    fn apply_endpoint_events(&mut self, shared: &ConnectionShared) {
        let handle = shared.handle;
        let drained = self.endpoint_events.contains(&EndpointEvent::Drained);
        let (link, events) = (self.link.clone(), &mut self.endpoint_events);
        let applied = catch(|| {
            let mut endpoint = link.endpoint();
            for event in events.drain(..) {
                endpoint.on_event(handle, event);
            }
        });
        self.endpoint_events.clear();
        match applied {
            Ok(()) if drained => self.forget(handle),
            Ok(()) => {}
            // Without its routes it would wait for packets that never reach it.
            Err(panic) => shared.terminate_for_panic(Stage::Turn, &panic),
        }
    }

    /// Removes a connection that has ended.
    fn forget(&mut self, handle: ConnectionHandle) {
        if let Some(entry) = self.table.remove(&handle) {
            self.record_offence(&entry);
            self.deadlines.remove(handle, entry.deadline);
            self.backlog.take(handle);
            self.ended = self.ended.saturating_add(1);
        }
    }

    /// Records that a connection has ended with an error of its client.
    fn record_offence(&mut self, entry: &Entry) {
        let at_fault = entry.shared.with_state(Stage::Turn, |state| {
            state.peer_at_fault().then(|| state.quic.remote_address())
        });
        if let Ok(Some(remote)) = at_fault
            && entry.role == Role::Server
            && let Some(source) = self.link.endpoint().admission().source_of(remote.ip())
        {
            let now = self.link.clock.now();
            let offenders = &mut self.pending_clients.offenders;
            offenders.record(now, source, entry.account.recent());
        }
    }

    /// Removes a terminated connection. Its peer is told if the datagram could be written, and
    /// is sent stateless resets from now on.
    pub(super) fn forget_terminated(&mut self, shared: &ConnectionShared) {
        let handle = shared.handle;
        self.endpoint_events.clear();
        if let Some(close_datagram) = shared.take_close_datagram() {
            let (remote, local_ip) = (close_datagram.remote, close_datagram.local_ip);
            let socket = self.socket.get_ref();
            if !send_datagram(socket, remote, local_ip, &close_datagram.datagram) {
                count(&self.link.counts.answers_dropped);
            }
        }
        let link = self.link.clone();
        let routes = catch(|| link.endpoint().on_event(handle, EndpointEvent::Drained));
        if let Err(panic) = routes {
            tracing::error!(%panic, "removing the routes of a connection panicked");
            self.link
                .counts
                .routing_panics
                .fetch_add(1, Ordering::Relaxed);
        }
        self.forget(handle);
    }

    /// Sends blocked trains if the socket is writable, or if they have waited long enough.
    ///
    /// # Errors
    /// If the socket fails permanently.
    pub(super) fn flush(&mut self, now: Instant) -> io::Result<()> {
        if !self.transmitter.is_blocked() {
            return Ok(());
        }
        let (transmitter, table) = (&mut self.transmitter, &self.table);
        let overdue = transmitter.resend_at().is_some_and(|at| at <= now);
        let mut offer = |socket: &dyn DatagramSocket| {
            transmitter.send(socket, now, |handle, not_sent| {
                on_not_sent(table, now, handle, not_sent);
            })?;
            if transmitter.is_blocked() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(())
        };
        let flushed = if overdue {
            offer(self.socket.get_ref())
        } else {
            self.socket.try_io(tokio::io::Interest::WRITABLE, offer)
        };
        match flushed {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
