//! Conditional requests (RFC 9110 §13).

use std::time::SystemTime;

use http::header::{
    AsHeaderName, HeaderMap, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE,
};

use super::validators::Validators;

/// The result of a request's preconditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Perform the request.
    Proceed,
    /// 304: the client has it already.
    NotModified,
    /// 412: the resource has changed.
    Failed,
}

/// Returns whether a request that changes something has preconditions.
pub(super) fn has_conditions(headers: &HeaderMap) -> bool {
    let names = [IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE];
    names.iter().any(|name| headers.contains_key(name))
}

/// Evaluates all preconditions in their order (§13.2.2). `current` is the current representation,
/// if any; `reading` is whether the method is GET or HEAD.
pub(super) fn judge(headers: &HeaderMap, current: Option<&Validators>, reading: bool) -> Verdict {
    if headers.contains_key(IF_MATCH) {
        if !any(headers, IF_MATCH, current, Validators::is_strongly) {
            return Verdict::Failed;
        }
    } else if let Some(date) = date(headers, IF_UNMODIFIED_SINCE)
        && current.is_some_and(|current| current.changed_since(date))
    {
        return Verdict::Failed;
    }
    let has_it = if reading {
        Verdict::NotModified
    } else {
        Verdict::Failed
    };
    if headers.contains_key(IF_NONE_MATCH) {
        if any(headers, IF_NONE_MATCH, current, Validators::is_weakly) {
            return has_it;
        }
    } else if reading
        && let Some(date) = date(headers, IF_MODIFIED_SINCE)
        && current.is_some_and(|current| !current.changed_since(date))
    {
        return Verdict::NotModified;
    }
    Verdict::Proceed
}

/// Whether a range is still valid: `if-range` is absent or matches (§13.1.5). A date counts only if
/// it is exactly the file's, and the file is not so new that it may have changed within the second.
pub(super) fn range_applies(headers: &HeaderMap, current: &Validators) -> bool {
    let Some(value) = headers.get(IF_RANGE) else {
        return true;
    };
    let Ok(value) = value.to_str() else {
        return false;
    };
    if value.starts_with('"') || value.starts_with("W/") {
        return current.is_strongly(value);
    }
    let settled = !current.etag.starts_with("W/");
    let modified = current.modified.map(httpdate::fmt_http_date);
    settled && modified.as_deref() == Some(value)
}

/// Whether a list of tags has one that matches, or is `*` and there is a representation.
fn any(
    headers: &HeaderMap,
    name: impl AsHeaderName,
    current: Option<&Validators>,
    matches: fn(&Validators, &str) -> bool,
) -> bool {
    let Some(current) = current else {
        return false;
    };
    let values = headers.get_all(name);
    values
        .iter()
        .filter_map(|value| value.to_str().ok())
        // Tags may contain commas; ours do not, and no part of another equals one.
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .any(|etag| etag == "*" || matches(current, etag))
}

/// A date; an invalid one is ignored.
fn date(headers: &HeaderMap, name: impl AsHeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderValue;
    use http::header::HeaderName;

    use super::*;

    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn file(etag: &str) -> Validators {
        let modified = httpdate::parse_http_date(DATE).unwrap();
        Validators {
            etag: etag.to_owned(),
            modified: Some(modified + Duration::from_millis(400)),
        }
    }

    fn fields(list: &[(&'static str, &'static str)]) -> HeaderMap {
        list.iter()
            .map(|&(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect()
    }

    #[test]
    fn preconditions_are_evaluated_in_rfc_order() {
        use Verdict::{Failed, NotModified, Proceed};
        for (list, reading, writing) in [
            (&[][..], Proceed, Proceed),
            (&[("if-none-match", "\"a\"")], NotModified, Failed),
            (&[("if-none-match", "W/\"a\"")], NotModified, Failed),
            (&[("if-none-match", "\"x\", \"a\"")], NotModified, Failed),
            (&[("if-none-match", "*")], NotModified, Failed),
            (&[("if-none-match", "\"b\"")], Proceed, Proceed),
            (&[("if-match", "\"a\"")], Proceed, Proceed),
            (&[("if-match", "*")], Proceed, Proceed),
            (&[("if-match", "W/\"a\"")], Failed, Failed),
            (&[("if-match", "\"b\"")], Failed, Failed),
            (&[("if-modified-since", DATE)], NotModified, Proceed),
            (&[("if-modified-since", AFTER)], NotModified, Proceed),
            (&[("if-modified-since", BEFORE)], Proceed, Proceed),
            (&[("if-modified-since", "yesterday")], Proceed, Proceed),
            (&[("if-unmodified-since", DATE)], Proceed, Proceed),
            (&[("if-unmodified-since", BEFORE)], Failed, Failed),
            (
                &[("if-none-match", "\"b\""), ("if-modified-since", DATE)],
                Proceed,
                Proceed,
            ),
            (
                &[("if-match", "\"a\""), ("if-unmodified-since", BEFORE)],
                Proceed,
                Proceed,
            ),
            (
                &[("if-match", "\"a\""), ("if-none-match", "\"a\"")],
                NotModified,
                Failed,
            ),
        ] {
            let current = file("\"a\"");
            let headers = fields(list);
            assert_eq!(judge(&headers, Some(&current), true), reading, "{list:?}");
            assert_eq!(judge(&headers, Some(&current), false), writing, "{list:?}");
        }
    }

    #[test]
    fn if_match_on_missing_resource_fails_and_others_pass() {
        assert_eq!(
            judge(&fields(&[("if-match", "*")]), None, false),
            Verdict::Failed
        );
        assert_eq!(
            judge(&fields(&[("if-none-match", "*")]), None, false),
            Verdict::Proceed
        );
    }

    #[test]
    fn if_range_requires_a_strong_validator() {
        for (etag, value, applies) in [
            ("\"a\"", "\"a\"", true),
            ("\"a\"", "\"b\"", false),
            ("\"a\"", "W/\"a\"", false),
            ("W/\"a\"", "W/\"a\"", false),
            ("\"a\"", DATE, true),
            ("\"a\"", BEFORE, false),
            ("\"a\"", AFTER, false),
            ("W/\"a\"", DATE, false),
        ] {
            let headers = fields(&[("if-range", value)]);
            assert_eq!(
                range_applies(&headers, &file(etag)),
                applies,
                "{etag} {value}"
            );
        }
        assert!(range_applies(&HeaderMap::new(), &file("W/\"a\"")));
    }
}
