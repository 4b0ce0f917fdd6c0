//! What transparent mode needs.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use clearway_udp::{Options, Socket, steering};

use crate::settings::Settings;

/// Checks that datagrams can be sent with clients' addresses.
///
/// # Errors
/// What does not fit, and what to do.
pub(crate) fn check(settings: &Settings, local: SocketAddr) -> Result<(), String> {
    if local.ip().is_unspecified() {
        return Err(format!(
            "transparent mode needs the service's address to listen on, not {}: replies are sent \
             from it",
            local.ip()
        ));
    }
    if !settings.sources.is_empty() {
        return Err(
            "transparent mode sends from clients' addresses: leave out the sources".to_owned(),
        );
    }
    let other = settings
        .backends
        .iter()
        .find(|backend| backend.address.is_ipv4() != local.is_ipv4());
    if let Some(backend) = other {
        return Err(format!(
            "transparent mode keeps addresses, so backend {:?} at {} needs one of the same kind \
             (IPv4 or IPv6) as the service at {local}",
            backend.name, backend.address
        ));
    }
    may_use_any_address(local.is_ipv6()).map_err(|error| {
        format!("transparent mode needs Linux and the capability CAP_NET_ADMIN: {error}")
    })
}

/// Has clients' datagrams arrive at the shard that has their port.
pub(crate) fn steer(sockets: &[Socket]) {
    if sockets.len() > 1
        && let Err(error) = steering::steer_by_port(sockets)
    {
        tracing::warn!(%error, "datagrams of clients are not steered to the shards of their ports");
    }
}

fn may_use_any_address(is_v6: bool) -> io::Result<()> {
    let any = if is_v6 {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    } else {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    };
    let options = Options {
        transparent: true,
        ..Options::default()
    };
    Socket::bind(SocketAddr::new(any, 0), &options).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendState;
    use crate::settings::BackendSettings;

    #[test]
    fn settings_that_contradict_transparent_mode_are_named() {
        let local = SocketAddr::from(([192, 0, 2, 1], 443));
        let mut settings = Settings::new(local);
        settings.transparent = true;
        let any = SocketAddr::from(([0, 0, 0, 0], 443));
        let error = |settings: &Settings, local| check(settings, local).unwrap_err();
        assert!(error(&settings, any).contains("not 0.0.0.0"));
        settings.backends = vec![BackendSettings {
            name: "b".to_owned(),
            address: "[2001:db8::1]:443".parse().unwrap(),
            weight: 1,
            state: BackendState::Active,
            server_ids: Vec::new(),
        }];
        assert!(error(&settings, local).contains("same kind"));
        settings.backends.clear();
        settings.sources = vec![local.ip()];
        assert!(error(&settings, local).contains("leave out the sources"));
    }
}
