//! Conversions between the types of the `http` crate and HTTP/3's header sections.

use bytes::Bytes;
use clearway_http3::qpack::Field;
use clearway_http3::{Request as RequestHead, Response as ResponseHead};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri, Version, request, response};
use percent_encoding::{CONTROLS, utf8_percent_encode};

use super::error::Error;

/// Fields of HTTP/1.1 connections, which HTTP/3 forbids (RFC 9114 §4.2). Software written
/// for any version of HTTP sets them, so they are left out rather than rejected.
const CONNECTION_SPECIFIC: [HeaderName; 3] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The problem of a URL without a host.
pub(super) const MISSING_HOST: &str = "missing host (expected https://HOST/PATH)";

/// Converts the head of a request to send into a header section.
///
/// # Errors
/// If the URI lacks a scheme, an authority or a path where they are needed.
pub(super) fn request_head(parts: request::Parts) -> Result<RequestHead, Error> {
    let request::Parts {
        method,
        uri,
        headers,
        mut extensions,
        ..
    } = parts;
    let bad = |why| Error::Url(uri.to_string(), why);
    let Some(authority) = uri.authority() else {
        return Err(bad(MISSING_HOST));
    };
    let mut head = RequestHead::new(
        bytes_of_method(&method),
        Bytes::copy_from_slice(authority.as_str().as_bytes()),
        Bytes::new(),
    );
    let protocol = extensions.remove::<Protocol>();
    if method == Method::CONNECT && protocol.is_none() {
        head.scheme = Bytes::new();
    } else {
        let Some(scheme) = uri.scheme_str() else {
            return Err(bad("missing scheme (expected https)"));
        };
        head.scheme = match scheme {
            "https" => Bytes::from_static(b"https"),
            other => Bytes::copy_from_slice(other.as_bytes()),
        };
        head.path = path_of(&uri, &method);
    }
    if let Some(Protocol(protocol)) = protocol {
        head.protocol = protocol;
    }
    head.fields = fields(headers);
    // `host` would only repeat `:authority` (RFC 9114 §4.3.1).
    head.fields.retain(|field| field.name != "host");
    Ok(head)
}

/// The `:protocol` of an extended CONNECT request (RFC 9220), as an extension of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol(pub(super) Bytes);

impl Protocol {
    /// Creates it from a registered name, such as `websocket`.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self(Bytes::from_static(name.as_bytes()))
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.0
    }
}

/// Returns `:path`: the path and query, or `*` for an OPTIONS request about the server
/// itself (RFC 9114 §4.3.1).
fn path_of(uri: &Uri, method: &Method) -> Bytes {
    match uri.path_and_query().map(PathAndQuery::as_str) {
        None | Some("" | "/") if method == Method::OPTIONS && uri.path() == "*" => {
            Bytes::from_static(b"*")
        }
        None | Some("" | "/") => Bytes::from_static(b"/"),
        Some(path) if path.starts_with('/') && path.is_ascii() => {
            Bytes::copy_from_slice(path.as_bytes())
        }
        Some(path) => escaped(path),
    }
}

/// Adds the slash that a URL may omit before its query, and percent-encodes characters
/// beyond ASCII (RFC 3986 §2.1).
fn escaped(path: &str) -> Bytes {
    let slash = if path.starts_with('/') { "" } else { "/" };
    let path = utf8_percent_encode(path, CONTROLS);
    Bytes::from(format!("{slash}{path}"))
}

fn bytes_of_method(method: &Method) -> Bytes {
    match *method {
        Method::GET => Bytes::from_static(b"GET"),
        Method::POST => Bytes::from_static(b"POST"),
        Method::HEAD => Bytes::from_static(b"HEAD"),
        Method::PUT => Bytes::from_static(b"PUT"),
        ref other => Bytes::copy_from_slice(other.as_str().as_bytes()),
    }
}

/// Converts the head of a response to send into a header section.
pub(super) fn response_head(parts: response::Parts) -> ResponseHead {
    let mut head = ResponseHead::new(parts.status.as_u16());
    head.fields = fields(parts.headers);
    head
}

