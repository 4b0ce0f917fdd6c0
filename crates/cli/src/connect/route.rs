//! Connecting to other addresses than names resolve to: `--resolve` and `--connect-to`, as in curl.

use core::net::{IpAddr, SocketAddr};
use core::str::FromStr;

use clearway::http::Client;
use http::Uri;

/// The servers that an option applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    /// `None` matches any.
    host: Option<String>,
    /// `None` matches any.
    port: Option<u16>,
}

/// `HOST:PORT:ADDR[,ADDR]…`; a host or port `*` matches any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resolve {
    what: Pattern,
    addresses: Vec<IpAddr>,
}

/// `HOST:PORT:OTHER-HOST:OTHER-PORT`; an empty part matches any, or stays the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectTo {
    what: Pattern,
    host: Option<String>,
    port: Option<u16>,
}

impl Pattern {
    fn is_about(&self, host: &str, port: u16) -> bool {
        let same = |name: &String| name.eq_ignore_ascii_case(host);
        self.host.as_ref().is_none_or(same) && self.port.is_none_or(|only| only == port)
    }
}

/// Applies the options to the server of `url`; the first that matches counts.
pub(crate) fn direct(client: &Client, url: &Uri, resolve: &[Resolve], connect_to: &[ConnectTo]) {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let Some(port) = clearway::http::port(url) else {
        return;
    };
    let other = connect_to
        .iter()
        .find(|option| option.what.is_about(host, port));
    let mut there = (host, port);
    if let Some(option) = other {
        there = (
            option.host.as_deref().unwrap_or(host),
            option.port.unwrap_or(port),
        );
        client.connect_to(host, port, there.0, there.1);
    }
    let (host, port) = there;
    if let Some(option) = resolve
        .iter()
        .find(|option| option.what.is_about(host, port))
    {
        let at = |ip: &IpAddr| SocketAddr::new(*ip, port);
        let addresses: Vec<_> = option.addresses.iter().map(at).collect();
        client.resolve(host, port, addresses);
    }
}

/// Returns the first address that the options name for a server.
pub(crate) fn resolved(resolve: &[Resolve], host: &str, port: u16) -> Option<SocketAddr> {
    let option = resolve
        .iter()
        .find(|option| option.what.is_about(host, port))?;
    let address = option.addresses.first()?;
    Some(SocketAddr::new(*address, port))
}

impl FromStr for Resolve {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected HOST:PORT:ADDR such as example.org:443:127.0.0.1,[::1]".to_owned();
        let (host, rest) = host(text).ok_or_else(wrong)?;
        let (port, addresses) = rest.split_once(':').ok_or_else(wrong)?;
        let port = match port {
            "*" => None,
            port => Some(port.parse().map_err(|_| wrong())?),
        };
        let addresses: Result<Vec<IpAddr>, _> = addresses
            .split(',')
            .map(|address| address.trim_matches(['[', ']']).parse())
            .collect();
        Ok(Self {
            what: Pattern {
                host: (host != "*").then(|| host.to_owned()),
                port,
            },
            addresses: addresses.map_err(|_| wrong())?,
        })
    }
}

impl FromStr for ConnectTo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "expected HOST:PORT:OTHER-HOST:OTHER-PORT such as example.org:443:localhost:4433"
                .to_owned()
        };
        let port = |text: &str| match text {
            "" => Ok(None),
            port => port.parse().map(Some).map_err(|_| wrong()),
        };
        let named = |host: &str| (!host.is_empty()).then(|| host.to_owned());
        let (first, rest) = host(text).ok_or_else(wrong)?;
        let (first_port, rest) = rest.split_once(':').ok_or_else(wrong)?;
        let (second, second_port) = host(rest).ok_or_else(wrong)?;
        Ok(Self {
            what: Pattern {
                host: named(first),
                port: port(first_port)?,
            },
            host: named(second),
            port: port(second_port)?,
        })
    }
}

/// The host before the next colon (brackets around IPv6 addresses), and what comes
/// after that.
fn host(text: &str) -> Option<(&str, &str)> {
    match text.strip_prefix('[') {
        Some(text) => {
            let (host, rest) = text.split_once(']')?;
            Some((host, rest.strip_prefix(':')?))
        }
        None => text.split_once(':'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolve_and_connect_to_parse_as_in_curl() {
        let resolve: Resolve = "[2001:db8::1]:443:[::1],10.0.0.1".parse().unwrap();
        assert!(resolve.what.is_about("2001:db8::1", 443));
        assert!(!resolve.what.is_about("2001:db8::1", 444));
        let loopback: IpAddr = "::1".parse().unwrap();
        assert_eq!(resolve.addresses, [loopback, "10.0.0.1".parse().unwrap()]);
        let any: Resolve = "*:*:10.0.0.1".parse().unwrap();
        assert!(any.what.is_about("whatever", 1));

        let connect: ConnectTo = "Example.org:443:[::1]:4433".parse().unwrap();
        assert!(connect.what.is_about("example.ORG", 443));
        assert_eq!(
            (connect.host.as_deref(), connect.port),
            (Some("::1"), Some(4433))
        );
        let connect: ConnectTo = "::backend:".parse().unwrap();
        assert!(connect.what.is_about("whatever", 1));
        assert_eq!(
            (connect.host.as_deref(), connect.port),
            (Some("backend"), None)
        );
    }

    #[test]
    fn invalid_resolve_or_connect_to_is_rejected() {
        for text in [
            "",
            "a",
            "a:1",
            "a:1:",
            "a:b:10.0.0.1",
            "[::1:1:10.0.0.1",
            "a:1:b",
        ] {
            assert!(text.parse::<Resolve>().is_err(), "{text:?}");
        }
        for text in ["", "a:1", "a:1:b", "a:b:c:1", "a:1:b:65536", "a:1:[b:1"] {
            assert!(text.parse::<ConnectTo>().is_err(), "{text:?}");
        }
    }
}
