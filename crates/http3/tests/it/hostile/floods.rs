//! Work at no cost to the one who asks for it: bounded, counted, then refused with
//! `H3_EXCESSIVE_LOAD`.

use clearway_http3::{Code, Event};
use clearway_quic::Role;
use clearway_quic::stream::StreamId;

use crate::common::Setup;
use crate::hostile::forger::*;

fn strict() -> Setup {
    let mut setup = Setup::default();
    for config in [&mut setup.client, &mut setup.server] {
        config.limits.abandoned_burst = 20;
        config.limits.abandoned_per_second = 10;
        config.limits.idle_work_burst = 50;
        config.limits.idle_work_per_second = 10;
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
