//! Floods that cost a peer little and us work: they are limited and counted, and then the
//! connection is closed with `H3_EXCESSIVE_LOAD`.

use clearway_http3::{BodyError, Code, Config, Event, Limits, Request};
use clearway_quic::Role;
use clearway_quic::stream::{Directionality, StreamId};

use crate::common::Setup;
use crate::hostile::hostile_peer::*;
use crate::memory::{MemoryEndpoint, request as stream};

fn strict() -> Setup {
    let mut setup = Setup::default();
    for config in [&mut setup.client, &mut setup.server] {
        config.limits.abandoned_burst = 20;
        config.limits.abandoned_per_second = 10;
        config.limits.useless_frames_burst = 50;
        config.limits.useless_frames_per_second = 10;
    }
    setup
}

fn one_abandoned(test: &mut HostileTest) {
    let id = test.bidi(&get());
    test.world.flush();
    test.reset(id, 0x10c);
    let quic = test.world.client.connection();
    quic.stop(id, 0x10c).expect("stops");
}

#[test]
fn rapid_reset_is_excessive_load() {
    let mut test = HostileTest::with(Role::Client, strict());
    for _ in 0..30 {
        one_abandoned(&mut test);
    }
    assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD));
}

#[test]
fn resets_below_the_rate_limit_are_allowed() {
    let mut test = HostileTest::with(Role::Client, strict());
    for _ in 0..60 {
        one_abandoned(&mut test);
        // A tenth of a second.
        test.run();
        let id = test.events().iter().rev().find_map(|event| match event {
            Event::Request { stream, .. } => Some(*stream),
            _ => None,
        });
        if let Some(id) = id {
            let (http, quic) = test.world.server.split();
            http.cancel(quic, id);
        }
    }
    assert_eq!(test.world.server.app.counters().abandoned, 60);
    test.assert_serves();
}

#[test]
fn requests_reset_before_their_header_section_are_excessive_load() {
    let mut test = HostileTest::with(Role::Client, strict());
    for _ in 0..30 {
        let id = test.bidi(&get()[..3]);
        test.world.flush();
        test.reset(id, 0x10c);
    }
    assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD));
}

#[test]
fn requests_above_the_limit_are_rejected() {
    let mut setup = strict();
    setup.server.limits.max_requests = 3;
    let mut test = HostileTest::with(Role::Client, setup);
    let ids: Vec<StreamId> = (0..5).map(|_| test.bidi_with_end(&get())).collect();
    let refusals: Vec<_> = ids
        .iter()
        .map(|id| test.reset_and_stop_codes(*id).0)
        .collect();
    let rejected = Some(Code::REQUEST_REJECTED);
    assert_eq!(refusals, [None, None, None, rejected, rejected]);
    assert_eq!(test.world.server.app.counters().rejected, 2);
    assert_eq!(test.world.server.app.open_requests(), 3);
}

#[test]
fn endless_unknown_frames_are_excessive_load() {
    let mut test = HostileTest::with(Role::Client, strict());
    let control = test.control;
    for _ in 0..60 {
        test.write(control, &frame(RESERVED, &[]));
    }
    assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD));
    let mut test = HostileTest::with(Role::Client, strict());
    test.bidi(&frame(RESERVED, b"x").repeat(60));
    assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD));
}

#[test]
fn endless_empty_data_frames_are_excessive_load() {
    let mut test = HostileTest::with(Role::Client, strict());
    let id = test.bidi(&[get(), frame(DATA, &[]).repeat(60)].concat());
    let _ = test.read_all(id);
    assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD));
}

#[test]
fn endless_control_frames_are_excessive_load() {
    let mut test = HostileTest::with(Role::Client, strict());
    let control = test.control;
    for n in 0..60 {
        test.write(control, &frame(MAX_PUSH_ID, &varints(&[n])));
    }
    assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD));
}

#[test]
fn endless_streams_of_unknown_types_are_excessive_load() {
    let mut test = HostileTest::with(Role::Client, strict());
    for _ in 0..60 {
        let id = test.uni(&varints(&[RESERVED]));
        test.finish(id);
    }
    assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD));
}

#[test]
fn priorities_of_missing_requests_are_limited_and_counted() {
    let mut setup = Setup::default();
    setup.server_quic.streams.max_bidi_streams = 1_000;
    let mut test = HostileTest::with(Role::Client, setup);
    let control = test.control;
    for n in 0..500 {
        let update = [varints(&[n * 4]), b"u=1".to_vec()].concat();
        test.write(control, &frame(PRIORITY_UPDATE, &update));
    }
    test.run();
    let http = &test.world.server.app;
    assert_eq!(http.counters().priorities_dropped, 400);
    assert!(http.memory() < 16 << 10, "{} bytes", http.memory());
    test.assert_serves();
    let too_long = frame(PRIORITY_UPDATE, &[0; 2000]);
    test.write(control, &too_long);
    assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD));
}

