//! What the API of Kubernetes says: a list of EndpointSlices, and events about them.
//!
//! This file uses nothing else of the command, so that the fuzz target `balancer_inputs` contains it.

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;

use clearway_balancer::config::DiscoveredServer;
use serde::Deserialize;

/// Most slices of a Service. Each has up to 1,000 endpoints.
const MOST: usize = 4_096;

/// The slices of a Service, by name.
#[derive(Debug, Default)]
pub(super) struct Slices {
    by_name: BTreeMap<String, Slice>,
}

impl Slices {
    /// Reads a list. Returns the slices, and the version to watch them from.
    ///
    /// # Errors
    /// If it is not a list of slices, or too long.
    pub(super) fn listed(list: &[u8]) -> Result<(Self, String), String> {
        let list: List = serde_json::from_slice(list).map_err(|error| error.to_string())?;
        let version = list.metadata.resource_version;
        // It becomes a part of a URL.
        if !version.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err("the API named a resource version that is not one".to_owned());
        }
        let mut slices = Self::default();
        for slice in list.items {
            slices.insert(slice)?;
        }
        Ok((slices, version))
    }

    /// Changes the slices as an event says.
    ///
    /// # Errors
    /// If it is not an event about a slice, or the API has no more events from this version on.
    pub(super) fn apply(&mut self, event: &[u8]) -> Result<(), String> {
        let event: WatchEvent = serde_json::from_slice(event).map_err(|error| error.to_string())?;
        let slice =
            |object| serde_json::from_value::<Slice>(object).map_err(|error| error.to_string());
        match event.kind.as_str() {
            "ADDED" | "MODIFIED" => self.insert(slice(event.object)?),
            "DELETED" => {
                self.by_name.remove(&slice(event.object)?.metadata.name);
                Ok(())
            }
            "BOOKMARK" => Ok(()),
            // Such as a version that is too old: a new list helps.
            other => Err(format!("the API sent {other}: {}", event.object)),
        }
    }

    fn insert(&mut self, slice: Slice) -> Result<(), String> {
        self.by_name.insert(slice.metadata.name.clone(), slice);
        if self.by_name.len() > MOST {
            return Err(format!("the API named more than {MOST} slices"));
        }
        Ok(())
    }

    /// Returns the servers, at the slices' port of this name. One that is named twice drains only if it
    /// does so in both.
    pub(super) fn servers(&self, port: &str) -> Vec<DiscoveredServer> {
        let mut found = BTreeMap::<SocketAddr, bool>::new();
        for slice in self.by_name.values() {
            let Some(port) = slice.port(port) else {
                continue;
            };
            for endpoint in slice.endpoints.iter().flatten() {
                let Some(draining) = endpoint.conditions.draining() else {
                    continue;
                };
                let addresses = endpoint.addresses.iter();
                for address in addresses.filter_map(|text| text.parse::<IpAddr>().ok()) {
                    let entry = found.entry(SocketAddr::new(address, port));
                    *entry.or_insert(draining) &= draining;
                }
            }
        }
        let server = |(address, draining)| DiscoveredServer {
            address,
            weight: 1,
            draining,
        };
        found.into_iter().map(server).collect()
    }
}

/// Lines from pieces that end anywhere.
#[derive(Debug)]
pub(super) struct Lines {
    waiting: Vec<u8>,
    /// How many of these bytes are known not to end a line.
    searched: usize,
    longest: usize,
}

impl Lines {
    /// Lines of at most so many bytes.
    pub(super) fn new(longest: usize) -> Self {
        Self {
            waiting: Vec::new(),
            searched: 0,
            longest,
        }
    }

    /// Appends a piece. All lines before it have been [taken](Self::take).
    ///
    /// # Errors
    /// If the line that the piece continues is too long already.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), String> {
        if self.searched > self.longest {
            return Err("the API sent an event that is too long".to_owned());
        }
        self.waiting.extend_from_slice(piece);
        Ok(())
    }

    /// Removes and returns the first line, with its end.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        let unsearched = self.waiting.get(self.searched..).unwrap_or_default();
        let Some(end) = unsearched.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.waiting.len();
            return None;
        };
        let rest = self.waiting.split_off(self.searched + end + 1);
        self.searched = 0;
        Some(core::mem::replace(&mut self.waiting, rest))
    }
}

#[derive(Debug, Deserialize)]
struct List {
    metadata: ListMetadata,
    #[serde(default)]
    items: Vec<Slice>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
}

#[derive(Debug, Deserialize)]
struct WatchEvent {
    #[serde(rename = "type")]
    kind: String,
    object: serde_json::Value,
}

/// An EndpointSlice of `discovery.k8s.io/v1`, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Slice {
    metadata: Metadata,
    endpoints: Option<Vec<Endpoint>>,
    ports: Option<Vec<Port>>,
}

impl Slice {
    fn port(&self, name: &str) -> Option<u16> {
        let mut ports = self.ports.iter().flatten();
        ports.find(|port| port.name.as_deref() == Some(name))?.port
    }
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    addresses: Vec<String>,
    #[serde(default)]
    conditions: Conditions,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Conditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

impl Conditions {
    /// Returns whether the endpoint drains, or `None` if it is of no use.
    fn draining(self) -> Option<bool> {
        // Absent is true for the first two, and false for the last.
        let takes_new = self.ready.unwrap_or(true);
        let serving = self.serving.unwrap_or(true);
        let draining = !takes_new && serving && self.terminating.unwrap_or(false);
        (takes_new || draining).then_some(draining)
    }
}

#[derive(Debug, Deserialize)]
struct Port {
    name: Option<String>,
    port: Option<u16>,
}
