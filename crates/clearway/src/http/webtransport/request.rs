//! A server's request for a session.

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};

use super::session::WebTransportSession;
use crate::http::error::Error;
use crate::http::message::Protocol;
use crate::http::tunnel::Tunnel;

/// The protocols that a client offers, and the one that the server chose
/// (draft-ietf-webtrans-http3 §3.3).
pub(super) const AVAILABLE_PROTOCOLS: &str = "wt-available-protocols";
pub(super) const PROTOCOL: &str = "wt-protocol";

/// The field by which clients of draft-ietf-webtrans-http3-02 ask, and the answer.
const DRAFT_02_ASKED: &str = "sec-webtransport-http3-draft02";
const DRAFT_02: &str = "sec-webtransport-http3-draft";

/// Which web pages may open a session. A request without the field `origin` comes from no page, and
/// is always allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedOrigins {
    /// Pages of the same host and port.
    SameHost,
    /// Pages of these origins, such as `https://example.org`, and of the same host and port.
    Listed(Vec<String>),
    /// All pages. A page that somebody visits can then use their network's access to this server.
    Any,
}

impl AllowedOrigins {
    fn allow(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let mut origins = headers.get_all("origin").iter();
        let Some(origin) = origins.next() else {
            return true;
        };
        if origins.next().is_some() {
            return false;
        }
        let same_host = || {
            let host = origin.as_bytes().strip_prefix(b"https://");
            let authority = uri.authority().map(|it| it.as_str().as_bytes());
            (host.zip(authority)).is_some_and(|(host, own)| host.eq_ignore_ascii_case(own))
        };
        match self {
            Self::Any => true,
            Self::SameHost => same_host(),
            Self::Listed(list) => {
                let listed = |it: &String| origin.as_bytes().eq_ignore_ascii_case(it.as_bytes());
                list.iter().any(listed) || same_host()
            }
        }
    }
}

/// Why a request is not accepted as a session: an error that is a response, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusedSession {
    /// It is no extended CONNECT for WebTransport; status 400.
    #[error("not a WebTransport request (expected CONNECT with :protocol webtransport)")]
    NotWebTransport,
    /// The page's origin is not among the [`AllowedOrigins`]; status 403.
    #[error("WebTransport is not allowed for pages of this origin")]
    Origin,
}

impl RefusedSession {
    /// Returns the status to answer with.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::NotWebTransport => StatusCode::BAD_REQUEST,
            Self::Origin => StatusCode::FORBIDDEN,
        }
    }

    /// Returns the response: the status, and the reason as its body.
    #[must_use]
    pub fn into_response<B: From<String>>(self) -> Response<B> {
        let mut response = Response::new(B::from(self.to_string()));
        *response.status_mut() = self.status();
        response
    }
}

/// A request for a session, from a page that is allowed to ask. If it is not accepted, the handler's
/// response is sent.
#[derive(Clone, Debug)]
pub struct SessionRequest {
    tunnel: Tunnel,
    protocols: Vec<String>,
    draft_02: bool,
}

impl SessionRequest {
    /// Returns the request for a session that an HTTP request is.
    ///
    /// # Errors
    /// See [`RefusedSession`].
    pub fn of<B>(request: &Request<B>, origins: &AllowedOrigins) -> Result<Self, RefusedSession> {
        let protocol = request.extensions().get::<Protocol>();
        let is_session =
            protocol.is_some_and(|it| matches!(it.name(), b"webtransport" | b"webtransport-h3"));
        let tunnel = request.extensions().get::<Tunnel>();
        let tunnel = tunnel.filter(|_| is_session && request.method() == Method::CONNECT);
        let tunnel = tunnel.ok_or(RefusedSession::NotWebTransport)?;
        if !origins.allow(request.uri(), request.headers()) {
            return Err(RefusedSession::Origin);
        }
        Ok(Self {
            tunnel: tunnel.clone(),
            protocols: protocols(request.headers()),
            draft_02: request.headers().contains_key(DRAFT_02_ASKED),
        })
    }

    /// Returns the protocols that the client offers, the preferred one first.
    #[must_use]
    pub fn protocols(&self) -> &[String] {
        &self.protocols
    }

    /// Accepts the session, without choosing a protocol.
    ///
    /// # Errors
    /// If the request was answered before, the client has given up, or the connection has ended.
    pub async fn accept(self) -> Result<WebTransportSession, Error> {
        self.accept_with(Response::new(())).await
    }

