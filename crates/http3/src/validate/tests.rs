use super::*;
use crate::head::field;
use proptest::prelude::*;

fn section(fields: &[(&'static str, &'static str)]) -> Vec<Field> {
    fields.iter().map(|&(n, v)| field(n, v)).collect()
}

const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "a.example"),
    (":path", "/"),
];

fn get_with(more: &[(&'static str, &'static str)]) -> Vec<Field> {
    section(&[&GET[..], more].concat())
}

fn reason<T>(result: Result<T>) -> Option<&'static str> {
    result.err().map(|error| {
        assert_eq!(error.code, crate::error::Code::MESSAGE_ERROR);
        error.reason
    })
}

#[test]
fn valid_requests_are_accepted() {
    let good: &[&[(&str, &str)]] = &[
        &GET,
        &[
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/a?b=c"),
            ("host", "h"),
        ],
        &[
            (":method", "OPTIONS"),
            (":scheme", "https"),
            (":path", "*"),
            ("host", "h"),
        ],
        &[(":method", "CONNECT"), (":authority", "[::1]:443")],
        &[
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":path", "/chat"),
            (":authority", "h"),
        ],
        &[(":method", "get"), (":scheme", "coap"), (":path", "x")],
    ];
    for fields in good {
        assert_eq!(reason(request(section(fields))), None, "{fields:?}");
    }
    let with = get_with(&[("te", "trailers"), ("host", "a.example"), ("x", "a\tb é")]);
    let request = request(with).unwrap();
    assert_eq!(request.authority, "a.example");
    assert_eq!(request.fields.len(), 3);
}

#[test]
fn missing_duplicate_late_and_undefined_pseudo_headers_are_rejected() {
    let without = |name: &str| {
        let rest: Vec<_> = GET.iter().copied().filter(|f| f.0 != name).collect();
        reason(request(section(&rest)))
    };
    assert_eq!(
        without(":method"),
        Some("missing or invalid :method (expected a token)")
    );
    assert_eq!(without(":scheme"), Some("missing :scheme"));
    assert_eq!(without(":path"), Some("missing :path"));
    assert_eq!(
        without(":authority"),
        Some("missing :authority or host field")
    );
    for (name, value) in GET {
        let twice = [&[(name, value)], &GET[..]].concat();
        assert_eq!(
            reason(request(section(&twice))),
            Some("duplicate pseudo-header field")
        );
        let late = get_with(&[("x", "y"), (name, value)]);
        assert_eq!(
            reason(request(late)),
            Some("pseudo-header field after a regular field or in a trailer section")
        );
    }
    for unknown in [":status", ":foo", ":", ":Method"] {
        let fields = [&[(unknown, "200")], &GET[..]].concat();
        assert_eq!(
            reason(request(section(&fields))),
            Some("undefined pseudo-header field in a request")
        );
    }
}

#[test]
fn invalid_pseudo_header_values_are_rejected() {
    let with = |name: &str, value: &'static str| {
        let fields: Vec<_> = GET
            .iter()
            .map(|&(n, v)| (n, if n == name { value } else { v }))
            .collect();
        reason(request(section(&fields)))
    };
    for (name, bad) in [
        (":method", "G T"),
        (":method", ""),
        (":scheme", ""),
        (":scheme", "1s"),
        (":scheme", "ht tp"),
        (":path", ""),
        (":path", "a"),
        (":path", "*"),
        (":path", "/a b"),
        (":path", "/a\r\nX: y"),
        (":path", "/#f"),
        (":authority", ""),
        (":authority", "u@h"),
        (":authority", "h/x"),
        (":authority", "h h"),
    ] {
        assert!(with(name, bad).is_some(), "{name} {bad:?}");
    }
    assert_eq!(with(":path", "//a/..;b=%20"), None);
}

#[test]
fn host_that_differs_from_authority_is_rejected() {
    let host = |more: &[(&'static str, &'static str)]| reason(request(get_with(more)));
    assert_eq!(host(&[("host", "a.example")]), None);
    assert!(host(&[("host", "b.example")]).is_some());
    assert!(host(&[("host", "")]).is_some());
    assert!(host(&[("host", "a.example"), ("host", "a.example")]).is_some());
}