/// Unknown frames of megabytes are skipped, not buffered.
#[test]
fn huge_unknown_frame_takes_no_memory() {
    let mut test = HostileTest::new(Role::Client);
    let mut huge = frame(RESERVED, &[]);
    huge.pop();
    huge.extend(varints(&[1 << 61]));
    let id = test.bidi(&huge);
    let mut written = 0;
    while written < 4 << 20 {
        let quic = test.world.client.connection();
        written += quic.write(id, &[0; 16_384]).unwrap_or(0);
        test.world.run_for(core::time::Duration::from_millis(5));
    }
    test.run();
    let http = &test.world.server.app;
    assert!(http.counters().skipped >= 4 << 20);
    assert!(http.memory() < 16 << 10, "{} bytes", http.memory());
    test.assert_serves();
}

/// Every stream has a header section that is never complete: the buffered bytes are limited.
#[test]
fn incomplete_header_sections_take_limited_memory() {
    let mut setup = Setup::default();
    setup.server.limits.max_field_section = 4096;
    let mut test = HostileTest::with(Role::Client, setup);
    let mut section = frame(HEADERS, &[0; 4096]);
    section.truncate(4000);
    for _ in 0..50 {
        test.bidi(&section);
    }
    test.run();
    let memory = test.world.server.app.memory();
    assert!(memory < 50 * (4096 * 2 + 1024), "{memory} bytes");
    test.assert_serves();
}

/// Header sections that are blocked on insertions that never arrive: no more streams may be blocked
/// than we announced.
#[test]
fn blocked_streams_above_the_limit_fail_decompression() {
    let mut test = HostileTest::new(Role::Client);
    // A capacity, so that a Required Insert Count of 1 is valid.
    test.uni(&[2, 0x3f, 0xe1, 0x1f]);
    let section = frame(HEADERS, &[0x02, 0x00, 0x80]);
    for _ in 0..16 {
        test.bidi(&section);
    }
    test.run();
    assert_eq!(test.world.server.app.counters().blocked_sections, 16);
    assert_eq!(test.world.server.app.closed, None);
    test.bidi(&section);
    assert_eq!(test.close_code(), Some(Code::QPACK_DECOMPRESSION_FAILED));
}

/// Every type of control frame that may be repeated.
#[test]
fn repeated_control_frames_are_excessive_load() {
    let update = |stream: u64| [varints(&[stream]), b"u=1".to_vec()].concat();
    let cases = [
        ("GOAWAY", GOAWAY, varints(&[0])),
        ("MAX_PUSH_ID", MAX_PUSH_ID, varints(&[7])),
        ("PRIORITY_UPDATE of a request", PRIORITY_UPDATE, update(0)),
        (
            "PRIORITY_UPDATE of a later request",
            PRIORITY_UPDATE,
            update(40),
        ),
        ("a reserved frame", RESERVED, vec![]),
        ("a reserved frame with a payload", RESERVED, vec![7; 900]),
    ];
    for (what, kind, payload) in cases {
        let mut test = HostileTest::with(Role::Client, strict());
        test.bidi(&get());
        test.run();
        let control = test.control;
        for _ in 0..60 {
            test.write(control, &frame(kind, &payload));
        }
        assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD), "{what}");
    }
}

/// Opens an encoder stream and inserts an entry, which one byte can duplicate.
fn encoder_stream(test: &mut HostileTest) -> StreamId {
    // A capacity of 4,096, and `a: b` with a literal name.
    test.uni(&[2, 0x3f, 0xe1, 0x1f, 0x41, b'a', 0x01, b'b'])
}

#[test]
fn endless_duplicate_instructions_are_excessive_load() {
    let mut test = HostileTest::new(Role::Client);
    let encoder = encoder_stream(&mut test);
    let burst = clearway_http3::Limits::default().table_updates_burst;
    test.write(encoder, &vec![0; burst as usize - 10]);
    test.run();
    assert_eq!(test.world.server.app.closed, None);
    test.write(encoder, &vec![0; 2 * burst as usize]);
    assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD));
}

#[test]
fn endless_capacity_instructions_are_excessive_load() {
    let mut test = HostileTest::new(Role::Client);
    let encoder = encoder_stream(&mut test);
    for _ in 0..40 {
        test.write(encoder, &[0x20, 0x3f, 0xe1, 0x1f].repeat(200));
        test.world.run_for(core::time::Duration::from_millis(5));
    }
    assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD));
}

