//! Frames in packets where they are forbidden, and malformed frames (RFC 9000 §12.4).

use std::time::Duration;

use clearway_quic::Role;
use clearway_quic::cid::{ConnectionId, ResetToken};
use clearway_quic::connection::Forgery;
use clearway_quic::error::Code;
use clearway_quic::stream::Directionality;
use clearway_quic::wire::frame::kind;
use clearway_quic::wire::{Frame, PacketKind, Reader};

use crate::hostile::pair::{HostilePair, bytes, client_bidi, fields};

/// One of each frame type, harmless where it is allowed.
fn every_frame() -> Vec<Frame<'static>> {
    let id = client_bidi(0);
    let both = [
        Directionality::Bidirectional,
        Directionality::Unidirectional,
    ];
    let mut frames = vec![
        Frame::Crypto {
            offset: 0,
            data: b"",
        },
        Frame::Stream {
            id,
            offset: 0,
            fin: false,
            data: b"x",
        },
        Frame::ResetStream {
            id,
            code: 1,
            final_size: 1,
        },
        Frame::ResetStreamAt {
            id,
            code: 1,
            final_size: 1,
            reliable_size: 1,
        },
        Frame::StopSending { id, code: 1 },
        Frame::MaxData(1),
        Frame::MaxStreamData { id, limit: 1 },
        Frame::DataBlocked { limit: 1 },
        Frame::StreamDataBlocked { id, limit: 1 },
        Frame::NewToken(b"token"),
        Frame::NewConnectionId {
            sequence: 1,
            retire_prior_to: 0,
            cid: ConnectionId::new(&[0xee; 8]).expect("eight bytes"),
            reset_token: ResetToken([0xdd; 16]),
        },
        Frame::RetireConnectionId { sequence: 0 },
        Frame::PathChallenge([1; 8]),
        Frame::PathResponse([1; 8]),
        Frame::ApplicationClose {
            code: 1,
            reason: b"",
        },
        Frame::HandshakeDone,
        Frame::Datagram(b"x"),
        Frame::AckFrequency {
            sequence: 0,
            ack_eliciting_threshold: 1,
            request_max_ack_delay: 25_000,
            reordering_threshold: 1,
        },
        Frame::ImmediateAck,
    ];
    for directionality in both {
        frames.push(Frame::MaxStreams {
            directionality,
            limit: 1,
        });
        frames.push(Frame::StreamsBlocked {
            directionality,
            limit: 1,
        });
    }
    frames
}

/// RFC 9000 table 3, written out again: types that Initial and Handshake
/// packets may carry are PADDING, PING, ACK, CRYPTO, CONNECTION_CLOSE 0x1c.
fn allowed_in_handshake(frame_type: u64) -> bool {
    matches!(frame_type, 0x00..=0x03 | 0x06 | 0x1c)
}

/// Types that 0-RTT packets must not carry, beside ACK and CRYPTO
/// (RFC 9000 §12.5).
fn forbidden_in_zero_rtt(frame_type: u64) -> bool {
    matches!(frame_type, 0x02 | 0x03 | 0x06 | 0x07 | 0x19 | 0x1b | 0x1e)
}

#[test]
fn frames_forbidden_in_initial_packets_close_connection() {
    for frame in every_frame() {
        // The server has accepted, the client still has its Initial keys.
        let mut pair = HostilePair::begun(Role::Client, |_| {});
        pair.world.run_for(Duration::from_millis(6));
        pair.strike(&Forgery::new(PacketKind::Initial, &bytes(&frame)));
        check(&mut pair, &frame);
    }
}

#[test]
fn frames_forbidden_in_handshake_packets_close_connection() {
    for frame in every_frame() {
        let mut pair = HostilePair::begun(Role::Client, |_| {});
        // The server's flight has arrived, the client's answer has not.
        pair.world.run_for(Duration::from_millis(11));
        assert!(pair.victim().is_handshaking());
        pair.strike(&Forgery::new(PacketKind::Handshake, &bytes(&frame)));
        check(&mut pair, &frame);
    }
}

fn check(pair: &mut HostilePair, frame: &Frame<'_>) {
    let frame_type = frame.frame_type();
    if allowed_in_handshake(frame_type) {
        assert_eq!(pair.victim().error(), None, "{frame:?}");
        return;
    }
    pair.closed_with(
        Code::PROTOCOL_VIOLATION,
        frame_type,
        "frame not allowed in this packet type",
    );
}

#[test]
fn frames_forbidden_in_0rtt_packets_close_connection() {
    let mut early = 0;
    for frame in every_frame() {
        let mut pair = HostilePair::new(Role::Client);
        let now = pair.world.now;
        pair.hostile().close(now, 0, b"");
        pair.world.run_for(Duration::from_millis(100));
        // Again, with the ticket of the first time.
        pair.world.connect();
        assert!(pair.hostile().has_zero_rtt(), "no ticket");
        pair.world.run_for(Duration::from_millis(6));
        pair.strike(&Forgery::new(PacketKind::ZeroRtt, &bytes(&frame)));
        let frame_type = frame.frame_type();
        if matches!(frame, Frame::AckFrequency { .. } | Frame::ImmediateAck)
            || forbidden_in_zero_rtt(frame_type)
        {
            pair.closed_with(
                Code::PROTOCOL_VIOLATION,
                frame_type,
                "frame not allowed in this packet type",
            );
        } else {
            early += 1;
            if !matches!(frame, Frame::ApplicationClose { .. }) {
                assert_eq!(pair.victim().error(), None, "{frame:?}");
            }
        }
    }
    assert!(early > 10, "{early} frame types pass");
}

