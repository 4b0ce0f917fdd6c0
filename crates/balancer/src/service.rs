//! A running balancer: its shards, its probes, and the plan that they follow.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clearway_quic::cid::quic_lb::Config;
use clearway_udp::{Options, Socket};

use crate::backend::BackendState;
use crate::control::Control;
use crate::flows::{FlowCapacity, Flows};
use crate::health::Prober;
use crate::plan::PlanError;
use crate::ports::Opener;
use crate::queue::queue;
use crate::registry::Registry;
use crate::report::ShardReport;
use crate::router::Router;
use crate::sample::{SampleDirection, SampledSocket};
use crate::settings::{BackendSettings, Mode, Settings};
use crate::shard::{Intake, Pace, Shard};
use crate::status::{BackendStatus, Status};
use crate::strays::Strays;
use crate::traffic::Traffic;
use crate::transparent;

/// How often the thread for probes looks for answers, and for what is due.
const TICK: Duration = Duration::from_millis(20);

/// Messages that one receive call fills.
const SLOTS: usize = 32;

/// Receive calls in a row for one socket before the others have their turn.
const ROUNDS: usize = 4;

/// The same with one message a call.
const NAIVE_ROUNDS: usize = SLOTS * ROUNDS;

/// The hop of datagrams between clients and the balancer, in samples.
const CLIENT_SIDE: &str = "balancer";

/// The hop of datagrams between the balancer and servers.
pub(crate) const SERVER_SIDE: &str = "balancer-out";

/// Why a balancer cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address cannot be bound, or a thread not started.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The backends cannot be told apart.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Transparent mode does not fit the other settings, or is not permitted: what is wrong, and
    /// what to do.
    #[error("{0}")]
    Transparent(String),
}

/// What the threads share apart from the packet path.
struct Shared {
    control: Control,
    registry: Mutex<(Registry, Option<Prober>)>,
    failure: Mutex<Option<io::Error>>,
}

impl Shared {
    /// Makes a plan of what is configured and known, and has the shards follow it.
    fn replan(&self, state: &(Registry, Option<Prober>)) -> Result<(), PlanError> {
        let (registry, prober) = state;
        let up = |id| prober.as_ref().is_none_or(|prober| prober.is_up(id));
        let plan = registry.plan(up)?;
        for backend in plan.backends() {
            let before = self.control.plan();
            let former = before.backend(backend.id).map(|backend| backend.state);
            if former.is_some_and(|former| former != backend.state) {
                tracing::warn!("backend {} is {}", backend.name, backend.state);
            }
        }
        self.control.set_plan(Arc::new(plan));
        Ok(())
    }

    fn registry(&self) -> std::sync::MutexGuard<'_, (Registry, Option<Prober>)> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, error: io::Error) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(error);
        drop(failure);
        self.control.stop();
    }
}

/// A running balancer. Dropping it stops it.
pub struct Balancer {
    shared: Arc<Shared>,
    reports: Vec<Arc<Mutex<ShardReport>>>,
    threads: Vec<JoinHandle<()>>,
    service: Vec<Arc<SampledSocket>>,
    local: SocketAddr,
}

impl Balancer {
    /// Binds the address and starts the threads.
    ///
    /// # Errors
    /// If the address is in use, or the backends cannot be told apart.
    pub fn start(settings: &Settings) -> Result<Self, StartError> {
        Self::with(settings, bind(settings)?)
    }

    /// Starts with the sockets that [`service_sockets`](Self::service_sockets) of another process
    /// returned, one shard for each: nothing that waits in them is lost. The address and the
    /// number of shards in `settings` are ignored.
    ///
    /// # Errors
    /// If they are not UDP sockets, or the backends cannot be told apart.
    pub fn adopt(settings: &Settings, sockets: Vec<OwnedFd>) -> Result<Self, StartError> {
        let sockets = sockets
            .into_iter()
            .map(|socket| Socket::from_std(UdpSocket::from(socket), &options(settings)));
        Self::with(settings, sockets.collect::<io::Result<_>>()?)
    }

    fn with(settings: &Settings, sockets: Vec<Socket>) -> Result<Self, StartError> {
        let local = match sockets.first() {
            Some(first) => first.local_addr()?,
            None => return Err(io::Error::from(io::ErrorKind::InvalidInput).into()),
        };
        if settings.transparent {
            transparent::check(settings, local).map_err(StartError::Transparent)?;
            transparent::steer(&sockets);
        }
        let shards = sockets.len();
        let mut strays = Vec::new();
        if settings.transparent && shards > 1 {
            strays = Strays::connect(shards)?;
        }
        let mut registry = Registry::default();
        registry.configure(settings.backends.clone(), settings.quic_lb.clone());
        let plan = Arc::new(registry.plan(|_| true)?);
        let prober = settings.health.map(Prober::new).transpose()?;
        let probes = prober.is_some();
        let shared = Arc::new(Shared {
            control: Control::new(plan),
            registry: Mutex::new((registry, prober)),
            failure: Mutex::new(None),
        });
        let mut this = Self {
            shared,
            reports: Vec::new(),
            threads: Vec::new(),
            service: sockets
                .into_iter()
                .map(|socket| Arc::new(sampled(socket, settings)))
                .collect(),
            local,
        };
        let mut strays = strays.into_iter();
        for (number, socket) in this.service.clone().into_iter().enumerate() {
            this.start_shard(number, socket, strays.next(), settings)?;
        }
        if probes {
            this.start_probes()?;
        }
        Ok(this)
    }