/// Decoded sections make up for table updates, whatever the rate.
#[test]
fn table_updates_with_enough_sections_are_allowed() {
    let mut setup = Setup::default();
    setup.server.limits.table_updates_burst = 32;
    setup.server.limits.table_updates_per_second = 0;
    let mut test = HostileTest::with(Role::Client, setup);
    let encoder = encoder_stream(&mut test);
    for _ in 0..200 {
        test.write(encoder, &[0; 16]);
        test.assert_serves();
    }
    test.write(encoder, &[0; 33]);
    assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD));
}

/// A proxy changes the priorities of all the requests that it forwards, again and again.
#[test]
fn priority_updates_of_a_busy_proxy_are_allowed() {
    let mut setup = strict();
    setup.server.limits.useless_frames_per_second = 0;
    let mut test = HostileTest::with(Role::Client, setup);
    let control = test.control;
    for n in 0..90 {
        for urgency in [b"u=1", b"u=2", b"u=5"] {
            let update = [varints(&[n * 4]), urgency.to_vec()].concat();
            test.write(control, &frame(PRIORITY_UPDATE, &update));
        }
        test.assert_serves();
    }
    // What the requests make up for cannot be saved for later.
    for _ in 0..60 {
        test.write(control, &frame(MAX_PUSH_ID, &varints(&[7])));
    }
    assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD));
}

/// A stream may be cancelled even if it never existed (RFC 9204 §2.2.2.2).
#[test]
fn endless_stream_cancellations_are_excessive_load() {
    let mut test = HostileTest::with(Role::Client, strict());
    let decoder = test.uni(&[3]);
    test.write(decoder, &[0x44].repeat(40));
    test.run();
    assert_eq!(test.world.server.app.closed, None);
    test.write(decoder, &[0x44].repeat(40));
    assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD));
}

/// Lengths are checked before the data is buffered.
#[test]
fn huge_instructions_are_rejected_by_their_lengths() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0x3f];
    for (what, start) in [
        ("a name", vec![0x5f]),
        ("a value of a static name", vec![0xc1, 0x7f]),
        ("a value of a literal name", vec![0x41, b'a', 0x7f]),
    ] {
        let mut test = HostileTest::new(Role::Client);
        let encoder = encoder_stream(&mut test);
        test.write(encoder, &[&start[..], &huge].concat());
        let error = Some(Code::QPACK_ENCODER_STREAM_ERROR);
        assert_eq!(test.close_code(), error, "{what}");
    }
}

/// Incomplete header sections on all streams: the memory for them together is limited, requests
/// that exceed it are rejected, and others are served.
#[test]
fn incomplete_header_sections_above_the_limit_are_rejected() {
    let mut setup = Setup::default();
    setup.server_quic.streams.max_bidi_streams = 1_000;
    setup.server_quic.streams.connection_window = 32 << 20;
    setup.server.limits.max_incomplete_sections = 256 << 10;
    let budget = setup.server.limits.max_incomplete_sections;
    let mut test = HostileTest::with(Role::Client, setup);
    let mut section = frame(HEADERS, &[0; 60_000]);
    section.truncate(50_000);
    let mut ids = Vec::new();
    for _ in 0..100 {
        ids.push(test.bidi(&section));
        test.world.run_for(core::time::Duration::from_millis(30));
    }
    test.run();
    let http = &test.world.server.app;
    let memory = http.memory();
    assert!(memory < budget + (100 << 10), "{memory} bytes");
    assert!(http.counters().rejected >= 90, "{:?}", http.counters());
    let last = *ids.last().expect("a stream");
    assert_eq!(
        test.reset_and_stop_codes(last).0,
        Some(Code::REQUEST_REJECTED)
    );
    test.assert_serves();
    // Streams that are reset make room.
    for id in ids.drain(..4) {
        let host = test.world.client.connection();
        let _ = host.reset(id, 0x10c);
    }
    test.run();
    let id = test.bidi(&section);
    assert_eq!(test.reset_and_stop_codes(id), (None, None));
}

/// Sections of which a few bytes arrive on hundreds of streams: no memory is reserved for the rest.
#[test]
fn announced_header_sections_reserve_no_memory() {
    let mut setup = Setup::default();
    setup.server_quic.streams.max_bidi_streams = 900;
    let mut test = HostileTest::with(Role::Client, setup);
    let mut section = frame(HEADERS, &[0; 60_000]);
    section.truncate(6);
    for _ in 0..800 {
        test.bidi(&section);
    }
    test.run();
    let http = &test.world.server.app;
    assert_eq!((http.open_requests(), http.counters().rejected), (800, 0));
    let memory = http.memory();
    assert!(memory < 800 * 700, "{memory} bytes");
    test.assert_serves();
}

