//! Tokio with paused time, over a modelled network.
//!
//! Time stands still while a task can run, and then moves to the next timer or datagram, in
//! steps of a millisecond as tokio's timers do: datagrams that are due within one arrive together
//! at its end. `tokio::time::sleep` takes no time at all. Clearway's timeouts are in virtual
//! time too: a call that sleeps for an hour meets the idle timeout of its connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use clearway::EndpointBuilder;
use clearway::runtime::{Runtime, TokioRuntime};
use clearway_links::{Time, mix};

use crate::costs::Costs;
use crate::network::{Network, NetworkStats, SimError};
use crate::socket::{Faults, SimSocket};

/// A network, and a tokio runtime in virtual time for the applications on it.
#[derive(Debug)]
pub struct Simulation {
    network: Network,
    seed: u64,
}

impl Simulation {
    /// Creates a network where every two hosts are joined by links like `default`, one in each
    /// direction ([`LinkConfig`](clearway_links::LinkConfig)'s notation).
    ///
    /// # Errors
    /// If the link is not valid.
    pub fn new(default: &str, seed: u64) -> Result<Self, SimError> {
        Ok(Self {
            network: Network::new(default, seed)?,
            seed,
        })
    }

    /// Sets the link that leads from one host to another, in place of the default.
    ///
    /// # Errors
    /// If the link is not valid.
    pub fn set_link(&self, from: IpAddr, to: IpAddr, link: &str) -> Result<(), SimError> {
        self.network.set_link(from, to, link)
    }

    /// Runs an application to its end, in virtual time, and returns its output. Tasks that it
    /// has spawned and that are not finished then are dropped.
    ///
    /// # Panics
    /// If the application panics, or no tokio runtime can be built, as within another.
    pub fn run<T>(&self, application: impl AsyncFnOnce(Net) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without I/O needs nothing of the system");
        runtime.block_on(async {
            let net = Net::new(self.network.clone(), self.seed);
            let links = tokio::spawn(net.clone().deliver());
            let output = application(net).await;
            links.abort();
            output
        })
    }

    /// Returns what has happened on the network so far.
    #[must_use]
    pub fn stats(&self) -> NetworkStats {
        self.network.stats()
    }
}

/// The access to the network for applications in a [`Simulation`].
#[derive(Clone, Debug)]
pub struct Net {
    network: Network,
    runtime: TokioRuntime,
    seed: u64,
}

impl Net {
    fn new(network: Network, seed: u64) -> Self {
        Self {
            network,
            runtime: TokioRuntime::current(),
            seed,
        }
    }

    /// Puts an endpoint at this address of the network, in virtual time.
    ///
    /// # Panics
    /// If the address is in use.
    pub fn attach(&self, endpoint: EndpointBuilder, address: SocketAddr) -> EndpointBuilder {
        match self.try_attach(endpoint, address, Faults::default()) {
            Ok(endpoint) => endpoint,
            Err(error) => panic!("{error}"),
        }
    }

    /// Puts an endpoint at this address of the network, in virtual time, on a socket with
    /// `faults`.
    ///
    /// # Errors
    /// If the address is in use.
    pub fn try_attach(
        &self,
        endpoint: EndpointBuilder,
        address: SocketAddr,
        faults: Faults,
    ) -> Result<EndpointBuilder, SimError> {
        let runtime = self.runtime.clone();
        let runtime = Arc::new(runtime.with_seed(seed_of(self.seed, address)));
        let costs = Costs::FREE;
        let socket = SimSocket::bind(&self.network, address, runtime.clone(), costs, faults)?;
        Ok(endpoint.datagram_socket(Arc::new(socket)).runtime(runtime))
    }

    /// Delivers datagrams when they are due.
    async fn deliver(self) {
        let begin = tokio::time::Instant::now();
        let origin = begin.checked_sub(self.now()).unwrap_or(begin);
        loop {
            self.network.advance(Time(self.now().as_nanos() as u64));
            let changed = self.network.changed();
            let next = self.network.next_event();
            let due = async {
                match next {
                    Some(at) => {
                        let at = Duration::from_nanos(at.as_nanos());
                        tokio::time::sleep_until(origin + at).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = changed.notified() => {}
                () = due => {}
            }
        }
    }

    /// Returns the virtual time since the simulation began.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.runtime.now()
    }
}

/// Derives the seed of the endpoint at an address.
pub(crate) fn seed_of(seed: u64, address: SocketAddr) -> [u8; 32] {
    let ip = match address.ip() {
        IpAddr::V4(ip) => u64::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip) as u64,
    };
    let mut part = mix(mix(seed, ip), address.port().into());
    let mut bytes = [0; 32];
    for chunk in bytes.chunks_exact_mut(8) {
        part = mix(part, 1);
        chunk.copy_from_slice(&part.to_le_bytes());
    }
    bytes
}
