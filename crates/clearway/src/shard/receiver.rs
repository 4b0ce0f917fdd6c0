//! Receiving: batches of datagrams, passed to their connections.

use std::io;
use std::time::Duration;

use clearway_quic::Instant;
use clearway_quic::ack::ReceivedEcn;
use clearway_quic::connection::RecvMeta;
use clearway_quic::endpoint::ConnectionHandle;
use clearway_udp::{DatagramSocket, Ecn, IcmpKind, Meta, RecvBatch, RecvError};
use tokio::io::Interest;

use super::Clock;
use super::connections::Connections;
use super::driver::broken;
use super::link::count;
use super::scheduler::Pressure;
use crate::connection::Stage;
use crate::error::EndpointError;
use crate::log_limit::LogLimiter;
use crate::panic::catch;

/// Receive calls in each turn: enough to amortise a turn, few enough not to delay sending and
/// timers.
const BATCHES_PER_TURN: usize = 4;

/// Receive calls in each turn while connections wait for theirs, or after a turn that left datagrams in the
/// socket. Datagrams for waiting connections are only set aside, and others in the socket may be for
/// connections that need not wait. With fewer, a flood just as fast as they are received keeps a queue in
/// the socket for ever, which delays everybody.
const BATCHES_WHILE_WAITING: usize = 32;

/// Time after which a turn makes no further receive call.
const RECEIVE_TIME: Duration = Duration::from_millis(1);

/// Most datagrams that a connection receives before it is charged for the time, so that what
/// follows waits if that was more than its quantum: a datagram of instructions for QPACK can take
/// 40 µs, and there may be 46 of them in a train.
const DATAGRAMS_PER_CHARGE: usize = 8;

/// Messages in each receive call.
const SLOTS: usize = 16;

/// ICMP errors read in each turn: each is a system call, and anybody can send any number.
const ERRORS_PER_TURN: usize = 64;

/// Pause after a receive error of the system: short compared with a round trip, long enough
/// that a socket that keeps failing does not use up the processor.
const PAUSE: Duration = Duration::from_millis(10);

/// The receive buffers of a shard, and its state of receive errors.
#[derive(Debug)]
pub(super) struct Receiver {
    batch: RecvBatch,
    /// The connection of each datagram of the batch.
    routes: Vec<Option<ConnectionHandle>>,
    /// After a receive error of the system: when to try again, ready or not.
    retry_at: Option<Instant>,
    failures: LogLimiter,
    icmp: LogLimiter,
}

impl Receiver {
    pub(super) fn new(socket: &dyn DatagramSocket) -> Self {
        Self {
            batch: RecvBatch::for_socket(socket, SLOTS),
            routes: Vec::new(),
            retry_at: None,
            failures: LogLimiter::default(),
            icmp: LogLimiter::default(),
        }
    }

    /// Receives the datagrams of one turn. Returns how much probably waits.
    ///
    /// # Errors
    /// If the socket or routing fails permanently.
    pub(super) fn turn(
        &mut self,
        shard: &mut Connections,
        now: Instant,
    ) -> Result<Pressure, EndpointError> {
        for batches in 1..=BATCHES_WHILE_WAITING {
            let more = self.fill(shard, now).map_err(broken)?;
            self.route(shard, now)?;
            let at = self.receive(shard, now);
            if !more {
                return Ok(Pressure::Drained);
            }
            if at.saturating_since(now) >= RECEIVE_TIME {
                return Ok(Pressure::Overrun);
            }
            let is_behind = shard.pressure != Pressure::Drained;
            if batches >= BATCHES_PER_TURN && !is_behind && !shard.is_crowded() {
                break;
            }
        }
        Ok(Pressure::MoreWaits)
    }

