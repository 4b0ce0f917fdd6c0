//! Frames that are allowed one by one and meant to exhaust (RFC 9000 §21).

use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::Role;
use clearway_quic::connection::{Config, Forgery};
use clearway_quic::error::Code;
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::wire::frame::kind;
use clearway_quic::wire::{Frame, PacketKind};

use crate::hostile::duel::{Duel, IDLE_MEMORY, bytes, client_bidi, fields, raw};

fn challenge(duel: &mut Duel, i: u64) -> Vec<u8> {
    let frame = bytes(&Frame::PathChallenge(i.to_be_bytes()));
    duel.forge(&Forgery::new(PacketKind::OneRtt, &frame))
}

#[test]
fn path_challenges() {
    let mut duel = Duel::new(Role::Client);
    let now = duel.world.now;
    let before = duel.victim().stats(now).counters.bytes_sent;
    let mut received = 0;
    for i in 0..10_000_u64 {
        let packet = challenge(&mut duel, i);
        received += packet.len() as u64;
        duel.deliver(packet);
    }
    duel.world.run_for(Duration::from_secs(1));
    let now = duel.world.now;
    let sent = duel.victim().stats(now).counters.bytes_sent - before;
    assert!(sent < received, "{sent} bytes sent for {received}");
    duel.still_serves();
}

/// The same from ever new addresses: paths are bounded, and so is what is sent
/// to addresses that never answer.
#[test]
fn path_challenges_from_everywhere() {
    let mut duel = Duel::new(Role::Client);
    let now = duel.world.now;
    let before = duel.victim().stats(now).counters.bytes_sent;
    let (to, home) = (duel.world.server.address, duel.world.client.address);
    // Nobody is there to answer.
    duel.world.filter = Some(Box::new(move |direction, packet| {
        direction == Direction::Up || packet.dst == home
    }));
    let mut received = 0;
    for i in 0..10_000_u64 {
        let packet = challenge(&mut duel, i);
        received += packet.len() as u64;
        let from = ([10, 9, (i >> 8) as u8, i as u8], 9).into();
        let packet = Packet::new(from, to, packet);
        duel.world.deliver(Direction::Up, packet);
        duel.world.flush();
    }
    duel.world.run_for(Duration::from_secs(10));
    let now = duel.world.now;
    let sent = duel.victim().stats(now).counters.bytes_sent - before;
    assert!(sent <= 3 * received, "{sent} bytes sent for {received}");
    duel.still_serves();
}

#[test]
fn resets_of_the_same_stream() {
    let mut duel = Duel::new(Role::Client);
    for _ in 0..10_000 {
        duel.say(&fields(&[kind::RESET_STREAM, 0, 1, 0]));
    }
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
    }
    assert!(opened > 1000, "{opened} streams");
    duel.still_serves();
}

/// One-byte STREAM frames with a gap between each two: many pieces, little
/// data, much bookkeeping.
#[test]
fn one_byte_pieces_with_gaps() {
    let mut duel = Duel::new(Role::Client);
    duel.bound(2 << 20);
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
    }
    duel.closed_with(
        Code::INTERNAL_ERROR,
        kind::STREAM,
        "stream data in more separate pieces than are kept track of",
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
    duel.still_serves();
}

/// A reader that grants credit and never acknowledges, or grants none: the
/// writer's buffers stay within its budget.
#[test]
fn a_slow_reader() {
    let mut duel = Duel::new(Role::Client);
    let budget = Config::default().streams.send_budget as usize;
    duel.bound(4 * budget + IDLE_MEMORY);
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
    assert_eq!(duel.victim().error(), None);
}

/// A reader that grants all the credit there is and acknowledges nothing: what
/// the writer keeps for a retransmission is bounded by its own budget.
#[test]
fn a_reader_that_never_acknowledges() {
    let mut duel = Duel::new(Role::Client);
    let budget = Config::default().streams.send_budget as usize;
    duel.bound(4 * budget + IDLE_MEMORY);
    duel.say(&fields(&[kind::MAX_DATA, 1 << 60]));
    duel.world.filter = Some(Box::new(|direction, _| direction == Direction::Down));
    let mut written = 0;
    for _ in 0..64 {
        let Some(id) = duel.victim().open(Directionality::Bidirectional) else {
            break;
        };
        duel.say(&fields(&[kind::MAX_STREAM_DATA, id.as_u64(), 1 << 60]));
        while let Ok(n @ 1..) = duel.victim().write(id, &[0; 65_536]) {
            written += n;
            assert!(written < 64 << 20, "the writer is never told to wait");
        }
        duel.world.run_for(Duration::from_millis(100));
    }
    assert!(duel.peak() > budget, "the budget was used");
    assert_eq!(duel.victim().error(), None);
    duel.world.filter = None;
}

