//! Servers that are found while the balancer runs: by SRV records of DNS, or by the
//! EndpointSlices of Kubernetes (feature `kubernetes`).
//!
//! A source is asked again and again, or tells of changes; whatever goes wrong with it is said once, and
//! leaves the servers as they are.

mod answer;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod servers;
mod srv;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use clearway_balancer::config::{DiscoveredServer, Discovery, DiscoverySource};

use self::servers::Servers;
use crate::failure::Failure;
#[cfg(not(feature = "kubernetes"))]
use crate::failure::Kind;

/// The servers found so far.
#[derive(Clone, Debug)]
pub(super) struct Discovered {
    servers: Arc<Mutex<Servers>>,
}

impl Discovered {
    /// Begins to look for servers, on the tokio runtime.
    ///
    /// # Errors
    /// If this program was built without the source, or the source is invalid.
    pub(super) fn start(discovery: Discovery) -> Result<Self, Failure> {
        let this = Self {
            servers: Arc::new(Mutex::new(Servers::new(discovery.keep))),
        };
        this.follow(discovery.source)?;
        Ok(this)
    }

    fn follow(&self, source: DiscoverySource) -> Result<(), Failure> {
        match source {
            DiscoverySource::Srv {
                name,
                name_server,
                every,
            } => srv::follow(self.clone(), name, name_server, every),
            #[cfg(feature = "kubernetes")]
            DiscoverySource::EndpointSlices {
                service,
                namespace,
                port,
                api,
            } => kubernetes::follow(self.clone(), &service, &namespace, port, api.as_deref()),
            #[cfg(not(feature = "kubernetes"))]
            DiscoverySource::EndpointSlices { .. } => {
                let message = "[discovery]: this program was built without Kubernetes; build it \
                               with --features kubernetes";
                Err(Failure::new(Kind::Arguments, message))
            }
        }
    }

    /// Returns the servers if they have changed since the last call.
    pub(super) fn take_changed(&self) -> Option<Vec<DiscoveredServer>> {
        self.lock().take_changed(Instant::now())
    }

    /// Returns the servers.
    pub(super) fn servers(&self) -> Vec<DiscoveredServer> {
        self.lock().list()
    }

    fn update(&self, found: &[DiscoveredServer]) {
        self.lock().update(Instant::now(), found);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Servers> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says what is wrong with a source, once until it works again.
#[derive(Debug, Default)]
struct Complaint {
    last: Option<String>,
}

impl Complaint {
    fn say(&mut self, what: &str, error: &str) {
        if self.last.as_deref() != Some(error) {
            say!("balance: cannot find servers by {what}, keeping those before: {error}");
        }
        self.last = Some(error.to_owned());
    }

    fn settle(&mut self, what: &str) {
        if self.last.take().is_some() {
            say!("balance: finding servers by {what} again");
        }
    }
}
