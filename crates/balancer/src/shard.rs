//! A shard: one thread, its sockets, and the datagrams between them.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clearway_udp::{DatagramSocket as _, RecvBatch, Transmit};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;

use crate::control::Control;
use crate::engine::Engine;
use crate::flows::Flows;
use crate::gather::{Gathering, WAIT};
use crate::orphans::Orphans;
use crate::ports::{Opener, Ports};
use crate::queue::Queue;
use crate::receive::{SLEEP, discard_errors, receive};
use crate::report::ShardReport;
use crate::router::Router;
use crate::sample::SampledSocket;
use crate::send::{emptied, send};
use crate::strays::Strays;
use crate::traffic::DropReason;

/// How long the counts wait to be published while the shard is busy.
const PUBLISH: Duration = Duration::from_millis(50);

/// The epoll data of the service socket or its queue; upstream sockets have their numbers.
const SERVICE: u64 = u64::MAX;

/// The epoll data of what other shards hand over.
const STRAYS: u64 = u64::MAX - 1;

/// How a shard reads and writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Messages a receive call.
    pub(crate) slots: usize,
    /// Receive calls in a row for one socket before the others have their turn.
    pub(crate) rounds: usize,
    /// Whether a busy shard lets messages gather.
    pub(crate) gathers: bool,
    /// Processor time to waste on each datagram, for comparison with a slower program.
    pub(crate) work: Duration,
}

/// Where datagrams of clients come from.
pub(crate) enum Intake {
    /// The shard reads them from the service socket itself.
    Socket,
    /// Another thread reads them.
    Queue(Queue),
}

pub(crate) struct Shard {
    service: Arc<SampledSocket>,
    intake: Intake,
    service_batch: RecvBatch,
    port_batch: RecvBatch,
    ports: Ports,
    engine: Engine,
    /// Empty, but for its memory.
    replies: Vec<Transmit<'static>>,
    rounds: usize,
    /// `None` = the shard does not wait.
    gathering: Option<Gathering>,
    /// Messages since the last wake-up.
    messages: u64,
    report: Arc<Mutex<ShardReport>>,
    started: Instant,
    published: Duration,
    generation: u64,
    /// Another process reads the service socket.
    released: bool,
}

impl Shard {
    pub(crate) fn new(
        service: Arc<SampledSocket>,
        intake: Intake,
        (router, flows): (Router, Flows),
        (opener, strays): (Opener, Option<Strays>),
        pace: Pace,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(SERVICE);
        match &intake {
            Intake::Socket => epoll::add(&epoll, &*service, data, epoll::EventFlags::IN)?,
            Intake::Queue(queue) => epoll::add(&epoll, queue.ready(), data, epoll::EventFlags::IN)?,
        }
        if let Some(strays) = &strays {
            let data = epoll::EventData::new_u64(STRAYS);
            epoll::add(&epoll, strays.ready(), data, epoll::EventFlags::IN)?;
        }
        let batch = || RecvBatch::for_socket(&*service, pace.slots);
        Ok(Self {
            service_batch: batch(),
            port_batch: batch(),
            service,
            intake,
            ports: Ports::new(epoll, opener),
            engine: Engine {
                router,
                flows,
                counts: ShardReport::default(),
                orphans: Orphans::default(),
                strays,
                work: pace.work,
            },
            replies: Vec::new(),
            rounds: pace.rounds,
            gathering: pace.gathers.then(Gathering::default),
            messages: 0,
            report: Arc::default(),
            started: Instant::now(),
            published: Duration::ZERO,
            generation: 0,
            released: false,
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
            match epoll::wait(
                self.ports.epoll(),
                spare_capacity(&mut events),
                Some(&SLEEP),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.follow(control)?;
            let now = self.started.elapsed();
            for event in events.drain(..) {
                let (data, flags) = (event.data, event.flags);
                let failed = flags.contains(epoll::EventFlags::ERR);
                match data.u64() {
                    // An event from before the release.
                    SERVICE if self.released && matches!(self.intake, Intake::Socket) => {}
                    SERVICE => self.receive_from_clients(now, failed)?,
                    STRAYS => {
                        let count = self.ports.forward_strays(&mut self.engine, now);
                        self.messages += count as u64;
                    }
                    number => self.receive_from_backends(now, number as usize, failed)?,
                }
            }
            self.ports.tell_orphans(&mut self.engine, now);
            self.engine.flows.expire(now, 64);
            for unused in self.engine.flows.take_unused_sockets() {
                self.ports.close(unused);
            }
            if now.saturating_sub(self.published) >= PUBLISH {
                self.published = now;
                self.publish();
            }
            let messages = std::mem::take(&mut self.messages);
            if let Some(gathering) = &mut self.gathering
                && gathering.is_worthwhile(now, messages)
            {
                std::thread::sleep(WAIT);
            }
        }
        self.publish();
        Ok(())
    }

    /// Does what the balancer has told its shards since the last time.
    fn follow(&mut self, control: &Control) -> io::Result<()> {
        let generation = control.generation();
        if generation != self.generation {
            self.generation = generation;
            self.engine.set_plan(control.plan());
        }
        if control.is_released() && !self.released {
            self.released = true;
            if let Intake::Socket = self.intake {
                epoll::delete(self.ports.epoll(), &*self.service)?;
            }
            self.publish();
            control.count_released_shard();
        }
        Ok(())
    }

    fn publish(&mut self) {
        let counts = &mut self.engine.counts;
        if let Intake::Queue(queue) = &self.intake {
            let dropped = queue.take_dropped();
            counts.up.received += dropped;
            counts.up.drop(DropReason::QueueFull, dropped);
        }
        counts.flows = self.engine.flows.len();
        counts.usage = self.engine.flows.usage();
        counts.entries = self.engine.router.entries();
        counts.sockets = self.ports.len() + 1;
        counts.up_overflowed = self.service.counters().receive_drops;
        counts.down_overflowed = self.ports.overflowed();
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.clone_from(counts);
    }

    /// `failed` says that the socket has ICMP errors waiting.
    fn receive_from_clients(&mut self, now: Duration, failed: bool) -> io::Result<()> {
        let (ports, engine) = (&mut self.ports, &mut self.engine);
        if let Intake::Queue(queue) = &self.intake {
            queue.drain(|batch| ports.forward(engine, now, batch));
            return Ok(());
        }
        if failed {
            discard_errors(&*self.service)?;
        }
        for _ in 0..self.rounds {
            if !receive(&self.service, &mut self.service_batch)? {
                break;
            }
            self.messages += self.service_batch.len() as u64;
            ports.forward(engine, now, &mut self.service_batch);
            if !self.service_batch.is_full() {
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
        for _ in 0..self.rounds {
            if !receive(port, &mut self.port_batch)? {
                break;
            }
            let full = self.port_batch.is_full();
            self.messages += self.port_batch.len() as u64;
            let mut replies = emptied(std::mem::take(&mut self.replies));
            for (meta, payload) in self.port_batch.messages() {
                if let Some(out) = self.engine.route_reply(now, number as u32, meta, payload) {
                    replies.push(out);
                }
            }
            send(&self.service, &mut replies, &mut self.engine.counts.down);
            self.replies = emptied(replies);
            if !full {
                break;
            }
        }
        Ok(())
    }
}