#[test]
fn server_only_frames_from_client_are_protocol_violation() {
    for frame in [Frame::HandshakeDone, Frame::NewToken(b"token")] {
        let mut pair = HostilePair::new(Role::Client);
        pair.say(&bytes(&frame));
        pair.closed_with(
            Code::PROTOCOL_VIOLATION,
            frame.frame_type(),
            "frame that only a server may send",
        );
    }
}

#[test]
fn empty_new_token_is_frame_encoding_error() {
    let mut pair = HostilePair::new(Role::Server);
    pair.say(&fields(&[kind::NEW_TOKEN, 0]));
    pair.closed_with(
        Code::FRAME_ENCODING_ERROR,
        kind::NEW_TOKEN,
        "NEW_TOKEN with an empty token",
    );
}

#[test]
fn unknown_frame_type_is_frame_encoding_error() {
    for unknown in [0x20, 0x21, 0x32, 0x3f, 0xfe, 0x1234_5678] {
        for hostile in [Role::Client, Role::Server] {
            let mut pair = HostilePair::new(hostile);
            pair.say(&fields(&[unknown]));
            pair.closed_with(Code::FRAME_ENCODING_ERROR, unknown, "unknown frame type");
        }
    }
}

#[test]
fn frame_type_in_longer_encoding_is_protocol_violation() {
    let mut pair = HostilePair::new(Role::Client);
    pair.say(&[0x40, 0x01]);
    pair.closed_with(
        Code::PROTOCOL_VIOLATION,
        kind::PING,
        "frame type not in its shortest encoding",
    );
}

/// The type a frame begins with: for STREAM that tells which fields follow.
fn wire_type(frame: &[u8]) -> u64 {
    Reader::new(frame).varint().expect("a type")
}

#[test]
fn truncated_frame_is_frame_encoding_error() {
    for frame in every_frame() {
        let whole = bytes(&frame);
        // A DATAGRAM's or an IMMEDIATE_ACK's type alone is whole.
        if whole.len() < 3 {
            continue;
        }
        let mut pair = HostilePair::new(Role::Client);
        pair.say(&whole[..whole.len() - 1]);
        pair.closed_with(
            Code::FRAME_ENCODING_ERROR,
            wire_type(&whole),
            "frame truncated",
        );
    }
}

#[test]
fn packet_without_frames_is_protocol_violation() {
    for hostile in [Role::Client, Role::Server] {
        let mut pair = HostilePair::new(hostile);
        pair.say(&[]);
        pair.closed_with(Code::PROTOCOL_VIOLATION, None, "packet without frames");
    }
}

#[test]
fn reserved_bits_in_short_header_are_protocol_violation() {
    for bits in [0x08, 0x10, 0x18] {
        let mut pair = HostilePair::new(Role::Client);
        pair.strike(&Forgery {
            flip: bits,
            ..Forgery::new(PacketKind::OneRtt, &[0x01])
        });
        pair.closed_with(
            Code::PROTOCOL_VIOLATION,
            None,
            "reserved header bits are not zero",
        );
    }
}

#[test]
fn reserved_bits_in_long_header_are_protocol_violation() {
    for (kind, wait) in [(PacketKind::Initial, 6), (PacketKind::Handshake, 11)] {
        for bits in [0x04, 0x08, 0x0c] {
            let mut pair = HostilePair::begun(Role::Client, |_| {});
            pair.world.run_for(Duration::from_millis(wait));
            pair.strike(&Forgery {
                flip: bits,
                ..Forgery::new(kind, &[0x01])
            });
            pair.closed_with(
                Code::PROTOCOL_VIOLATION,
                None,
                "reserved header bits are not zero",
            );
        }
    }
}

#[test]
fn datagram_without_support_is_protocol_violation() {
    let mut pair = HostilePair::with(Role::Client, |setup| setup.server.datagram_buffer = 0);
    pair.say(&bytes(&Frame::Datagram(b"x")));
    pair.closed_with(
        Code::PROTOCOL_VIOLATION,
        kind::DATAGRAM,
        "DATAGRAM frame without our max_datagram_frame_size",
    );
}

/// Their frame types are unknown to an end that has not announced `min_ack_delay`
/// (draft-ietf-quic-ack-frequency §3, RFC 9000 §12.4).
#[test]
fn ack_frequency_frames_without_min_ack_delay_are_frame_encoding_errors() {
    let request = Frame::AckFrequency {
        sequence: 0,
        ack_eliciting_threshold: 1,
        request_max_ack_delay: 25_000,
        reordering_threshold: 1,
    };
    for (frame, kind) in [
        (request, kind::ACK_FREQUENCY),
        (Frame::ImmediateAck, kind::IMMEDIATE_ACK),
    ] {
        let mut pair = HostilePair::with(Role::Client, |setup| setup.server.ack_frequency = false);
        pair.say(&bytes(&frame));
        pair.closed_with(
            Code::FRAME_ENCODING_ERROR,
            kind,
            "ACK_FREQUENCY or IMMEDIATE_ACK frame without our min_ack_delay",
        );
    }
}
