//! What looks odd and is allowed: none of it is an error, all of it is ignored
//! (RFC 9114 §9).

use clearway_http3::{Event, Request};
use clearway_quic::Role;
use clearway_quic::stream::Directionality;

use crate::common::Setup;
use crate::hostile::forger::*;

#[test]
fn unknown_frames_anywhere() {
    let mut duel = Duel::new(Role::Client);
    let control = duel.control;
    for kind in [RESERVED, 0x40, 0x1f * 1000 + 0x21, 0x0f, (1 << 62) - 1] {
        duel.write(control, &frame(kind, &[7; 100]));
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
    let id = duel.whole(&whole.concat());
    assert_eq!(duel.read_all(id), Ok(b"x".to_vec()));
    duel.assert_serves();
}

#[test]
fn unknown_streams_are_refused_and_forgotten() {
    let mut duel = Duel::new(Role::Client);
    for kind in [RESERVED, 0x54, (1 << 62) - 1] {
        let id = duel.uni(&[varints(&[kind]), vec![0; 1000]].concat());
        let (_, stopped) = duel.refusal(id);
        assert_eq!(stopped, Some(clearway_http3::Code::STREAM_CREATION_ERROR));
    }
    duel.assert_serves();
}

#[test]
fn streams_that_end_before_their_type() {
    let mut duel = Duel::new(Role::Client);
    let empty = duel.open(Directionality::Unidirectional);
    duel.finish(empty);
    let half = duel.uni(&[0x40]);
    duel.finish(half);
    let reset = duel.uni(&[0x40]);
    duel.run();
    duel.reset(reset, 0x100);
    duel.assert_serves();
}

#[test]
fn unknown_settings_and_types_in_long_form() {
    let mut duel = Duel::silent(Role::Client, Setup::default());
    let settings = varints(&[0x21, 5, 0x1234, 0, 1 << 40, 1]);
    // Stream type 0 in eight bytes; the frame's type and length in four and two.
    let mut bytes = vec![0xc0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend([0x80, 0, 0, 4, 0x40, settings.len() as u8]);
    bytes.extend(settings);
    let id = duel.open(Directionality::Unidirectional);
    for byte in bytes {
        duel.write(id, &[byte]);
        duel.run();
    }
    let settled = duel
        .events()
        .iter()
        .any(|e| matches!(e, Event::Settings(_)));
    assert!(settled);
    duel.assert_serves();
}

#[test]
fn a_request_byte_by_byte() {
    let mut duel = Duel::new(Role::Client);
    let id = duel.open(Directionality::Bidirectional);
    for byte in [get(), frame(DATA, b"abc"), headers(&[("t", "u")])].concat() {
        duel.write(id, &[byte]);
        duel.world.run_for(core::time::Duration::from_millis(15));
    }
    duel.finish(id);
    assert_eq!(duel.read_all(id), Ok(b"abc".to_vec()));
    duel.assert_serves();
}

#[test]
fn requests_before_settings() {
    let mut duel = Duel::silent(Role::Client, Setup::default());
    duel.assert_serves();
}

#[test]
fn goaway_from_a_client_changes_nothing_for_a_server() {
    let mut duel = Duel::new(Role::Client);
    let control = duel.control;
    duel.write(control, &frame(GOAWAY, &varints(&[0])));
    let told = duel.events().contains(&Event::GoAway { id: 0 });
    assert!(told);
    duel.assert_serves();
}

#[test]
fn more_push_ids_than_we_use() {
    let mut duel = Duel::new(Role::Client);
    let control = duel.control;
    for id in [0, 0, 5, 1 << 61] {
        duel.write(control, &frame(MAX_PUSH_ID, &varints(&[id])));
    }
    duel.assert_serves();
}

#[test]
fn a_response_to_a_request_that_was_cancelled() {
    let mut duel = Duel::new(Role::Server);
    let id = duel.ask(&Request::get("localhost", "/"));
    let (http, quic) = duel.world.client.split();
    http.cancel(quic, id);
    // On its way before the server hears.
    duel.write(id, &[ok(), frame(DATA, b"late")].concat());
    duel.finish(id);
    let events = duel.events();
    let response = events.iter().any(|e| matches!(e, Event::Response { .. }));
    assert!(!response, "{events:?}");
    assert_eq!(duel.world.client.app.closed, None);
    assert_eq!(duel.world.client.app.open_requests(), 0);
}

#[test]
fn a_section_that_waits_for_the_table() {
    let mut duel = Duel::new(Role::Client);
    let encoder = duel.uni(&[2, 0x3f, 0xe1, 0x1f]);
    // Required Insert Count 1, Base 1: the entry, and a request of static entries.
    let section = [0x02, 0x00, 0xd1, 0xd7, 0x50, 0x01, b'h', 0xc1, 0x80];
    let id = duel.whole(&frame(HEADERS, &section));
    let asked = |events: Vec<Event>| {
        events.into_iter().find_map(|event| match event {
            Event::Request {
                stream, request, ..
            } if stream == id => Some(request),
            _ => None,
        })
    };
    let early = duel.events();
    assert_eq!(asked(early), None);
    // Insert with a literal name: a = b.
    duel.write(encoder, &[0x41, b'a', 0x01, b'b']);
    let late = duel.events();
    let request = asked(late).expect("the request");
    assert_eq!(request.authority, "h");
    assert_eq!(request.fields, [clearway_http3::field("a", "b")]);
    duel.assert_serves();
}
