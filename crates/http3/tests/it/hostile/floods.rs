//! Work at no cost to the one who asks for it: bounded, counted, then refused with
//! `H3_EXCESSIVE_LOAD`.

use clearway_http3::{BodyError, Code, Config, Event, Limits, Request};
use clearway_quic::Role;
use clearway_quic::stream::{Directionality, StreamId};

use crate::common::Setup;
use crate::hostile::forger::*;
use crate::memory::{End, request as stream};

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

fn one_abandoned(duel: &mut Duel) {
    let id = duel.bidi(&get());
    duel.world.flush();
    duel.reset(id, 0x10c);
    let quic = duel.world.client.quic();
    quic.stop(id, 0x10c).expect("stops");
}

#[test]
fn rapid_reset() {
    let mut duel = Duel::with(Role::Client, strict());
    for _ in 0..30 {
        one_abandoned(&mut duel);
    }
    assert_eq!(duel.closed(), Some(Code::EXCESSIVE_LOAD));
}

#[test]
fn resets_at_a_bearable_rate_are_forgiven() {
    let mut duel = Duel::with(Role::Client, strict());
    for _ in 0..60 {
        one_abandoned(&mut duel);
        // A tenth of a second.
        duel.run();
        let id = duel.events().iter().rev().find_map(|event| match event {
            Event::Request { stream, .. } => Some(*stream),
            _ => None,
        });
        if let Some(id) = id {
            let (http, quic) = duel.world.server.split();
            http.cancel(quic, id);
        }
    }
    assert_eq!(duel.world.server.http().counters().abandoned, 60);
    duel.assert_serves();
}

#[test]
fn requests_reset_before_their_header() {
    let mut duel = Duel::with(Role::Client, strict());
    for _ in 0..30 {
        let id = duel.bidi(&get()[..3]);
        duel.world.flush();
        duel.reset(id, 0x10c);
    }
    assert_eq!(duel.closed(), Some(Code::EXCESSIVE_LOAD));
}

#[test]
fn more_requests_than_we_serve() {
    let mut setup = strict();
    setup.server.limits.max_requests = 3;
    let mut duel = Duel::with(Role::Client, setup);
    let ids: Vec<StreamId> = (0..5).map(|_| duel.whole(&get())).collect();
    let refusals: Vec<_> = ids.iter().map(|id| duel.refusal(*id).0).collect();
    let rejected = Some(Code::REQUEST_REJECTED);
    assert_eq!(refusals, [None, None, None, rejected, rejected]);
    assert_eq!(duel.world.server.http().counters().rejected, 2);
    assert_eq!(duel.world.server.http().open_requests(), 3);
}

#[test]
fn unknown_frames_without_end() {
    let mut duel = Duel::with(Role::Client, strict());
    let control = duel.control;
    for _ in 0..60 {
        duel.write(control, &frame(RESERVED, &[]));
    }
    assert_eq!(duel.closed(), Some(Code::EXCESSIVE_LOAD));
    let mut duel = Duel::with(Role::Client, strict());
    duel.bidi(&frame(RESERVED, b"x").repeat(60));
    assert_eq!(duel.closed(), Some(Code::EXCESSIVE_LOAD));
}

#[test]
fn empty_data_without_end() {
    let mut duel = Duel::with(Role::Client, strict());
    let id = duel.bidi(&[get(), frame(DATA, &[]).repeat(60)].concat());
    let _ = duel.read_all(id);
    assert_eq!(duel.closed(), Some(Code::EXCESSIVE_LOAD));
}

#[test]
fn control_frames_without_end() {
    let mut duel = Duel::with(Role::Client, strict());
    let control = duel.control;
    for n in 0..60 {
        duel.write(control, &frame(MAX_PUSH_ID, &varints(&[n])));
    }
    assert_eq!(duel.closed(), Some(Code::EXCESSIVE_LOAD));
}

#[test]
fn streams_of_unknown_types_without_end() {
    let mut duel = Duel::with(Role::Client, strict());
    for _ in 0..60 {
        let id = duel.uni(&varints(&[RESERVED]));
        duel.finish(id);
    }
    assert_eq!(duel.closed(), Some(Code::EXCESSIVE_LOAD));
}