    /// Returns copies of the sockets that clients send to, for [`adopt`](Self::adopt) in another
    /// process.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn service_sockets(&self) -> io::Result<Vec<OwnedFd>> {
        let sockets = self.service.iter();
        sockets
            .map(|socket| socket.as_fd().try_clone_to_owned())
            .collect()
    }

    /// Stops reading what clients send, because another process does. Replies of backends to
    /// this process are still forwarded.
    pub fn release(&self) {
        self.shared.control.release();
    }

    /// Whether all shards have done what [`release`](Self::release) asks, so that the number of
    /// flows in the [status](Self::status) is not from before it.
    #[must_use]
    pub fn has_released(&self) -> bool {
        self.shared.control.shards_released() >= self.service.len()
    }

    fn start_shard(
        &mut self,
        number: usize,
        socket: Arc<SampledSocket>,
        strays: Option<Strays>,
        settings: &Settings,
    ) -> io::Result<()> {
        let router = Router::new(self.shared.control.plan(), settings.limits);
        let flows = Flows::new(FlowCapacity {
            sources: settings.sources.iter().copied().map(Some).collect(),
            sockets: self.most_sockets(settings),
            flows: settings.flows,
            idle: settings.limits.idle,
            transparent: settings.transparent.then_some(self.local.ip()),
        });
        let (slots, rounds) = match settings.mode {
            Mode::Batched | Mode::Decoupled => (SLOTS, ROUNDS),
            Mode::Naive => (1, NAIVE_ROUNDS),
        };
        let pace = Pace {
            slots,
            rounds,
            gathers: settings.mode == Mode::Batched,
            work: settings.work,
        };
        let intake = match settings.mode {
            Mode::Batched | Mode::Naive => Intake::Socket,
            Mode::Decoupled => {
                let (filler, queue) = queue(socket.clone(), slots)?;
                self.spawn(format!("receive-{number}"), |control| filler.run(control))?;
                Intake::Queue(queue)
            }
        };
        let upstream = Options {
            transparent: settings.transparent,
            // Another process may still use the same client's port, before it is replaced.
            reuse_port: settings.transparent,
            ..options(settings)
        };
        let opener = Opener {
            options: upstream,
            samples: settings.samples.clone(),
        };
        let shard = Shard::new(socket, intake, (router, flows), (opener, strays), pace)?;
        self.reports.push(shard.report());
        self.spawn(format!("balance-{number}"), |control| shard.run(control))
    }

    /// Returns how many upstream sockets a shard may open. In transparent mode they share the ports.
    fn most_sockets(&self, settings: &Settings) -> u32 {
        let shards = u32::try_from(self.service.len()).unwrap_or(u32::MAX);
        match settings.transparent {
            true => settings.upstream_sockets.div_ceil(shards.max(1)),
            false => settings.upstream_sockets,
        }
    }

    fn spawn(
        &mut self,
        name: String,
        run: impl FnOnce(&Control) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name(name);
        self.threads.push(thread.spawn(move || {
            if let Err(error) = run(&shared.control) {
                shared.fail(error);
            }
        })?);
        Ok(())
    }

    fn start_probes(&mut self) -> io::Result<()> {
        let (shared, reports) = (self.shared.clone(), self.reports.clone());
        let thread = std::thread::Builder::new().name("balance-probes".to_owned());
        self.threads
            .push(thread.spawn(move || run_probes(&shared, &reports))?);
        Ok(())
    }

    /// Checks what [`start`](Self::start) and [`reconfigure`](Self::reconfigure) check about
    /// backends and QUIC-LB configurations.
    ///
    /// # Errors
    /// If they cannot be told apart.
    pub fn check(settings: &Settings) -> Result<(), PlanError> {
        let mut registry = Registry::default();
        registry.configure(settings.backends.clone(), settings.quic_lb.clone());
        registry.plan(|_| true).map(drop)
    }

    /// Returns the address that clients send to.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns whether the balancer still runs: a shard whose socket breaks ends it.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.shared.control.is_stopped()
    }

    /// Replaces the backends and the QUIC-LB configurations. Open connections stay where they
    /// are, as long as their backends do.
    ///
    /// # Errors
    /// If the backends cannot be told apart. Nothing is changed then.
    pub fn reconfigure(
        &self,
        backends: Vec<BackendSettings>,
        quic_lb: Vec<Config>,
    ) -> Result<(), PlanError> {
        let mut state = self.shared.registry();
        let former = state.0.clone();
        state.0.configure(backends, quic_lb);
        let done = self.shared.replan(&state);
        if done.is_err() {
            state.0 = former;
        }
        done
    }

    /// Sets the state of the backend with this name. Returns whether there is one.
    pub fn set_state(&self, name: &str, state: BackendState) -> bool {
        let mut registry = self.shared.registry();
        if !registry.0.set_state(name, state) {
            return false;
        }
        // The plan differs from the last one only in a state.
        self.shared.replan(&registry).is_ok()
    }

    /// Returns what was done so far. The counts of each shard are at most 50 ms old.
    #[must_use]
    pub fn status(&self) -> Status {
        let plan = self.shared.control.plan();
        let mut status = Status {
            up: Traffic::default(),
            down: Traffic::default(),
            up_overflowed: 0,
            down_overflowed: 0,
            flows: 0,
            sockets: 0,
            entries: 0,
            reset_requests: 0,
            port_usage: 0.0,
            backends: Vec::new(),
        };
        let mut total = ShardReport::of_backends(&self.reports);
        for report in &self.reports {
            let report = report
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            status.up.add(&report.up);
            status.down.add(&report.down);
            status.up_overflowed += report.up_overflowed;
            status.down_overflowed += report.down_overflowed;
            status.flows += report.flows;
            status.sockets += report.sockets;
            status.entries += report.entries;
            status.reset_requests += report.reset_requests;
            status.port_usage = status.port_usage.max(report.usage);
        }
        status.backends = plan
            .backends()
            .iter()
            .map(|backend| {
                let counts = *total.backend(backend.id);
                BackendStatus {
                    name: backend.name.clone(),
                    address: backend.address,
                    state: backend.state,
                    assigned: counts.assigned,
                    sent: counts.sent,
                    received: counts.received,
                    unroutable: counts.unroutable,
                }
            })
            .collect();
        status
    }

    /// Stops the threads and returns the final counts.
    ///
    /// # Errors
    /// What ended a shard before.
    pub fn stop(mut self) -> io::Result<Status> {
        self.join();
        let mut failure = self
            .shared
            .failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match failure.take() {
            Some(error) => Err(error),
            None => {
                drop(failure);
                Ok(self.status())
            }
        }
    }

    fn join(&mut self) {
        self.shared.control.stop();
        for thread in self.threads.drain(..) {
            // A panic has been printed; there is nothing to add.
            let _ = thread.join();
        }
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.join();
    }
}

