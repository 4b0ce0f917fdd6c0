//! The `clearway balance` command.

use core::net::SocketAddr;
use core::time::Duration;
use std::io::Write as _;

use clearway_balancer::{
    self as balancer, BackendSettings, BackendState, Balancer, Settings, StartError,
    config::{self, Discovery},
};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::args::{Action, Args, At, Mode};
use super::control::{Listener, ask};
use super::discovery::Discovered;
use super::file::{Watched, invalid, read};
use super::keygen::keygen;
use super::metrics::Metrics;
use super::report::{Report, without_server_id};
use super::request::{Reply, Request};
use super::take_over::{self, TakeOver};
use super::watch::watch;
use crate::failure::{Failure, Kind};
use crate::interrupt::Interrupts;
use crate::output::{print, print_json};

/// How often the file is looked at, and the counts for what is worth a warning.
const GLANCE: Duration = Duration::from_secs(1);

/// Share of the upstream ports in use from which on there is a warning.
const PORTS_SCARCE: f64 = 0.8;

/// Runs a balancer, or one of the other actions.
///
/// # Errors
/// If options or the file are invalid, the address cannot be bound, or a socket breaks.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    match &args.action {
        Some(Action::Keygen { backends }) => keygen(backends),
        Some(Action::Check { file }) => check(file),
        Some(Action::Status {
            at, watch: true, ..
        }) => watch(&at.control),
        Some(Action::Status { at, json, .. }) => status(at, *json),
        Some(Action::Drain { backend, at }) => {
            let backend = backend.clone();
            ask(&at.control, &Request::Drain { backend }).map(drop)
        }
        Some(Action::Activate { backend, at }) => {
            let backend = backend.clone();
            ask(&at.control, &Request::Activate { backend }).map(drop)
        }
        None => run(args),
    }
}

fn status(at: &At, json: bool) -> Result<(), Failure> {
    match ask(&at.control, &Request::Status)? {
        Reply::Status(report) if json => print_json(&report),
        Reply::Status(report) => print(|out| out.write_all(report.text().as_bytes())),
        Reply::Done | Reply::Sockets { .. } | Reply::Error(_) => {
            let message = "the balancer answered something else than its status";
            Err(Failure::new(Kind::Content, message))
        }
    }
}

fn check(path: &std::path::Path) -> Result<(), Failure> {
    let file = read(path)?;
    // An address may be given with --listen.
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    let settings = file
        .settings(file.listen.or(Some(any)))
        .map_err(|error| invalid(path, &error))?;
    let discovery = file.discovery().map_err(|error| invalid(path, &error))?;
    if settings.backends.is_empty() && discovery.is_none() {
        let message = format!("{}: no backend; add a [[backend]] section", path.display());
        return Err(Failure::new(Kind::Arguments, message));
    }
    Balancer::check(&settings)
        .map_err(|error| Failure::new(Kind::Arguments, format!("{}: {error}", path.display())))?;
    if file.quic_lb.is_some() {
        file.server().map_err(|error| invalid(path, &error))?;
    }
    for backend in settings
        .backends
        .iter()
        .filter(|backend| backend.server_ids.is_empty())
    {
        say!(
            "balance: backend {} has no server ID: {}",
            backend.name,
            NO_SERVER_ID
        );
    }
    for config in settings
        .quic_lb
        .iter()
        .filter(|config| !config.is_encrypted())
    {
        say!(
            "balance: QUIC-LB config {} has no key: {NO_KEY}",
            config.id()
        );
    }
    print(|out| {
        let (backends, configs) = (settings.backends.len(), settings.quic_lb.len());
        writeln!(
            out,
            "valid: {backends} backend(s), {configs} QUIC-LB configuration(s)"
        )
    })
}

const NO_SERVER_ID: &str = "its connections end when their client's address changes";
const NO_KEY: &str = "everybody can read which server a connection is with, and count servers";

