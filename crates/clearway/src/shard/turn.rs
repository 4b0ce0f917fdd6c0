//! A connection's turn: its events are handed out, its trains sent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clearway_quic::Instant;
use clearway_quic::connection::{EndpointEvent, RecvMeta, Transmit};
use clearway_quic::endpoint::ConnectionHandle;

use super::Watched;
use super::connections::Connections;
use super::crowding::Activity;
use super::link::count;
use super::outlet::{Sent, answer};
use super::strays::Stray;
use super::turns::{Due, QUANTUM};
use crate::connection::{Counted, Shared, Stage, State};
use crate::panic::catch;

/// Trains one connection may send before the others get their turn.
const TRAINS_PER_TURN: usize = 4;

/// Time for the connections that are within their quantum, before the socket is looked at
/// again: who has just sent something may be one of them.
const PROMPT_TIME: Duration = Duration::from_millis(2);

/// Time for those that wait for their turn in the round.
const ROUND_TIME: Duration = Duration::from_micros(600);

/// What is to be known of a connection after its turn.
#[derive(Clone, Copy)]
struct Rest {
    deadline: Option<Instant>,
    /// The application may have it.
    usable: bool,
    activity: Activity,
}

/// How a turn ended.
enum Turn {
    Over,
    /// The connection is gone, by a panic or for want of room.
    Gone,
}

/// How a turn goes on.
enum Step {
    /// By sending this.
    Send(Transmit),
    /// When the socket takes what it was given before.
    Wait(Rest),
    /// Not: nothing more may leave now.
    Done(Rest),
}

impl Connections {
    /// Connections get their turns: those within their quantum one each, then those that
    /// wait for the round, as far as the time goes.
    ///
    /// # Errors
    /// If the socket is broken.
    pub(super) fn serve(&mut self) -> io::Result<()> {
        let began = self.link.clock.now();
        let mut at = began;
        for _ in 0..self.turns.prompt() {
            if at.saturating_since(began) >= PROMPT_TIME {
                break;
            }
            let Some(handle) = self.turns.pop_prompt() else {
                break;
            };
            at = self.serve_if_due(handle, at)?;
        }
        let began = at;
        while !self.outlet.is_blocked()
            && at.saturating_since(began) < ROUND_TIME
            && let Some(handle) = self.turns.pop_round()
        {
            at = self.serve_if_due(handle, at)?;
        }
        self.turns.end_round_if_idle();
        self.count_backlog();
        Ok(())
    }

    /// Serves a connection that was queued, unless it owes too much; the time afterwards.
    fn serve_if_due(&mut self, handle: ConnectionHandle, at: Instant) -> io::Result<Instant> {
        let Some(entry) = self.table.get_mut(&handle) else {
            return Ok(at);
        };
        if self.turns.popped(handle, &mut entry.account) == Due::Later {
            return Ok(at);
        }
        let before = entry.activity.moved;
        let shared = entry.shared.clone();
        shared.clear_dirty();
        self.receive_backlog(&shared);
        let served = self.take_turn(&shared);
        if let Ok(Turn::Gone) = served {
            self.forget_gone(&shared);
        }
        self.release(shared);
        served?;
        let moved = self.table.get(&handle).map(|entry| entry.activity.moved);
        let at = self.charge(
            handle,
            at,
            moved.map_or(0, |now| now.saturating_sub(before)),
        );
        if self.backlog.has(handle) {
            self.mark_ready(handle);
        }
        Ok(at)
    }

    /// A connection was worked on since `from`, and `moved` stream data meanwhile; the time.
    pub(super) fn charge(
        &mut self,
        handle: ConnectionHandle,
        from: Instant,
        moved: u64,
    ) -> Instant {
        let now = self.link.clock.now();
        if let Some(entry) = self.table.get_mut(&handle) {
            let time = now.saturating_since(from);
            self.turns.charge(&mut entry.account, time, moved);
        }
        now
    }

    /// Whether connections wait for their turns, so that what arrives for them is put aside.
    pub(super) fn is_crowded(&self) -> bool {
        self.turns.waiting() > 0 || !self.backlog.is_empty()
    }

