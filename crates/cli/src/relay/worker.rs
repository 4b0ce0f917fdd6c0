//! The thread that moves datagrams.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::io::{self, PipeReader, Read};
use std::sync::mpsc;
use std::time::Instant;

use clearway_links::{Direction, Ecn, Packet, Time, Verdict};
use clearway_udp::{MAX_SLOTS, RecvBatch, RecvError, SendError, Socket, Transmit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::flow::Flow;
use super::table::Table;
use super::{Config, RelayStats};

/// Receive calls per socket and waking, so that one busy socket cannot keep
/// due datagrams of others waiting.
const RECEIVES_PER_WAKING: usize = 4;

/// Maximum payload in the links together, in bytes. 1 Gbit/s for 2 seconds.
const MEMORY: u64 = 256 << 20;

/// Empty buffers kept for the next datagrams.
const SPARE_BUFFERS: usize = 4096;

/// A request from the handle.
#[derive(Debug)]
pub(super) enum Request {
    /// Answer with the totals so far.
    Stats(mpsc::Sender<RelayStats>),
    /// Stop.
    Stop,
}

/// The state of the relay's thread.
pub(super) struct Worker {
    config: Config,
    listen: Socket,
    table: Table,
    engine: Engine,
    batch: RecvBatch,
    requests: mpsc::Receiver<Request>,
    /// Readable when there is a request.
    wake: PipeReader,
    origin: Instant,
}

/// What is shared by all flows while one of them is borrowed.
struct Engine {
    stats: RelayStats,
    spare: Vec<Vec<u8>>,
    held: u64,
}

/// The sockets that are ready to read.
struct ReadySockets {
    requests: bool,
    listen: bool,
    /// Index of the flow and of its upstream socket.
    upstream: Vec<(usize, usize)>,
}

impl Worker {
    pub(super) fn new(
        config: Config,
        listen: Socket,
        requests: mpsc::Receiver<Request>,
        wake: PipeReader,
    ) -> Self {
        Self {
            table: Table::new(&config),
            batch: RecvBatch::for_socket(&listen, MAX_SLOTS),
            config,
            listen,
            engine: Engine {
                stats: RelayStats::default(),
                spare: Vec::new(),
                held: 0,
            },
            requests,
            wake,
            origin: Instant::now(),
        }
    }

    /// Moves datagrams until told to stop.
    ///
    /// # Errors
    /// If the listening socket or waiting itself breaks.
    pub(super) fn run(mut self) -> io::Result<RelayStats> {
        exact_timers();
        loop {
            self.attend();
            let ready = self.wait()?;
            if ready.requests && self.stop_requested()? {
                return Ok(self.totals());
            }
            if ready.listen {
                self.receive_from_clients()?;
            }
            for (flow, socket) in ready.upstream {
                self.receive_from_server(flow, socket);
            }
        }
    }

    fn now(&self) -> Time {
        since(self.origin)
    }

    /// Does everything that is due: releases datagrams, rebinds, removes idle clients.
    fn attend(&mut self) {
        let now = self.now();
        for flow in self.table.flows_mut() {
            if flow.next_event() > now {
                continue;
            }
            match flow.rebind_if_due(now, self.config.to) {
                Ok(rebound) => self.engine.stats.rebinds += u64::from(rebound),
                Err(error) => say!("relay: cannot rebind {}: {error}", flow.client),
            }
            self.engine
                .release(flow, &self.listen, self.config.to, self.origin);
        }
        let now = self.now();
        self.engine.held -= self.table.expire(now, &mut self.engine.stats);
    }

    /// Sleeps until something can be read or is due.
    fn wait(&self) -> io::Result<ReadySockets> {
        let timeout = self.table.next_event().map(|at| timespec(at - self.now()));
        let sockets = self
            .table
            .flows()
            .iter()
            .flat_map(|flow| &flow.upstream)
            .map(|socket| PollFd::new(socket, PollFlags::IN));
        let mut fds = vec![
            PollFd::new(&self.wake, PollFlags::IN),
            PollFd::new(&self.listen, PollFlags::IN),
        ];
        fds.extend(sockets);
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Errors and hang-ups also have to be read to be cleared.
        let mut readable = fds.iter().map(|fd| !fd.revents().is_empty());
        let requests = readable.next().unwrap_or(false);
        let listen = readable.next().unwrap_or(false);
        let upstream = self
            .table
            .flows()
            .iter()
            .enumerate()
            .flat_map(|(flow, owner)| (0..owner.upstream.len()).map(move |socket| (flow, socket)))
            .zip(readable)
            .filter_map(|(place, readable)| readable.then_some(place))
            .collect();
        Ok(ReadySockets {
            requests,
            listen,
            upstream,
        })
    }

    /// Answers requests; true if one of them was to stop.
    fn stop_requested(&mut self) -> io::Result<bool> {
        // The pipe only wakes the thread; its bytes have no meaning. End of file means that the
        // handle is gone.
        if self.wake.read(&mut [0; 64])? == 0 {
            return Ok(true);
        }
        while let Ok(request) = self.requests.try_recv() {
            match request {
                Request::Stop => return Ok(true),
                Request::Stats(answer) => {
                    // The caller may have stopped waiting.
                    let _ = answer.send(self.totals());
                }
            }
        }
        Ok(false)
    }

    fn totals(&self) -> RelayStats {
        let mut totals = self.table.totals(&self.engine.stats);
        totals.own_losses.absorb(&self.listen.counters());
        totals
    }

    /// Puts datagrams from clients into their links.
    fn receive_from_clients(&mut self) -> io::Result<()> {
        for _ in 0..RECEIVES_PER_WAKING {
            if !receive(&self.listen, &mut self.batch)? {
                return Ok(());
            }
            let now = since(self.origin);
            for (meta, data) in self.batch.datagrams() {
                let stats = &mut self.engine.stats;
                let flow = self
                    .table
                    .flow(&self.config, meta.remote, meta.local_ip, now, stats);
                let Some(flow) = flow else {
                    stats.own_losses.refused += 1;
                    continue;
                };
                flow.local_ip = meta.local_ip;
                let mut packet = self.engine.packet(meta.remote, self.config.to, data);
                packet.ecn = from_udp(meta.ecn);
                self.engine.carry(flow, now, Direction::Up, packet);
            }
        }
        Ok(())
    }

    /// Puts datagrams from the server to a client into that client's link.
    fn receive_from_server(&mut self, flow: usize, socket: usize) {
        let Some(flow) = self.table.flows_mut().get_mut(flow) else {
            return;
        };
        let current = socket + 1 == flow.upstream.len();
        for _ in 0..RECEIVES_PER_WAKING {
            // A client's socket that breaks affects only that client.
            if !matches!(receive(&flow.upstream[socket], &mut self.batch), Ok(true)) {
                return;
            }
            let now = since(self.origin);
            for (meta, data) in self.batch.datagrams() {
                if meta.remote != self.config.to {
                    self.engine.stats.strays += 1;
                } else if current {
                    let mut packet = self.engine.packet(meta.remote, flow.client, data);
                    packet.ecn = from_udp(meta.ecn);
                    self.engine.carry(flow, now, Direction::Down, packet);
                } else {
                    self.engine.stats.stale += 1;
                }
            }
        }
    }
}

impl Engine {
    /// A packet with a copy of `data` in a used buffer.
    fn packet(&mut self, src: SocketAddr, dst: SocketAddr, data: &[u8]) -> Packet {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(data);
        Packet::new(src, dst, buffer)
    }

    /// Hands a packet to a link.
    fn carry(&mut self, flow: &mut Flow, now: Time, direction: Direction, packet: Packet) {
        flow.active = now;
        if self.held + packet.data.len() as u64 > MEMORY {
            self.stats.own_losses.memory += 1;
            return;
        }
        let before = flow.path.in_transit_bytes();
        match flow.path.send(now, direction, packet) {
            // The link counts the datagrams it drops.
            Verdict::Accepted | Verdict::QueueFull | Verdict::DroppedEarly | Verdict::Policed => {}
        }
        self.held = self.held - before + flow.path.in_transit_bytes();
    }

    /// Sends datagrams that have arrived at the far ends of a flow's links.
    fn release(&mut self, flow: &mut Flow, listen: &Socket, to: SocketAddr, origin: Instant) {
        let before = flow.path.in_transit_bytes();
        let mut now = since(origin);
        while let Some((at, direction, packet)) = flow.path.poll_timed(now) {
            let (socket, remote, local_ip) = match direction {
                Direction::Up => (flow.current(), to, None),
                Direction::Down => (Some(listen), flow.client, flow.local_ip),
            };
            now = since(origin);
            self.stats.lateness.record(now - at);
            if let Some(socket) = socket {
                self.transmit(socket, remote, local_ip, &packet);
            }
            if self.spare.len() < SPARE_BUFFERS {
                self.spare.push(packet.data);
            }
        }
        self.held = self.held - before + flow.path.in_transit_bytes();
    }

    fn transmit(
        &mut self,
        socket: &Socket,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        packet: &Packet,
    ) {
        let mut transmit = Transmit::new(remote, &packet.data);
        transmit.local_ip = local_ip;
        transmit.ecn = to_udp(packet.ecn);
        match socket.send(&mut transmit) {
            Ok(()) => {}
            Err(SendError::TooLarge) => self.stats.own_losses.too_large += 1,
            Err(SendError::WouldBlock | SendError::Dropped(_) | SendError::Broken(_)) => {
                self.stats.own_losses.send += 1;
            }
        }
    }
}

/// Fills `batch`; false if nothing was waiting.
fn receive(socket: &Socket, batch: &mut RecvBatch) -> io::Result<bool> {
    let received = match socket.recv(batch) {
        Ok(_) => true,
        Err(RecvError::WouldBlock | RecvError::Unavailable(_)) => {
            // It was called for something.
            socket.expect_errors();
            false
        }
        Err(RecvError::Broken(error)) => return Err(error),
    };
    // Errors reported about datagrams sent are the stacks' business, but unread they would fill the
    // receive buffer.
    while socket.poll_errors()?.is_some() {}
    Ok(received)
}

fn since(origin: Instant) -> Time {
    Time::ZERO + origin.elapsed()
}

fn timespec(left: Duration) -> Timespec {
    // A wait truncated at 136 years only wakes once more.
    Timespec {
        tv_sec: i64::from(u32::try_from(left.as_secs()).unwrap_or(u32::MAX)),
        tv_nsec: left.subsec_nanos().into(),
    }
}

/// Linux lets a thread's sleeps end up to 50 µs late to save power; half of
/// what a release may be late at all.
fn exact_timers() {
    #[cfg(target_os = "linux")]
    {
        let finest = core::num::NonZeroU64::new(1);
        // If that is refused, the relay is a little later and its report says so.
        let _ = rustix::thread::set_current_timer_slack(finest);
    }
}

const fn from_udp(ecn: Option<clearway_udp::Ecn>) -> Ecn {
    match ecn {
        None => Ecn::NotEct,
        Some(clearway_udp::Ecn::Ect0) => Ecn::Ect0,
        Some(clearway_udp::Ecn::Ect1) => Ecn::Ect1,
        Some(clearway_udp::Ecn::Ce) => Ecn::Ce,
    }
}

const fn to_udp(ecn: Ecn) -> Option<clearway_udp::Ecn> {
    match ecn {
        Ecn::NotEct => None,
        Ecn::Ect0 => Some(clearway_udp::Ecn::Ect0),
        Ecn::Ect1 => Some(clearway_udp::Ecn::Ect1),
        Ecn::Ce => Some(clearway_udp::Ecn::Ce),
    }
}
