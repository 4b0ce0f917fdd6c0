//! Frames: they are decoded and encoded again, and applied to streams and connection IDs.
#![no_main]

use clearway_quic::Role;
use clearway_quic::cid::{ConnectionId, NewCid};
use clearway_quic::path::PathId;
use clearway_quic::stream::Config;
use clearway_quic::testing::{PeerLimits, RemoteCids, Streams};
use clearway_quic::wire::{Frame, Frames, PacketKind, Writer};
use libfuzzer_sys::fuzz_target;

const MEMORY: usize = 1 << 20;

fuzz_target!(|payload: &[u8]| {
    let mut streams = Streams::new(Role::Server, small());
    streams.set_peer_limits(PeerLimits {
        max_data: 1000,
        bidi_local: 100,
        bidi_remote: 100,
        uni: 100,
        streams_bidi: 5,
        streams_uni: 5,
    });
    let first = ConnectionId::new(&[1; 8]).expect("eight bytes");
    let mut cids = RemoteCids::new(first, PathId(0), 4);
    for frame in Frames::new(payload) {
        let Ok(frame) = frame else { return };
        written_back(&frame);
        for kind in [
            PacketKind::Initial,
            PacketKind::ZeroRtt,
            PacketKind::Handshake,
            PacketKind::OneRtt,
        ] {
            assert_eq!(
                frame.check_allowed(kind, Role::Client).is_ok(),
                frame.allowed_in(kind) && frame.allowed_from(Role::Client)
            );
        }
        if applied(&mut streams, &mut cids, &frame).is_err() {
            return;
        }
        assert!(streams.memory() <= MEMORY, "{} bytes", streams.memory());
    }
});

fn small() -> Config {
    Config {
        max_bidi_streams: 8,
        max_uni_streams: 8,
        stream_window: 4096,
        connection_window: 16_384,
        receive_budget: 16_384,
        ..Config::default()
    }
}

/// Checks that a decoded frame round-trips.
fn written_back(frame: &Frame<'_>) {
    let mut buffer = vec![0; frame.size()];
    let mut w = Writer::new(&mut buffer);
    frame.encode(&mut w);
    assert!(!w.overflowed(), "size() of {frame:?}");
    assert_eq!(w.remaining(), 0, "size() of {frame:?}");
    let again = Frames::new(&buffer)
        .next()
        .expect("a frame")
        .expect("valid");
    assert_eq!(again.frame_type(), frame.frame_type());
    if let (Frame::Ack(again), Frame::Ack(first)) = (&again, frame) {
        assert!(again.ranges().eq(first.ranges()));
    } else {
        assert_eq!(format!("{again:?}"), format!("{frame:?}"));
    }
}

fn applied(
    streams: &mut Streams,
    cids: &mut RemoteCids,
    frame: &Frame<'_>,
) -> Result<(), clearway_quic::error::TransportError> {
    match *frame {
        Frame::Stream {
            id,
            offset,
            fin,
            data,
        } => streams.on_stream(id, offset, fin, data).map(|_| ()),
        Frame::ResetStream {
            id,
            code,
            final_size,
        } => streams.on_reset_stream(id, code, final_size),
        Frame::ResetStreamAt {
            id,
            code,
            final_size,
            reliable_size,
        } => streams.on_reset_stream_at(id, code, final_size, reliable_size),
        Frame::StopSending { id, code } => streams.on_stop_sending(id, code),
        Frame::MaxData(limit) => {
            streams.on_max_data(limit);
            Ok(())
        }
        Frame::MaxStreamData { id, limit } => streams.on_max_stream_data(id, limit),
        Frame::MaxStreams {
            directionality,
            limit,
        } => streams.on_max_streams(directionality, limit),
        Frame::StreamDataBlocked { id, limit } => streams.on_stream_data_blocked(id, limit),
        Frame::StreamsBlocked {
            directionality,
            limit,
        } => streams.on_streams_blocked(directionality, limit),
        Frame::NewConnectionId {
            sequence,
            retire_prior_to,
            cid,
            reset_token,
        } => {
            let new = NewCid {
                sequence,
                retire_prior_to,
                cid,
                reset_token,
            };
            cids.on_new(new, PathId(0))
        }
        Frame::Padding { .. }
        | Frame::Ping
        | Frame::Ack(_)
        | Frame::Crypto { .. }
        | Frame::NewToken(_)
        | Frame::DataBlocked { .. }
        | Frame::RetireConnectionId { .. }
        | Frame::PathChallenge(_)
        | Frame::PathResponse(_)
        | Frame::ConnectionClose { .. }
        | Frame::ApplicationClose { .. }
        | Frame::HandshakeDone
        | Frame::Datagram(_)
        | Frame::AckFrequency { .. }
        | Frame::ImmediateAck => Ok(()),
    }
}