    /// Whether what has arrived for a connection has to wait for its turn.
    pub(super) fn has_to_wait(&mut self, handle: ConnectionHandle) -> bool {
        if self.backlog.has(handle) {
            return true;
        }
        let entry = self.table.get_mut(&handle);
        entry.is_some_and(|entry| self.turns.should_wait(&mut entry.account, self.pressed))
    }

    /// Puts a datagram aside until its connection, which is queued, has its turn.
    pub(super) fn keep(&mut self, handle: ConnectionHandle, from: RecvMeta, datagram: &[u8]) {
        let kept = self.backlog.push(handle, from, datagram);
        count(if kept {
            &self.link.counts.datagrams_deferred
        } else {
            &self.link.counts.datagrams_dropped
        });
    }

    /// What was put aside for a connection reaches it, a quantum's worth at most.
    fn receive_backlog(&mut self, shared: &Shared) {
        let Some(mut queue) = self.backlog.take(shared.handle) else {
            return;
        };
        let clock = self.link.clock;
        let began = clock.now();
        // A connection that ends here notices in its turn.
        let _ = shared.visit(Stage::Receive, |state| {
            let mut now = began;
            while now.saturating_since(began) < QUANTUM
                && let Some(Stray { from, mut datagram }) = queue.pop()
            {
                state.quic.receive(now, from, &mut datagram);
                now = clock.now();
            }
            shared.count_buffers(state);
        });
        self.backlog.put_back(shared.handle, queue);
        self.relieve(began);
    }

    /// What waits counts against the memory budget.
    pub(super) fn count_backlog(&mut self) {
        let bytes = self.backlog.bytes();
        let before = std::mem::replace(&mut self.backlog_counted, bytes);
        if before != bytes {
            self.link.budget.change(before, bytes);
        }
    }

    /// The end of what is done with a connection. Who waits for the last one to end
    /// finds nothing left of it.
    pub(super) fn release(&mut self, shared: Arc<Shared>) {
        // Part of it may be the application's, such as its observer.
        if let Err(panic) = catch(|| drop(shared)) {
            tracing::error!(%panic, "what a connection left could not be dropped");
        }
        for _ in 0..std::mem::take(&mut self.ended) {
            self.house.population.remove();
        }
    }

    /// Hands out the connection's events, sends its trains, notes its timer.
    fn take_turn(&mut self, shared: &Arc<Shared>) -> io::Result<Turn> {
        for _ in 0..TRAINS_PER_TURN {
            let now = self.link.clock.now();
            let step = shared.visit(Stage::Turn, |state| self.step(shared, state, now));
            self.wakes.fire(shared);
            match step {
                Ok(Step::Send(train)) => {
                    // The system call is long: handles need not wait for it.
                    let sent = self.outlet.send(&**self.socket.get_ref(), &train, now);
                    self.after_send(shared, sent)?;
                }
                Ok(Step::Wait(rest)) => {
                    self.finish_turn(shared, &rest);
                    self.mark_ready(shared.handle);
                    return Ok(Turn::Over);
                }
                Ok(Step::Done(rest)) => {
                    self.finish_turn(shared, &rest);
                    return Ok(Turn::Over);
                }
                Err(_) => return Ok(Turn::Gone),
            }
        }
        let now = self.link.clock.now();
        let settled = shared.visit(Stage::Turn, |state| self.settle(shared, state, now));
        let Ok(rest) = settled else {
            return Ok(Turn::Gone);
        };
        self.finish_turn(shared, &rest);
        self.mark_ready(shared.handle);
        Ok(Turn::Over)
    }

    /// One step of a turn, under the connection's lock.
    fn step(&mut self, shared: &Shared, state: &mut State, now: Instant) -> Step {
        state.dispatch(&self.link, now, &mut self.wakes);
        if self.outlet.is_blocked() {
            if state.quic.is_transmit_due() {
                state.quic.on_scheduling_limited(now);
            }
            return Step::Wait(self.settle(shared, state, now));
        }
        let segments = self.socket.get_ref().gso_segments();
        match state.quic.transmit(now, &mut self.outlet.train, segments) {
            Some(train) => Step::Send(train),
            None => {
                state.dispatch(&self.link, now, &mut self.wakes);
                Step::Done(self.settle(shared, state, now))
            }
        }
    }

