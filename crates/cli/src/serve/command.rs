//! The `clearway serve` command.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::io::{self, Write as _};
use std::sync::Arc;

use clearway::http::{Code, Server};
use clearway::{BuildError, EndpointBuilder, QlogDir, ServerConfig, TransportConfig};
use clearway_balancer::sample::SampleDirection;
use serde::Serialize;

use super::Args;
use super::allocator;
use super::certificate::Certificate;
use super::echo;
use super::leftovers;
use super::limits::{Descriptors, Memory, Resources, THREADS, most_requests};
use super::listing::Snapshots;
use super::load_balancer::LoadBalancer;
use super::priority;
use super::proxy_options::MAX_TUNNELS;
use super::resident;
use super::root::Root;
use super::secret;
use super::site::{Site, SiteState};
use crate::background;
use crate::failure::{Failure, Kind};
use crate::interrupt::Interrupts;
use crate::output::{print, print_json};
use crate::qlog::{self, with_traces};
use crate::samples::Samples;

/// The default address to listen on.
const PORT: u16 = 4433;

/// How long to wait for clients to receive the close, if the server has to end at once.
const FAREWELL: Duration = Duration::from_millis(100);

/// How long to wait for tasks to notice the end.
const CLEANUP: Duration = Duration::from_secs(1);

/// Serves until a signal arrives.
///
/// # Errors
/// If the directory or the certificate cannot be used, the address cannot be bound, or a second
/// signal arrives.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    allocator::use_one_arena();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(handler_threads())
        .max_blocking_threads(THREADS)
        .on_thread_start(priority::of_runtime_thread)
        .enable_all()
        .build()?;
    let traces = args.qlog.open("serve")?;
    let samples = args.sample.open()?;
    let outcome = runtime.block_on(serve(args, traces.as_ref(), samples.as_ref()));
    // Aborted uploads are removed, but reads from a hanging disk are not waited for.
    crate::log::end();
    runtime.shutdown_timeout(CLEANUP);
    qlog::finish(traces);
    drop(samples);
    background::finish();
    outcome
}

/// Threads for handlers: two, unless there are fewer processors.
fn handler_threads() -> usize {
    std::thread::available_parallelism().map_or(2, |processors| processors.get().min(2))
}

async fn serve(
    args: &Args,
    qlog: Option<&QlogDir>,
    samples: Option<&Samples>,
) -> Result<(), Failure> {
    let root = Root::open(&args.dir).map_err(|error| {
        let what = format!("cannot serve {}", args.dir.display());
        Failure::caused(Kind::Arguments, what, &error)
    })?;
    let certificate = Certificate::load(args)?;
    let mut interrupts = Interrupts::new()?;
    let memory = args.bounds.memory(args.shards);
    let memory = memory.map_err(|message| Failure::new(Kind::Arguments, message))?;
    let load_balancer = LoadBalancer::load(args)?;
    let tokens = args.proxy.tokens()?;
    let observation = args.observe.open()?;
    let traced = |endpoint| match &observation {
        Some(observation) => with_traces(observation.watch(endpoint), qlog),
        None => with_traces(endpoint, qlog),
    };
    let lb = load_balancer.as_ref();
    let server = bind(args, &certificate, &memory, traced, lb, samples)?;
    announce(&server, &certificate, args.json)?;
    if let Some(observation) = observation {
        observation.start(args.json)?;
    }
    // From here on nobody waits for the reader of the log.
    background::start()?;
    let descriptors = Descriptors::raise(usize::from(args.shards));
    let root = Arc::new(root);
    if args.writable {
        leftovers::sweep(&root);
    }
    let account = server.endpoint().memory_account();
    let site = Site::new(SiteState {
        root,
        resources: Resources::new(&descriptors, &memory, &account),
        snapshots: Snapshots::default(),
        writable: args.writable,
        hidden: args.hidden,
        max_upload: args.bounds.max_upload.0,
        json: args.json,
        proxy: args.proxy.proxy(server.local_addr(), &tokens),
        webtransport: args.webtransport,
    });
    // It accepts no more connections once it shuts down, which takes longer.
    let serving = async {
        match server.serve(site).await {
            Ok(()) => core::future::pending().await,
            Err(error) => Err(Failure::caused(Kind::Endpoint, "server failed", &error)),
        }
    };
    tokio::select! {
        failed = serving => failed,
        failed = certificate.keep_fresh() => failed,
        failed = LoadBalancer::keep_fresh(load_balancer) => failed,
        never = resident::watch(memory, account) => match never {},
        ended = end(&server, &mut interrupts, args) => ended,
    }
}

