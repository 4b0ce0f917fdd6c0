//! Addresses that datagrams to backends are sent from.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;

use super::{FileError, value};

/// Most source addresses; more ports than these have are never needed.
const MAX_SOURCES: usize = 65_536;

/// An address, or a network of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Source(pub IpNet);

impl TryFrom<String> for Source {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl std::str::FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let net = text
            .parse()
            .or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        net.map(Self).map_err(|_| {
            format!("invalid source {text:?}: expected an address or a network such as 10.1.0.0/24")
        })
    }
}

/// Returns every address of the networks.
///
/// # Errors
/// If there are more than 65,536.
pub fn sources(networks: &[Source]) -> Result<Vec<IpAddr>, FileError> {
    let mut addresses = Vec::new();
    for Source(network) in networks {
        addresses.extend(network.hosts().take(MAX_SOURCES + 1));
        if addresses.len() > MAX_SOURCES {
            let message = format!("more than {MAX_SOURCES} addresses; {network} has too many");
            return Err(value("sources", message));
        }
    }
    Ok(addresses)
}