    /// Accepts the session and tells the client which of its [`protocols`](Self::protocols) was
    /// chosen.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub async fn accept_protocol(self, protocol: &str) -> Result<WebTransportSession, Error> {
        let mut response = Response::new(());
        if let Ok(value) = HeaderValue::try_from(quoted(protocol)) {
            response.headers_mut().insert(PROTOCOL, value);
        }
        self.accept_with(response).await
    }

    /// Accepts the session with this response.
    ///
    /// # Errors
    /// As [`accept`](Self::accept), and if the status is not 2xx.
    pub async fn accept_with(
        self,
        mut response: Response<()>,
    ) -> Result<WebTransportSession, Error> {
        if self.draft_02 {
            let draft = HeaderValue::from_static("draft02");
            response.headers_mut().insert(DRAFT_02, draft);
        }
        let chosen = chosen_protocol(response.headers());
        let (stream, offer) = self.tunnel.accept_stream(response).await?;
        Ok(WebTransportSession::new(stream, Some(offer), chosen))
    }
}

/// Returns the protocol that the server chose.
pub(super) fn chosen_protocol(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(PROTOCOL)?.to_str().ok()?;
    strings(value).into_iter().next()
}

/// Writes a string as structured fields have it (RFC 8941 §3.3.3).
pub(super) fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

/// Returns the protocols that a client offers.
fn protocols(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(AVAILABLE_PROTOCOLS).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    values.flat_map(strings).collect()
}

/// Reads a list of strings (RFC 8941 §3.1, §3.3.3); parameters are ignored. A list that is no list of
/// strings is empty.
fn strings(list: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = list.trim();
    while let Some(quoted) = rest.strip_prefix('"') {
        let mut text = String::new();
        let mut chars = quoted.char_indices();
        let end = loop {
            match chars.next() {
                Some((at, '"')) => break at,
                Some((_, '\\')) => match chars.next() {
                    Some((_, escaped @ ('"' | '\\'))) => text.push(escaped),
                    Some(_) | None => return Vec::new(),
                },
                Some((_, other)) => text.push(other),
                None => return Vec::new(),
            }
        };
        found.push(text);
        let behind = quoted.get(end.saturating_add(1)..).unwrap_or_default();
        let (_, next) = behind.split_once(',').unwrap_or((behind, ""));
        rest = next.trim_start();
    }
    if rest.is_empty() { found } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_strings_is_read_with_escapes_and_without_parameters() {
        assert_eq!(strings(r#""chat", "video""#), ["chat", "video"]);
        assert_eq!(strings(r#""a\"b\\c";q=1,"d""#), [r#"a"b\c"#, "d"]);
        assert_eq!(strings(&quoted(r#"x"y\z"#)), [r#"x"y\z"#]);
        for malformed in ["", "token", r#""open"#, r#""a", token"#, r#""\n""#] {
            assert_eq!(strings(malformed), [""; 0], "{malformed}");
        }
    }

    #[test]
    fn origin_must_be_the_same_host_or_listed() {
        let uri: Uri = "https://example.org:4433/chat".parse().unwrap();
        let allowed = |allowed: &AllowedOrigins, origins: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for origin in origins {
                headers.append("origin", HeaderValue::from_static(origin));
            }
            allowed.allow(&uri, &headers)
        };
        let listed = AllowedOrigins::Listed(vec!["https://app.example.org".into()]);
        for origins in [&AllowedOrigins::SameHost, &listed, &AllowedOrigins::Any] {
            assert!(allowed(origins, &[]), "no page");
            assert!(allowed(origins, &["https://example.org:4433"]));
            assert!(allowed(origins, &["https://EXAMPLE.org:4433"]));
        }
        for other in ["https://example.org", "http://example.org:4433", "null"] {
            assert!(!allowed(&AllowedOrigins::SameHost, &[other]), "{other}");
            assert!(!allowed(&listed, &[other]), "{other}");
            assert!(allowed(&AllowedOrigins::Any, &[other]));
        }
        assert!(allowed(&listed, &["https://app.example.org"]));
        let twice = ["https://example.org:4433", "https://evil.example"];
        assert!(!allowed(&AllowedOrigins::SameHost, &twice));
    }
}
