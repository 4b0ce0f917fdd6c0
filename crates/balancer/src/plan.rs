//! The backends and encodings that shards route by.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use clearway_quic::cid::quic_lb::{Config, ServerId};
use foldhash::fast::RandomState;

use crate::backend::{Backend, BackendId};
use crate::maglev::Maglev;

/// Why backends cannot be routed to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// No server can have this address.
    #[error(
        "backend {name:?} has the address {address}, which no server can have: expected a port from \
         1 to 65535 at an address of one host"
    )]
    InvalidAddress {
        /// The backend's name.
        name: String,
        /// The address.
        address: SocketAddr,
    },
    /// Two backends have the same address.
    #[error("backends {first:?} and {second:?} have the same address {address}")]
    SameAddress {
        /// The first backend's name.
        first: String,
        /// The second backend's name.
        second: String,
        /// Their address.
        address: SocketAddr,
    },
    /// Two backends have the same server ID.
    #[error("backends {first:?} and {second:?} have the same server ID {server_id}")]
    SameServerId {
        /// The first backend's name.
        first: String,
        /// The second backend's name.
        second: String,
        /// Their server ID.
        server_id: ServerId,
    },
    /// Two QUIC-LB configurations have the same ID.
    #[error("two [[quic_lb.config]] sections have the ID {0}")]
    SameConfigId(u8),
}

/// Everything that routing depends on apart from the tables of each shard. It is not changed but
/// replaced: by a new configuration, or when a backend's state changes.
#[derive(Clone, Debug)]
pub struct Plan {
    backends: Vec<Backend>,
    by_id: HashMap<BackendId, usize, RandomState>,
    by_address: HashMap<SocketAddr, BackendId, RandomState>,
    by_server_id: HashMap<(u8, ServerId), BackendId, RandomState>,
    /// By config ID.
    configs: [Option<Config>; 8],
    maglev: Maglev,
}

impl Plan {
    /// Creates a plan. Takes milliseconds, for the table of [`Maglev`].
    ///
    /// # Errors
    /// If two backends or two configurations cannot be told apart.
    pub fn new(
        backends: Vec<Backend>,
        configs: impl IntoIterator<Item = Config>,
    ) -> Result<Self, PlanError> {
        let maglev = Maglev::new(&backends);
        let mut plan = Self {
            maglev,
            by_id: HashMap::default(),
            by_address: HashMap::default(),
            by_server_id: HashMap::default(),
            configs: Default::default(),
            backends: Vec::new(),
        };
        for config in configs {
            let id = config.id();
            if let Some(place) = plan.configs.get_mut(usize::from(id))
                && place.replace(config).is_some()
            {
                return Err(PlanError::SameConfigId(id));
            }
        }
        for backend in backends {
            plan.add(backend)?;
        }
        Ok(plan)
    }

    fn add(&mut self, backend: Backend) -> Result<(), PlanError> {
        let (id, address) = (backend.id, backend.address);
        if !can_be_a_server(address) {
            return Err(PlanError::InvalidAddress {
                name: backend.name,
                address,
            });
        }
        if let Some(other) = self.by_address.insert(address, id) {
            return Err(PlanError::SameAddress {
                first: self.name(other),
                second: backend.name,
                address,
            });
        }
        for &(config, server_id) in &backend.server_ids {
            let former = self.by_server_id.insert((config, server_id), id);
            if let Some(other) = former.filter(|&other| other != id) {
                return Err(PlanError::SameServerId {
                    first: self.name(other),
                    second: backend.name,
                    server_id,
                });
            }
        }
        self.by_id.insert(id, self.backends.len());
        self.backends.push(backend);
        Ok(())
    }

    fn name(&self, id: BackendId) -> String {
        self.backend(id)
            .map_or_else(String::new, |backend| backend.name.clone())
    }

    /// Returns the backends.
    #[must_use]
    pub fn backends(&self) -> &[Backend] {
        &self.backends
    }

