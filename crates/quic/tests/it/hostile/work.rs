//! Floods of frames that cause work without any progress, hundreds in a datagram (RFC 9000 §21.9), and
//! honest traffic that looks similar.

use std::time::Duration;

use clearway_quic::Role;
use clearway_quic::cid::{ConnectionId, ResetToken};
use clearway_quic::connection::Config;
use clearway_quic::error::Code;
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::wire::frame::kind;
use clearway_quic::wire::{Frame, Writer};

use crate::hostile::acks::ack_each;
use crate::hostile::pair::{HostilePair, SentNumbers, bytes, client_bidi, fields, raw};

const REASON: &str = "too many frames that transfer no new data";

/// Bytes of frames in one forged packet.
const PAYLOAD: usize = 1_100;

/// What the budget has gained beyond its initial value when a test begins, a second after the handshake,
/// plus what the last frame may be charged beyond it.
const EARNED: u64 = 4_200;

/// Writes the frame number n.
type MakeFrame = fn(u64) -> Frame<'static>;

fn burst() -> u64 {
    Config::default().unproductive_work.burst.into()
}

fn client_uni(index: u64) -> StreamId {
    StreamId::new(Role::Client, Directionality::Unidirectional, index)
}

/// What the victim has processed.
pub(super) fn charged(pair: &mut HostilePair) -> u64 {
    let now = pair.world.now;
    u64::from(pair.victim().stats(now).unproductive_work)
}

