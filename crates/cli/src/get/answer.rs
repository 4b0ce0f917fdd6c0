//! Headers of a response that describe its content.

use http::header::{ALLOW, CONTENT_RANGE, ETAG, HeaderName, LOCATION};
use http::{Method, Response, StatusCode};

use super::part::ResumePoint;
use crate::printable;

fn field<B>(response: &Response<B>, name: HeaderName) -> Option<&str> {
    response.headers().get(name)?.to_str().ok()
}

/// The content range of a 206 response (RFC 9110 §14.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContentRange {
    first: u64,
    last: u64,
    /// Length of the complete content, if the server knows it.
    total: Option<u64>,
}

impl ContentRange {
    /// The range of a response with one valid `content-range`.
    pub(super) fn of<B>(response: &Response<B>) -> Option<Self> {
        let mut fields = response.headers().get_all(CONTENT_RANGE).iter();
        let (Some(field), None) = (fields.next(), fields.next()) else {
            return None;
        };
        let (range, total) = field
            .to_str()
            .ok()?
            .strip_prefix("bytes ")?
            .split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let total = match total {
            "*" => None,
            total => Some(total.parse::<u64>().ok()?),
        };
        let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        let makes_sense = first <= last && total.is_none_or(|total| last < total);
        makes_sense.then_some(Self { first, last, total })
    }

    /// Length of the range; `None` if it exceeds the largest number.
    pub(super) fn length(self) -> Option<u64> {
        self.last.checked_sub(self.first)?.checked_add(1)
    }

    /// Whether it covers everything from `offset` to the end.
    fn is_rest(self, offset: u64) -> bool {
        let end = self.last.checked_add(1);
        self.first == offset && end.is_some() && self.total == end
    }

    /// Whether a `range` field requests it: one range that begins there. `None` if that cannot be
    /// determined, as with several ranges.
    pub(super) fn was_asked_for(self, field: &str) -> Option<bool> {
        let (first, last) = field.strip_prefix("bytes=")?.trim().split_once('-')?;
        if first.is_empty() || last.contains(',') {
            return None;
        }
        Some(first.parse() == Ok(self.first))
    }
}

/// Whether a 206 response contains exactly what is missing of the same content (RFC 9110
/// §15.3.7.1), and how many bytes that is.
pub(super) fn continues<B>(response: &Response<B>, beginning: &ResumePoint) -> Option<u64> {
    let range = ContentRange::of(response)?;
    // A server may omit the tag, since If-Range names it (§13.1.5).
    let same = field(response, ETAG).is_none_or(|etag| etag == beginning.etag);
    (same && range.is_rest(beginning.offset())).then(|| range.length())?
}

/// Length of the complete content, from a 416 response (RFC 9110 §15.5.17).
pub(super) fn total<B>(response: &Response<B>) -> Option<u64> {
    let total = field(response, CONTENT_RANGE)?.strip_prefix("bytes */")?;
    total.parse().ok()
}

/// A strong entity tag.
pub(super) fn strong_tag<B>(response: &Response<B>) -> Option<&str> {
    field(response, ETAG).filter(|etag| etag.starts_with('"'))
}

/// The methods that a server allows, from a 405 response (RFC 9110 §15.5.6).
pub(super) fn allowed<B>(response: &Response<B>) -> Option<String> {
    let methods = response.headers().get(ALLOW)?;
    Some(printable::short_bytes(methods.as_bytes(), printable::SHOWN))
}

/// Why a response has no content, so that no file is written, not even an empty one (RFC 9110
/// §6.4.1).
pub(super) fn without_content(method: &Method, status: StatusCode) -> Option<&'static str> {
    match status {
        StatusCode::NOT_MODIFIED => Some("not modified"),
        StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT => Some("response has no content"),
        _ if method == Method::HEAD => Some("HEAD response has no body"),
        _ => None,
    }
}

/// What an answer says that is a redirect: redirects are not followed.
pub(super) fn elsewhere<B>(response: &Response<B>) -> Option<String> {
    let status = response.status();
    if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
        return None;
    }
    let place = response.headers().get(LOCATION)?;
    let place = printable::short_bytes(place.as_bytes(), printable::SHOWN);
    Some(format!("{status}: redirect to \"{place}\" not followed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, name: &str, value: &str) -> Response<()> {
        let response = Response::builder().status(status).header(name, value);
        response.body(()).unwrap()
    }

    #[test]
    fn unsatisfied_content_range_gives_the_length() {
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
    fn invalid_content_range_is_none() {
        let of = |value| ContentRange::of(&response(206, "content-range", value));
        for (value, length, rest) in [
            ("bytes 5-9/10", 5, true),
            ("bytes 5-9/11", 5, false),
            ("bytes 5-9/*", 5, false),
            ("bytes 4-9/10", 6, false),
        ] {
            let range = of(value).unwrap();
            assert_eq!(range.length(), Some(length), "{value}");
            assert_eq!(range.is_rest(5), rest, "{value}");
        }
        for value in [
            "bytes 9-5/10",
            "bytes 5-10/10",
            "bytes 5-9",
            "bytes 5/10",
            "bytes */10",
            "bytes -5/10",
            "lines 5-9/10",
            "bytes 5-18446744073709551616/*",
        ] {
            assert_eq!(of(value), None, "{value}");
        }
        let all = of("bytes 0-18446744073709551615/*").unwrap();
        assert_eq!((all.length(), all.is_rest(0)), (None, false));
        for (asked, expected) in [
            ("bytes=5-", Some(true)),
            ("bytes=5-7", Some(true)),
            ("bytes=6-", Some(false)),
            ("bytes=-5", None),
            ("bytes=5-6,8-9", None),
        ] {
            assert_eq!(of("bytes 5-9/10").unwrap().was_asked_for(asked), expected);
        }
    }

    #[test]
    fn redirect_message_names_the_location_on_one_line() {
        let text = elsewhere(&response(301, "location", "sub/")).unwrap();
        assert_eq!(
            text,
            "301 Moved Permanently: redirect to \"sub/\" not followed"
        );
        assert_eq!(elsewhere(&response(304, "location", "sub/")), None);
        assert_eq!(elsewhere(&response(200, "location", "sub/")), None);
        assert_eq!(elsewhere(&response(302, "x", "sub/")), None);
    }

    #[test]
    fn head_and_304_responses_have_no_content() {
        let why = |method, status| {
            without_content(&method, StatusCode::from_u16(status).unwrap()).is_some()
        };
        assert!(why(Method::GET, 304) && why(Method::PUT, 204) && why(Method::HEAD, 200));
        assert!(!why(Method::GET, 200) && !why(Method::GET, 301));
    }
}
