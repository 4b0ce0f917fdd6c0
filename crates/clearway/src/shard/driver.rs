//! The loop: what a turn does, in which order, within which bounds.

use std::io;
use std::sync::Arc;

use clearway_udp::DatagramSocket;
use tokio::io::Interest;

use super::alarm::Alarm;
use super::connections::{Connections, Position};
use super::intake::Intake;
use super::link::{Link, count};
use super::strays::Strays;
use super::{WatchedSocket, watch_socket};
use crate::endpoint::House;
use crate::error::EndpointError;
use crate::panic::{CaughtPanic, catch};

/// Runs one shard.
pub(crate) struct Driver {
    pub(super) shard: Connections,
    pub(super) intake: Intake,
    pub(super) alarm: Alarm,
    abandoned: bool,
    /// Exchanged with the inbox's, so that neither is allocated again.
    dirty: Vec<clearway_quic::endpoint::ConnectionHandle>,
    outcome: Outcome,
}

/// How the loop came to its end.
enum Outcome {
    /// It has not, or not by itself.
    Running,
    Ended(Result<(), EndpointError>),
}

impl Driver {
    /// Within the runtime that it will run on.
    ///
    /// # Errors
    /// If the runtime cannot watch the socket.
    pub(crate) fn new(
        link: Arc<Link>,
        socket: Arc<dyn DatagramSocket>,
        house: Arc<House>,
        position: Position,
    ) -> io::Result<Self> {
        link.set_runtime(tokio::runtime::Handle::current());
        Ok(Self::watching(link, watch_socket(socket)?, house, position))
    }

    pub(super) fn watching(
        link: Arc<Link>,
        socket: WatchedSocket,
        house: Arc<House>,
        position: Position,
    ) -> Self {
        Self {
            intake: Intake::new(&**socket.get_ref()),
            alarm: Alarm::new(link.clock),
            shard: Connections::new(link, socket, house, position),
            abandoned: false,
            dirty: Vec::new(),
            outcome: Outcome::Running,
        }
    }

    /// Until the endpoint is given up and its connections have ended, or something
    /// fails.
    pub(crate) async fn run(mut self) {
        self.outcome = Outcome::Ended(self.until_done().await);
    }

    pub(super) async fn until_done(&mut self) -> Result<(), EndpointError> {
        loop {
            match catch(|| self.turn()) {
                Ok(Ok(true)) => tokio::task::yield_now().await,
                Ok(Ok(false)) if self.abandoned && self.shard.is_empty() => return Ok(()),
                Ok(Ok(false)) => self.wait().await,
                Ok(Err(error)) => return Err(error),
                Err(panic) => return Err(EndpointError::Panicked(panic)),
            }
        }
    }

    /// One bounded turn; whether there is more to do at once.
    pub(super) fn turn(&mut self) -> Result<bool, EndpointError> {
        count(&self.shard.link.counts.turns);
        let now = self.shard.link.clock.now();
        #[cfg(feature = "testing")]
        if let Some(fault) = self.take_fault() {
            fault.strike().map_err(broken)?;
            self.shard.set_fault(fault);
        }
        self.shard.update_share();
        let strays = self.take_inbox(now);
        self.shard.take_strays(now, strays)?;
        let more = self.intake.turn(&mut self.shard, now)?;
        self.shard.pressed = more;
        self.shard.welcome(now)?;
        self.shard.expire_handshakes(now);
        self.shard.handle_timeouts(now);
        self.shard.flush(now).map_err(broken)?;
        self.shard.serve().map_err(broken)?;
        self.shard.relieve(now);
        self.shard.make_room(now);
        let errors = self.intake.drain_errors(&self.shard, now);
        Ok(more || errors.map_err(broken)? || self.shard.has_work())
    }

    #[cfg(feature = "testing")]
    fn take_fault(&self) -> Option<super::Fault> {
        self.shard.link.inbox().fault.take()
    }

    /// What handles and other shards left.
    fn take_inbox(&mut self, now: clearway_quic::Instant) -> Strays {
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
            match watch_socket(socket) {
                Ok(socket) => self.shard.move_to(now, socket),
                Err(error) => tracing::error!(%error, "staying on the old socket"),
            }
        }
        strays
    }

    /// Sleeps until there is something to do.
    pub(super) async fn wait(&mut self) {
        self.alarm.set(self.shard.deadlines.next());
        self.alarm.set(self.shard.outlet.resend_at());
        self.alarm.set(self.intake.retry_at());
        // Errors wake it because a buffer full of them takes no datagrams.
        let mut interest = Interest::READABLE | Interest::ERROR;
        if self.shard.outlet.is_blocked() {
            interest |= Interest::WRITABLE;
        }
        tokio::select! {
            biased;
            _ = self.shard.socket.ready(interest) => {}
            () = self.alarm.gone_off() => {}
            () = self.shard.link.bell().notified() => {}
        }
    }
}

/// An error after which the socket is of no use.
pub(super) fn broken(error: io::Error) -> EndpointError {
    EndpointError::Socket(Arc::new(error))
}

#[cfg(test)]
impl Driver {
    /// What follows when [`until_done`](Self::until_done) has ended so.
    pub(super) fn end(mut self, ended: Result<(), EndpointError>) {
        self.outcome = Outcome::Ended(ended);
    }
}

impl Drop for Driver {
    /// Also when a runtime shuts down under it, or it panics while it waits: nobody
    /// waits for ever.
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
        let begun = link.inbox().end();
        let now = link.clock.now();
        for shared in begun {
            self.shard.adopt(now, shared);
        }
        self.shard.fail_all(ended);
    }
}