#[test]
fn priorities_of_requests_that_never_come() {
    let mut duel = Duel::new(Role::Client);
    let control = duel.control;
    for n in 0..500 {
        let update = [varints(&[n * 4]), b"u=1".to_vec()].concat();
        duel.write(control, &frame(PRIORITY_UPDATE, &update));
    }
    duel.run();
    let http = duel.world.server.http();
    assert_eq!(http.counters().priorities_dropped, 400);
    assert!(http.memory() < 16 << 10, "{} bytes", http.memory());
    duel.assert_serves();
    let too_long = frame(PRIORITY_UPDATE, &[0; 2000]);
    duel.write(control, &too_long);
    assert_eq!(duel.closed(), Some(Code::EXCESSIVE_LOAD));
}

/// Frames of megabytes that mean nothing are passed over, not kept.
#[test]
fn a_huge_unknown_frame_costs_no_memory() {
    let mut duel = Duel::new(Role::Client);
    let mut huge = frame(RESERVED, &[]);
    huge.pop();
    huge.extend(varints(&[1 << 61]));
    let id = duel.bidi(&huge);
    let mut written = 0;
    while written < 4 << 20 {
        let quic = duel.world.client.quic();
        written += quic.write(id, &[0; 16_384]).unwrap_or(0);
        duel.world.run_for(core::time::Duration::from_millis(5));
    }
    duel.run();
    let http = duel.world.server.http();
    assert!(http.counters().skipped >= 4 << 20);
    assert!(http.memory() < 16 << 10, "{} bytes", http.memory());
    duel.assert_serves();
}

/// Every stream holds a header section it never completes: what is kept is bounded
/// by the limits.
#[test]
fn header_sections_that_never_end() {
    let mut setup = Setup::default();
    setup.server.limits.max_field_section = 4096;
    let mut duel = Duel::with(Role::Client, setup);
    let mut section = frame(HEADERS, &[0; 4096]);
    section.truncate(4000);
    for _ in 0..50 {
        duel.bidi(&section);
    }
    duel.run();
    let memory = duel.world.server.http().memory();
    assert!(memory < 50 * (4096 * 2 + 1024), "{memory} bytes");
    duel.assert_serves();
}

/// Header sections that wait for a dynamic table that never comes: only as many
/// streams as we announced may.
#[test]
fn blocked_streams_are_bounded() {
    let mut duel = Duel::new(Role::Client);
    // A capacity, so that a Required Insert Count of 1 can be.
    duel.uni(&[2, 0x3f, 0xe1, 0x1f]);
    let section = frame(HEADERS, &[0x02, 0x00, 0x80]);
    for _ in 0..16 {
        duel.bidi(&section);
    }
    duel.run();
    assert_eq!(duel.world.server.http().counters().blocked_sections, 16);
    assert_eq!(duel.world.server.closed, None);
    duel.bidi(&section);
    assert_eq!(duel.closed(), Some(Code::QPACK_DECOMPRESSION_FAILED));
}

/// Every kind of control frame that may come more than once.
#[test]
fn repeated_control_frames_are_charged() {
    let update = |stream: u64| [varints(&[stream]), b"u=1".to_vec()].concat();
    let cases = [
        ("GOAWAY", GOAWAY, varints(&[0])),
        ("MAX_PUSH_ID", MAX_PUSH_ID, varints(&[7])),
        ("PRIORITY_UPDATE of a request", PRIORITY_UPDATE, update(0)),
        ("PRIORITY_UPDATE of none yet", PRIORITY_UPDATE, update(40)),
        ("a reserved frame", RESERVED, vec![]),
        ("a reserved frame with a payload", RESERVED, vec![7; 900]),
    ];
    for (what, kind, payload) in cases {
        let mut duel = Duel::with(Role::Client, strict());
        duel.bidi(&get());
        duel.run();
        let control = duel.control;
        for _ in 0..60 {
            duel.write(control, &frame(kind, &payload));
        }
        assert_eq!(duel.closed(), Some(Code::EXCESSIVE_LOAD), "{what}");
    }
}

/// A table with one entry, and how to change it by one byte.
fn encoder_stream(duel: &mut Duel) -> StreamId {
    // A capacity of 4,096, and `a: b` with a literal name.
    duel.uni(&[2, 0x3f, 0xe1, 0x1f, 0x41, b'a', 0x01, b'b'])
}

