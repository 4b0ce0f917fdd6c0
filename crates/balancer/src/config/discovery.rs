//! `[discovery]`: where servers are found that the file does not list.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clearway_quic::cid::quic_lb::{Config, ServerId};
use serde::Deserialize;

use super::{File, FileError, value};
use crate::backend::BackendState;
use crate::plan::can_be_a_server;
use crate::settings::BackendSettings;

/// How often DNS is asked by default.
const EVERY: Duration = Duration::from_secs(10);

/// How long a server that is not found any more is kept, by default: longer than idle timeouts in use,
/// so that its connections have ended.
const KEEP: Duration = Duration::from_secs(120);

/// `[discovery]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiscoverySection {
    /// The name of SRV records, such as `_quic._udp.example.org`.
    pub srv: Option<String>,
    /// The name server to ask; the system's if absent.
    pub name_server: Option<SocketAddr>,
    /// Seconds between two questions.
    pub every_seconds: Option<u64>,
    /// A Service of Kubernetes, whose EndpointSlices are followed.
    pub service: Option<String>,
    /// Its namespace.
    pub namespace: Option<String>,
    /// The name of its port.
    pub port: Option<String>,
    /// The address of the API without TLS, such as that of `kubectl proxy`; absent in a pod.
    pub api: Option<String>,
    /// Seconds that a server which is not found any more gets the datagrams of its connections.
    pub keep_seconds: Option<u64>,
}

/// Where servers are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiscoverySource {
    /// SRV records (RFC 2782).
    Srv {
        /// Their name.
        name: String,
        /// The name server to ask; `None` = the system's.
        name_server: Option<SocketAddr>,
        /// How often.
        every: Duration,
    },
    /// The EndpointSlices of a Service of Kubernetes.
    EndpointSlices {
        /// The Service.
        service: String,
        /// Its namespace.
        namespace: String,
        /// The name of its port.
        port: String,
        /// The API's URL; `None` = as the environment of a pod says.
        api: Option<String>,
    },
}

/// How servers are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// Where.
    pub source: DiscoverySource,
    /// How long one that is not found any more gets the datagrams of its connections.
    pub keep: Duration,
}

/// A server that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscoveredServer {
    /// Where its datagrams go.
    pub address: SocketAddr,
    /// Its share of new connections, 1 to 100.
    pub weight: u32,
    /// It takes no new connections.
    pub draining: bool,
}

impl File {
    /// Returns how further servers are found, if they are.
    ///
    /// # Errors
    /// If `[discovery]` names no source or two, or lacks a part of one.
    pub fn discovery(&self) -> Result<Option<Discovery>, FileError> {
        let Some(section) = &self.discovery else {
            return Ok(None);
        };
        let needed = |key: &Option<String>, name: &str| {
            let message = "missing; a Service of Kubernetes has service, namespace and port";
            let missing = || value(format!("discovery.{name}"), message);
            key.clone().ok_or_else(missing)
        };
        let source = match (&section.srv, &section.service) {
            (Some(name), None) => DiscoverySource::Srv {
                name: name.clone(),
                name_server: section.name_server,
                every: seconds(section.every_seconds, EVERY, "every_seconds")?,
            },
            (None, Some(service)) => DiscoverySource::EndpointSlices {
                service: service.clone(),
                namespace: needed(&section.namespace, "namespace")?,
                port: needed(&section.port, "port")?,
                api: section.api.clone(),
            },
            (Some(_), Some(_)) | (None, None) => {
                let message =
                    "expected either srv = \"_quic._udp.example.org\" or service = \"name\"";
                return Err(value("discovery", message));
            }
        };
        let keep = seconds(section.keep_seconds, KEEP, "keep_seconds")?;
        Ok(Some(Discovery { source, keep }))
    }

    /// Returns the settings of servers that were found, without addresses that no server can have.
    /// Each has its address as its server ID, see [`server_id_of`].
    ///
    /// # Errors
    /// If `[quic_lb]` is invalid.
    pub fn discovered(
        &self,
        servers: &[DiscoveredServer],
    ) -> Result<Vec<BackendSettings>, FileError> {
        let configs = self.configs()?;
        let servers = servers.iter();
        Ok(servers
            .filter(|server| can_be_a_server(server.address))
            .map(|server| settings(server, &configs))
            .collect())
    }
}