impl std::fmt::Debug for Balancer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Balancer")
            .field("local", &self.local)
            .finish_non_exhaustive()
    }
}

fn sampled(socket: Socket, settings: &Settings) -> SampledSocket {
    match &settings.samples {
        Some(log) => SampledSocket::new(socket, log.clone(), CLIENT_SIDE, SampleDirection::Up),
        None => socket.into(),
    }
}

fn options(settings: &Settings) -> Options {
    let offload = match settings.mode {
        Mode::Batched | Mode::Decoupled => true,
        Mode::Naive => false,
    };
    Options {
        gso: offload,
        gro: offload,
        ..Options::default()
    }
}

/// Binds a socket for each shard to the address.
fn bind(settings: &Settings) -> io::Result<Vec<Socket>> {
    let count = settings.shards.max(1);
    let options = Options {
        reuse_port: count > 1,
        ..options(settings)
    };
    let mut sockets = vec![Socket::bind(settings.listen, &options)?];
    let local = match sockets.first() {
        Some(first) => first.local_addr()?,
        None => settings.listen,
    };
    for _ in 1..count {
        sockets.push(Socket::bind(local, &options)?);
    }
    Ok(sockets)
}

fn run_probes(shared: &Shared, reports: &[Arc<Mutex<ShardReport>>]) {
    let started = Instant::now();
    while !shared.control.is_stopped() {
        let counts = ShardReport::of_backends(reports);
        let mut state = shared.registry();
        let (registry, Some(prober)) = &mut *state else {
            return;
        };
        let mut changed = prober.receive();
        changed |= prober.probe(started.elapsed(), &registry.addresses(), |id| {
            counts.exchanged(id)
        });
        if changed && let Err(error) = shared.replan(&state) {
            // The plan before differed in states only, so this does not happen.
            tracing::error!(%error, "a backend's state cannot be changed");
        }
        drop(state);
        std::thread::sleep(TICK);
    }
}