fn settings(args: &Args) -> Result<(Settings, Option<Discovery>), Failure> {
    let mut discovery = None;
    // Sockets that are taken over have an address.
    let taken_over = args.take_over.is_some();
    let unused = taken_over.then_some(SocketAddr::from(([0, 0, 0, 0], 0)));
    let listen = args.listen.or(unused);
    let mut settings = match &args.config {
        Some(path) => {
            let mut file = read(path)?;
            file.transparent |= args.transparent;
            discovery = file.discovery().map_err(|error| invalid(path, &error))?;
            file.settings(listen)
                .map_err(|error| invalid(path, &error))?
        }
        None => {
            let message = "--listen: missing (expected an address such as 0.0.0.0:443)";
            let listen = listen.ok_or_else(|| Failure::new(Kind::Arguments, message))?;
            let mut settings = Settings::new(listen);
            settings.backends = args.backends.iter().copied().map(plain_backend).collect();
            if args.transparent {
                settings.keep_client_addresses();
            }
            settings
        }
    };
    if settings.backends.is_empty() && discovery.is_none() {
        let message = "no backend: expected --to ADDR:PORT, or --config FILE with a [[backend]]";
        return Err(Failure::new(Kind::Arguments, message));
    }
    if let Some(shards) = args.shards {
        settings.shards = usize::from(shards);
    }
    if !args.sources.is_empty() {
        settings.sources = config::sources(&args.sources)
            .map_err(|error| Failure::new(Kind::Arguments, error.to_string()))?;
    }
    settings.mode = match args.mode {
        Mode::Batched => balancer::Mode::Batched,
        Mode::Naive => balancer::Mode::Naive,
        Mode::Decoupled => balancer::Mode::Decoupled,
    };
    if args.mode == Mode::Batched && args.work.is_some() {
        let message = "--work: only for --mode naive or --mode decoupled";
        return Err(Failure::new(Kind::Arguments, message));
    }
    settings.work = args.work.map_or(Duration::ZERO, |work| work.0);
    if args.mode == Mode::Naive && settings.shards > 1 {
        let message = format!(
            "--mode naive: has one thread, but {} shards were requested; leave them out",
            settings.shards
        );
        return Err(Failure::new(Kind::Arguments, message));
    }
    Ok((settings, discovery))
}

fn plain_backend(address: SocketAddr) -> BackendSettings {
    BackendSettings {
        name: address.to_string(),
        address,
        weight: 1,
        state: BackendState::Active,
        server_ids: Vec::new(),
    }
}

/// The listening address, for scripts.
#[derive(Serialize)]
struct Listening {
    event: &'static str,
    address: SocketAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<SocketAddr>,
}

/// The counts at the end, for scripts.
#[derive(Serialize)]
struct Ended {
    event: &'static str,
    #[serde(flatten)]
    report: Report,
}

/// Raises the limit on descriptors as far as the system lets anybody: transparent mode needs many.
fn allow_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        say!("balance: cannot raise the limit on open files: {error}");
    }
}

fn run(args: &Args) -> Result<(), Failure> {
    let (mut settings, discovery) = settings(args)?;
    let samples = args.sample.open()?;
    settings.samples = samples.as_ref().map(|samples| samples.log().clone());
    if settings.transparent {
        allow_descriptors();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let _context = runtime.enter();
    // Before anybody can know that it runs: a signal without a handler would end it.
    let mut signals = Signals::new()?;
    let (balancer, control) = start(args, &settings)?;
    let discovered = discovery.map(Discovered::start).transpose()?;
    let metrics = bind_metrics(args)?;
    let address = balancer.local_addr();
    announce(address, metrics.as_ref(), args.json)?;
    // Ends when another process has taken over.
    let serving = async {
        let controlled = async {
            match &control {
                Some(listener) => listener.serve(&balancer).await,
                None => core::future::pending().await,
            }
        };
        // Moved, so that the port is free for the other process.
        let metrics = metrics;
        let measured = async {
            match &metrics {
                Some(metrics) => metrics.serve(&balancer).await,
                None => core::future::pending().await,
            }
        };
        tokio::select! {
            () = controlled => {}
            () = measured => {}
        }
    };
    let waited = runtime.block_on(async {
        tokio::select! {
            waited = wait(&balancer, &mut signals, args, discovered.as_ref()) => waited,
            () = serving => {
                say!("balance: another process has taken over");
                tokio::select! {
                    () = take_over::forward_last_replies(&balancer) => {}
                    _ = signals.ends.next() => {}
                }
                Ok(())
            }
        }
    });
    let status = balancer
        .stop()
        .map_err(|error| Failure::caused(Kind::Endpoint, "a socket failed", &error))?;
    let report = Report::from(&status);
    say!("{}", report.text().trim_end());
    if args.json {
        let event = "ended";
        print_json(&Ended { event, report })?;
    }
    waited
}

/// Starts the balancer, with an address of its own or with that of another process.
fn start(args: &Args, settings: &Settings) -> Result<(Balancer, Option<Listener>), Failure> {
    let failed = |error| match error {
        StartError::Io(error) => {
            let what = format!("cannot listen on {}", settings.listen);
            Failure::caused(Kind::Address, what, &error)
        }
        error => Failure::new(Kind::Arguments, error.to_string()),
    };
    let bind = || args.control.as_deref().map(Listener::bind).transpose();
    let Some(path) = &args.take_over else {
        // First, so that a path in use is noticed before clients are.
        let control = bind()?;
        return Ok((Balancer::start(settings).map_err(failed)?, control));
    };
    let mut other = TakeOver::begin(path)?;
    let balancer = Balancer::adopt(settings, other.take_sockets()).map_err(failed)?;
    for backend in other.draining() {
        // One that is not in the new configuration stays unknown.
        balancer.set_state(backend, BackendState::Draining);
    }
    other.complete()?;
    Ok((balancer, bind()?))
}

fn bind_metrics(args: &Args) -> Result<Option<Metrics>, Failure> {
    let Some(address) = args.metrics else {
        return Ok(None);
    };
    // A process that is replaced closes its socket in a moment.
    let attempts = if args.take_over.is_some() { 50 } else { 1 };
    for _ in 1..attempts {
        if let Ok(metrics) = Metrics::bind(address) {
            return Ok(Some(metrics));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Metrics::bind(address).map(Some)
}

fn announce(address: SocketAddr, metrics: Option<&Metrics>, json: bool) -> Result<(), Failure> {
    let metrics = metrics.map(Metrics::address).transpose()?;
    if json {
        let event = "listening";
        return print_json(&Listening {
            event,
            address,
            metrics,
        });
    }
    print(|out| {
        writeln!(out, "listening on {address}")?;
        match metrics {
            Some(metrics) => writeln!(out, "metrics at http://{metrics}/metrics"),
            None => Ok(()),
        }
    })
}

struct Signals {
    ends: Interrupts,
    hangup: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            ends: Interrupts::new()?,
            hangup: signal(SignalKind::hangup())?,
        })
    }
}

