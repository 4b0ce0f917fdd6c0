//! The way in: batches, and whose each datagram is.

use std::io;
use std::time::Duration;

use clearway_quic::Instant;
use clearway_quic::ack::ReceivedEcn;
use clearway_quic::connection::RecvMeta;
use clearway_quic::endpoint::ConnectionHandle;
use clearway_udp::{DatagramSocket, Ecn, Meta, RecvBatch, RecvError};
use tokio::io::Interest;

use super::connections::Connections;
use super::driver::broken;
use super::link::count;
use super::{Clock, Watched};
use crate::connection::Stage;
use crate::error::EndpointError;
use crate::notice::Notice;
use crate::panic::catch;

/// Receive calls per turn: enough to amortise a turn, few enough that sending
/// and timers get theirs.
const BATCHES_PER_TURN: usize = 4;

/// The same while connections wait for their turns. What arrives for them is only put
/// aside, and the rest of what the socket holds may be for those who need not wait.
const BATCHES_WHILE_WAITING: usize = 32;

/// Time after which no further call follows.
const INTAKE_TIME: Duration = Duration::from_millis(1);

/// Messages per receive call.
const SLOTS: usize = 16;

/// ICMP errors read per turn: each is a system call, and a stranger can send any number.
const ERRORS_PER_TURN: usize = 64;

/// Pause after the system failed to receive: short beside a round trip, long enough for a
/// socket that keeps failing not to take the processor.
const PAUSE: Duration = Duration::from_millis(10);

/// Memory for what the socket hands over.
#[derive(Debug)]
pub(super) struct Intake {
    batch: RecvBatch,
    /// Whose each datagram of the batch is.
    routes: Vec<Option<ConnectionHandle>>,
    /// The system failed to receive: when to call again, ready or not.
    retry_at: Option<Instant>,
    failures: Notice,
    icmp: Notice,
}

impl Intake {
    pub(super) fn new(socket: &dyn DatagramSocket) -> Self {
        Self {
            batch: RecvBatch::for_socket(socket, SLOTS),
            routes: Vec::new(),
            retry_at: None,
            failures: Notice::default(),
            icmp: Notice::default(),
        }
    }

    /// Everything that arrives in one turn: whether more is probably waiting.
    ///
    /// # Errors
    /// If the socket is broken, or routing.
    pub(super) fn turn(
        &mut self,
        shard: &mut Connections,
        now: Instant,
    ) -> Result<bool, EndpointError> {
        for batches in 1..=BATCHES_WHILE_WAITING {
            let more = self.fill(shard, now).map_err(broken)?;
            self.route(shard, now)?;
            let at = self.receive(shard, now);
            if !more {
                return Ok(false);
            }
            let enough = batches >= BATCHES_PER_TURN && !shard.is_crowded();
            if enough || at.saturating_since(now) >= INTAKE_TIME {
                break;
            }
        }
        Ok(true)
    }

    /// When to have another turn though nothing may have come.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// One receive call: whether more is probably waiting.
    fn fill(&mut self, shard: &Connections, now: Instant) -> io::Result<bool> {
        let batch = &mut self.batch;
        batch.clear();
        let mut failure = None;
        let mut receive = |socket: &Watched| match socket.recv(batch) {
            // Nothing but errors of earlier sends, and the datagrams are behind them.
            Ok(0) => Ok(()),
            Ok(_) if batch.is_full() => Ok(()),
            // Slots to spare: the queue is empty. Saying so saves the call that
            // would find out.
            Ok(_) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => {
                failure = Some(error);
                Err(io::ErrorKind::WouldBlock.into())
            }
        };
        // After a failure the runtime's idea of readiness is out of date.
        let unasked = self.retry_at.take_if(|at| *at <= now).is_some();
        let more = if unasked {
            receive(shard.socket.get_ref()).is_ok()
        } else {
            shard.socket.try_io(Interest::READABLE, receive).is_ok()
        };
        if unasked && more {
            self.retry_at = Some(now);
        }
        match failure {
            None | Some(RecvError::WouldBlock) => {}
            Some(RecvError::Unavailable(error)) => {
                self.retry_at = Some(now + PAUSE);
                if let Some(left_out) = self.failures.happened(now) {
                    tracing::debug!(left_out, "receiving failed for now: {error}");
                }
            }
            Some(RecvError::Broken(error)) => return Err(error),
        }
        Ok(more)
    }