/// Shuts down after a first signal; a second one ends the server at once.
async fn end(server: &Server, interrupts: &mut Interrupts, args: &Args) -> Result<(), Failure> {
    let name = interrupts.next().await;
    let open = server.endpoint().open_connections();
    say!(
        "serve: received {name}: shutting down, {open} connection(s) open, waiting at most {}",
        args.drain
    );
    tokio::select! {
        () = server.shutdown(args.drain.0) => Ok(()),
        name = interrupts.next() => {
            server.endpoint().close(Code::NO_ERROR.0, b"the server is shutting down");
            // Time for the closes to be sent.
            let _ = tokio::time::timeout(FAREWELL, server.endpoint().wait_idle()).await;
            let message = format!("terminated by a second {name}");
            Err(Failure::new(Kind::Interrupted, message))
        }
    }
}

fn bind(
    args: &Args,
    certificate: &Certificate,
    memory: &Memory,
    traced: impl Fn(EndpointBuilder) -> EndpointBuilder,
    load_balancer: Option<&LoadBalancer>,
    samples: Option<&Samples>,
) -> Result<Server, Failure> {
    let mut transport = TransportConfig::default();
    transport.controller = args.controller.into();
    transport.versions = args.versions;
    let config = ServerConfig::with_certificates(&certificate.certificates);
    let config = config.early_data(args.early_data);
    let mut config = args.bounds.apply(config, transport, memory);
    if let Some(file) = &args.secret {
        config = config.secret(secret::load(file)?);
    }
    let bind = |address| {
        let mut builder = Server::builder(address, config.clone())
            .shards(usize::from(args.shards))
            .timeouts(args.bounds.timeouts())
            .max_requests(most_requests(args.bounds.max_connections))
            .endpoint(&traced)
            .max_tunnels(MAX_TUNNELS);
        if let Some(load_balancer) = load_balancer {
            let make = load_balancer.generators();
            builder = builder.endpoint(|endpoint| endpoint.connection_ids(make));
        }
        if let Some(samples) = samples {
            let up = SampleDirection::Up;
            builder = builder.endpoint(|endpoint| samples.watch(endpoint, "server", up));
        }
        if args.proxy.is_on() {
            builder = builder.tunnels();
        }
        if args.webtransport {
            builder = builder.webtransport(echo::MAX_SESSIONS);
        }
        builder.build()
    };
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT));
    let address = args.listen.unwrap_or(any);
    let bound = match (bind(address), args.listen) {
        // Hosts without IPv6.
        (Err(BuildError::Socket(error)), None) if error.kind() != io::ErrorKind::AddrInUse => {
            bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)))
        }
        (bound, _) => bound,
    };
    bound.map_err(|error| {
        let kind = match &error {
            BuildError::Config(_) | BuildError::Shards(_) => Kind::Arguments,
            _ => Kind::Address,
        };
        Failure::caused(kind, format!("cannot listen on {address}"), &error)
    })
}

/// The listening address, for scripts.
#[derive(Serialize)]
struct Listening {
    event: &'static str,
    address: SocketAddr,
    /// A URL of the server on this host.
    url: String,
    /// The SHA-256 fingerprint of a generated certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
}

/// Prints the address, so that a script can continue as soon as it reads it, and for people a
/// command that fetches from it.
fn announce(server: &Server, certificate: &Certificate, json: bool) -> Result<(), Failure> {
    let address = server.local_addr();
    let url = url_of(address);
    let fingerprint = certificate.fingerprint.as_ref().map(ToString::to_string);
    if json {
        return print_json(&Listening {
            event: "listening",
            address,
            url,
            fingerprint,
        });
    }
    print(|out| writeln!(out, "listening on {address}"))?;
    let trust = fingerprint.map_or_else(String::new, |hex| format!("--fingerprint {hex} "));
    say!("serve: {url}");
    say!("serve: to fetch it: clearway get {trust}{url}");
    Ok(())
}

/// A URL that reaches the server from this host.
fn url_of(address: SocketAddr) -> String {
    match address {
        address if address.ip().is_unspecified() => {
            format!("https://localhost:{}/", address.port())
        }
        address => format!("https://{address}/"),
    }
}
