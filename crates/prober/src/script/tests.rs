//! The format of scripts: what is understood, and what an error says.

use super::*;

const CASE: &str = "\
# a comment
case example
  title   an example # not a comment of a title
  source  RFC 9000 §1
  layer   http3
  should
  needs   @max_data < 2^40
  alpn    \"h3\" \"other\"
  parameter max_idle_timeout=5
  connect
  http3
  send 1rtt flip=0x18 skip=2 once: PING ; STREAM id=bidi(1) offset=2^20 data=\"a b\"
  stream request: HEADERS :method=GET \"x y\"=\"1 2\" x-long=fill:3 ; DATA hex:00 ; FIN
  repeat 3
    wait 5ms
  end
  expect close H3_MESSAGE_ERROR tls:120
  expect status request 400-499
";

#[test]
fn every_part_of_a_case_is_read() {
    let cases = parse(CASE).unwrap();
    let [case] = cases.as_slice() else {
        panic!("{} cases", cases.len());
    };
    assert_eq!((&*case.name, case.layer), ("example", Layer::Http3));
    assert_eq!(case.source, "RFC 9000 §1");
    assert_eq!(case.requirement, Requirement::Should);
    assert_eq!((case.needs.len(), case.steps.len()), (1, 5));
    assert_eq!(case.setup.alpn, [b"h3".to_vec(), b"other".to_vec()]);
    assert_eq!(
        case.expectation(),
        "connection closed with H3_MESSAGE_ERROR or TLS alert no_application_protocol, or status \
         400 to 499"
    );
    // What describes the case is not part of what it does.
    assert_eq!(
        case.script.first().map(String::as_str),
        Some("alpn    \"h3\" \"other\"")
    );
    assert_eq!(case.script.last().map(String::as_str), Some("end"));
    let Step::Repeat(_, inner) = &case.steps[4] else {
        panic!("{:?}", case.steps[4]);
    };
    assert_eq!(inner.len(), 1);
}

#[test]
fn errors_name_the_line_and_the_remedy() {
    for (script, line, message) in [
        ("connect", 1, "begins with `case NAME`"),
        ("case A", 1, "lower-case letters"),
        ("case a", 1, "case without `expect`"),
        ("case a\nexpect alive", 1, "case without steps"),
        (
            "case a\nconnect\nexpect alive\ncase a\nconnect\nexpect alive",
            4,
            "second case named",
        ),
        ("case a\nconect", 2, "did you mean \"connect\"?"),
        ("case a\nconnect keyz", 2, "did you mean \"keys\"?"),
        ("case a\nsend 1rtt: PIN", 2, "did you mean \"PING\"?"),
        ("case a\nsend 1rtt PING", 2, "missing colon"),
        ("case a\nsend 2rtt: PING", 2, "unknown packet type"),
        ("case a\nsend 1rtt: STREAM idd=1", 2, "did you mean \"id\"?"),
        ("case a\nsend 1rtt: STREAM id", 2, "expected FIELD=VALUE"),
        ("case a\nsend 1rtt twice: PING", 2, "unknown option"),
        (
            "case a\nstream request: HEADER a=b",
            2,
            "did you mean \"HEADERS\"?",
        ),
        (
            "case a\nstream request: HEADERS a",
            2,
            "expected NAME=VALUE",
        ),
        (
            "case a\nstream request: HEADERS a=fill:99999999999",
            2,
            "a number up to",
        ),
        ("case a\nstream request: DATA abc", 2, "expected \"text\""),
        ("case a\nexpect close FINAL_SIZE", 2, "unknown error code"),
        ("case a\nexpect", 2, "missing outcome"),
        ("case a\nexpect status request abc", 2, "invalid status"),
        ("case a\nwait 5", 2, "such as 50ms or 2s"),
        (
            "case a\nrepeat 2\nconnect\nexpect alive",
            1,
            "`repeat` without `end`",
        ),
        ("case a\nend", 2, "`end` without `repeat`"),
        (
            "case a\nparameter nothing=1",
            2,
            "unknown transport parameter",
        ),
        ("case a\nhello remove nothing", 2, "unknown extension"),
        ("case a\ndatagram longer", 2, "unknown form of a header"),
        ("case a\nneeds luck", 2, "unknown need"),
        ("case a\ntitle \"open", 2, "missing closing quotation mark"),
    ] {
        let error = parse(script).unwrap_err();
        assert_eq!(error.line, line, "{script:?}: {error}");
        assert!(error.message.contains(message), "{script:?}: {error}");
    }
}

#[test]
fn numbers_that_cannot_be_sent_as_written_are_refused() {
    for (line, message) in [
        ("initial-size 100000", "above the limit of 65000"),
        ("version 0x100000000", "above the limit of 4294967295"),
        ("repeat 10001\nsend 1rtt: PING\nend", "at most 10000 times"),
        ("hello session-id fill:256", "more than the 255"),
        ("parameter initial_max_data=2^62", "above 2^62-1"),
    ] {
        let script = format!("case a\n{line}\nconnect\nexpect alive\n");
        let error = parse(&script).unwrap_err();
        assert!(error.message.contains(message), "{line}: {error}");
    }
}

#[test]
fn nothing_in_a_script_panics() {
    let words = [
        "case",
        "a",
        "send",
        "1rtt:",
        "stream",
        "x:",
        "HEADERS",
        "\"",
        "\\",
        "=",
        "\"=",
        ";",
        "#",
        "expect",
        "close",
        "fill:99999999999",
        "hex:é",
        "bidi(",
        ")",
        "+",
        "-",
        "@",
        "2^",
        "repeat",
        "end",
        "datagram",
        "long",
        "first=",
        "é=é",
        "wait",
        "99999999999999999999s",
        "\"\"=",
    ];
    // A fixed sequence, so that a failure comes back.
    let mut state = 1_u64;
    let mut next = |bound: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    for _ in 0..20_000 {
        let mut text = String::from("case a\n");
        for _ in 0..next(6) + 1 {
            for _ in 0..next(5) + 1 {
                text.push_str(words[next(words.len())]);
                text.push_str(if next(5) == 0 { "" } else { " " });
            }
            text.push('\n');
        }
        let _ = parse(&text);
    }
}