    /// Counts ICMP errors about what was sent, a bounded number; whether more may be waiting.
    /// QUIC does not act on them: anyone may forge one (RFC 9000 §14.2.1).
    ///
    /// # Errors
    /// If the socket is broken.
    pub(super) fn drain_errors(&mut self, shard: &Connections, now: Instant) -> io::Result<bool> {
        // Taken note of before they are read, so that one that comes meanwhile is another edge.
        let _ = shard.socket.try_io(Interest::ERROR, |socket| {
            socket.expect_errors();
            Err::<(), _>(io::ErrorKind::WouldBlock.into())
        });
        for _ in 0..ERRORS_PER_TURN {
            let Some(error) = shard.socket.get_ref().poll_errors()? else {
                return Ok(false);
            };
            count(&shard.link.counts.icmp_errors);
            if let Some(left_out) = self.icmp.happened(now) {
                tracing::debug!(remote = %error.remote, kind = ?error.kind, left_out, "ICMP errors");
            }
        }
        Ok(true)
    }

    /// First pass, under the lock of the routes: whose each datagram is. What
    /// needs no connection is answered, strays are passed on, clients let in.
    fn route(&mut self, shard: &mut Connections, now: Instant) -> Result<(), EndpointError> {
        let Self { batch, routes, .. } = self;
        routes.clear();
        if batch.is_empty() {
            return Ok(());
        }
        let unix_now = Clock::unix_seconds();
        let link = shard.link.clone();
        let mut endpoint = link.endpoint();
        let mut datagrams = batch.datagrams();
        loop {
            let before = routes.len();
            let done = catch(|| {
                for (meta, datagram) in &mut datagrams {
                    let from = received(meta);
                    let route = match shard.owner_elsewhere(datagram) {
                        Some(owner) => {
                            shard.pass_on(owner, from, datagram);
                            None
                        }
                        None => {
                            let room = shard.has_room_for_client();
                            shard.route(&mut endpoint, now, unix_now, from, datagram, room)
                        }
                    };
                    routes.push(route);
                }
            });
            if routes.len() > before {
                shard.on_routed();
            }
            let Err(panic) = done else { return Ok(()) };
            // Nobody gets the one that it was about.
            routes.push(None);
            shard.on_routing_panic(panic)?;
        }
    }

    /// Second pass: each connection's datagrams, under its lock, which is kept
    /// while they follow one another. Those of a connection that has to wait are put
    /// aside. Returns the time afterwards.
    fn receive(&mut self, shard: &mut Connections, now: Instant) -> Instant {
        let mut at = shard.link.clock.now();
        let mut datagrams = self.batch.datagrams().zip(&self.routes).peekable();
        while let Some(((meta, datagram), route)) = datagrams.next() {
            let Some(handle) = *route else { continue };
            if shard.has_to_wait(handle) {
                shard.keep(handle, received(meta), datagram);
                continue;
            }
            let Some(shared) = shard.shared(handle) else {
                continue;
            };
            // A connection that ends here notices in the turn that it gets for this.
            let _ = shared.visit(Stage::Receive, |state| {
                state.quic.receive(now, received(meta), datagram);
                while let Some(((meta, datagram), _)) =
                    datagrams.next_if(|(_, following)| *following == route)
                {
                    state.quic.receive(now, received(meta), datagram);
                }
                shared.count_buffers(state);
            });
            at = shard.charge(handle, at, 0);
            // A few datagrams can make many connections hold much.
            shard.relieve(now);
        }
        at
    }
}

fn received(meta: &Meta) -> RecvMeta {
    RecvMeta {
        remote: meta.remote,
        local_ip: meta.local_ip,
        ecn: match meta.ecn {
            None => ReceivedEcn::NotEct,
            Some(Ecn::Ect0) => ReceivedEcn::Ect0,
            Some(Ecn::Ect1) => ReceivedEcn::Ect1,
            Some(Ecn::Ce) => ReceivedEcn::Ce,
        },
    }
}
