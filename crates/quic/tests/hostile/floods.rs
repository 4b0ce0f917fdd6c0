//! Frames that are allowed one by one and meant to exhaust (RFC 9000 §21).

use std::time::Duration;

use clearway_quic::Role;
use clearway_quic::connection::{Config, Forgery};
use clearway_quic::error::Code;
use clearway_quic::stream::Directionality;
use clearway_quic::wire::frame::kind;
use clearway_quic::wire::{Frame, PacketKind};

use crate::duel::{Duel, IDLE_MEMORY, bytes, client_bidi, fields, raw};

#[test]
fn path_challenges() {
    let mut duel = Duel::new(Role::Client);
    let now = duel.world.now;
    let before = duel.victim().stats(now).counters.bytes_sent;
    let mut received = 0;
    for i in 0..10_000_u64 {
        let packet = duel.forge(&Forgery::new(
            PacketKind::OneRtt,
            &bytes(&Frame::PathChallenge(i.to_be_bytes())),
        ));
        received += packet.len() as u64;
        duel.deliver(packet);
    }
    duel.victim_holds_at_most(IDLE_MEMORY);
    duel.world.run_for(Duration::from_secs(1));
    let now = duel.world.now;
    let sent = duel.victim().stats(now).counters.bytes_sent - before;
    assert!(sent < received, "{sent} bytes sent for {received}");
    duel.still_serves();
}

#[test]
fn resets_of_the_same_stream() {
    let mut duel = Duel::new(Role::Client);
    for _ in 0..10_000 {
        duel.say(&fields(&[kind::RESET_STREAM, 0, 1, 0]));
    }
    duel.victim_holds_at_most(IDLE_MEMORY);
    duel.still_serves();
}

/// Open, reset, open, reset …: streams the application never sees end by
/// themselves, so credit does not grow faster than they are taken in.
#[test]
fn rapid_open_and_reset() {
    let mut duel = Duel::new(Role::Client);
    let granted = Config::default().streams.max_bidi_streams;
    for index in 0..100_000 {
        let id = client_bidi(index).as_u64();
        let payload = raw(|w| {
            for value in [kind::RESET_STREAM, id, 1, 0, kind::STOP_SENDING, id, 1] {
                w.varint(value);
            }
        });
        duel.say(&payload);
        if duel.victim().error().is_some() {
            assert_eq!(index, granted, "streams opened on the first credit");
            break;
        }
    }
    duel.closed_with(
        Code::STREAM_LIMIT_ERROR,
        kind::RESET_STREAM,
        "more streams than MAX_STREAMS",
    );
    duel.victim_holds_at_most(IDLE_MEMORY);
}

/// The same at the pace of the credit: the victim serves on, and holds nothing.
#[test]
fn open_and_reset_within_the_credit() {
    let mut duel = Duel::new(Role::Client);
    let mut opened = 0;
    for round in 0..100 {
        while let Some(id) = duel.hostile().open(Directionality::Bidirectional) {
            duel.hostile().write(id, b"?").expect("fresh");
            duel.hostile().reset(id, 1).expect("fresh");
            duel.hostile().stop(id, 1).expect("fresh");
            opened += 1;
        }
        duel.world.run_for(Duration::from_millis(50));
        assert_eq!(duel.victim().error(), None, "round {round}");
        while let Some(id) = duel.victim().accept(Directionality::Bidirectional) {
            let _ = duel.victim().read(id, &mut [0; 8]);
            let _ = duel.victim().reset(id, 2);
        }
        duel.victim_holds_at_most(IDLE_MEMORY);
    }
    assert!(opened > 1000, "{opened} streams");
    duel.still_serves();
}

/// One-byte STREAM frames with a gap between each two: many pieces, little
/// data, much bookkeeping.
#[test]
fn one_byte_pieces_with_gaps() {
    let mut duel = Duel::new(Role::Client);
    let window = Config::default().streams.stream_window;
    let mut offset = 1;
    while offset < window && duel.victim().error().is_none() {
        let payload = raw(|w| {
            for _ in 0..100 {
                if offset < window {
                    Frame::Stream {
                        id: client_bidi(0),
                        offset,
                        fin: false,
                        data: b"x",
                    }
                    .encode(w);
                }
                offset += 2;
            }
        });
        duel.say(&payload);
        duel.victim_holds_at_most(2 << 20);
    }
    duel.closed_with(
        Code::INTERNAL_ERROR,
        kind::STREAM,
        "more gaps in a stream than we track",
    );
}

/// One byte in each packet of its own must not pin the packet's buffer.
#[test]
fn one_byte_pieces_in_order() {
    let mut duel = Duel::new(Role::Client);
    for offset in 0..20_000 {
        duel.say(&bytes(&Frame::Stream {
            id: client_bidi(0),
            offset,
            fin: false,
            data: b"x",
        }));
    }
    duel.victim_holds_at_most(IDLE_MEMORY);
    duel.still_serves();
}

/// Data repeated without end is held once.
#[test]
fn the_same_data_again_and_again() {
    let mut duel = Duel::new(Role::Client);
    for i in 0..10_000 {
        duel.say(&bytes(&Frame::Stream {
            id: client_bidi(0),
            offset: 1 + i % 97,
            fin: false,
            data: &[0; 1000],
        }));
    }
    duel.victim_holds_at_most(IDLE_MEMORY);
    duel.still_serves();
}

/// A reader that grants credit and never acknowledges, or grants none: the
/// writer's buffers stay within its budget.
#[test]
fn a_slow_reader() {
    let mut duel = Duel::new(Role::Client);
    let mut written = 0;
    for _ in 0..32 {
        let Some(id) = duel.victim().open(Directionality::Bidirectional) else {
            break;
        };
        while let Ok(n @ 1..) = duel.victim().write(id, &[0; 65_536]) {
            written += n;
            assert!(written < 64 << 20, "the writer is never told to wait");
        }
    }
    duel.world.run_for(Duration::from_secs(5));
    let budget = Config::default().streams.send_budget as usize;
    duel.victim_holds_at_most(4 * budget + IDLE_MEMORY);
    assert_eq!(duel.victim().error(), None);
}

#[test]
fn datagrams_nobody_fetches() {
    let mut duel = Duel::new(Role::Client);
    for _ in 0..5_000 {
        duel.say(&bytes(&Frame::Datagram(&[0; 1000])));
    }
    let queue = Config::default().datagram_buffer;
    duel.victim_holds_at_most(queue + IDLE_MEMORY);
    assert!(
        duel.victim().memory() > queue / 2,
        "memory() counts DATAGRAMs"
    );
    duel.still_serves();
}

/// Frames that ask for an answer each: blocked reports, pings, credit updates.
#[test]
fn small_frames_by_the_thousand() {
    let id = client_bidi(0).as_u64();
    for frame in [
        fields(&[kind::PING]),
        fields(&[kind::DATA_BLOCKED, 1]),
        fields(&[kind::STREAM_DATA_BLOCKED, id, 1]),
        fields(&[kind::STREAMS_BLOCKED_BIDI, 1]),
        fields(&[kind::MAX_DATA, 1]),
        fields(&[kind::MAX_STREAM_DATA, id, 1]),
        fields(&[kind::IMMEDIATE_ACK]),
    ] {
        let mut duel = Duel::new(Role::Client);
        let payload = frame.repeat(1000 / frame.len());
        for _ in 0..500 {
            duel.say(&payload);
        }
        duel.victim_holds_at_most(IDLE_MEMORY);
        duel.world.run_for(Duration::from_secs(1));
        duel.still_serves();
    }
}
