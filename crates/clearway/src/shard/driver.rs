//! The event loop: the steps of a turn, in their order, and their limits.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use clearway_quic::Instant;
use clearway_udp::DatagramSocket;
use tokio::io::Interest;

use super::alarm::Alarm;
use super::async_socket::AsyncSocket;
use super::chores::Chore;
use super::connections::{Connections, Position};
use super::link::{ShardLink, count};
use super::receiver::Receiver;
use super::scheduler::Pressure;
use super::strays::Strays;
use crate::endpoint::EndpointShared;
use crate::error::EndpointError;
use crate::panic::{CaughtPanic, catch};
use crate::slice::requeue;

/// How long turns follow each other before the runtime looks at the socket again, which is a
/// system call. Short beside the time that a full receive buffer lasts.
const LOOK_INTERVAL: Duration = Duration::from_micros(100);

/// The event loop of one shard.
pub(crate) struct Driver {
    pub(super) shard: Connections,
    pub(super) receiver: Receiver,
    pub(super) alarm: Alarm,
    abandoned: bool,
    /// Swapped with the inbox's list, so that neither is allocated again.
    dirty: Vec<clearway_quic::endpoint::ConnectionHandle>,
    outcome: Outcome,
    /// When the runtime last looked at the socket while there was more to do.
    looked: Instant,
}

/// How the event loop ended.
enum Outcome {
    /// It has not ended, or was dropped.
    Running,
    Ended(Result<(), EndpointError>),
}

