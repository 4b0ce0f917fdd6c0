//! Requests in a closed loop: each is sent when the one before it is answered.
//!
//! A server on one core and clients on another, as on a machine where both are pinned. What they
//! do is the production event loop's work; what it takes of a core is modelled ([`Costs`]).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clearway::config::Admission;
use clearway::{ClientConfig, Connection, Endpoint, EndpointBuilder, ServerConfig};
use clearway_links::Time;

use crate::cores::{CoreRuntime, CoreStats, Machine, charge, now};
use crate::costs::Costs;
use crate::identity;
use crate::network::{Network, NetworkStats, SimError};
use crate::simulation::seed_of;
use crate::socket::{Faults, SimSocket};

/// The server's address.
const SERVER: ([u8; 4], u16) = ([10, 0, 0, 1], 443);
/// The clients'. Each has a port of its own.
const CLIENTS: [u8; 4] = [10, 0, 0, 2];

/// Bytes of a request and of a response.
const REQUEST: usize = 64;
const RESPONSE: usize = 256;

/// What to run.
#[derive(Clone, Debug)]
pub struct ClosedLoop {
    /// The link, in both directions.
    pub link: String,
    /// Connections, each from an endpoint of its own.
    pub connections: usize,
    /// Requests in flight on each of them.
    pub in_flight: usize,
    /// How long requests are counted, after all handshakes.
    pub duration: Duration,
    /// What the event loop takes of a core.
    pub costs: Costs,
    /// What server and client each take for a request, beside that.
    pub application: Duration,
    /// Failures of the server's socket.
    pub server_faults: Faults,
    /// Other clients' handshakes, one begun in each of these intervals from a third core, and
    /// left as soon as they are complete.
    pub strangers: Option<Duration>,
    /// Decides everything.
    pub seed: u64,
}