/// Waits for a signal, or for the balancer to end by itself.
async fn wait(
    balancer: &Balancer,
    signals: &mut Signals,
    args: &Args,
    discovered: Option<&Discovered>,
) -> Result<(), Failure> {
    let mut watched = args.config.as_deref().map(Watched::new);
    let mut warnings = Warnings::default();
    loop {
        let asked = tokio::select! {
            _ = signals.ends.next() => return Ok(()),
            _ = signals.hangup.recv() => true,
            () = tokio::time::sleep(GLANCE) => false,
        };
        if !balancer.is_running() {
            return Ok(());
        }
        if let Some(watched) = &mut watched
            && (watched.changed() | asked)
        {
            match reload(balancer, watched.path(), discovered) {
                Ok(()) => say!("balance: configuration reloaded"),
                Err(failure) => {
                    say!("balance: cannot reload, keeping the old configuration: {failure}");
                }
            }
        }
        if let Some(path) = &args.config
            && discovered.is_some_and(|discovered| discovered.take_changed().is_some())
        {
            match reload(balancer, path, discovered) {
                Ok(()) => say!("balance: the servers that were found have changed"),
                Err(failure) => say!("balance: cannot use the servers that were found: {failure}"),
            }
        }
        warnings.look(balancer);
    }
}

/// Takes backends and QUIC-LB configurations from the file.
fn reload(
    balancer: &Balancer,
    path: &std::path::Path,
    discovered: Option<&Discovered>,
) -> Result<(), Failure> {
    let file = read(path)?;
    let mut settings = file
        // The address stays as it is.
        .settings(Some(balancer.local_addr()))
        .map_err(|error| invalid(path, &error))?;
    if let Some(discovered) = discovered {
        let found = file.discovered(&discovered.servers());
        let found = found.map_err(|error| invalid(path, &error))?;
        // One that the file lists as well is as the file says.
        let listed = |found: &BackendSettings| {
            let mut backends = settings.backends.iter();
            backends.any(|listed| listed.address == found.address)
        };
        let found: Vec<_> = found.into_iter().filter(|found| !listed(found)).collect();
        settings.backends.extend(found);
    }
    balancer
        .reconfigure(settings.backends, settings.quic_lb)
        .map_err(|error| Failure::new(Kind::Arguments, format!("{}: {error}", path.display())))
}

/// What has been warned of; each thing once.
#[derive(Debug, Default)]
struct Warnings {
    ports: bool,
    without_server_id: std::collections::BTreeSet<String>,
}

impl Warnings {
    fn look(&mut self, balancer: &Balancer) {
        let status = balancer.status();
        let scarce = status.port_usage >= PORTS_SCARCE;
        if scarce && !self.ports {
            say!(
                "balance: {:.0} % of the upstream ports are in use; more --source addresses, or \
                 upstream_sockets in the file, make more",
                status.port_usage * 100.0
            );
        }
        self.ports = scarce;
        for backend in status
            .backends
            .iter()
            .filter(|backend| backend.unroutable > 0)
        {
            if self.without_server_id.insert(backend.name.clone()) {
                say!("balance: {}", without_server_id(&backend.name));
            }
        }
    }
}