impl Driver {
    /// Creates the event loop. Called within the runtime that it will run on.
    ///
    /// # Errors
    /// If the socket cannot be registered with the runtime.
    pub(crate) fn new(
        link: Arc<ShardLink>,
        socket: Arc<dyn DatagramSocket>,
        endpoint_shared: Arc<EndpointShared>,
        position: Position,
    ) -> io::Result<Self> {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            link.set_runtime(runtime);
        }
        let socket = AsyncSocket::new(socket)?;
        Ok(Self::watching(link, socket, endpoint_shared, position))
    }

    pub(super) fn watching(
        link: Arc<ShardLink>,
        socket: AsyncSocket,
        endpoint_shared: Arc<EndpointShared>,
        position: Position,
    ) -> Self {
        Self {
            receiver: Receiver::new(socket.get_ref()),
            alarm: Alarm::new(link.clock.clone()),
            shard: Connections::new(link, socket, endpoint_shared, position),
            abandoned: false,
            dirty: Vec::new(),
            outcome: Outcome::Running,
            looked: Instant::ZERO,
        }
    }

    /// Runs until all handles of the endpoint are dropped and its connections have ended, or
    /// until a failure.
    pub(crate) async fn run(mut self) {
        self.outcome = Outcome::Ended(self.until_done().await);
    }

    pub(super) async fn until_done(&mut self) -> Result<(), EndpointError> {
        loop {
            match catch(|| self.turn()) {
                Ok(Ok(true)) => self.go_on().await,
                Ok(Ok(false)) if self.abandoned && self.shard.is_empty() => return Ok(()),
                Ok(Ok(false)) => self.wait().await,
                Ok(Err(error)) => return Err(error),
                Err(panic) => return Err(EndpointError::Panicked(panic)),
            }
        }
    }

    /// Lets other tasks run, and now and then the runtime look at the socket.
    async fn go_on(&mut self) {
        let now = self.shard.link.clock.now();
        if now.saturating_since(self.looked) < LOOK_INTERVAL {
            requeue().await;
        } else {
            self.looked = now;
            tokio::task::yield_now().await;
        }
    }

    /// Takes one turn, which is bounded. Returns whether there is more to do without waiting.
    pub(super) fn turn(&mut self) -> Result<bool, EndpointError> {
        count(&self.shard.link.counts.turns);
        let now = self.shard.link.clock.now();
        #[cfg(feature = "testing")]
        if let Some(fault) = self.take_fault() {
            fault.inject().map_err(broken)?;
            self.shard.set_fault(fault);
        }
        self.shard.begun = 0;
        self.shard.update_buffer_limit();
        let strays = self.take_inbox(now);
        self.shard.take_strays(now, strays)?;
        self.shard.scheduler.set_time(now);
        let pressure = self.receiver.turn(&mut self.shard, now)?;
        self.shard.pressure = pressure;
        self.shard.expire_handshakes(now);
        self.shard.handle_timeouts(now);
        self.shard.end_lingering(now);
        self.shard.flush(now).map_err(broken)?;
        let leisure = self.shard.leisure(now);
        self.shard.serve(leisure).map_err(broken)?;
        self.shard.begin_pending_clients(now, leisure)?;
        self.shard.evict_for_memory(now);
        self.shard.evict_idle_for_memory(now);
        self.shard.evict_for_new_clients(now);
        let errors = self.receiver.drain_errors(&mut self.shard, now);
        match leisure.limit(Chore::Handlers) {
            None => self.shard.link.turns.lift_limit(),
            Some(Duration::ZERO) => self.shard.link.turns.pause(),
            Some(time) => self.shard.link.turns.limit(time),
        }
        let more = pressure != Pressure::Drained;
        Ok(more || errors.map_err(broken)? || self.shard.has_work())
    }

    #[cfg(feature = "testing")]
    fn take_fault(&self) -> Option<super::Fault> {
        self.shard.link.inbox().fault.take()
    }

    /// Takes the work that handles and other shards have left in the inbox. Returns the
    /// forwarded datagrams.
    fn take_inbox(&mut self, now: Instant) -> Strays {
        let mut strays = Strays::default();
        let link = self.shard.link.clone();
        let mut inbox = link.inbox();
        std::mem::swap(&mut self.dirty, &mut inbox.dirty);
        let begun = std::mem::take(&mut inbox.begun);
        if !inbox.strays.is_empty() {
            strays.swap(&mut inbox.strays);
        }
        let (close, socket) = (inbox.close.take(), inbox.socket.take());
        self.abandoned = inbox.abandoned;
        drop(inbox);

        for shared in begun {
            self.shard.adopt(now, shared);
        }
        for handle in self.dirty.drain(..) {
            self.shard.mark_ready(handle);
        }
        if self.abandoned {
            self.shard.refuse_clients();
        }
        if let Some(close) = close {
            self.shard.close_all(now, close);
        }
        if let Some(socket) = socket {
            match AsyncSocket::new(socket) {
                Ok(socket) => self.shard.move_to(now, socket),
                Err(error) => {
                    tracing::error!(%error, "cannot use the new socket; staying on the old one");
                }
            }
        }
        strays
    }

    /// Waits until there is something to do.
    pub(super) async fn wait(&mut self) {
        self.shard.link.turns.lift_limit();
        let listed = self.shard.deadlines.first();
        if listed.is_some_and(|(at, _)| !self.alarm.expires_by(at)) {
            self.alarm.set(self.shard.next_deadline());
        }
        self.alarm.set(self.shard.transmitter.resend_at());
        self.alarm.set(self.receiver.retry_at());
        self.alarm.set(self.shard.handshakes_resume_at());
        self.alarm.set(self.shard.timeouts_resume_at());
        self.alarm.set(self.shard.lingering_ends_at());
        // Errors wake it too, because a buffer full of them receives no datagrams.
        let mut interest = Interest::READABLE | Interest::ERROR;
        let is_blocked = self.shard.transmitter.is_blocked();
        if is_blocked {
            interest |= Interest::WRITABLE;
        }
        let now = self.shard.link.clock.now();
        self.shard.socket.watch_writable(is_blocked, now);
        tokio::select! {
            biased;
            _ = self.shard.socket.ready(interest) => {}
            () = self.alarm.expired() => {}
            () = self.shard.link.wakeup().notified() => {}
        }
    }
}

/// Converts an error after which the socket cannot be used.
pub(super) fn broken(error: io::Error) -> EndpointError {
    EndpointError::Socket(Arc::new(error))
}

#[cfg(test)]
impl Driver {
    /// Ends the loop with a result of [`until_done`](Self::until_done).
    pub(super) fn end(mut self, ended: Result<(), EndpointError>) {
        self.outcome = Outcome::Ended(ended);
    }
}

impl Drop for Driver {
    /// Fails all connections. This is done here so that no task waits for ever when the runtime
    /// shuts down, or the loop panics while it waits.
    fn drop(&mut self) {
        let ended = match std::mem::replace(&mut self.outcome, Outcome::Running) {
            Outcome::Ended(ended) => ended,
            Outcome::Running if std::thread::panicking() => {
                Err(EndpointError::Panicked(CaughtPanic::unwinding()))
            }
            Outcome::Running => Err(EndpointError::RuntimeGone),
        };
        if let Err(failure) = &ended {
            self.shard.on_failure(failure);
        }
        let link = self.shard.link.clone();
        link.turns.lift_limit();
        let begun = link.inbox().end();
        let now = link.clock.now();
        for shared in begun {
            self.shard.adopt(now, shared);
        }
        self.shard.fail_all(ended);
    }
}