#[test]
fn duplicates_without_end_are_charged() {
    let mut duel = Duel::new(Role::Client);
    let encoder = encoder_stream(&mut duel);
    let burst = clearway_http3::Limits::default().table_updates_burst;
    duel.write(encoder, &vec![0; burst as usize - 10]);
    duel.run();
    assert_eq!(duel.world.server.closed, None);
    duel.write(encoder, &vec![0; 2 * burst as usize]);
    assert_eq!(duel.closed(), Some(Code::EXCESSIVE_LOAD));
}

#[test]
fn capacities_without_end_are_charged() {
    let mut duel = Duel::new(Role::Client);
    let encoder = encoder_stream(&mut duel);
    for _ in 0..40 {
        duel.write(encoder, &[0x20, 0x3f, 0xe1, 0x1f].repeat(200));
        duel.world.run_for(core::time::Duration::from_millis(5));
    }
    assert_eq!(duel.closed(), Some(Code::EXCESSIVE_LOAD));
}

/// Sections that use the table make up for its changes, at any rate.
#[test]
fn table_updates_that_are_used_are_not_charged() {
    let mut setup = Setup::default();
    setup.server.limits.table_updates_burst = 32;
    setup.server.limits.table_updates_per_second = 0;
    let mut duel = Duel::with(Role::Client, setup);
    let encoder = encoder_stream(&mut duel);
    for _ in 0..200 {
        duel.write(encoder, &[0; 16]);
        duel.assert_serves();
    }
    duel.write(encoder, &[0; 33]);
    assert_eq!(duel.closed(), Some(Code::EXCESSIVE_LOAD));
}

/// A stream may be cancelled that never was (RFC 9204 §2.2.2.2).
#[test]
fn cancellations_without_end_are_charged() {
    let mut duel = Duel::with(Role::Client, strict());
    let decoder = duel.uni(&[3]);
    duel.write(decoder, &[0x44].repeat(40));
    duel.run();
    assert_eq!(duel.world.server.closed, None);
    duel.write(decoder, &[0x44].repeat(40));
    assert_eq!(duel.closed(), Some(Code::EXCESSIVE_LOAD));
}

/// Lengths are refused before what they announce is kept.
#[test]
fn huge_instructions_are_refused_by_their_lengths() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0x3f];
    for (what, start) in [
        ("a name", vec![0x5f]),
        ("a value of a static name", vec![0xc1, 0x7f]),
        ("a value of a literal name", vec![0x41, b'a', 0x7f]),
    ] {
        let mut duel = Duel::new(Role::Client);
        let encoder = encoder_stream(&mut duel);
        duel.write(encoder, &[&start[..], &huge].concat());
        let error = Some(Code::QPACK_ENCODER_STREAM_ERROR);
        assert_eq!(duel.closed(), error, "{what}");
    }
}

/// Header sections in part, on all the streams there may be: what they hold together is
/// bounded, whoever goes beyond it is rejected, and others are served.
#[test]
fn unfinished_header_sections_have_a_budget() {
    let mut setup = Setup::default();
    setup.server_quic.streams.max_bidi_streams = 1_000;
    setup.server_quic.streams.connection_window = 32 << 20;
    setup.server.limits.max_incomplete_sections = 256 << 10;
    let budget = setup.server.limits.max_incomplete_sections;
    let mut duel = Duel::with(Role::Client, setup);
    let mut section = frame(HEADERS, &[0; 60_000]);
    section.truncate(50_000);
    let mut ids = Vec::new();
    for _ in 0..100 {
        ids.push(duel.bidi(&section));
        duel.world.run_for(core::time::Duration::from_millis(30));
    }
    duel.run();
    let http = duel.world.server.http();
    let memory = http.memory();
    assert!(memory < budget + (100 << 10), "{memory} bytes");
    assert!(http.counters().rejected >= 90, "{:?}", http.counters());
    let last = *ids.last().expect("a stream");
    assert_eq!(duel.refusal(last).0, Some(Code::REQUEST_REJECTED));
    duel.assert_serves();
    // What is given up makes room.
    for id in ids.drain(..4) {
        let host = duel.world.client.quic();
        let _ = host.reset(id, 0x10c);
    }
    duel.run();
    let id = duel.bidi(&section);
    assert_eq!(duel.refusal(id), (None, None));
}