    /// Returns a backend.
    #[must_use]
    pub fn backend(&self, id: BackendId) -> Option<&Backend> {
        self.backends.get(*self.by_id.get(&id)?)
    }

    /// Returns the backend with this address.
    #[must_use]
    pub fn backend_at(&self, address: SocketAddr) -> Option<BackendId> {
        self.by_address.get(&address).copied()
    }

    /// Returns the backend that a connection ID names, whatever its state, and the length of the
    /// connection ID. More bytes than the connection ID may follow.
    #[must_use]
    pub fn decode(&self, dcid: &[u8]) -> Option<(BackendId, usize)> {
        let first = dcid.first()?;
        let config = self.configs.get(usize::from(first >> 5))?.as_ref()?;
        let server_id = config.decode(dcid)?;
        let backend = self.by_server_id.get(&(config.id(), server_id))?;
        Some((*backend, config.cid_len()))
    }

    /// Returns whether `id` is sent datagrams of existing connections.
    #[must_use]
    pub fn serves_connections(&self, id: BackendId) -> bool {
        self.backend(id)
            .is_some_and(|backend| backend.state.serves_connections())
    }

    /// Returns the table for new connections.
    #[must_use]
    pub fn maglev(&self) -> &Maglev {
        &self.maglev
    }
}

/// Returns whether a server can be reached at this address. What is sent to the unspecified address
/// arrives at this host, and would be forwarded by the balancer to itself again and again.
pub(crate) fn can_be_a_server(address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !is_broadcast
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::backend::BackendState;

    /// Backends at ports 1, 2 … of 10.0.0.1, with one-byte server IDs of the same numbers.
    pub(crate) fn backends(count: u16) -> Vec<Backend> {
        (1..=count)
            .map(|n| Backend {
                id: BackendId(n),
                name: format!("b{n}"),
                address: format!("10.0.0.1:{n}").parse().unwrap(),
                weight: 1,
                state: BackendState::Active,
                server_ids: vec![(0, ServerId::new(&[n as u8]).unwrap())],
            })
            .collect()
    }

    pub(crate) fn config() -> Config {
        let config = Config::new(0, 1, 7).unwrap();
        config.with_key(&[3; 16]).unwrap()
    }

    #[test]
    fn connection_id_names_its_backend() {
        let plan = Plan::new(backends(3), [config()]).unwrap();
        for backend in plan.backends() {
            let server_id = backend.server_ids[0].1;
            let cid = config().encode(&server_id, &[9; 7], 0).unwrap();
            assert_eq!(plan.decode(&cid), Some((backend.id, 9)));
            assert_eq!(plan.decode(&cid[..8]), None);
            assert_eq!(plan.backend_at(backend.address), Some(backend.id));
        }
        let unknown = ServerId::new(&[77]).unwrap();
        let cid = config().encode(&unknown, &[9; 7], 0).unwrap();
        assert_eq!(plan.decode(&cid), None);
        assert_eq!(plan.decode(&[0xff; 20]), None);
        assert_eq!(plan.decode(&[]), None);
    }

    #[test]
    fn ambiguous_plans_are_rejected() {
        let mut same = backends(2);
        same[1].address = same[0].address;
        let error = Plan::new(same, []).unwrap_err();
        assert!(matches!(error, PlanError::SameAddress { .. }));
        let mut same = backends(2);
        same[1].server_ids = same[0].server_ids.clone();
        let error = Plan::new(same, []).unwrap_err();
        assert!(matches!(error, PlanError::SameServerId { .. }));
        for address in ["10.0.0.1:0", "0.0.0.0:443", "[::]:443", "224.0.0.1:443"] {
            let mut unreachable = backends(2);
            unreachable[1].address = address.parse().unwrap();
            let error = Plan::new(unreachable, []).unwrap_err().to_string();
            let expected = format!("backend \"b2\" has the address {address}, which no server");
            assert!(error.starts_with(&expected), "{error}");
        }
        let error = Plan::new(backends(1), [config(), config()]).unwrap_err();
        assert_eq!(error, PlanError::SameConfigId(0));
    }
}
