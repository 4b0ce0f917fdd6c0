//! What the head of an answer says about its content.

use http::header::{CONTENT_RANGE, ETAG, HeaderName, LOCATION};
use http::{Method, Response, StatusCode};

use super::part::Beginning;

fn field<B>(response: &Response<B>, name: HeaderName) -> Option<&str> {
    response.headers().get(name)?.to_str().ok()
}

/// Whether a 206 brings exactly what is missing, of the same content
/// (RFC 9110 §15.3.7.1).
pub(super) fn continues<B>(response: &Response<B>, beginning: &Beginning) -> bool {
    let range = || {
        let (range, total) = field(response, CONTENT_RANGE)?
            .strip_prefix("bytes ")?
            .split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let [first, last, total]: [u64; 3] =
            [first.parse().ok()?, last.parse().ok()?, total.parse().ok()?];
        Some(first == beginning.offset() && last.checked_add(1) == Some(total))
    };
    // A server may leave the tag out, since If-Range names it (§13.1.5).
    let same = field(response, ETAG).is_none_or(|etag| etag == beginning.etag);
    same && range().unwrap_or(false)
}

/// The length of all of the content, of which a 416 has nothing that was asked
/// for (RFC 9110 §15.5.17).
pub(super) fn total<B>(response: &Response<B>) -> Option<u64> {
    let total = field(response, CONTENT_RANGE)?.strip_prefix("bytes */")?;
    total.parse().ok()
}

/// A strong entity tag.
pub(super) fn strong_tag<B>(response: &Response<B>) -> Option<&str> {
    field(response, ETAG).filter(|etag| etag.starts_with('"'))
}

/// Why there is no content, and no file is to be written of it: not even an
/// empty one (RFC 9110 §6.4.1).
pub(super) fn without_content(method: &Method, status: StatusCode) -> Option<&'static str> {
    match status {
        StatusCode::NOT_MODIFIED => Some("not modified"),
        StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT => Some("there is no content"),
        _ if method == Method::HEAD => Some("HEAD brings no content"),
        _ => None,
    }
}

/// Where else the content is, for people: redirects are not followed.
pub(super) fn elsewhere<B>(response: &Response<B>) -> Option<String> {
    let status = response.status();
    if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
        return None;
    }
    let place = response.headers().get(LOCATION)?;
    let place = String::from_utf8_lossy(place.as_bytes());
    Some(format!("{status}: to {place:?}, which is not followed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, name: &str, value: &str) -> Response<()> {
        let response = Response::builder().status(status).header(name, value);
        response.body(()).unwrap()
    }

    #[test]
    fn a_refused_range_tells_the_length() {
        for (value, expected) in [
            ("bytes */5", Some(5)),
            ("bytes */*", None),
            ("bytes 0-4/5", None),
            ("bytes */-5", None),
            ("lines */5", None),
        ] {
            let response = response(416, "content-range", value);
            assert_eq!(total(&response), expected, "{value}");
        }
    }

    #[test]
    fn redirects_name_their_place_on_one_line() {
        let text = elsewhere(&response(301, "location", "sub/")).unwrap();
        assert_eq!(
            text,
            "301 Moved Permanently: to \"sub/\", which is not followed"
        );
        assert_eq!(elsewhere(&response(304, "location", "sub/")), None);
        assert_eq!(elsewhere(&response(200, "location", "sub/")), None);
        assert_eq!(elsewhere(&response(302, "x", "sub/")), None);
    }

    #[test]
    fn some_answers_have_no_content() {
        let why = |method, status| {
            without_content(&method, StatusCode::from_u16(status).unwrap()).is_some()
        };
        assert!(why(Method::GET, 304) && why(Method::PUT, 204) && why(Method::HEAD, 200));
        assert!(!why(Method::GET, 200) && !why(Method::GET, 301));
    }
}