/// Converts fields to send, without those that HTTP/3 forbids, and without those that `connection`
/// names (RFC 9110 §7.6.1). Names are lower-case already.
pub(super) fn fields(headers: HeaderMap) -> Vec<Field> {
    let mut fields = Vec::with_capacity(headers.len());
    let mut options = Vec::new();
    let mut current: Option<(HeaderName, Bytes)> = None;
    for (name, value) in headers {
        // The iterator yields the name with the first of its values only.
        if let Some(name) = name {
            let bytes = Bytes::copy_from_slice(name.as_str().as_bytes());
            current = Some((name, bytes));
        }
        let Some((name, bytes)) = &current else {
            continue;
        };
        if CONNECTION_SPECIFIC.contains(name) || name == "keep-alive" || name == "proxy-connection"
        {
            if *name == header::CONNECTION {
                options.push(value);
            }
            continue;
        }
        if *name == header::TE && value != "trailers" {
            continue;
        }
        fields.push(Field {
            name: bytes.clone(),
            sensitive: value.is_sensitive() || *name == header::AUTHORIZATION,
            value: Bytes::copy_from_slice(value.as_bytes()),
        });
    }
    for option in options
        .iter()
        .flat_map(|it| it.as_bytes().split(|&byte| byte == b','))
    {
        let option = option.trim_ascii();
        fields.retain(|field| !field.name.eq_ignore_ascii_case(option));
    }
    fields
}

/// Converts a request that arrived. HTTP/3 has checked what the protocol demands; what the
/// `http` crate cannot represent is malformed too.
pub(super) fn request<B>(head: RequestHead, body: B) -> Result<Request<B>, &'static str> {
    let mut request = Request::new(body);
    *request.method_mut() = Method::from_bytes(&head.method).map_err(|_| "invalid :method")?;
    *request.version_mut() = Version::HTTP_3;
    *request.uri_mut() = uri(&head)?;
    if !head.protocol.is_empty() {
        request.extensions_mut().insert(Protocol(head.protocol));
    }
    *request.headers_mut() = header_map(head.fields)?;
    join_cookies(request.headers_mut())?;
    Ok(request)
}

fn uri(head: &RequestHead) -> Result<Uri, &'static str> {
    let mut parts = http::uri::Parts::default();
    if !head.authority.is_empty() {
        let authority = Authority::from_maybe_shared(head.authority.clone());
        parts.authority =
            Some(authority.map_err(|_| "invalid :authority (expected \"host[:port]\")")?);
    }
    if !head.path.is_empty() {
        let path = PathAndQuery::from_maybe_shared(head.path.clone());
        parts.path_and_query = Some(path.map_err(|_| "invalid :path")?);
        // A URI without an authority must not have a scheme.
        if parts.authority.is_some() {
            let scheme = Scheme::try_from(&head.scheme[..]);
            parts.scheme = Some(scheme.map_err(|_| "invalid :scheme")?);
        }
    }
    Uri::from_parts(parts).map_err(|_| "the pseudo-header fields do not form a URI")
}

/// Joins `cookie` fields that were split for compression (RFC 9114 §4.2.1).
fn join_cookies(headers: &mut HeaderMap) -> Result<(), &'static str> {
    let mut crumbs = headers.get_all(header::COOKIE).iter();
    if crumbs.by_ref().nth(1).is_none() {
        return Ok(());
    }
    let crumbs: Vec<_> = headers
        .get_all(header::COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    let whole =
        HeaderValue::from_bytes(&crumbs.join(&b"; "[..])).map_err(|_| "invalid cookie field")?;
    (headers.try_insert(header::COOKIE, whole)).map_err(|_| TOO_MANY_FIELDS)?;
    Ok(())
}

/// Converts a response that arrived.
pub(super) fn response<B>(head: ResponseHead, body: B) -> Result<Response<B>, &'static str> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(head.status).map_err(|_| "invalid :status (expected 100 to 999)")?;
    *response.version_mut() = Version::HTTP_3;
    *response.headers_mut() = header_map(head.fields)?;
    Ok(response)
}

/// A [`HeaderMap`] holds at most three quarters of 32,768 fields.
const TOO_MANY_FIELDS: &str = "too many fields (at most 24,576)";

