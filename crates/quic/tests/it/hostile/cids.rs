//! Abuse of connection IDs (RFC 9000 §5.1, §19.15, §19.16).

use std::time::Duration;

use clearway_links::Direction;
use clearway_quic::Role;
use clearway_quic::cid::{ConnectionId, ResetToken};
use clearway_quic::error::Code;
use clearway_quic::wire::Frame;
use clearway_quic::wire::frame::kind;

use crate::hostile::pair::{HostilePair, SentNumbers, bytes, fields, raw};

fn new_cid(sequence: u64, retire_prior_to: u64) -> Vec<u8> {
    let mut cid = [0xee; 8];
    cid[..8].copy_from_slice(&(sequence + 1).to_be_bytes());
    let mut token = [0xdd; 16];
    token[..8].copy_from_slice(&sequence.to_be_bytes());
    bytes(&Frame::NewConnectionId {
        sequence,
        retire_prior_to,
        cid: ConnectionId::new(&cid).expect("eight bytes"),
        reset_token: ResetToken(token),
    })
}

/// The first sequence number that the hostile end has not used by itself.
const FREE: u64 = 8;

#[test]
fn cids_over_active_limit_close_connection() {
    let mut pair = HostilePair::new(Role::Client);
    for sequence in FREE..FREE + 20 {
        pair.say(&new_cid(sequence, 0));
        if pair.victim().error().is_some() {
            break;
        }
    }
    pair.closed_with(
        Code::CONNECTION_ID_LIMIT_ERROR,
        kind::NEW_CONNECTION_ID,
        "more connection IDs than active_connection_id_limit allows",
    );
}

/// Each frame retires all before it, so that the limit is never exceeded, but
/// RETIRE_CONNECTION_ID frames pile up: the hostile end acknowledges none.
#[test]
fn endless_retire_prior_to_closes_connection() {
    let mut pair = HostilePair::new(Role::Client);
    let mut said = 0;
    for sequence in FREE..FREE + 10_000 {
        pair.say(&new_cid(sequence, sequence));
        said += 1;
        if pair.victim().error().is_some() {
            break;
        }
    }
    pair.hear_unrouted();
    assert!(said < 200, "{said} frames before the victim had enough");
    pair.closed_with(
        Code::CONNECTION_ID_LIMIT_ERROR,
        kind::NEW_CONNECTION_ID,
        "too many connection IDs waiting to be retired",
    );
}

#[test]
fn jumping_cid_sequence_numbers_close_connection() {
    let mut pair = HostilePair::new(Role::Client);
    for i in 0..200 {
        let sequence = FREE + i * 1000;
        pair.say(&new_cid(sequence, sequence));
        if pair.victim().error().is_some() {
            break;
        }
    }
    pair.hear_unrouted();
    pair.closed_with(
        Code::CONNECTION_ID_LIMIT_ERROR,
        kind::NEW_CONNECTION_ID,
        "too many connection IDs waiting to be retired",
    );
}

#[test]
fn retire_prior_to_above_sequence_is_frame_encoding_error() {
    let mut pair = HostilePair::new(Role::Client);
    pair.say(&new_cid(FREE, FREE + 1));
    pair.closed_with(
        Code::FRAME_ENCODING_ERROR,
        kind::NEW_CONNECTION_ID,
        "Retire Prior To above the sequence number",
    );
}

#[test]
fn two_cids_with_one_sequence_number_are_protocol_violation() {
    let mut pair = HostilePair::new(Role::Client);
    let retire_all = FREE;
    pair.say(&new_cid(FREE, retire_all));
    let mut other = new_cid(FREE, retire_all);
    let last = other.len() - 1;
    other[last] ^= 1;
    pair.say(&other);
    pair.hear_unrouted();
    pair.closed_with(
        Code::PROTOCOL_VIOLATION,
        kind::NEW_CONNECTION_ID,
        "sequence number reused for another connection ID or reset token",
    );
}

#[test]
fn new_cid_of_invalid_length_is_frame_encoding_error() {
    for len in [0, 21] {
        let mut pair = HostilePair::new(Role::Client);
        let frame = raw(|w| {
            for value in [kind::NEW_CONNECTION_ID, FREE, 0] {
                w.varint(value);
            }
            w.u8(len);
            w.zeros(usize::from(len) + 16);
        });
        pair.say(&frame);
        pair.closed_with(
            Code::FRAME_ENCODING_ERROR,
            kind::NEW_CONNECTION_ID,
            "connection ID length is not 1 to 20 bytes",
        );
    }
}

#[test]
fn retiring_unissued_cid_is_protocol_violation() {
    let mut pair = HostilePair::new(Role::Client);
    pair.say(&fields(&[kind::RETIRE_CONNECTION_ID, 1000]));
    pair.closed_with(
        Code::PROTOCOL_VIOLATION,
        kind::RETIRE_CONNECTION_ID,
        "RETIRE_CONNECTION_ID for a sequence number that was never issued",
    );
}

#[test]
fn retiring_cid_of_carrying_packet_is_protocol_violation() {
    let mut pair = HostilePair::new(Role::Client);
    pair.say(&fields(&[kind::RETIRE_CONNECTION_ID, 0]));
    pair.closed_with(
        Code::PROTOCOL_VIOLATION,
        kind::RETIRE_CONNECTION_ID,
        "RETIRE_CONNECTION_ID for the connection ID of its own packet",
    );
}

/// Each connection ID is retired as soon as it comes: the victim has to issue
/// others without end, but never holds more than before, routes included.
#[test]
fn endless_retirement_keeps_routes_and_memory_bounded() {
    let mut pair = HostilePair::new(Role::Client);
    // The hostile end must not hear of them, or it would count them itself; it
    // acknowledges all the same.
    let numbers = SentNumbers::default();
    pair.victim().set_observer(Box::new(numbers.clone()));
    pair.world.filter = Some(Box::new(|direction, _| direction == Direction::Up));
    let routes = |pair: &mut HostilePair| pair.world.server.endpoint.memory();
    let before = routes(&mut pair);
    for sequence in 1..5_000 {
        pair.say(&fields(&[kind::RETIRE_CONNECTION_ID, sequence]));
        // The replacement leaves; only then may it be retired.
        pair.world.run_for(Duration::from_millis(1));
        for number in numbers.take_eliciting() {
            pair.say(&fields(&[kind::ACK, number, 0, 0, 0]));
        }
        assert_eq!(pair.victim().error(), None, "at {sequence}");
    }
    let after = routes(&mut pair);
    assert!(
        after <= 2 * before,
        "{before} bytes of routes, then {after}"
    );
}