    /// What is to be known of the connection after its turn.
    fn settle(&mut self, shared: &Shared, state: &mut State, now: Instant) -> Rest {
        state.set_share(self.crowd.share);
        shared.count_memory(state, now);
        while let Some(event) = state.quic.poll_endpoint_event() {
            self.endpoint_events.push(event);
        }
        Rest {
            deadline: state.next_timeout(),
            usable: state.connected || state.quic.has_readable_zero_rtt(),
            activity: state.activity(),
        }
    }

    fn after_send(&mut self, shared: &Shared, sent: Sent) -> io::Result<()> {
        let now = self.link.clock.now();
        // If that should panic, the next step of the turn finds out.
        let _ = match sent {
            Sent::Taken | Sent::Dropped => return Ok(()),
            Sent::Kept => shared.visit(Stage::Turn, |state| {
                state.quic.on_scheduling_limited(now);
            }),
            Sent::TooLarge(size) => shared.visit(Stage::Turn, |state| {
                state.quic.on_datagram_too_large(now, size);
            }),
            Sent::Broken(error) => return Err(error),
        };
        Ok(())
    }

    /// The end of a connection's turn: its timer, its routes, its announcement.
    fn finish_turn(&mut self, shared: &Arc<Shared>, rest: &Rest) {
        let handle = shared.handle;
        if let Some(entry) = self.table.get_mut(&handle) {
            self.deadlines.set(handle, &mut entry.place, rest.deadline);
            entry.activity = rest.activity;
            if entry.unannounced && rest.usable {
                entry.unannounced = false;
                self.house.accepts.push(Counted::new(shared.clone()));
            }
        }
        if !self.endpoint_events.is_empty() {
            self.apply_endpoint_events(shared);
        }
    }

    fn apply_endpoint_events(&mut self, shared: &Shared) {
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
            // Without its routes it would wait for what never reaches it.
            Err(panic) => shared.kill(Stage::Turn, &panic),
        }
    }

    /// The connection is gone.
    fn forget(&mut self, handle: ConnectionHandle) {
        if let Some(entry) = self.table.remove(&handle) {
            self.deadlines.remove(handle, entry.place);
            self.backlog.take(handle);
            self.ended = self.ended.saturating_add(1);
        }
    }

    /// The connection ended at once: its peer is told if that could still be written,
    /// and with a stateless reset whenever it sends something from now on.
    pub(super) fn forget_gone(&mut self, shared: &Shared) {
        let handle = shared.handle;
        self.endpoint_events.clear();
        if let Some(farewell) = shared.take_farewell() {
            let (remote, local_ip) = (farewell.remote, farewell.local_ip);
            let socket = self.socket.get_ref();
            if !answer(&**socket, remote, local_ip, &farewell.datagram) {
                count(&self.link.counts.answers_dropped);
            }
        }
        let link = self.link.clone();
        let routes = catch(|| link.endpoint().on_event(handle, EndpointEvent::Drained));
        if let Err(panic) = routes {
            tracing::error!(%panic, "routes of a connection could not be removed");
            self.link
                .counts
                .routing_panics
                .fetch_add(1, Ordering::Relaxed);
        }
        self.forget(handle);
    }

    /// The socket is writable again, or should have been by now.
    ///
    /// # Errors
    /// If the socket is broken.
    pub(super) fn flush(&mut self, now: Instant) -> io::Result<()> {
        if !self.outlet.is_blocked() {
            return Ok(());
        }
        let outlet = &mut self.outlet;
        let overdue = outlet.resend_at().is_some_and(|at| at <= now);
        let mut offer = |socket: &Watched| match outlet.resend(&**socket, now) {
            Sent::Kept => Err(io::ErrorKind::WouldBlock.into()),
            // Which connection's it was is forgotten; the transport will find out by loss what
            // does not fit.
            Sent::Taken | Sent::Dropped | Sent::TooLarge(_) => Ok(()),
            Sent::Broken(error) => Err(error),
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
