use core::time::Duration;
use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::Role;
use crate::stream::{Directionality, StreamId};
use crate::wire::frame::kind;
use crate::wire::{Frames, Writer};

const RATE: Rate = Rate {
    burst: 100,
    per_second: 10,
};

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// Charges `units` as a connection does.
fn charge(budget: &mut WorkBudget, now: Instant, useful: u64, units: u32) -> bool {
    budget.charge(units) || {
        budget.fill(now, useful, RATE);
        budget.charge(units)
    }
}

/// Charges one unit at a time. Returns how many were charged.
fn spend(budget: &mut WorkBudget, now: Instant, useful: u64) -> u32 {
    (0..1_000)
        .take_while(|_| charge(budget, now, useful, 1))
        .count() as u32
}

#[test]
fn empty_budget_is_refilled_by_time() {
    let mut budget = WorkBudget::new(at(7), RATE);
    assert_eq!(spend(&mut budget, at(7), 0), 100);
    assert_eq!(spend(&mut budget, at(60), 0), 0);
    // To a tick.
    let earned = spend(&mut budget, at(2_007), 0);
    assert!((19..=20).contains(&earned), "{earned}");
    // Time that goes backwards earns nothing.
    assert_eq!(spend(&mut budget, at(0), 0), 0);
    assert_eq!(spend(&mut budget, at(2_007), 0), 0);
}

#[test]
fn empty_budget_is_refilled_by_useful_work() {
    let mut budget = WorkBudget::new(Instant::ZERO, RATE);
    assert_eq!(spend(&mut budget, at(0), 50 * BYTES_PER_UNIT), 150);
    assert_eq!(spend(&mut budget, at(0), 50 * BYTES_PER_UNIT), 0);
    let more = 50 * BYTES_PER_UNIT + STREAM_WORTH;
    assert_eq!(spend(&mut budget, at(0), more), 8);
}

#[test]
fn budget_saves_no_more_than_the_burst() {
    let mut budget = WorkBudget::new(Instant::ZERO, RATE);
    assert_eq!(spend(&mut budget, at(0), 0), 100);
    // A day, and a gigabyte.
    assert_eq!(spend(&mut budget, at(86_400_000), 1 << 30), 100);
    assert_eq!(budget.charged(), 200);
    assert!(!budget.charge(101));
}

/// The count of useful work decreases when 0-RTT is rejected, and wraps at 256 GiB.
#[test]
fn budget_survives_decreasing_and_wrapping_useful_work() {
    let mut budget = WorkBudget::new(Instant::ZERO, RATE);
    assert_eq!(spend(&mut budget, at(0), 30 * BYTES_PER_UNIT), 130);
    assert_eq!(spend(&mut budget, at(0), 0), 0);
    assert_eq!(spend(&mut budget, at(0), 20 * BYTES_PER_UNIT), 20);
    let round = (1_u64 << 32) * BYTES_PER_UNIT;
    budget.fill(at(0), round - BYTES_PER_UNIT, RATE);
    assert_eq!(spend(&mut budget, at(0), round + 9 * BYTES_PER_UNIT), 10);
}

proptest! {
    /// Whatever the order of time, work and charges: no more than the burst is charged
    /// beyond what was earned, and after a failed charge less is left than was requested.
    #[test]
    fn charges_never_exceed_burst_plus_earned_units(
        steps in prop::collection::vec((0..3_000_u64, 0..20_000_u64, 1..60_u32), 1..200),
    ) {
        let mut budget = WorkBudget::new(Instant::ZERO, RATE);
        let (mut millis, mut useful, mut spent) = (0, 0, 0_u64);
        for (pause, work, units) in steps {
            millis += pause;
            useful += work;
            let earned = millis * u64::from(RATE.per_second) / 1000 + useful / BYTES_PER_UNIT;
            if charge(&mut budget, at(millis), useful, units) {
                spent += u64::from(units);
            } else {
                prop_assert!(spent + u64::from(units) > u64::from(RATE.burst));
                prop_assert!(!budget.charge(units));
            }
            prop_assert!(spent <= u64::from(RATE.burst) + earned);
            prop_assert_eq!(u64::from(budget.charged()), spent);
        }
    }
}