    /// Returns when to try to receive again after an error.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Makes one receive call. Returns whether more datagrams are probably waiting.
    fn fill(&mut self, shard: &Connections, now: Instant) -> io::Result<bool> {
        let batch = &mut self.batch;
        batch.clear();
        let mut failure = None;
        let mut receive = |socket: &dyn DatagramSocket| match socket.recv(batch) {
            // Only errors of earlier sends; there may be datagrams behind them.
            Ok(0) => Ok(()),
            Ok(_) if batch.is_full() => Ok(()),
            // There are empty slots, so the queue is empty. Returning this saves the call
            // that would find that out.
            Ok(_) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => {
                failure = Some(error);
                Err(io::ErrorKind::WouldBlock.into())
            }
        };
        // After a failure, the runtime's readiness is out of date.
        let retrying = self.retry_at.take_if(|at| *at <= now).is_some();
        let more = if retrying {
            receive(shard.socket.get_ref()).is_ok()
        } else {
            shard.socket.try_io(Interest::READABLE, receive).is_ok()
        };
        if retrying && more {
            self.retry_at = Some(now);
        }
        match failure {
            None | Some(RecvError::WouldBlock) => {}
            Some(RecvError::Unavailable(error)) => {
                self.retry_at = Some(now + PAUSE);
                if let Some(suppressed) = self.failures.record(now) {
                    tracing::debug!(suppressed, "temporary receive error: {error}");
                }
            }
            Some(RecvError::Broken(error)) => return Err(error),
        }
        Ok(more)
    }

    /// Counts ICMP errors about datagrams that were sent, a bounded number. Returns whether more
    /// may be waiting. Anybody can forge them (RFC 9000 §14.2.1), so they change nothing but how
    /// long a client waits for a server that it has not heard of.
    ///
    /// # Errors
    /// If the socket is broken.
    pub(super) fn drain_errors(
        &mut self,
        shard: &mut Connections,
        now: Instant,
    ) -> io::Result<bool> {
        // Clears readiness before they are read, so that a later one sets it again.
        let _ = shard.socket.try_io(Interest::ERROR, |socket| {
            socket.expect_errors();
            Err::<(), _>(io::ErrorKind::WouldBlock.into())
        });
        for _ in 0..ERRORS_PER_TURN {
            let Some(error) = shard.socket.get_ref().poll_errors()? else {
                return Ok(false);
            };
            count(&shard.link.counts.icmp_errors);
            if error.kind == IcmpKind::PortUnreachable {
                shard.on_port_unreachable(error.quoted());
            }
            if let Some(suppressed) = self.icmp.record(now) {
                tracing::debug!(remote = %error.remote, kind = ?error.kind, suppressed, "ICMP error received");
            }
        }
        Ok(true)
    }

    /// First pass, under the lock of the routes: finds the connection of each datagram, answers
    /// those that need none, forwards strays and accepts clients.
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
                            let room = shard.has_room_for_client(now);
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
            // The datagram that caused it is dropped.
            routes.push(None);
            shard.on_routing_panic(panic)?;
        }
    }

    /// Second pass: passes datagrams to their connections, some consecutive ones under one lock.
    /// Those of a connection that has to wait are set aside. Returns the time afterwards.
    fn receive(&mut self, shard: &mut Connections, now: Instant) -> Instant {
        let mut at = shard.link.clock.now();
        let mut datagrams = self.batch.datagrams().zip(&self.routes).peekable();
        while let Some(((meta, datagram), route)) = datagrams.next() {
            let Some(handle) = *route else { continue };
            if shard.must_wait(handle, now) {
                shard.set_aside(handle, received(meta), datagram);
                continue;
            }
            let Some(shared) = shard.shared(handle) else {
                continue;
            };
            // If it panics, the turn that follows notices.
            let _ = shared.with_state(Stage::Receive, |state| {
                state.quic.receive(now, received(meta), datagram);
                for _ in 1..DATAGRAMS_PER_CHARGE {
                    let following = datagrams.next_if(|(_, following)| *following == route);
                    let Some(((meta, datagram), _)) = following else {
                        break;
                    };
                    state.quic.receive(now, received(meta), datagram);
                }
                shared.charge_buffers(state);
            });
            at = shard.charge(handle, at, 0);
            // Few datagrams can make many connections hold much memory.
            shard.evict_for_memory(now);
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
