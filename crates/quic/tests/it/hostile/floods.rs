//! Floods of frames that are each allowed (RFC 9000 §21).

use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::Role;
use clearway_quic::connection::{Config, Forgery};
use clearway_quic::error::Code;
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::wire::Version;
use clearway_quic::wire::frame::kind;
use clearway_quic::wire::{Frame, PacketKind};

use crate::hostile::pair::{HostilePair, IDLE_MEMORY, bytes, client_bidi, fields, raw};

fn challenge(pair: &mut HostilePair, i: u64) -> Vec<u8> {
    let frame = bytes(&Frame::PathChallenge(i.to_be_bytes()));
    pair.forge(&Forgery::new(PacketKind::OneRtt, &frame))
}

#[test]
fn path_challenge_flood_is_answered_with_fewer_bytes() {
    let mut pair = HostilePair::new(Role::Client);
    let now = pair.world.now;
    let before = pair.victim().stats(now).counters.bytes_sent;
    let mut received = 0;
    for i in 0..10_000_u64 {
        let packet = challenge(&mut pair, i);
        received += packet.len() as u64;
        pair.deliver(packet);
    }
    pair.world.run_for(Duration::from_secs(1));
    let now = pair.world.now;
    let sent = pair.victim().stats(now).counters.bytes_sent - before;
    assert!(sent < received, "{sent} bytes sent for {received}");
    pair.still_serves();
}

/// The same from ever new addresses: paths are bounded, and so is what is sent
/// to addresses that never answer.
#[test]
fn path_challenges_from_unvalidated_addresses_are_not_amplified() {
    let mut pair = HostilePair::new(Role::Client);
    let now = pair.world.now;
    let before = pair.victim().stats(now).counters.bytes_sent;
    let (to, home) = (pair.world.server.address, pair.world.client.address);
    // Nobody is there to answer.
    pair.world.filter = Some(Box::new(move |direction, packet| {
        direction == Direction::Up || packet.dst == home
    }));
    let mut received = 0;
    for i in 0..10_000_u64 {
        let packet = challenge(&mut pair, i);
        received += packet.len() as u64;
        let from = ([10, 9, (i >> 8) as u8, i as u8], 9).into();
        let packet = Packet::new(from, to, packet);
        pair.world.deliver(Direction::Up, packet);
        pair.world.flush();
    }
    pair.world.run_for(Duration::from_secs(10));
    let now = pair.world.now;
    let sent = pair.victim().stats(now).counters.bytes_sent - before;
    assert!(sent <= 3 * received, "{sent} bytes sent for {received}");
    pair.still_serves();
}

#[test]
fn repeated_resets_of_one_stream_keep_memory_bounded() {
    let mut pair = HostilePair::new(Role::Client);
    for _ in 0..10_000 {
        pair.say(&fields(&[kind::RESET_STREAM, 0, 1, 0]));
    }
    pair.still_serves();
}

/// Open, reset, open, reset …: streams the application never sees end by
/// themselves, so credit does not grow faster than they are taken in.
#[test]
fn opening_streams_faster_than_credit_closes_connection() {
    let mut pair = HostilePair::new(Role::Client);
    let granted = Config::default().streams.max_bidi_streams;
    for index in 0..100_000 {
        let id = client_bidi(index).as_u64();
        let payload = raw(|w| {
            for value in [kind::RESET_STREAM, id, 1, 0, kind::STOP_SENDING, id, 1] {
                w.varint(value);
            }
        });
        pair.say(&payload);
        if pair.victim().error().is_some() {
            assert_eq!(index, granted, "streams opened on the first credit");
            break;
        }
    }
    pair.closed_with(
        Code::STREAM_LIMIT_ERROR,
        kind::RESET_STREAM,
        "more streams than MAX_STREAMS allows",
    );
}

/// The same within the credit: the victim keeps serving, and uses no more memory.
#[test]
fn streams_reset_within_credit_keep_memory_bounded() {
    let mut pair = HostilePair::new(Role::Client);
    let mut opened = 0;
    for round in 0..100 {
        while let Some(id) = pair.hostile().open(Directionality::Bidirectional) {
            pair.hostile().write(id, b"?").expect("fresh");
            pair.hostile().reset(id, 1).expect("fresh");
            pair.hostile().stop(id, 1).expect("fresh");
            opened += 1;
        }
        pair.world.run_for(Duration::from_millis(50));
        assert_eq!(pair.victim().error(), None, "round {round}");
        while let Some(id) = pair.victim().accept(Directionality::Bidirectional) {
            let _ = pair.victim().read(id, &mut [0; 8]);
            let _ = pair.victim().reset(id, 2);
        }
    }
    assert!(opened > 1000, "{opened} streams");
    pair.still_serves();
}