/// A field of the static table takes one byte.
#[test]
fn section_with_too_many_fields_is_too_large() {
    let limit = clearway_http3::Limits::default().max_fields;
    for (fields, taken) in [(limit, true), (limit + 1, false)] {
        let mut test = HostileTest::new(Role::Client);
        // GET, https, :path /, an authority; then accept: */*.
        let mut section = vec![0, 0, 0xd1, 0xd7, 0xc1, 0x50, 0x01, b'h'];
        section.resize(section.len() + fields - 4, 0xc0 | 29);
        test.bidi_with_end(&frame(HEADERS, &section));
        let reported = test.events().iter().any(|event| match event {
            Event::Request { request, .. } => request.fields.len() == fields - 4,
            _ => false,
        });
        assert_eq!(reported, taken, "{fields} fields");
        let too_large = test.world.server.app.counters().too_large;
        assert_eq!(too_large, u64::from(!taken));
        test.assert_serves();
    }
}

/// Streams whose type never arrives: as many as the transport allows.
#[test]
fn streams_without_a_type_take_little_memory() {
    let mut test = HostileTest::new(Role::Client);
    while let Some(id) = (test.world.client.connection()).open(Directionality::Unidirectional) {
        // The first byte of an integer of eight.
        test.write(id, &[0xc0]);
    }
    test.run();
    let memory = test.world.server.app.memory();
    assert!(memory < 8 << 10, "{memory} bytes");
    test.assert_serves();
}

/// A blocked stream that is reset is no longer blocked (RFC 9204 §2.2.2.2), and another may be.
#[test]
fn reset_of_a_blocked_stream_unblocks_it() {
    let mut test = HostileTest::new(Role::Client);
    test.uni(&[2, 0x3f, 0xe1, 0x1f]);
    let section = frame(HEADERS, &[0x02, 0x00, 0x80]);
    for _ in 0..40 {
        let id = test.bidi(&section);
        test.run();
        test.reset(id, 0x10c);
        test.run();
    }
    let http = &test.world.server.app;
    assert_eq!(http.counters().blocked_sections, 40);
    assert_eq!(http.open_requests(), 0);
    test.assert_serves();
}

/// These cannot be retried on another connection, unlike a request that the application has not
/// seen.
#[test]
fn incomplete_trailers_and_responses_above_the_limit_fail() {
    let config = || Config {
        limits: Limits {
            max_incomplete_sections: 1_000,
            ..Limits::default()
        },
        ..Config::default()
    };
    let mut section = frame(HEADERS, &[0; 3_000]);
    section.truncate(2_000);

    let mut server = MemoryEndpoint::with(Role::Server, config());
    server.transport.feed(stream(0), &headers(&request("POST")));
    server.process();
    server.transport.feed(stream(0), &section);
    server.process();
    let (http, transport) = (&mut server.http, &mut server.transport);
    let Err(BodyError::Failed(error)) = http.read_body(transport, stream(0)) else {
        panic!("trailers above the limit are accepted");
    };
    assert_eq!(error.code, Code::EXCESSIVE_LOAD);
    assert_eq!(http.counters().rejected, 1);

    let mut client = MemoryEndpoint::with(Role::Client, config());
    let (http, transport) = (&mut client.http, &mut client.transport);
    let get = Request::get("h", "/");
    let id = http.request(transport, &get, true).expect("a request");
    transport.feed(id, &section);
    let events = client.process();
    let [Event::Failed { error, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(error.code, Code::EXCESSIVE_LOAD);
    assert_eq!(client.http.counters().rejected, 1);
}

/// Sections that arrive in two parts count against the limit only until they are complete.
#[test]
fn completed_sections_no_longer_count_as_incomplete() {
    let mut server = MemoryEndpoint::with(
        Role::Server,
        Config {
            limits: Limits {
                max_incomplete_sections: 1_000,
                ..Limits::default()
            },
            ..Config::default()
        },
    );
    let value = "v".repeat(700);
    let mut fields = request("POST").to_vec();
    fields.push(("x", &value));
    let section = headers(&fields);
    for n in 0..10 {
        let (first, second) = section.split_at(section.len() - 10);
        server.transport.feed(stream(n), first);
        assert_eq!(server.process(), []);
        server.transport.feed(stream(n), second);
        let events = server.process();
        assert!(matches!(events[..], [Event::Request { .. }]), "{events:?}");
    }
    assert_eq!(server.http.counters().rejected, 0);
}
