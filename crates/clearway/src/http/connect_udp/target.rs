//! The target of a tunnel: host and port, and their path (RFC 9298 §2, §3).

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The default template (RFC 9298 §2), up to its variables.
const PREFIX: &str = "/.well-known/masque/udp/";

/// The longest DNS name, in characters (RFC 1035 §2.3.4).
const MAX_NAME: usize = 253;

/// The longest label of one.
const MAX_LABEL: usize = 63;

/// Host and port to which a proxy sends UDP packets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    host: String,
    port: u16,
}

/// Why a target is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTarget {
    /// The path is not of the default template.
    #[error("expected the path /.well-known/masque/udp/HOST/PORT/")]
    Path,
    /// The host is neither a DNS name nor an IP address.
    #[error("the target's host must be a DNS name or an IP address")]
    Host,
    /// The port is not between 1 and 65535.
    #[error("the target's port must be between 1 and 65535")]
    Port,
    /// It is not a host and a port.
    #[error("expected a target HOST:PORT, such as example.org:443 or [2001:db8::1]:53")]
    Format,
}

impl Target {
    /// Creates a target of a DNS name or an IP address without brackets, and a port.
    ///
    /// # Errors
    /// If the host is neither, or the port is 0.
    pub fn new(host: &str, port: u16) -> Result<Self, InvalidTarget> {
        if !is_host(host) {
            return Err(InvalidTarget::Host);
        }
        if port == 0 {
            return Err(InvalidTarget::Port);
        }
        Ok(Self {
            host: host.to_ascii_lowercase(),
            port,
        })
    }

    /// Returns the target of a request's path.
    ///
    /// # Errors
    /// See [`InvalidTarget`].
    pub fn of_path(path: &str) -> Result<Self, InvalidTarget> {
        let rest = path.strip_prefix(PREFIX).ok_or(InvalidTarget::Path)?;
        let rest = rest.strip_suffix('/').ok_or(InvalidTarget::Path)?;
        let (host, port) = rest.split_once('/').ok_or(InvalidTarget::Path)?;
        let host = percent_decode_str(host).decode_utf8();
        let host = host.map_err(|_| InvalidTarget::Host)?;
        Self::new(&host, parse_port(port)?)
    }

    /// Returns its path on a proxy.
    #[must_use]
    pub fn path(&self) -> String {
        // Colons of IPv6 addresses have to be encoded (RFC 9298 §3), dots and dashes need not be.
        const ENCODED: &percent_encoding::AsciiSet =
            &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_');
        let host = utf8_percent_encode(&self.host, ENCODED);
        format!("{PREFIX}{host}/{}/", self.port)
    }

    /// Returns the host: a DNS name, or an IP address without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.parse::<Ipv6Addr>() {
            Ok(ip) => write!(f, "[{ip}]:{}", self.port),
            Err(_) => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl FromStr for Target {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        let (host, port) = text.rsplit_once(':').ok_or(InvalidTarget::Format)?;
        let inner = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let host = match inner {
            Some(ip) if ip.parse::<Ipv6Addr>().is_ok() => ip,
            Some(_) => return Err(InvalidTarget::Host),
            None if host.contains(':') => return Err(InvalidTarget::Format),
            None => host,
        };
        Self::new(host, parse_port(port)?)
    }
}

fn parse_port(text: &str) -> Result<u16, InvalidTarget> {
    // `parse` would take a sign.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(InvalidTarget::Port);
    }
    text.parse().map_err(|_| InvalidTarget::Port)
}

fn is_host(host: &str) -> bool {
    if host.parse::<IpAddr>().is_ok() {
        return true;
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    let is_label = |label: &str| {
        (1..=MAX_LABEL).contains(&label.len())
            && !label.starts_with('-')
            && (label.bytes()).all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    name.len() <= MAX_NAME && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_round_trips() {
        for (text, path) in [
            (
                "example.org:443",
                "/.well-known/masque/udp/example.org/443/",
            ),
            ("192.0.2.6:53", "/.well-known/masque/udp/192.0.2.6/53/"),
            (
                "[2001:db8::42]:443",
                "/.well-known/masque/udp/2001%3Adb8%3A%3A42/443/",
            ),
            ("_x.a-b:1", "/.well-known/masque/udp/_x.a-b/1/"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.path(), path);
            assert_eq!(Target::of_path(path), Ok(target.clone()));
            assert_eq!(target.to_string(), text);
        }
    }

    #[test]
    fn invalid_paths_are_rejected() {
        let template = |host: &str, port: &str| format!("{PREFIX}{host}/{port}/");
        for (path, error) in [
            ("/".to_owned(), InvalidTarget::Path),
            (PREFIX.to_owned(), InvalidTarget::Path),
            (format!("{PREFIX}a/1"), InvalidTarget::Path),
            (template("a", "1/2"), InvalidTarget::Port),
            (template("a", ""), InvalidTarget::Port),
            (template("a", "0"), InvalidTarget::Port),
            (template("a", "+1"), InvalidTarget::Port),
            (template("a", "65536"), InvalidTarget::Port),
            (template("", "1"), InvalidTarget::Host),
            (template("a..b", "1"), InvalidTarget::Host),
            (template("-a", "1"), InvalidTarget::Host),
            (template("%00", "1"), InvalidTarget::Host),
            (template("%ff", "1"), InvalidTarget::Host),
            (template("a%2Fb", "1"), InvalidTarget::Host),
            (template("fe80%3A%3A1%25eth0", "1"), InvalidTarget::Host),
            (template("%5B%3A%3A1%5D", "1"), InvalidTarget::Host),
            (template(&"a".repeat(64), "1"), InvalidTarget::Host),
            (template(&"a.".repeat(150), "1"), InvalidTarget::Host),
        ] {
            assert_eq!(Target::of_path(&path), Err(error), "{path}");
        }
        for text in ["", "a", "::1:53", "[a]:1", "a:b", "[::1]"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