/// Fills packets with frames from `write` until the victim closes the connection, which must happen
/// after the initial budget plus at most one packet.
#[track_caller]
pub(super) fn flood(pair: HostilePair, frame_type: u64, write: impl FnMut(&mut Writer<'_>, u64)) {
    flood_that_earns(0, pair, frame_type, write);
}

/// Same as [`flood`], with frames that also add this many units to the budget.
#[track_caller]
fn flood_that_earns(
    units: u64,
    mut pair: HostilePair,
    frame_type: u64,
    mut write: impl FnMut(&mut Writer<'_>, u64),
) {
    let mut number = 0;
    // A burst of the cheapest frame takes fewer packets than bytes of it.
    for _ in 0..burst() {
        let payload = raw(|w| {
            while w.filled().len() < PAYLOAD {
                write(w, number);
                number += 1;
            }
        });
        pair.say(&payload);
        if pair.victim().error().is_some() {
            break;
        }
    }
    let (spent, most) = (charged(&mut pair), burst() + EARNED + units);
    assert!(
        (burst()..=most).contains(&spent),
        "{spent} units for {frame_type:#x}"
    );
    pair.closed_with(Code::PROTOCOL_VIOLATION, frame_type, REASON);
}

/// Frames that are the same each time.
#[test]
fn flood_of_repeated_frames_closes_connection() {
    let id = client_bidi(0).as_u64();
    for frame in [
        vec![kind::PING],
        vec![kind::RESET_STREAM, id, 1, 0],
        vec![kind::STOP_SENDING, id, 1],
        vec![kind::MAX_DATA, 1],
        vec![kind::MAX_STREAM_DATA, id, 1],
        vec![kind::MAX_STREAMS_BIDI, 1],
        vec![kind::MAX_STREAMS_UNI, 1],
        vec![kind::DATA_BLOCKED, 1],
        vec![kind::STREAM_DATA_BLOCKED, id, 1],
        vec![kind::STREAMS_BLOCKED_BIDI, 1],
        vec![kind::STREAMS_BLOCKED_UNI, 1],
        vec![kind::IMMEDIATE_ACK],
    ] {
        let repeated = fields(&frame);
        flood(HostilePair::new(Role::Client), frame[0], |w, _| {
            w.bytes(&repeated);
        });
    }
    flood(
        HostilePair::new(Role::Server),
        kind::HANDSHAKE_DONE,
        |w, _| {
            w.varint(kind::HANDSHAKE_DONE);
        },
    );
}

/// Frames that differ each time.
#[test]
fn flood_of_changing_frames_closes_connection() {
    let frames: [(u64, MakeFrame); 8] = [
        (kind::MAX_DATA, |n| Frame::MaxData((1 << 30) + n)),
        (kind::MAX_STREAM_DATA, |n| Frame::MaxStreamData {
            id: client_bidi(n % 8),
            limit: (1 << 30) + n,
        }),
        (kind::MAX_STREAMS_BIDI, |n| Frame::MaxStreams {
            directionality: Directionality::Bidirectional,
            limit: 1_000 + n,
        }),
        (kind::PATH_CHALLENGE, |n| {
            Frame::PathChallenge(n.to_be_bytes())
        }),
        (kind::PATH_RESPONSE, |n| {
            Frame::PathResponse(n.to_be_bytes())
        }),
        (kind::STREAM_DATA_BLOCKED, |n| Frame::StreamDataBlocked {
            id: client_bidi(n % 8),
            limit: n,
        }),
        (kind::STREAMS_BLOCKED_UNI, |n| Frame::StreamsBlocked {
            directionality: Directionality::Unidirectional,
            limit: n,
        }),
        (kind::ACK_FREQUENCY, |n| Frame::AckFrequency {
            sequence: n,
            ack_eliciting_threshold: 1 + n % 9,
            request_max_ack_delay: 25_000,
            reordering_threshold: n % 3,
        }),
    ];
    for (frame_type, frame) in frames {
        flood(HostilePair::new(Role::Client), frame_type, |w, n| {
            frame(n).encode(w);
        });
    }
    flood(HostilePair::new(Role::Server), kind::NEW_TOKEN, |w, n| {
        Frame::NewToken(&n.to_be_bytes()).encode(w);
    });
}

/// STREAM and CRYPTO frames without data, or with data that has already arrived.
#[test]
fn flood_of_empty_and_repeated_data_closes_connection() {
    for data in [&b""[..], b"x", &[7; 127]] {
        let mut pair = HostilePair::new(Role::Client);
        let stream = Frame::Stream {
            id: client_bidi(0),
            offset: 0,
            fin: false,
            data,
        };
        pair.say(&bytes(&stream));
        flood(pair, kind::STREAM, |w, _| stream.encode(w));
        // Of a server, whose tickets have arrived.
        let crypto = Frame::Crypto { offset: 0, data };
        flood(HostilePair::new(Role::Server), kind::CRYPTO, |w, _| {
            crypto.encode(w);
        });
    }
}

/// STREAM frames without data at rising offsets, which raise the highest offset without new bytes.
#[test]
fn flood_of_empty_frames_at_rising_offsets_closes_connection() {
    // 64 bytes are a unit, announced or not.
    let earned = (burst() + EARNED) / 64 + 1;
    let pair = HostilePair::new(Role::Client);
    flood_that_earns(earned, pair, kind::STREAM, |w, number| {
        let empty = Frame::Stream {
            id: client_bidi(0),
            offset: number + 1,
            fin: false,
            data: b"",
        };
        empty.encode(w);
    });
}

/// Frames for finished streams, which are ignored.
#[test]
fn flood_of_frames_for_finished_stream_closes_connection() {
    let mut pair = HostilePair::new(Role::Client);
    let id = client_uni(0);
    let whole = Frame::Stream {
        id,
        offset: 0,
        fin: true,
        data: b"x",
    };
    pair.say(&bytes(&whole));
    assert_eq!(pair.victim().read(id, &mut [0; 8]), Ok(Some(1)));
    assert_eq!(pair.victim().read(id, &mut [0; 8]), Ok(None));
    flood(pair, kind::STREAM | kind::STREAM_FIN, |w, _| {
        whole.encode(w);
    });
}

/// Honest packets have one ACK frame, not hundreds.
#[test]
fn flood_of_ack_frames_closes_connection() {
    let ack = [kind::ACK as u8, 0, 0, 0, 0];
    flood(HostilePair::new(Role::Client), kind::ACK, |w, _| {
        w.bytes(&ack);
    });
    let mut pair = HostilePair::new(Role::Client);
    let before = charged(&mut pair);
    for _ in 0..1_000 {
        pair.say(&ack);
    }
    assert_eq!(charged(&mut pair), before, "one a packet is free");
    pair.still_serves();
}

/// An ACK frame as large as a packet, of packets that have been acknowledged.
#[test]
fn flood_of_ack_ranges_without_new_acks_closes_connection() {
    let (mut pair, _, acked) = pair_with_acked_packets(547);
    let ack = ack_each(&acked);
    let before = charged(&mut pair);
    pair.say(&ack);
    assert_eq!(charged(&mut pair), before + 547_u64.div_ceil(8));
    // One fits into a packet, so that time pays for some of them.
    let mut frames = 1;
    while pair.victim().error().is_none() {
        assert!(frames < 2_000, "{} units", charged(&mut pair));
        pair.say(&ack);
        frames += 1;
    }
    let spent = charged(&mut pair);
    assert!((burst()..2 * burst()).contains(&spent), "{spent} units");
    pair.closed_with(Code::PROTOCOL_VIOLATION, kind::ACK, REASON);
}

/// As many ranges as a receiver on a bad path may have, repeatedly.
#[test]
fn repeated_ack_frames_of_64_ranges_are_not_charged() {
    let (mut pair, _, acked) = pair_with_acked_packets(65);
    let before = charged(&mut pair);
    for _ in 0..10_000 {
        pair.say(&ack_each(&acked[1..]));
    }
    assert_eq!(charged(&mut pair), before);
    pair.say(&ack_each(&acked));
    assert_eq!(charged(&mut pair), before + 9);
    pair.still_serves();
}

/// However many ranges there are, if each frame acknowledges one more packet.
#[test]
fn ack_ranges_are_not_charged_while_acknowledging_new_packets() {
    let (mut pair, numbers, mut acked) = pair_with_acked_packets(300);
    let newest = || numbers.sent().last().copied().expect("it has sent");
    let mut frames = 0;
    for _ in 0..500 {
        let known = newest();
        pair.world.run_for(Duration::from_millis(5));
        pair.victim().write(client_bidi(0), b"x").expect("credit");
        pair.world.flush();
        // It is ahead of the honest one, which takes a round trip.
        if newest() > known {
            acked.push(newest());
            let before = charged(&mut pair);
            pair.say(&ack_each(&acked));
            assert_eq!(charged(&mut pair), before);
            acked.pop();
            frames += 1;
        }
    }
    assert!(frames > 200, "{frames} frames");
    pair.world.run_for(Duration::from_secs(1));
    pair.still_serves();
}

/// A pair whose victim has sent packets that were acknowledged: `count` of them, no two
/// of them neighbours, ascending.
fn pair_with_acked_packets(count: usize) -> (HostilePair, SentNumbers, Vec<u64>) {
    let mut pair = HostilePair::new(Role::Client);
    let numbers = SentNumbers::default();
    pair.victim().set_observer(Box::new(numbers.clone()));
    let opened = pair.hostile().open(Directionality::Bidirectional);
    assert_eq!(opened, Some(client_bidi(0)));
    pair.hostile()
        .write(client_bidi(0), b"?")
        .expect("fresh stream");
    pair.world.run_for(Duration::from_millis(50));
    // Small packets: all of them are read.
    for _ in 0..3 * count {
        pair.victim().write(client_bidi(0), b"x").expect("credit");
        pair.world.flush();
        pair.world.run_for(Duration::from_millis(1));
    }
    pair.world.run_for(Duration::from_secs(5));
    let mut acked: Vec<u64> = Vec::new();
    for number in numbers.sent() {
        if acked.len() < count && acked.last().is_none_or(|last| number > last + 1) {
            acked.push(number);
        }
    }
    assert_eq!(acked.len(), count);
    (pair, numbers, acked)
}

/// The same connection ID, issued or retired repeatedly.
#[test]
fn flood_of_repeated_cids_closes_connection() {
    let given = Frame::NewConnectionId {
        sequence: 7,
        retire_prior_to: 0,
        cid: ConnectionId::new(&[0xcc; 8]).expect("eight bytes"),
        reset_token: ResetToken([7; 16]),
    };
    let retired = Frame::RetireConnectionId { sequence: 1 };
    for frame in [given, retired] {
        let pair = HostilePair::new(Role::Client);
        flood(pair, frame.frame_type(), |w, _| frame.encode(w));
    }
}

/// The budget refills after a flood that ended in time.
#[test]
fn pause_after_flood_refills_budget() {
    let mut pair = HostilePair::new(Role::Client);
    let pings = [kind::PING as u8; PAYLOAD];
    for _ in 0..4 {
        for _ in 0..burst() * 9 / 10 / PAYLOAD as u64 {
            pair.say(&pings);
        }
        assert_eq!(pair.victim().error(), None);
        pair.world.run_for(Duration::from_secs(11));
    }
    pair.still_serves();
}

/// A flood below the rate at which the budget refills may continue.
#[test]
fn thousand_pings_a_second_are_served() {
    let mut pair = HostilePair::new(Role::Client);
    for _ in 0..60_000 {
        pair.say(&[kind::PING as u8]);
        pair.world.run_for(Duration::from_millis(1));
    }
    assert!(charged(&mut pair) > burst());
    pair.still_serves();
}

/// A client on the road with a bad network probes a path every 10 ms for ten minutes.
#[test]
fn path_challenges_at_honest_rate_are_answered() {
    let mut pair = HostilePair::new(Role::Client);
    for n in 0..60_000_u64 {
        pair.say(&bytes(&Frame::PathChallenge(n.to_be_bytes())));
        pair.world.run_for(Duration::from_millis(10));
    }
    pair.still_serves();
}

/// 10,000 requests a second, each reset at once. Their rate is bounded by the application.
#[test]
fn tiny_requests_that_are_reset_are_served() {
    let mut pair = HostilePair::with(Role::Client, |setup| {
        setup.server.streams.max_bidi_streams = 1_000;
    });
    let mut opened = 0;
    while opened < 30_000 {
        for _ in 0..10 {
            if let Some(id) = pair.hostile().open(Directionality::Bidirectional) {
                pair.hostile().write(id, b"?").expect("fresh");
                pair.hostile().reset(id, 1).expect("fresh");
                pair.hostile().stop(id, 1).expect("fresh");
                opened += 1;
            }
        }
        pair.world.run_for(Duration::from_millis(1));
        while let Some(id) = pair.victim().accept(Directionality::Bidirectional) {
            let _ = pair.victim().read(id, &mut [0; 8]);
            let _ = pair.victim().reset(id, 2);
        }
        assert_eq!(pair.victim().error(), None, "request {opened}");
    }
    assert!(charged(&mut pair) > 2 * burst());
    assert!(pair.world.now < clearway_quic::Instant::ZERO + Duration::from_secs(5));
    pair.still_serves();
}

/// A fast download whose reader sends MAX_DATA and MAX_STREAM_DATA for two streams in every packet.
#[test]
fn flow_control_frames_in_every_packet_are_served() {
    let mut pair = HostilePair::new(Role::Client);
    pair.bound(8 << 20);
    let ids: Vec<StreamId> = (0..2)
        .map(|_| {
            let hostile = pair.hostile();
            let id = hostile
                .open(Directionality::Bidirectional)
                .expect("fresh connection");
            hostile.write(id, b"?").expect("fresh stream");
            id
        })
        .collect();
    pair.world.run_for(Duration::from_millis(50));
    let (mut read, mut limit) = (0, 1);
    while charged(&mut pair) < 2 * burst() {
        for &id in &ids {
            while let Ok(1..) = pair.victim().write(id, &[0; 65_536]) {}
        }
        pair.world.run_for(Duration::from_millis(1));
        let mut packets = 0;
        for &id in &ids {
            while let Ok(Some(chunk)) = pair.hostile().read_chunk(id, 1_200) {
                read += chunk.len();
                packets += 1;
            }
        }
        assert!(read < 100 << 20, "{read} bytes");
        for _ in 0..packets {
            limit += 1;
            let mut payload = fields(&[kind::MAX_DATA, limit]);
            for id in &ids {
                payload.extend(fields(&[kind::MAX_STREAM_DATA, id.as_u64(), limit]));
            }
            pair.say(&payload);
            assert_eq!(pair.victim().error(), None, "after {read} bytes");
        }
    }
    pair.world.run_for(Duration::from_secs(5));
    assert_eq!(pair.victim().error(), None);
}

/// Frames with one new byte each are not charged: they are slow, but they carry data.
#[test]
fn single_new_bytes_are_not_charged() {
    let mut pair = HostilePair::new(Role::Client);
    let before = charged(&mut pair);
    let id = client_bidi(0);
    for packet in 0..1_000 {
        let payload = raw(|w| {
            for part in 0..100 {
                Frame::Stream {
                    id,
                    offset: packet * 100 + part,
                    fin: false,
                    data: b"x",
                }
                .encode(w);
            }
        });
        pair.say(&payload);
    }
    assert_eq!(charged(&mut pair), before);
    pair.still_serves();
}

/// A sender that mistakes a delay for a loss retransmits its whole window.
#[test]
fn repeated_windows_of_data_are_served() {
    let mut pair = HostilePair::new(Role::Client);
    let before = charged(&mut pair);
    for _ in 0..60_000 {
        pair.say(&bytes(&Frame::Stream {
            id: client_bidi(0),
            offset: 0,
            fin: false,
            data: &[0; 1_100],
        }));
    }
    assert_eq!(charged(&mut pair), before);
    pair.still_serves();
}

/// A RESET_STREAM with a large final size, or single bytes far apart, do not count as much data: only
/// bytes that arrived refill the budget.
#[test]
fn final_sizes_do_not_refill_budget() {
    let mut pair = HostilePair::new(Role::Client);
    let window = Config::default().streams.stream_window;
    let mut index = 0;
    while pair.victim().error().is_none() {
        assert!(index < 10_000, "every reset earns more than it costs");
        let id = client_uni(index);
        let mut payload = fields(&[kind::RESET_STREAM, id.as_u64(), 1, window]);
        payload.extend([kind::PING as u8; PAYLOAD]);
        pair.say(&payload);
        while let Some(id) = pair.victim().accept(Directionality::Unidirectional) {
            let _ = pair.victim().read(id, &mut [0; 8]);
        }
        pair.world.run_for(Duration::from_millis(10));
        index += 1;
    }
    pair.closed_with(Code::PROTOCOL_VIOLATION, kind::PING, REASON);
}

/// A server application may allow more, or less.
#[test]
fn smaller_budget_closes_connection_sooner() {
    let mut pair = HostilePair::with(Role::Client, |setup| {
        setup.server.unproductive_work.burst = 500;
    });
    pair.say(&[kind::PING as u8; 1_000]);
    pair.closed_with(Code::PROTOCOL_VIOLATION, kind::PING, REASON);
}