impl Default for ClosedLoop {
    fn default() -> Self {
        Self {
            link: "rate=10G delay=5us queue=10000".to_owned(),
            connections: 1,
            in_flight: 100,
            duration: Duration::from_millis(50),
            costs: Costs::SERVER,
            application: Duration::from_micros(3),
            server_faults: Faults::default(),
            strangers: None,
            seed: 1,
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Requests answered on each connection.
    pub answered: Vec<u64>,
    /// How long requests took: the median, and of 99 in 100.
    pub p50: Duration,
    /// See `p50`.
    pub p99: Duration,
    /// The time in which they were counted.
    pub elapsed: Duration,
    /// The busy time of server and clients in that time.
    pub server: CoreStats,
    /// See `server`.
    pub client: CoreStats,
    /// Handshakes of strangers that were completed.
    pub strangers: u64,
    /// What happened on the network.
    pub network: NetworkStats,
}

impl Report {
    /// Returns the requests answered on all connections.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.answered.iter().sum()
    }

    /// Returns of a thousand parts of the time how many server and clients were busy.
    #[must_use]
    pub fn busy_per_mille(&self) -> [u64; 2] {
        let whole = self.elapsed.as_nanos().max(1);
        [self.server, self.client]
            .map(|core| (core.busy.as_nanos().saturating_mul(1000) / whole) as u64)
    }
}

#[derive(Debug, Default)]
struct Tally {
    connected: usize,
    counting: bool,
    answered: Vec<u64>,
    times: Vec<Duration>,
    strangers: u64,
    failures: Vec<String>,
}

type Shared = Arc<Mutex<Tally>>;

fn tally(shared: &Shared) -> std::sync::MutexGuard<'_, Tally> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs it.
///
/// # Errors
/// If the link is not valid.
///
/// # Panics
/// If a connection fails, or not all are established within a minute of virtual time.
pub fn run(setup: &ClosedLoop) -> Result<Report, SimError> {
    let network = Network::new(&setup.link, setup.seed)?;
    let mut machine = Machine::new(network.clone(), 3, setup.costs);
    let shared = Shared::default();
    tally(&shared).answered = vec![0; setup.connections];
    let (certificate, key) = identity(["localhost"]);

    let address = SocketAddr::from(SERVER);
    let config = ServerConfig::with_identity(&certificate, &key).expect("a server's settings");
    let runtime = machine.runtime(0, seed_of(setup.seed, address));
    let server = on_core(
        &network,
        &runtime,
        address,
        setup.costs,
        setup.server_faults,
    )?;
    let handshake = setup.costs.handshake;
    let config = config.alpn(["sim"]).admit(move |_| {
        charge(handshake);
        Admission::Accept
    });
    let server = server.server(config).build().expect("a server");
    runtime.run(serve(server, runtime.clone(), setup.application));

    let trust = ClientConfig::with_roots(&certificate).expect("a client's settings");
    let trust = trust.alpn(["sim"]);
    for index in 0..setup.connections {
        let local = SocketAddr::from((CLIENTS, 10_000 + index as u16));
        let runtime = machine.runtime(1, seed_of(setup.seed, local));
        let client = on_core(&network, &runtime, local, setup.costs, Faults::default())?;
        let client = client.client(trust.clone()).build().expect("a client");
        let task = connect(
            client,
            runtime.clone(),
            index,
            setup.clone(),
            shared.clone(),
        );
        runtime.run(task);
    }
    let minute = Time::from_secs(60);
    let begin = machine.run(minute, || tally(&shared).connected == setup.connections);
    let failures = tally(&shared).failures.clone();
    assert!(begin < minute && failures.is_empty(), "{failures:?}");

    if let Some(interval) = setup.strangers {
        let local = SocketAddr::from((CLIENTS, 0));
        let runtime = machine.runtime(2, seed_of(setup.seed, local));
        let client = on_core(&network, &runtime, local, Costs::FREE, Faults::default())?;
        let client = client.client(trust).build().expect("a client");
        runtime.run(bother(client, runtime.clone(), interval, shared.clone()));
    }
    tally(&shared).counting = true;
    let before = machine.stats();
    let end = machine.run(begin_plus(begin, setup.duration), || false);
    let after = machine.stats();
    let mut tally = tally(&shared);
    assert!(tally.failures.is_empty(), "{:?}", tally.failures);
    tally.times.sort_unstable();
    let quantile = |per_cent: usize| {
        let place = tally.times.len() * per_cent / 100;
        tally.times.get(place).copied().unwrap_or_default()
    };
    Ok(Report {
        p50: quantile(50),
        p99: quantile(99),
        answered: tally.answered.clone(),
        elapsed: end.saturating_since(begin),
        server: difference(after[0], before[0]),
        client: difference(after[1], before[1]),
        strangers: tally.strangers,
        network: network.stats(),
    })
}

fn begin_plus(begin: Time, duration: Duration) -> Time {
    Time(begin.as_nanos() + duration.as_nanos() as u64)
}

fn difference(after: CoreStats, before: CoreStats) -> CoreStats {
    CoreStats {
        busy: after.busy - before.busy,
        polls: after.polls - before.polls,
        wakeups: after.wakeups - before.wakeups,
    }
}

/// Puts an endpoint on a core.
fn on_core(
    network: &Network,
    runtime: &CoreRuntime,
    address: SocketAddr,
    costs: Costs,
    faults: Faults,
) -> Result<EndpointBuilder, SimError> {
    let runtime = Arc::new(runtime.clone());
    let socket = SimSocket::bind(network, address, runtime.clone(), costs, faults)?;
    Ok(EndpointBuilder::on_datagram_socket(Arc::new(socket)).runtime(runtime))
}

/// Accepts connections and answers their requests, each connection in a task of its own.
async fn serve(server: Endpoint, runtime: CoreRuntime, application: Duration) {
    while let Ok(Some(connection)) = server.accept().await {
        runtime.run(async move {
            while let Ok((mut send, mut recv)) = connection.accept_bi().await {
                if recv.read_to_end(REQUEST).await.is_err() {
                    continue;
                }
                charge(application);
                // A client that leaves stops the response, which is not the server's failure.
                if send.write_all(&[7; RESPONSE]).await.is_ok() {
                    let _ = send.finish();
                }
            }
        });
    }
}

async fn connect(
    client: Endpoint,
    runtime: CoreRuntime,
    index: usize,
    setup: ClosedLoop,
    shared: Shared,
) {
    let connection = match client.connect(SERVER.into(), "localhost").await {
        Ok(connection) => connection,
        Err(error) => {
            tally(&shared).failures.push(error.to_string());
            return;
        }
    };
    tally(&shared).connected += 1;
    for _ in 0..setup.in_flight {
        let (connection, shared, application) =
            (connection.clone(), shared.clone(), setup.application);
        runtime.run(async move {
            let failure = request_for_ever(connection, index, application, &shared).await;
            tally(&shared).failures.push(failure);
        });
    }
    // Keeps the endpoint.
    connection.closed().await;
    drop(client);
}

/// Sends a request after the other. Returns why it had to stop.
async fn request_for_ever(
    connection: Connection,
    index: usize,
    application: Duration,
    shared: &Shared,
) -> String {
    loop {
        let begun = now();
        charge(application);
        match request(&connection).await {
            Ok(()) => {}
            Err(error) => return error,
        }
        let mut tally = tally(shared);
        if tally.counting {
            tally.answered[index] += 1;
            tally.times.push(now().saturating_since(begun));
        }
    }
}

async fn request(connection: &Connection) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let (mut send, mut recv) = connection.open_bi().await.map_err(|e| text(&e))?;
    send.write_all(&[3; REQUEST]).await.map_err(|e| text(&e))?;
    send.finish().map_err(|e| text(&e))?;
    let response = recv.read_to_end(RESPONSE).await.map_err(|e| text(&e))?;
    if response.len() == RESPONSE {
        Ok(())
    } else {
        Err(format!("a response of {} bytes", response.len()))
    }
}

/// Opens a connection in each interval, and closes it at once.
async fn bother(client: Endpoint, runtime: CoreRuntime, interval: Duration, shared: Shared) {
    loop {
        let next = begin_plus(now(), interval);
        let (connecting, shared) = (client.connect(SERVER.into(), "localhost"), shared.clone());
        runtime.run(async move {
            if let Ok(connection) = connecting.await {
                tally(&shared).strangers += 1;
                connection.close(0, b"");
            }
        });
        runtime.sleep_until(next).await;
    }
}
