//! Any frame, any payload.

use std::ops::RangeInclusive;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn any_varint() -> impl Strategy<Value = u64> {
    (0..=VARINT_MAX, 0..62_u32).prop_map(|(value, shift)| value >> shift)
}

/// Ranges, highest first, as a [`RangeSet`] of received numbers gives them.
fn any_set() -> impl Strategy<Value = RangeSet> {
    (any_varint(), vec((0..200_u64, 0..70_u64), 1..100)).prop_map(|(base, steps)| {
        let mut set = RangeSet::unbounded();
        let mut at = base / 2;
        for (gap, len) in steps {
            set.insert_range(at..=at + len);
            at += len + gap + 1;
        }
        set
    })
}

fn any_ecn() -> impl Strategy<Value = Option<EcnCounts>> {
    let counts = (any_varint(), any_varint(), any_varint());
    prop::option::of(counts.prop_map(|(ect0, ect1, ce)| EcnCounts { ect0, ect1, ce }))
}

/// Written and read, it is the same frame.
fn survives(frame: &Frame<'_>) -> Result<(), TestCaseError> {
    let bytes = written(frame);
    prop_assert_eq!(only(&bytes), Ok(frame.clone()));
    Ok(())
}

/// Applies `check` to a frame of every variant but ACK, made of these values.
fn for_each_frame(
    [a, b, c, d]: [u64; 4],
    bytes: &[u8],
    flag: bool,
    check: impl Fn(Frame<'_>) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let id = StreamId::from_wire(a);
    let directionality = id.directionality();
    let offset = b.min(VARINT_MAX - bytes.len() as u64);
    let array: [u8; 8] = c.to_be_bytes();
    let cid = ConnectionId::new(&bytes[..bytes.len().min(20)]).unwrap();
    check(Frame::Padding {
        len: 1 + a as usize % 100,
    })?;
    check(Frame::Ping)?;
    check(Frame::ResetStream {
        id,
        code: b,
        final_size: c,
    })?;
    check(Frame::ResetStreamAt {
        id,
        code: b,
        final_size: c.max(d),
        reliable_size: c.min(d),
    })?;
    check(Frame::StopSending { id, code: b })?;
    check(Frame::Crypto {
        offset,
        data: bytes,
    })?;
    check(Frame::Stream {
        id,
        offset,
        fin: flag,
        data: bytes,
    })?;
    check(Frame::MaxData(a))?;
    check(Frame::MaxStreamData { id, limit: b })?;
    check(Frame::MaxStreams {
        directionality,
        limit: a >> 2,
    })?;
    check(Frame::DataBlocked { limit: a })?;
    check(Frame::StreamDataBlocked { id, limit: b })?;
    check(Frame::StreamsBlocked {
        directionality,
        limit: a >> 2,
    })?;
    if !bytes.is_empty() {
        check(Frame::NewToken(bytes))?;
        check(Frame::NewConnectionId {
            sequence: a.max(b),
            retire_prior_to: a.min(b),
            cid,
            reset_token: ResetToken([a as u8; 16]),
        })?;
    }
    check(Frame::RetireConnectionId { sequence: a })?;
    check(Frame::PathChallenge(array))?;
    check(Frame::PathResponse(array))?;
    check(Frame::ConnectionClose {
        code: Code(a),
        frame_type: b,
        reason: bytes,
    })?;
    check(Frame::ApplicationClose {
        code: a,
        reason: bytes,
    })?;
    check(Frame::HandshakeDone)?;
    check(Frame::Datagram(bytes))?;
    check(Frame::AckFrequency {
        sequence: a,
        ack_eliciting_threshold: b,
        request_max_ack_delay: c % MAX_ACK_DELAY_LIMIT_MICROS,
        reordering_threshold: d,
    })?;
    check(Frame::ImmediateAck)
}

proptest! {
    #[test]
    fn frames_round_trip(
        values in [any_varint(), any_varint(), any_varint(), any_varint()],
        bytes in vec(any::<u8>(), 0..100), flag: bool,
    ) {
        for_each_frame(values, &bytes, flag, |frame| survives(&frame))?;
    }

    /// An ACK frame holds the highest ranges, as many as there is room for.
    #[test]
    fn acks_round_trip(
        set in any_set(), delay in any_varint(), ecn in any_ecn(), room in 0_usize..400,
    ) {
        let mut buffer = [0; 400];
        let mut w = Writer::new(&mut buffer[..room]);
        let ranges = || set.iter().rev();
        let written_ranges = ack::encode(&mut w, ranges(), delay, ecn);
        if written_ranges == 0 {
            prop_assert_eq!(w.written(), 0);
            prop_assert!(room < ack::MAX_SIZE_OF_ONE_RANGE);
        } else {
            let Ok(Frame::Ack(read)) = only(w.filled()) else { panic!("an ACK") };
            prop_assert_eq!(read.delay, delay);
            prop_assert_eq!(read.ecn, ecn);
            prop_assert_eq!(Some(read.largest), set.max());
            let expected: Vec<RangeInclusive<u64>> = ranges().take(written_ranges).collect();
            prop_assert_eq!(read.ranges().collect::<Vec<_>>(), expected);
            prop_assert_eq!(read.range_count(), written_ranges as u64);
            prop_assert_eq!(read.ranges().size_hint(), (written_ranges, Some(written_ranges)));
            // No range of this set takes more than 3 bytes.
            prop_assert!(written_ranges == set.len() || w.remaining() <= 3);
            survives(&Frame::Ack(read))?;
        }
    }

    /// Arbitrary payloads never panic; what is accepted is ordered, and survives
    /// being written again.
    #[test]
    fn arbitrary_payloads_never_panic(payload in vec(prop_oneof![any::<u8>(), 0..0x32_u8], 0..200)) {
        for frame in Frames::new(&payload) {
            let Ok(frame) = frame else { break };
            survives(&frame)?;
            if let Frame::Ack(ack) = frame {
                let mut above = None;
                for range in ack.ranges() {
                    prop_assert!(range.start() <= range.end());
                    prop_assert!(above.is_none_or(|above| range.end() + 1 < above));
                    above = Some(*range.start());
                }
            }
        }
    }

    /// Valid payloads with a few bytes changed never panic, and the frames before
    /// the change are read as they were.
    #[test]
    fn mutated_payloads_never_panic(
        values in [any_varint(), any_varint(), any_varint(), any_varint()],
        bytes in vec(any::<u8>(), 1..40),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let payload = std::cell::RefCell::new(Vec::new());
        for_each_frame(values, &bytes, true, |frame| {
            payload.borrow_mut().extend(written(&frame));
            Ok(())
        })?;
        let original = payload.into_inner();
        let mut mutated = original.clone();
        for (at, byte) in &changes {
            mutated[at.index(original.len())] = *byte;
        }
        let first = original.iter().zip(&mutated).take_while(|(a, b)| a == b).count();
        let (mut before, mut after) = (Frames::new(&original), Frames::new(&mutated));
        while let Some(frame) = before.next() {
            if original.len() - before.rest().len() >= first {
                break;
            }
            prop_assert_eq!(after.next(), Some(frame));
        }
        for frame in after.flatten() {
            survives(&frame)?;
        }
    }
}