/// Converts fields that arrived.
pub(super) fn header_map(fields: Vec<Field>) -> Result<HeaderMap, &'static str> {
    let mut headers = HeaderMap::try_with_capacity(fields.len()).map_err(|_| TOO_MANY_FIELDS)?;
    for field in fields {
        let name = HeaderName::from_bytes(&field.name).map_err(|_| "invalid field name")?;
        let mut value = HeaderValue::from_maybe_shared(field.value)
            .map_err(|_| "invalid character in a field value")?;
        value.set_sensitive(field.sensitive);
        headers
            .try_append(name, value)
            .map_err(|_| TOO_MANY_FIELDS)?;
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(method: &str, url: &str) -> request::Parts {
        let request = Request::builder().method(method).uri(url);
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn url_round_trips_through_pseudo_headers() {
        for (method, url, authority, path) in [
            ("GET", "https://example.org", "example.org", "/"),
            ("GET", "https://a:8443/b/c?d=e", "a:8443", "/b/c?d=e"),
            ("POST", "https://[::1]:443/?x", "[::1]:443", "/?x"),
            ("OPTIONS", "https://a/", "a", "/"),
            ("GET", "https://a?x=/y", "a", "/?x=/y"),
            ("GET", "https://a/ü?ñ", "a", "/%C3%BC?%C3%B1"),
        ] {
            let head = request_head(parts(method, url)).unwrap();
            assert_eq!(head.scheme, "https");
            assert_eq!(head.authority, authority);
            assert_eq!(head.path, path);
            let back = request(head, ()).unwrap();
            assert_eq!(back.uri().path_and_query().unwrap().as_str(), path);
            assert_eq!(back.uri().authority().unwrap().as_str(), authority);
            assert_eq!(back.version(), Version::HTTP_3);
        }
    }

    /// [`Limits::max_fields`](clearway_http3::Limits::max_fields) may allow more.
    #[test]
    fn header_section_larger_than_a_header_map_is_rejected() {
        let section = |fields| {
            let field = |n| clearway_http3::field(format!("f{n}"), "v");
            (0..fields).map(field).collect::<Vec<_>>()
        };
        assert_eq!(header_map(section(24_576)).unwrap().len(), 24_576);
        assert_eq!(header_map(section(24_577)), Err(TOO_MANY_FIELDS));
        let head = RequestHead {
            fields: section(40_000),
            ..RequestHead::get("a", "/")
        };
        assert!(request(head, ()).is_err());
    }

    #[test]
    fn connect_request_has_an_authority_and_no_path() {
        let head = request_head(parts("CONNECT", "example.org:443")).unwrap();
        assert_eq!(head.authority, "example.org:443");
        assert!(head.scheme.is_empty() && head.path.is_empty());
        let mut extended = parts("CONNECT", "https://example.org/chat");
        extended.extensions.insert(Protocol::new("websocket"));
        let head = request_head(extended).unwrap();
        assert_eq!(head.protocol, "websocket");
        assert_eq!(
            (&head.scheme[..], &head.path[..]),
            (&b"https"[..], &b"/chat"[..])
        );
        let back = request(head, ()).unwrap();
        let protocol = back.extensions().get::<Protocol>().unwrap();
        assert_eq!(protocol.name(), b"websocket");
    }

    #[test]
    fn url_without_host_is_rejected_with_the_url_in_the_error() {
        let error = request_head(parts("GET", "/only/a/path")).unwrap_err();
        assert!(error.to_string().contains("/only/a/path"), "{error}");
    }

    #[test]
    fn connection_specific_fields_are_not_sent() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close"),
            ("keep-alive", "5"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("proxy-connection", "x"),
            ("te", "gzip"),
            ("accept", "a"),
            ("accept", "b"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let sent: Vec<_> = fields(headers).into_iter().map(|f| f.value).collect();
        assert_eq!(sent, ["a", "b"]);
        let mut headers = HeaderMap::new();
        headers.insert("te", HeaderValue::from_static("trailers"));
        assert_eq!(fields(headers).len(), 1);
    }

    #[test]
    fn fields_named_by_connection_are_not_sent() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Internal ,TE"),
            ("connection", "\tx-other"),
            ("x-internal", "secret"),
            ("x-internal", "secret"),
            ("x-other", "secret"),
            ("x-internal-not", "kept"),
            ("te", "trailers"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let sent: Vec<_> = fields(headers).into_iter().map(|f| f.name).collect();
        assert_eq!(sent, ["x-internal-not"]);
    }

    #[test]
    fn authorization_and_sensitive_values_are_marked_sensitive() {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", HeaderValue::from_static("Basic x"));
        let mut key = HeaderValue::from_static("k");
        key.set_sensitive(true);
        headers.insert("x-key", key);
        headers.insert("accept", HeaderValue::from_static("y"));
        let marked: Vec<_> = fields(headers).iter().map(|f| f.sensitive).collect();
        assert_eq!(marked, [true, true, false]);
    }

    #[test]
    fn split_cookie_fields_are_joined() {
        let field = |name: &'static str, value: &'static str| Field {
            name: Bytes::from_static(name.as_bytes()),
            value: Bytes::from_static(value.as_bytes()),
            sensitive: false,
        };
        let mut head = RequestHead::get("a", "/");
        head.fields = vec![
            field("cookie", "a=1"),
            field("accept", "x"),
            field("cookie", "b=2"),
        ];
        let request = request(head, ()).unwrap();
        assert_eq!(request.headers()["cookie"], "a=1; b=2");
        assert_eq!(request.headers().len(), 2);
    }
}
