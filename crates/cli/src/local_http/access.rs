//! Who may read what a local server shows.

use core::net::{IpAddr, SocketAddr};

use super::message::{RequestHead, Response};

/// The rules for requests to one listening address.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    address: SocketAddr,
    /// Names besides addresses by which this host may be called.
    names: Vec<String>,
    /// Without any, nobody has to identify.
    tokens: Vec<String>,
}

impl Access {
    /// The rules for `address`: whoever can reach it, by its address.
    pub(crate) const fn new(address: SocketAddr) -> Self {
        Self {
            address,
            names: Vec::new(),
            tokens: Vec::new(),
        }
    }

    /// Accepts these names in the Host header too.
    pub(crate) fn names(mut self, names: &[String]) -> Self {
        self.names = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        self
    }

    /// Requires one of these tokens.
    pub(crate) fn tokens(mut self, tokens: Vec<String>) -> Self {
        self.tokens = tokens;
        self
    }

    /// Checks a request.
    ///
    /// # Errors
    /// What to answer instead.
    pub(crate) fn check(&self, head: &RequestHead) -> Result<(), Response> {
        let host = head.host.as_ref().is_some_and(|host| self.is_own(host));
        // A form or script of another site.
        let origin = head.origin.as_ref().is_none_or(|origin| {
            let rest = origin.strip_prefix("http://");
            rest.is_some_and(|rest| self.is_own(rest))
        });
        if !host || !origin {
            let text = "this is only served under the server's own address\n";
            return Err(Response::text("403 Forbidden", text));
        }
        if !self.has_token(head) {
            let text = "expected the header field \"Authorization: Bearer TOKEN\"\n";
            return Err(Response::text("401 Unauthorized", text));
        }
        Ok(())
    }

    /// Whether a Host names this server: the name of an attacker's site that resolves to its
    /// address does not (DNS rebinding).
    fn is_own(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let Some(name) = host.strip_suffix(&format!(":{}", self.address.port())) else {
            return false;
        };
        let own = self.address.ip();
        if name == "localhost" {
            return own.is_loopback() || own.is_unspecified();
        }
        let literal = name
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(name);
        match literal.parse::<IpAddr>() {
            Ok(address) => address == own || own.is_unspecified(),
            Err(_) => self.names.iter().any(|own| own == name),
        }
    }

    fn has_token(&self, head: &RequestHead) -> bool {
        if self.tokens.is_empty() {
            return true;
        }
        let given = head.authorization.as_deref();
        let given = given.and_then(|value| value.strip_prefix("Bearer "));
        given.is_some_and(|given| {
            // All are compared, so that the time tells nothing.
            let each = self.tokens.iter().map(|token| equal(token, given.trim()));
            each.fold(false, |found, one| found | one)
        })
    }
}

/// Compares in a time that depends on the lengths only.
fn equal(left: &str, right: &str) -> bool {
    let pairs = left.bytes().zip(right.bytes());
    let differences = pairs.fold(0, |all, (left, right)| all | (left ^ right));
    left.len() == right.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(access: &Access, host: &str, origin: Option<&str>, token: Option<&str>) -> u16 {
        let head = RequestHead {
            host: (!host.is_empty()).then(|| host.to_owned()),
            origin: origin.map(str::to_owned),
            authorization: token.map(str::to_owned),
            ..RequestHead::default()
        };
        match access.check(&head) {
            Ok(()) => 200,
            Err(response) => response.status[..3].parse().unwrap(),
        }
    }

    #[test]
    fn other_names_and_origins_are_refused() {
        let access = Access::new("127.0.0.1:80".parse().unwrap());
        for (host, expected) in [
            ("127.0.0.1:80", 200),
            ("localhost:80", 200),
            ("LOCALHOST:80", 200),
            ("localhost", 403),
            ("127.0.0.1", 403),
            ("127.0.0.1:81", 403),
            ("127.0.0.2:80", 403),
            ("[::1]:80", 403),
            ("evil.example:80", 403),
            ("127.0.0.1.evil.example:80", 403),
            ("", 403),
        ] {
            assert_eq!(status(&access, host, None, None), expected, "{host}");
        }
        for (origin, expected) in [
            ("http://127.0.0.1:80", 200),
            ("http://localhost:80", 200),
            ("http://evil.example", 403),
            ("https://127.0.0.1:80", 403),
            ("null", 403),
        ] {
            let answered = status(&access, "127.0.0.1:80", Some(origin), None);
            assert_eq!(answered, expected, "{origin}");
        }
    }

    #[test]
    fn names_are_accepted_only_if_given() {
        let access = Access::new("0.0.0.0:9100".parse().unwrap()).names(&["Srv.Example".into()]);
        for (host, expected) in [
            ("srv.example:9100", 200),
            ("192.0.2.7:9100", 200),
            ("[2001:db8::1]:9100", 200),
            ("other.example:9100", 403),
            ("srv.example", 403),
        ] {
            assert_eq!(status(&access, host, None, None), expected, "{host}");
        }
    }

    #[test]
    fn token_has_to_be_one_of_those_given() {
        let tokens = vec!["0123456789abcdef".to_owned(), "fedcba9876543210".to_owned()];
        let access = Access::new("192.0.2.1:1".parse().unwrap()).tokens(tokens);
        for (token, expected) in [
            (None, 401),
            (Some("Bearer 0123456789abcdef"), 200),
            (Some("Bearer fedcba9876543210"), 200),
            (Some("Bearer 0123456789abcde"), 401),
            (Some("Bearer 0123456789abcdef0"), 401),
            (Some("Bearer "), 401),
            (Some("Bearer"), 401),
            (Some("Basic 0123456789abcdef"), 401),
            (Some("0123456789abcdef"), 401),
        ] {
            assert_eq!(
                status(&access, "192.0.2.1:1", None, token),
                expected,
                "{token:?}"
            );
        }
        // The token does not replace the name.
        let good = Some("Bearer 0123456789abcdef");
        assert_eq!(status(&access, "evil.example:1", None, good), 403);
    }
}