/// Single bytes as far apart as the windows allow: what lies between them takes no
/// memory. At 32 KiB from one to the next each once took a block of as much.
#[test]
fn single_bytes_far_apart() {
    let streams = Config::default().streams;
    let apart = |distance: u64, count: u64, streams: u64| {
        let mut duel = Duel::new(Role::Client);
        let before = duel.victim().buffered();
        for index in 0..streams {
            for part in 1..=count {
                duel.say(&bytes(&Frame::Stream {
                    id: client_bidi(index),
                    offset: part * distance - 1,
                    fin: false,
                    data: b"x",
                }));
            }
        }
        let held = duel.victim().buffered() - before;
        let sent = (streams * count) as usize;
        assert!(held >= sent, "every byte is kept");
        assert!(held <= 200 * sent, "{held} bytes for {sent}");
        duel.still_serves();
    };
    apart(32 << 10, 16, 2);
    let each = streams.connection_window / streams.max_bidi_streams;
    apart(each / 4, 4, streams.max_bidi_streams);
}

/// Pieces of every size, in order and not, read and not: a connection holds a small
/// multiple of what it keeps for the application.
#[test]
fn memory_follows_what_is_kept() {
    for (piece, step) in [(1, 2), (1, 100), (10, 70), (100, 5_000), (1_000, 1_500)] {
        let mut duel = Duel::new(Role::Client);
        duel.bound(2 << 20);
        let window = Config::default().streams.stream_window;
        let data = vec![7; piece as usize];
        let pieces = ((window - piece) / step).min(900);
        for i in 0..pieces {
            duel.say(&bytes(&Frame::Stream {
                id: client_bidi(0),
                offset: 1 + i * step,
                fin: false,
                data: &data,
            }));
        }
        let held = duel.victim().buffered() as u64;
        let kept = pieces * piece;
        assert!(
            (kept..=2 * kept + 200 * pieces).contains(&held),
            "{held} bytes for {kept} in {pieces} pieces"
        );
    }
}

/// Every stream that was granted, each with a byte that nobody reads.
#[test]
fn all_the_streams_there_are() {
    let mut duel = Duel::new(Role::Client);
    let streams = Config::default().streams;
    for (directionality, count) in [
        (Directionality::Bidirectional, streams.max_bidi_streams),
        (Directionality::Unidirectional, streams.max_uni_streams),
    ] {
        for index in 0..count {
            duel.say(&bytes(&Frame::Stream {
                id: StreamId::new(Role::Client, directionality, index),
                offset: 0,
                fin: false,
                data: b"x",
            }));
        }
    }
    duel.still_serves();
}

/// The application's own side: DATAGRAMs that find no room on the path.
#[test]
fn datagrams_that_cannot_leave() {
    let mut duel = Duel::new(Role::Client);
    let queue = Config::default().datagram_buffer;
    duel.bound(queue + IDLE_MEMORY);
    duel.world.filter = Some(Box::new(|direction, _| direction == Direction::Down));
    let message = bytes::Bytes::from_static(&[0; 1000]);
    for _ in 0..10_000 {
        let _ = duel.victim().send_datagram(message.clone());
    }
    duel.world.flush();
    assert!(duel.peak() > queue * 9 / 10, "what waits is counted");
    duel.world.filter = None;
}

#[test]
fn datagrams_nobody_fetches() {
    let mut duel = Duel::new(Role::Client);
    let queue = Config::default().datagram_buffer;
    duel.bound(queue + IDLE_MEMORY);
    for _ in 0..5_000 {
        duel.say(&bytes(&Frame::Datagram(&[0; 1000])));
    }
    assert!(duel.peak() > queue, "DATAGRAMs are kept and counted");
    duel.still_serves();
}

/// NEW_TOKEN without end: the client keeps eight a server, and nothing of them
/// in the connection.
#[test]
fn tokens_without_end() {
    let mut duel = Duel::new(Role::Server);
    let kept = duel.world.setup.sessions.clone();
    for i in 0..5_000_u64 {
        let mut token = [0; 500];
        token[..8].copy_from_slice(&i.to_be_bytes());
        duel.say(&bytes(&Frame::NewToken(&token)));
    }
    let name = "localhost".try_into().expect("a name");
    let tokens = core::iter::from_fn(|| kept.take_token(&name)).count();
    assert_eq!(tokens, 8);
    duel.still_serves();
}

/// Tickets without end, which a client takes in as long as it lives.
#[test]
fn tickets_without_end() {
    let mut duel = Duel::with(Role::Server, |setup| {
        let mut crypto = (*setup.server_crypto).clone();
        crypto.send_tls13_tickets = 0;
        setup.server_crypto = std::sync::Arc::new(crypto);
    });
    // RFC 8446 §4.6.1: type, length, lifetime, age_add, nonce, ticket, extensions.
    let mut ticket = vec![0, 0, 0x0e, 0x10, 1, 2, 3, 4, 1, 0];
    ticket.extend(500_u16.to_be_bytes());
    ticket.extend([7; 500]);
    ticket.extend([0, 0]);
    let mut message = vec![4, 0];
    message.extend((ticket.len() as u16).to_be_bytes());
    message.extend(ticket);
    for i in 0..2_000 {
        duel.say(&bytes(&Frame::Crypto {
            offset: i * message.len() as u64,
            data: &message,
        }));
        assert_eq!(duel.victim().error(), None, "ticket {i}");
    }
    duel.still_serves();
}