/// One-byte STREAM frames with a gap between each two: many pieces, little
/// data, much bookkeeping.
#[test]
fn one_byte_pieces_with_gaps_close_connection() {
    let mut pair = HostilePair::new(Role::Client);
    pair.bound(2 << 20);
    let window = Config::default().streams.stream_window;
    let mut offset = 1;
    while offset < window && pair.victim().error().is_none() {
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
        pair.say(&payload);
    }
    pair.closed_with(
        Code::INTERNAL_ERROR,
        kind::STREAM,
        "too many gaps in the received stream data",
    );
}

/// One byte in each packet of its own must not pin the packet's buffer.
#[test]
fn one_byte_pieces_in_order_keep_memory_bounded() {
    let mut pair = HostilePair::new(Role::Client);
    for offset in 0..20_000 {
        pair.say(&bytes(&Frame::Stream {
            id: client_bidi(0),
            offset,
            fin: false,
            data: b"x",
        }));
    }
    pair.still_serves();
}

/// Data that is repeated endlessly is buffered once.
#[test]
fn repeated_data_is_held_once() {
    let mut pair = HostilePair::new(Role::Client);
    for i in 0..10_000 {
        pair.say(&bytes(&Frame::Stream {
            id: client_bidi(0),
            offset: 1 + i % 97,
            fin: false,
            data: &[0; 1000],
        }));
    }
    pair.still_serves();
}

/// A reader that grants credit and never acknowledges, or grants none: the
/// writer's buffers stay within its budget.
#[test]
fn send_buffer_for_slow_reader_is_bounded() {
    let mut pair = HostilePair::new(Role::Client);
    let budget = Config::default().streams.send_budget as usize;
    pair.bound(4 * budget + IDLE_MEMORY);
    let mut written = 0;
    for _ in 0..32 {
        let Some(id) = pair.victim().open(Directionality::Bidirectional) else {
            break;
        };
        while let Ok(n @ 1..) = pair.victim().write(id, &[0; 65_536]) {
            written += n;
            assert!(written < 64 << 20, "the writer is never told to wait");
        }
    }
    pair.world.run_for(Duration::from_secs(5));
    assert_eq!(pair.victim().error(), None);
}

/// A reader that grants all the credit there is and acknowledges nothing: what
/// the writer keeps for a retransmission is bounded by its own budget.
#[test]
fn send_buffer_for_peer_without_acks_is_bounded() {
    let mut pair = HostilePair::new(Role::Client);
    let budget = Config::default().streams.send_budget as usize;
    pair.bound(4 * budget + IDLE_MEMORY);
    pair.say(&fields(&[kind::MAX_DATA, 1 << 60]));
    pair.world.filter = Some(Box::new(|direction, _| direction == Direction::Down));
    let mut written = 0;
    for _ in 0..64 {
        let Some(id) = pair.victim().open(Directionality::Bidirectional) else {
            break;
        };
        pair.say(&fields(&[kind::MAX_STREAM_DATA, id.as_u64(), 1 << 60]));
        while let Ok(n @ 1..) = pair.victim().write(id, &[0; 65_536]) {
            written += n;
            assert!(written < 64 << 20, "the writer is never told to wait");
        }
        pair.world.run_for(Duration::from_millis(100));
    }
    assert!(pair.peak() > budget, "the budget was used");
    assert_eq!(pair.victim().error(), None);
    pair.world.filter = None;
}

/// Single bytes as far apart as the windows allow: what lies between them takes no
/// memory. At 32 KiB from one to the next each once took a block of as much.
#[test]
fn single_bytes_far_apart_use_memory_per_byte() {
    let streams = Config::default().streams;
    let apart = |distance: u64, count: u64, streams: u64| {
        let mut pair = HostilePair::new(Role::Client);
        let before = pair.victim().buffered();
        for index in 0..streams {
            for part in 1..=count {
                pair.say(&bytes(&Frame::Stream {
                    id: client_bidi(index),
                    offset: part * distance - 1,
                    fin: false,
                    data: b"x",
                }));
            }
        }
        let held = pair.victim().buffered() - before;
        let sent = (streams * count) as usize;
        assert!(held >= sent, "every byte is kept");
        assert!(held <= 200 * sent, "{held} bytes for {sent}");
        pair.still_serves();
    };
    apart(32 << 10, 16, 2);
    let each = streams.connection_window / streams.max_bidi_streams;
    apart(each / 4, 4, streams.max_bidi_streams);
}