fn seconds(given: Option<u64>, default: Duration, key: &str) -> Result<Duration, FileError> {
    match given {
        Some(0) => Err(value(format!("discovery.{key}"), "must be at least 1")),
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => Ok(default),
    }
}

fn settings(server: &DiscoveredServer, configs: &[Config]) -> BackendSettings {
    let id = server_id_of(server.address.ip());
    let fitting = configs
        .iter()
        .filter(|config| Some(config.server_id_len()) == id.map(|id| id.len()));
    BackendSettings {
        name: server.address.to_string(),
        address: server.address,
        weight: server.weight.clamp(1, 100),
        state: if server.draining {
            BackendState::Draining
        } else {
            BackendState::Active
        },
        server_ids: fitting
            .filter_map(|config| Some((config.id(), id?)))
            .collect(),
    }
}

/// Returns the server ID of a server that nobody has given one: its IPv4 address, or the last eight
/// bytes of its IPv6 address.
#[must_use]
pub fn server_id_of(address: IpAddr) -> Option<ServerId> {
    match address.to_canonical() {
        IpAddr::V4(address) => ServerId::new(&address.octets()),
        IpAddr::V6(address) => ServerId::new(address.octets().last_chunk::<8>()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LB: &str =
        "[quic_lb]\nactive = 0\n[[quic_lb.config]]\nid = 0\nserver_id_len = 4\nnonce_len = 8\n";

    #[test]
    fn found_servers_have_their_addresses_as_server_ids() {
        let file = File::parse(LB).unwrap();
        let server = |address: &str, draining| DiscoveredServer {
            address: address.parse().unwrap(),
            weight: 7,
            draining,
        };
        let servers = [
            server("10.0.3.9:443", false),
            server("[2001:db8::1]:443", true),
            // One mistake of a source must not cost the others.
            server("0.0.0.0:443", false),
            server("10.0.3.8:0", false),
            server("[::ffff:0.0.0.0]:443", false),
            server("[ff02::1]:443", false),
            server("255.255.255.255:443", false),
        ];
        let found = file.discovered(&servers).unwrap();
        assert_eq!(found.len(), 2);
        let id = ServerId::new(&[10, 0, 3, 9]).unwrap();
        assert_eq!(found[0].server_ids, [(0, id)]);
        assert_eq!((found[0].weight, found[0].state), (7, BackendState::Active));
        assert_eq!(
            found[1].server_ids,
            [],
            "config 0 has server IDs of four bytes"
        );
        assert_eq!(found[1].state, BackendState::Draining);
        let v6 = server_id_of("2001:db8::a:b".parse().unwrap()).unwrap();
        assert_eq!(v6, ServerId::new(&[0, 0, 0, 0, 0, 10, 0, 11]).unwrap());
    }

    #[test]
    fn sections_without_exactly_one_source_are_rejected() {
        for (text, expected) in [
            ("[discovery]\n", "discovery: expected either"),
            (
                "[discovery]\nsrv = \"a\"\nservice = \"b\"\n",
                "discovery: expected either",
            ),
            (
                "[discovery]\nservice = \"b\"\nport = \"c\"\n",
                "discovery.namespace: missing",
            ),
            (
                "[discovery]\nsrv = \"a\"\nevery_seconds = 0\n",
                "discovery.every_seconds: must be",
            ),
        ] {
            let error = File::parse(text).unwrap().discovery().unwrap_err();
            assert!(error.to_string().starts_with(expected), "{error}");
        }
        let file = File::parse("[discovery]\nsrv = \"a\"\n").unwrap();
        let discovery = file.discovery().unwrap().unwrap();
        assert_eq!(discovery.keep, KEEP);
        assert!(matches!(
            discovery.source,
            DiscoverySource::Srv { every: EVERY, .. }
        ));
        assert_eq!(File::parse("").unwrap().discovery().unwrap(), None);
    }
}
