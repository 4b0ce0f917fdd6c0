//! A shard: one thread, its sockets, and the datagrams between them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clearway_udp::{Options, RecvBatch, RecvError, Socket};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use crate::engine::Engine;
use crate::flows::Flows;
use crate::plan::Plan;
use crate::report::ShardReport;
use crate::router::Router;
use crate::send::send;

/// Receive calls in a row for one socket before the others have their turn.
const ROUNDS: usize = 4;

/// How long the thread sleeps at most: then it looks for a new plan, and expires flows.
const SLEEP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// The epoll data of the service socket; upstream sockets have their numbers.
const SERVICE: u64 = u64::MAX;

/// What the balancer tells its shards.
#[derive(Debug)]
pub(crate) struct Control {
    plan: Mutex<Arc<Plan>>,
    generation: AtomicU64,
    stopped: AtomicBool,
}

impl Control {
    pub(crate) fn new(plan: Arc<Plan>) -> Self {
        Self {
            plan: Mutex::new(plan),
            generation: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    pub(crate) fn plan(&self) -> Arc<Plan> {
        let plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        plan.clone()
    }

    pub(crate) fn set_plan(&self, plan: Arc<Plan>) {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = plan;
        self.generation.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

/// How a shard reads and writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Messages a receive call.
    pub(crate) slots: usize,
    /// Processor time to waste on each datagram, for comparison with a slower program.
    pub(crate) work: Duration,
}

pub(crate) struct Shard {
    service: Socket,
    ports: Vec<Socket>,
    epoll: OwnedFd,
    service_batch: RecvBatch,
    port_batch: RecvBatch,
    engine: Engine,
    report: Arc<Mutex<ShardReport>>,
    options: Options,
    started: Instant,
    generation: u64,
    /// An upstream socket could not be opened, which has been said.
    lacks_port: bool,
}

impl Shard {
    pub(crate) fn new(
        service: Socket,
        router: Router,
        flows: Flows,
        options: Options,
        pace: Pace,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(SERVICE);
        epoll::add(&epoll, &service, data, epoll::EventFlags::IN)?;
        let batch = || RecvBatch::for_socket(&service, pace.slots);
        Ok(Self {
            service_batch: batch(),
            port_batch: batch(),
            service,
            ports: Vec::new(),
            epoll,
            engine: Engine {
                router,
                flows,
                counts: ShardReport::default(),
                work: pace.work,
            },
            report: Arc::default(),
            options,
            started: Instant::now(),
            generation: 0,
            lacks_port: false,
        })
    }

    pub(crate) fn report(&self) -> Arc<Mutex<ShardReport>> {
        self.report.clone()
    }

    /// Forwards until the balancer is stopped.
    ///
    /// # Errors
    /// If a socket breaks.
    pub(crate) fn run(mut self, control: &Control) -> io::Result<()> {
        let mut events = Vec::with_capacity(64);
        while !control.is_stopped() {
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&SLEEP)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let generation = control.generation.load(Ordering::Acquire);
            if generation != self.generation {
                self.generation = generation;
                self.engine.router.set_plan(control.plan());
            }
            let now = self.started.elapsed();
            for event in events.drain(..) {
                let (data, flags) = (event.data, event.flags);
                let failed = flags.contains(epoll::EventFlags::ERR);
                match data.u64() {
                    SERVICE => self.receive_from_clients(now, failed)?,
                    number => self.receive_from_backends(now, number as usize, failed)?,
                }
            }
            self.engine.flows.expire(now, 64);
            self.publish();
        }
        self.publish();
        Ok(())
    }

    fn publish(&mut self) {
        let counts = &mut self.engine.counts;
        counts.flows = self.engine.flows.len();
        counts.usage = self.engine.flows.usage();
        counts.entries = self.engine.router.entries();
        counts.sockets = self.ports.len() + 1;
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.clone_from(counts);
    }

    /// `failed` says that the socket has ICMP errors waiting.
    fn receive_from_clients(&mut self, now: Duration, failed: bool) -> io::Result<()> {
        if failed {
            discard_errors(&self.service)?;
        }
        for _ in 0..ROUNDS {
            if !receive(&self.service, &mut self.service_batch)? {
                break;
            }
            let full = self.service_batch.is_full();
            let mut outgoing = Vec::with_capacity(self.service_batch.len());
            for (meta, payload) in self.service_batch.messages() {
                self.engine.route_message(now, meta, payload, &mut outgoing);
            }
            let needed = outgoing.iter().map(|out| out.upstream.socket).max();
            while needed.is_some_and(|needed| needed as usize >= self.ports.len()) {
                let plan = self.engine.router.plan();
                if let Err(error) = add_port(&mut self.ports, &self.epoll, plan, &self.options) {
                    // Datagrams for it are counted as dropped, and the next ones try again.
                    if !self.lacks_port {
                        tracing::warn!(%error, "cannot open another upstream socket");
                    }
                    self.lacks_port = true;
                    break;
                }
                self.lacks_port = false;
            }
            self.engine.send_up(&self.ports, outgoing);
            if !full {
                break;
            }
        }
        Ok(())
    }

    fn receive_from_backends(
        &mut self,
        now: Duration,
        number: usize,
        failed: bool,
    ) -> io::Result<()> {
        let Some(port) = self.ports.get(number) else {
            return Ok(());
        };
        if failed {
            discard_errors(port)?;
        }
        for _ in 0..ROUNDS {
            if !receive(port, &mut self.port_batch)? {
                break;
            }
            let full = self.port_batch.is_full();
            let mut outgoing = Vec::with_capacity(self.port_batch.len());
            for (meta, payload) in self.port_batch.messages() {
                if let Some(out) = self.engine.route_reply(now, number as u32, meta, payload) {
                    outgoing.push(out);
                }
            }
            send(&self.service, &mut outgoing, &mut self.engine.counts.down);
            if !full {
                break;
            }
        }
        Ok(())
    }
}

/// Returns whether `batch` has messages now.
fn receive(socket: &Socket, batch: &mut RecvBatch) -> io::Result<bool> {
    match socket.recv(batch) {
        Ok(received) => Ok(received > 0),
        Err(RecvError::WouldBlock) => Ok(false),
        Err(RecvError::Unavailable(error)) => {
            tracing::warn!(%error, "the system cannot receive datagrams at the moment");
            Ok(false)
        }
        Err(RecvError::Broken(error)) => Err(error),
    }
}

/// Empties the socket's queue of ICMP errors, which would take room from datagrams. They are not
/// passed on: anybody can forge them, and QUIC does without.
fn discard_errors(socket: &Socket) -> io::Result<()> {
    socket.expect_errors();
    for _ in 0..64 {
        if socket.poll_errors()?.is_none() {
            break;
        }
    }
    Ok(())
}

/// Opens another upstream socket, and waits for its datagrams as well.
fn add_port(
    ports: &mut Vec<Socket>,
    epoll: &OwnedFd,
    plan: &Plan,
    options: &Options,
) -> io::Result<()> {
    let port = open_port(plan, options)?;
    let data = epoll::EventData::new_u64(ports.len() as u64);
    epoll::add(epoll, &port, data, epoll::EventFlags::IN)?;
    ports.push(port);
    Ok(())
}

/// Opens a socket with a port of its own, for every address of this host.
fn open_port(plan: &Plan, options: &Options) -> io::Result<Socket> {
    let v6 = plan
        .backends()
        .iter()
        .any(|backend| backend.address.is_ipv6());
    let any = if v6 {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    } else {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    };
    let options = Options {
        reuse_port: false,
        ..options.clone()
    };
    Socket::bind(SocketAddr::new(any, 0), &options)
}