/// A frame of every type in RFC 9000 table 3, RFC 9221 and the ACK frequency extension,
/// with its cost.
fn costs() -> Vec<(Frame<'static>, FrameCost)> {
    use FrameCost::{FirstFree, Free, FreeIfDelivered, FreeIfNew, Units};
    let id = StreamId::new(Role::Client, Directionality::Bidirectional, 0);
    let stream = |fin| Frame::Stream {
        id,
        offset: 0,
        fin,
        data: b"x",
    };
    let mut table = vec![
        (Frame::Padding { len: 9 }, Free),
        (Frame::Ping, Units(1)),
        (decoded(&[0x02, 0, 0, 0, 0]), FirstFree(4)),
        (decoded(&[0x03, 0, 0, 0, 0, 0, 0, 0]), FirstFree(4)),
        (decoded(&[0x04, 0, 0, 0]), Units(2)),
        (decoded(&[0x05, 0, 0]), Units(2)),
        (decoded(&[0x24, 0, 0, 1, 1]), Units(2)),
        (decoded(&[0x06, 0, 1, 9]), Units(2)),
        (Frame::NewToken(b"x"), Units(4)),
        (stream(false), FreeIfNew),
        (stream(true), FreeIfNew),
        (Frame::MaxData(1), Units(1)),
        (Frame::MaxStreamData { id, limit: 1 }, Units(1)),
        (Frame::DataBlocked { limit: 1 }, Units(1)),
        (Frame::StreamDataBlocked { id, limit: 1 }, Units(1)),
        (decoded(&new_connection_id()), Units(4)),
        (Frame::RetireConnectionId { sequence: 0 }, Units(8)),
        (Frame::PathChallenge([0; 8]), Units(4)),
        (Frame::PathResponse([0; 8]), Units(1)),
        (decoded(&[0x1c, 0, 0, 0]), Free),
        (decoded(&[0x1d, 0, 0]), Free),
        (Frame::HandshakeDone, Units(1)),
        (Frame::Datagram(b"x"), FreeIfDelivered),
        (decoded(&[0x40, 0xaf, 0, 1, 1, 1]), Units(1)),
        (Frame::ImmediateAck, Units(1)),
    ];
    for kind in [0x12, 0x13, 0x16, 0x17] {
        table.push((decoded(&[kind, 1]), Units(1)));
    }
    table
}

fn new_connection_id() -> Vec<u8> {
    let mut frame = vec![0x18, 1, 0, 8];
    frame.extend([7; 8 + 16]);
    frame
}

/// The frame that some bytes are; they leak, for the table's sake.
fn decoded(bytes: &[u8]) -> Frame<'static> {
    let bytes: &'static [u8] = bytes.to_vec().leak();
    Frames::new(bytes).next().expect("a frame").expect("valid")
}

/// The types that the decoder knows, among all whose encoding takes two bytes. STREAM
/// and DATAGRAM count as one however they are written.
fn known_types() -> BTreeSet<u64> {
    let known = |&kind: &u64| {
        let mut bytes = [0; 64];
        let mut w = Writer::new(&mut bytes);
        w.varint(kind);
        match Frames::new(&bytes).next() {
            Some(Err(error)) => error.reason != "unknown frame type",
            Some(Ok(_)) => true,
            None => false,
        }
    };
    let named = |kind| match kind {
        kind::STREAM..=kind::STREAM_LAST => kind & (kind::STREAM | kind::STREAM_FIN),
        kind::DATAGRAM_LEN => kind::DATAGRAM,
        other => other,
    };
    (0..0x4000).filter(known).map(named).collect()
}

/// Every type that can be decoded has the cost in the table, also types added later.
#[test]
fn every_frame_type_has_a_cost() {
    let table = costs();
    for (frame, price) in &table {
        assert_eq!(FrameCost::of(frame), *price, "{frame:?}");
    }
    let types: BTreeSet<u64> = table.iter().map(|(frame, _)| frame.frame_type()).collect();
    assert_eq!(types.len(), table.len(), "each type once");
    assert_eq!(types, known_types());
    assert_eq!(types.len(), 29);
}