/// A section dribbled over hundreds of streams, a byte each: bytes that are not there
/// are not reserved.
#[test]
fn announced_header_sections_reserve_nothing() {
    let mut setup = Setup::default();
    setup.server_quic.streams.max_bidi_streams = 900;
    let mut duel = Duel::with(Role::Client, setup);
    let mut section = frame(HEADERS, &[0; 60_000]);
    section.truncate(6);
    for _ in 0..800 {
        duel.bidi(&section);
    }
    duel.run();
    let http = duel.world.server.http();
    assert_eq!((http.open_requests(), http.counters().rejected), (800, 0));
    let memory = http.memory();
    assert!(memory < 800 * 700, "{memory} bytes");
    duel.assert_serves();
}

/// One byte stands for a field of the static table.
#[test]
fn sections_of_very_many_fields_are_too_large() {
    let limit = clearway_http3::Limits::default().max_fields;
    for (fields, taken) in [(limit, true), (limit + 1, false)] {
        let mut duel = Duel::new(Role::Client);
        // GET, https, :path /, an authority; then accept: */*.
        let mut section = vec![0, 0, 0xd1, 0xd7, 0xc1, 0x50, 0x01, b'h'];
        section.resize(section.len() + fields - 4, 0xc0 | 29);
        duel.whole(&frame(HEADERS, &section));
        let told = duel.events().iter().any(|event| match event {
            Event::Request { request, .. } => request.fields.len() == fields - 4,
            _ => false,
        });
        assert_eq!(told, taken, "{fields} fields");
        let too_large = duel.world.server.http().counters().too_large;
        assert_eq!(too_large, u64::from(!taken));
        duel.assert_serves();
    }
}

/// Streams that never say what they are: as many as the transport allows, and small.
#[test]
fn streams_without_a_type_hold_little() {
    let mut duel = Duel::new(Role::Client);
    while let Some(id) = (duel.world.client.quic()).open(Directionality::Unidirectional) {
        // The first byte of an integer of eight.
        duel.write(id, &[0xc0]);
    }
    duel.run();
    let memory = duel.world.server.http().memory();
    assert!(memory < 8 << 10, "{memory} bytes");
    duel.assert_serves();
}

/// A stream that waits for the table and is reset waits no more (RFC 9204 §2.2.2.2):
/// its place is another's.
#[test]
fn reset_of_a_stream_that_waits_for_the_table_frees_its_place() {
    let mut duel = Duel::new(Role::Client);
    duel.uni(&[2, 0x3f, 0xe1, 0x1f]);
    let section = frame(HEADERS, &[0x02, 0x00, 0x80]);
    for _ in 0..40 {
        let id = duel.bidi(&section);
        duel.run();
        duel.reset(id, 0x10c);
        duel.run();
    }
    let http = duel.world.server.http();
    assert_eq!(http.counters().blocked_sections, 40);
    assert_eq!(http.open_requests(), 0);
    duel.assert_serves();
}

/// What was begun cannot be sent again elsewhere, unlike a request that nobody has seen.
#[test]
fn trailers_and_responses_beyond_the_budget_of_sections_in_part_fail() {
    let config = || Config {
        limits: Limits {
            max_incomplete_sections: 1_000,
            ..Limits::default()
        },
        ..Config::default()
    };
    let mut section = frame(HEADERS, &[0; 3_000]);
    section.truncate(2_000);

    let mut server = End::with(Role::Server, config());
    server.wire.feed(stream(0), &headers(&request("POST")));
    server.turn();
    server.wire.feed(stream(0), &section);
    server.turn();
    let (http, wire) = (&mut server.http, &mut server.wire);
    let Err(BodyError::Failed(error)) = http.read_body(wire, stream(0)) else {
        panic!("trailers beyond the budget are taken");
    };
    assert_eq!(error.code, Code::EXCESSIVE_LOAD);
    assert_eq!(http.counters().rejected, 1);

    let mut client = End::with(Role::Client, config());
    let (http, wire) = (&mut client.http, &mut client.wire);
    let get = Request::get("h", "/");
    let id = http.request(wire, &get, true).expect("a request");
    wire.feed(id, &section);
    let heard = client.turn();
    let [Event::Failed { error, .. }] = &heard[..] else {
        panic!("{heard:?}");
    };
    assert_eq!(error.code, Code::EXCESSIVE_LOAD);
    assert_eq!(client.http.counters().rejected, 1);
}