/// Pieces of every size, in order and not, read and not: a connection holds a small
/// multiple of what it keeps for the application.
#[test]
fn memory_is_proportional_to_kept_data() {
    for (piece, step) in [(1, 2), (1, 100), (10, 70), (100, 5_000), (1_000, 1_500)] {
        let mut pair = HostilePair::new(Role::Client);
        pair.bound(2 << 20);
        let window = Config::default().streams.stream_window;
        let data = vec![7; piece as usize];
        let pieces = ((window - piece) / step).min(900);
        for i in 0..pieces {
            pair.say(&bytes(&Frame::Stream {
                id: client_bidi(0),
                offset: 1 + i * step,
                fin: false,
                data: &data,
            }));
        }
        let held = pair.victim().buffered() as u64;
        let kept = pieces * piece;
        assert!(
            (kept..=2 * kept + 200 * pieces).contains(&held),
            "{held} bytes for {kept} in {pieces} pieces"
        );
    }
}

/// All streams within the limit, each with an unread byte.
#[test]
fn all_granted_streams_keep_memory_bounded() {
    let mut pair = HostilePair::new(Role::Client);
    let streams = Config::default().streams;
    for (directionality, count) in [
        (Directionality::Bidirectional, streams.max_bidi_streams),
        (Directionality::Unidirectional, streams.max_uni_streams),
    ] {
        for index in 0..count {
            pair.say(&bytes(&Frame::Stream {
                id: StreamId::new(Role::Client, directionality, index),
                offset: 0,
                fin: false,
                data: b"x",
            }));
        }
    }
    pair.still_serves();
}

/// DATAGRAMs of the application itself that do not fit the path.
#[test]
fn unsendable_datagrams_are_bounded_by_queue() {
    let mut pair = HostilePair::new(Role::Client);
    let queue = Config::default().datagram_buffer;
    pair.bound(queue + IDLE_MEMORY);
    pair.world.filter = Some(Box::new(|direction, _| direction == Direction::Down));
    let message = bytes::Bytes::from_static(&[0; 1000]);
    for _ in 0..10_000 {
        let _ = pair.victim().send_datagram(message.clone());
    }
    pair.world.flush();
    assert!(pair.peak() > queue * 9 / 10, "what waits is counted");
    pair.world.filter = None;
}

#[test]
fn unread_datagrams_are_bounded_by_queue() {
    let mut pair = HostilePair::new(Role::Client);
    let queue = Config::default().datagram_buffer;
    pair.bound(queue + IDLE_MEMORY);
    for _ in 0..5_000 {
        pair.say(&bytes(&Frame::Datagram(&[0; 1000])));
    }
    assert!(pair.peak() > queue, "DATAGRAMs are kept and counted");
    pair.still_serves();
}

/// NEW_TOKEN without end: the client keeps eight a server, and nothing of them
/// in the connection.
#[test]
fn endless_new_tokens_are_bounded() {
    let mut pair = HostilePair::new(Role::Server);
    let kept = pair.world.setup.sessions.clone();
    for i in 0..5_000_u64 {
        let mut token = [0; 500];
        token[..8].copy_from_slice(&i.to_be_bytes());
        pair.say(&bytes(&Frame::NewToken(&token)));
    }
    let name = clearway_testing::server_id();
    let tokens = core::iter::from_fn(|| kept.take_token(&name, Version::V1)).count();
    assert_eq!(tokens, 8);
    pair.still_serves();
}

/// Endless session tickets, which a client accepts as long as the connection is open.
#[test]
fn endless_session_tickets_are_bounded() {
    let mut pair = HostilePair::with(Role::Server, |setup| {
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
        pair.say(&bytes(&Frame::Crypto {
            offset: i * message.len() as u64,
            data: &message,
        }));
        assert_eq!(pair.victim().error(), None, "ticket {i}");
    }
    pair.still_serves();
}
