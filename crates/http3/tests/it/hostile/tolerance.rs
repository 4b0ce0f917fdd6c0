//! Unusual but allowed input: it is ignored, and is not an error (RFC 9114 §9).

use clearway_http3::{Event, Request};
use clearway_quic::Role;
use clearway_quic::stream::Directionality;

use crate::common::Setup;
use crate::hostile::hostile_peer::*;

#[test]
fn unknown_frames_are_ignored_everywhere() {
    let mut test = HostileTest::new(Role::Client);
    let control = test.control;
    for kind in [RESERVED, 0x40, 0x1f * 1000 + 0x21, 0x0f, (1 << 62) - 1] {
        test.write(control, &frame(kind, &[7; 100]));
    }
    let grease = || frame(RESERVED, &[1; 70]);
    let trailers = headers(&[("a", "b")]);
    let whole = [
        grease(),
        get(),
        grease(),
        frame(DATA, b"x"),
        grease(),
        trailers,
        grease(),
    ];
    let id = test.bidi_with_end(&whole.concat());
    assert_eq!(test.read_all(id), Ok(b"x".to_vec()));
    test.assert_serves();
}

#[test]
fn streams_of_unknown_types_are_stopped() {
    let mut test = HostileTest::new(Role::Client);
    for kind in [RESERVED, 0x54, (1 << 62) - 1] {
        let id = test.uni(&[varints(&[kind]), vec![0; 1000]].concat());
        let (_, stopped) = test.reset_and_stop_codes(id);
        assert_eq!(stopped, Some(clearway_http3::Code::STREAM_CREATION_ERROR));
    }
    test.assert_serves();
}

#[test]
fn stream_that_ends_before_its_type_is_ignored() {
    let mut test = HostileTest::new(Role::Client);
    let empty = test.open(Directionality::Unidirectional);
    test.finish(empty);
    let half = test.uni(&[0x40]);
    test.finish(half);
    let reset = test.uni(&[0x40]);
    test.run();
    test.reset(reset, 0x100);
    test.assert_serves();
}

#[test]
fn unknown_settings_and_long_integer_encodings_are_accepted() {
    let mut test = HostileTest::without_settings(Role::Client, Setup::default());
    let settings = varints(&[0x21, 5, 0x1234, 0, 1 << 40, 1]);
    // Stream type 0 in eight bytes; the frame's type and length in four and two.
    let mut bytes = vec![0xc0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend([0x80, 0, 0, 4, 0x40, settings.len() as u8]);
    bytes.extend(settings);
    let id = test.open(Directionality::Unidirectional);
    for byte in bytes {
        test.write(id, &[byte]);
        test.run();
    }
    let settled = test
        .events()
        .iter()
        .any(|e| matches!(e, Event::Settings(_)));
    assert!(settled);
    test.assert_serves();
}

#[test]
fn request_sent_byte_by_byte_is_received() {
    let mut test = HostileTest::new(Role::Client);
    let id = test.open(Directionality::Bidirectional);
    for byte in [get(), frame(DATA, b"abc"), headers(&[("t", "u")])].concat() {
        test.write(id, &[byte]);
        test.world.run_for(core::time::Duration::from_millis(15));
    }
    test.finish(id);
    assert_eq!(test.read_all(id), Ok(b"abc".to_vec()));
    test.assert_serves();
}

#[test]
fn request_before_settings_is_served() {
    let mut test = HostileTest::without_settings(Role::Client, Setup::default());
    test.assert_serves();
}

#[test]
fn goaway_from_a_client_does_not_affect_its_requests() {
    let mut test = HostileTest::new(Role::Client);
    let control = test.control;
    test.write(control, &frame(GOAWAY, &varints(&[0])));
    let reported = test.events().contains(&Event::GoAway { id: 0 });
    assert!(reported);
    test.assert_serves();
}

#[test]
fn increasing_max_push_id_is_accepted() {
    let mut test = HostileTest::new(Role::Client);
    let control = test.control;
    for id in [0, 0, 5, 1 << 61] {
        test.write(control, &frame(MAX_PUSH_ID, &varints(&[id])));
    }
    test.assert_serves();
}

#[test]
fn response_to_a_cancelled_request_is_ignored() {
    let mut test = HostileTest::new(Role::Server);
    let id = test.send_request(&Request::get("localhost", "/"));
    let (http, quic) = test.world.client.split();
    http.cancel(quic, id);
    // In flight before the server knows.
    test.write(id, &[ok(), frame(DATA, b"late")].concat());
    test.finish(id);
    let events = test.events();
    let response = events.iter().any(|e| matches!(e, Event::Response { .. }));
    assert!(!response, "{events:?}");
    assert_eq!(test.world.client.app.closed, None);
    assert_eq!(test.world.client.app.open_requests(), 0);
}

#[test]
fn blocked_header_section_is_decoded_after_its_insertion() {
    let mut test = HostileTest::new(Role::Client);
    let encoder = test.uni(&[2, 0x3f, 0xe1, 0x1f]);
    // Required Insert Count 1, Base 1: the entry, and a request of static entries.
    let section = [0x02, 0x00, 0xd1, 0xd7, 0x50, 0x01, b'h', 0xc1, 0x80];
    let id = test.bidi_with_end(&frame(HEADERS, &section));
    let asked = |events: Vec<Event>| {
        events.into_iter().find_map(|event| match event {
            Event::Request {
                stream, request, ..
            } if stream == id => Some(request),
            _ => None,
        })
    };
    let early = test.events();
    assert_eq!(asked(early), None);
    // Insert with a literal name: a = b.
    test.write(encoder, &[0x41, b'a', 0x01, b'b']);
    let late = test.events();
    let request = asked(late).expect("the request");
    assert_eq!(request.authority, "h");
    assert_eq!(request.fields, [clearway_http3::field("a", "b")]);
    test.assert_serves();
}