#[test]
fn connect_requires_authority_and_excludes_scheme_and_path() {
    let connect = |more: &[(&'static str, &'static str)]| {
        reason(request(section(
            &[&[(":method", "CONNECT")], more].concat(),
        )))
    };
    assert_eq!(connect(&[(":authority", "h:1")]), None);
    assert!(connect(&[]).is_some());
    assert!(connect(&[(":authority", "h:1"), (":path", "/")]).is_some());
    assert!(connect(&[(":authority", "h:1"), (":scheme", "https")]).is_some());
    assert!(connect(&[(":authority", "h:1"), (":protocol", "websocket")]).is_some());
    let get = [&[(":protocol", "websocket")], &GET[..]].concat();
    assert_eq!(
        reason(request(section(&get))),
        Some(":protocol is only allowed with CONNECT")
    );
}

#[test]
fn connection_specific_fields_and_invalid_characters_are_rejected() {
    for (name, value) in [
        ("connection", "close"),
        ("keep-alive", "5"),
        ("proxy-connection", "x"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
        ("te", "trailers, gzip"),
        ("Accept", "x"),
        ("", "x"),
        ("a b", "x"),
        ("a:b", "x"),
        ("a\u{e9}", "x"),
        ("a", "x\n"),
        ("a", "x\r\ny"),
        ("a", "x\0y"),
        ("a", "\u{7f}"),
        ("a", " x"),
        ("a", "x\t"),
    ] {
        assert!(
            reason(request(get_with(&[(name, value)]))).is_some(),
            "{name:?}: {value:?}"
        );
        let response = response(section(&[(":status", "200"), (name, value)]));
        assert!(reason(response).is_some(), "{name:?}: {value:?}");
        assert!(check_trailers(&section(&[(name, value)])).is_err());
    }
    assert!(response(section(&[(":status", "200"), ("te", "trailers")])).is_err());
    assert!(check_trailers(&section(&[("a", ""), ("b", "c")])).is_ok());
}

#[test]
fn only_three_digit_status_codes_are_accepted() {
    let status = |value: &'static str| response(section(&[(":status", value)])).map(|r| r.status);
    for good in ["100", "103", "200", "599", "999"] {
        assert_eq!(status(good), Ok(good.parse().unwrap()));
    }
    for bad in ["", "20", "2000", "099", "+20", "2 0", "abc", "101", "0200"] {
        assert!(status(bad).is_err(), "{bad}");
    }
    assert!(response(section(&[])).is_err());
    assert!(response(section(&[(":status", "200"), (":status", "200")])).is_err());
    assert!(response(section(&[(":path", "/")])).is_err());
    assert!(response(section(&[("x", "y"), (":status", "200")])).is_err());
}

#[test]
fn pseudo_headers_and_framing_fields_are_rejected_in_trailers() {
    for (name, value) in [
        (":status", "200"),
        (":path", "/"),
        ("content-length", "3"),
        ("host", "h"),
        ("te", "trailers"),
    ] {
        assert!(check_trailers(&section(&[(name, value)])).is_err());
    }
}

#[test]
fn invalid_or_repeated_content_length_is_rejected() {
    let length = |values: &[&'static str]| {
        let fields: Vec<_> = values.iter().map(|v| field("content-length", *v)).collect();
        content_length(&fields)
    };
    assert_eq!(length(&[]), Ok(None));
    assert_eq!(length(&["0"]), Ok(Some(0)));
    assert_eq!(length(&["18446744073709551615"]), Ok(Some(u64::MAX)));
    for bad in [
        &["12", "13"][..],
        &["12", "12"],
        &["12", "012"],
        &["12, 12"],
        &[""],
        &["-1"],
        &["+1"],
        &["1 "],
        &["0x1"],
        &["1, 1"],
        &["18446744073709551616"],
    ] {
        assert!(length(bad).is_err(), "{bad:?}");
    }
}

proptest! {
    /// A request that passes has neither line breaks nor spaces where HTTP/1.1 would read them as
    /// structure.
    #[test]
    fn accepted_request_can_be_written_as_http1(
        name in proptest::collection::vec(any::<u8>(), 0..6),
        value in proptest::collection::vec(any::<u8>(), 0..6),
        path in proptest::collection::vec(any::<u8>(), 0..6),
    ) {
        let mut fields = section(&GET);
        fields[3].value = path.into();
        fields.push(field(name, value));
        if let Ok(request) = request(fields) {
            let line = |bytes: &[u8]| !bytes.iter().any(|b| b"\r\n\0".contains(b));
            let last = request.fields.last().unwrap();
            prop_assert!(line(&last.name) && line(&last.value) && line(&request.path));
            prop_assert!(!last.name.contains(&b':') && !last.name.contains(&b' '));
            prop_assert!(!request.path.contains(&b' '));
        }
    }
}
