//! Errors, limits and credit as RFC 9000 has them.

use clearway_recovery::limit::Limit;

use super::*;
use crate::error::Code;
use crate::stream::{Priority, Sendability, WriteError};

fn code<T>(result: Result<T, TransportError>) -> Option<Code> {
    result.err().map(|e| e.code)
}

#[test]
fn frame_for_wrong_stream_half_closes_connection() {
    let wrong = Some(Code::STREAM_STATE_ERROR);
    let (_, mut server) = pair(Config::default());
    let ours = StreamId::new(Role::Server, UNI, 0);
    let theirs = StreamId::new(Role::Client, UNI, 0);
    let never = StreamId::new(Role::Server, BIDI, 0);
    assert_eq!(code(server.on_max_stream_data(ours, 1)), wrong);
    assert_eq!(server.open(UNI), Some(ours));
    assert_eq!(code(server.on_max_stream_data(ours, 1)), None);
    assert_eq!(code(server.on_stop_sending(ours, 1)), None);
    assert_eq!(code(server.on_stream(ours, 0, false, b"x")), wrong);
    assert_eq!(code(server.on_reset_stream(ours, 0, 0)), wrong);
    assert_eq!(code(server.on_stream_data_blocked(ours, 0)), wrong);
    assert_eq!(code(server.on_stop_sending(theirs, 1)), wrong);
    assert_eq!(code(server.on_max_stream_data(theirs, 1)), wrong);
    for result in [
        server.on_stream(never, 0, false, b"x").map(|_| ()),
        server.on_reset_stream(never, 0, 0),
        server.on_stop_sending(never, 0),
        server.on_max_stream_data(never, 1),
        server.on_stream_data_blocked(never, 1),
    ] {
        assert_eq!(code(result), wrong);
    }
}

#[test]
fn any_frame_for_stream_over_limit_closes_connection() {
    let over = Some(Code::STREAM_LIMIT_ERROR);
    let (_, mut server) = pair(tight());
    let fifth = StreamId::new(Role::Client, BIDI, 4);
    assert_eq!(code(server.on_stream(fifth, 0, false, b"x")), over);
    assert_eq!(code(server.on_reset_stream(fifth, 0, 0)), over);
    assert_eq!(code(server.on_stop_sending(fifth, 0)), over);
    assert_eq!(code(server.on_max_stream_data(fifth, 0)), over);
    assert_eq!(code(server.on_stream_data_blocked(fifth, 0)), over);
    let fourth = StreamId::new(Role::Client, BIDI, 3);
    assert_eq!(code(server.on_stream(fourth, 0, false, b"x")), None);
    let opened: Vec<u64> = core::iter::from_fn(|| server.accept(BIDI))
        .map(StreamId::as_u64)
        .collect();
    assert_eq!(opened, [0, 4, 8, 12], "a stream opens those before it");
    let absurd = (1 << 60) + 1;
    assert_eq!(
        code(server.on_max_streams(BIDI, absurd)),
        Some(Code::FRAME_ENCODING_ERROR)
    );
    assert_eq!(
        code(server.on_streams_blocked(UNI, absurd)),
        Some(Code::FRAME_ENCODING_ERROR)
    );
}

/// RFC 9000 §18.2 names limits from the announcer's side.
#[test]
fn each_stream_type_starts_with_its_own_limit() {
    let limits = crate::stream::PeerLimits {
        max_data: 1 << 20,
        bidi_local: 100,
        bidi_remote: 200,
        uni: 300,
        streams_bidi: 1,
        streams_uni: 1,
    };
    let mut client = Streams::new(Role::Client, Config::default());
    client.set_peer_limits(limits);
    let theirs = StreamId::new(Role::Server, BIDI, 0);
    client.on_stream(theirs, 0, false, b"x").unwrap();
    let ours = client.open(BIDI).unwrap();
    let uni = client.open(UNI).unwrap();
    for (id, limit) in [(theirs, 100), (ours, 200), (uni, 300)] {
        client.write(id, &[0; 1_000]).unwrap();
        let contents = fill(&mut client).unwrap().contents;
        let blocked = StreamContent::StreamDataBlocked(id, limit);
        assert!(contents.iter().any(|c| matches!(c,
            StreamContent::Data { len, .. } if u64::from(*len) == limit)));
        assert_eq!(fill(&mut client).unwrap().contents, [blocked]);
    }
}

#[test]
fn connection_flow_control_counts_all_streams_and_resets() {
    let over = Some(Code::FLOW_CONTROL_ERROR);
    let (_, mut server) = pair(tight());
    let id = |index| StreamId::new(Role::Client, BIDI, index);
    assert_eq!(code(server.on_stream(id(0), 5_999, false, b"x")), None);
    assert_eq!(code(server.on_stream(id(0), 0, false, &[0; 5_000])), None);
    assert_eq!(code(server.on_stream(id(1), 4_000, false, b"x")), over);
    assert_eq!(code(server.on_reset_stream(id(1), 0, 4_001)), over);
    assert_eq!(code(server.on_reset_stream(id(1), 0, 4_000)), None);
}

#[test]
fn blocked_reason_follows_order_of_precedence() {
    let blocked = |limit| Sendability::Blocked(limit);
    let (mut client, mut server) = pair(tight());
    assert_eq!(client.sendability(), blocked(Limit::Application));
    let first = client.open(UNI).unwrap();
    let second = client.open(UNI).unwrap();
    assert_eq!(client.open(UNI), None);
    assert_eq!(client.sendability(), Sendability::Ready, "STREAMS_BLOCKED");
    carry(&mut client, &mut server);
    assert_eq!(client.sendability(), blocked(Limit::StreamLimit));
    client.write(first, &[0; 8_000]).unwrap();
    carry(&mut client, &mut server);
    assert_eq!(client.sendability(), blocked(Limit::StreamFlowControl));
    client.write(second, &[0; 6_000]).unwrap();
    carry(&mut client, &mut server);
    assert_eq!(client.sendability(), blocked(Limit::ConnectionFlowControl));
    server.stop(second, 0).unwrap();
    carry(&mut server, &mut client);
    assert_eq!(client.sendability(), Sendability::Ready, "RESET_STREAM");
    carry(&mut client, &mut server);
    assert_eq!(client.sendability(), blocked(Limit::StreamFlowControl));
}

#[test]
fn blocked_frame_is_sent_once_per_limit_and_resent_when_lost() {
    let (mut client, _) = pair(tight());
    let first = client.open(BIDI).unwrap();
    let second = client.open(BIDI).unwrap();
    client.set_priority(
        first,
        Priority {
            urgency: 0,
            incremental: false,
        },
    );
    client.write(first, &[0; 7_000]).unwrap();
    client.write(second, &[0; 5_000]).unwrap();
    let mut contents = Vec::new();
    while let Some(packet) = fill(&mut client) {
        contents.extend(packet.contents);
    }
    contents.retain(|c| !matches!(c, StreamContent::Data { .. }));
    let stream = StreamContent::StreamDataBlocked(first, 6_000);
    let connection = StreamContent::DataBlocked(10_000);
    assert_eq!(contents.len(), 2, "{contents:?}");
    assert!(contents.contains(&stream) && contents.contains(&connection));
    client.write(first, b"more").unwrap();
    client.write(second, b"more").unwrap();
    assert_eq!(fill(&mut client).map(|p| p.contents), None, "told already");
    client.on_lost(&stream);
    client.on_lost(&connection);
    client.on_lost(&connection);
    assert_eq!(fill(&mut client).unwrap().contents, [stream, connection]);
    client.on_max_data(11_000);
    client.on_lost(&connection);
    let data = fill(&mut client).unwrap().contents;
    assert!(!data.contains(&connection), "{data:?}");
}

#[test]
fn lost_max_data_is_resent_with_current_value() {
    let (mut client, mut server) = pair(tight());
    let id = client.open(UNI).unwrap();
    client.write(id, &[0; 6_000]).unwrap();
    carry(&mut client, &mut server);
    let mut out = [0; 2_500];
    server.read(id, &mut out).unwrap();
    let packet = fill(&mut server).unwrap();
    let stream = StreamContent::MaxStreamData(id, 8_500);
    let connection = StreamContent::MaxData(12_500);
    assert_eq!(packet.contents, [connection, stream]);
    assert_eq!(fill(&mut server).map(|p| p.contents), None);
    server.read(id, &mut out[..100]).unwrap();
    assert_eq!(fill(&mut server).map(|p| p.contents), None, "too little");
    lost(&mut server, &packet);
    let again = fill(&mut server).unwrap();
    assert!(matches!(
        again.contents[..],
        [StreamContent::MaxData(c), StreamContent::MaxStreamData(_, s)] if c >= 12_600 && s >= 8_600
    ));
    lost(&mut server, &packet);
    assert_eq!(fill(&mut server).map(|p| p.contents), None, "overtaken");
}

#[test]
fn finished_streams_raise_stream_limit_in_batches() {
    let config = Config {
        max_uni_streams: 8,
        ..Config::default()
    };
    let (mut client, mut server) = pair(config);
    let mut granted = Vec::new();
    let mut buffer = Vec::new();
    for _ in 0..8 {
        let id = client.open(UNI).unwrap();
        client.finish(id).unwrap();
        carry(&mut client, &mut server);
        assert_eq!(read_all(&mut server, id, &mut buffer), Ok(true));
        for packet in carry(&mut server, &mut client) {
            granted.extend(packet.contents);
        }
    }
    server.on_lost(&StreamContent::MaxStreams(UNI, 14));
    assert_eq!(fill(&mut server).map(|p| p.contents), None, "overtaken");
    let newest = StreamContent::MaxStreams(UNI, 16);
    server.on_lost(&newest);
    assert_eq!(fill(&mut server).unwrap().contents, [newest]);
    let grants = [10, 12, 14, 16].map(|n| StreamContent::MaxStreams(UNI, n));
    assert_eq!(granted, grants);
}

#[test]
fn late_frames_for_finished_streams_are_ignored() {
    let (mut client, mut server) = pair(Config::default());
    let id = client.open(BIDI).unwrap();
    client.write(id, b"ask").unwrap();
    client.finish(id).unwrap();
    let packet = fill(&mut client).unwrap();
    deliver(&mut server, &packet.bytes).unwrap();
    acked(&mut client, &packet);
    let mut asked = Vec::new();
    assert_eq!(read_all(&mut server, id, &mut asked), Ok(true));
    server.finish(id).unwrap();
    settle(&mut server, &mut client);
    assert_eq!(read_all(&mut client, id, &mut Vec::new()), Ok(true));
    assert_eq!((client.counts().open, server.counts().open), (0, 0));
    for end in [&mut client, &mut server] {
        end.on_stream(id, 0, true, b"ask").unwrap();
        end.on_reset_stream(id, 0, 3).unwrap();
        end.on_stop_sending(id, 0).unwrap();
        end.on_max_stream_data(id, 1 << 30).unwrap();
        end.on_stream_data_blocked(id, 0).unwrap();
        assert_eq!(end.write(id, b"x"), Err(WriteError::Unknown));
        assert_eq!(end.read(id, &mut [0]), Err(ReadError::Unknown));
        assert_eq!(end.counts().open, 0);
    }
    acked(&mut client, &packet);
    lost(&mut client, &packet);
    assert_eq!(
        client.sendability(),
        Sendability::Blocked(Limit::Application)
    );
}

#[test]
fn flood_of_opened_and_reset_streams_is_bounded() {
    let (_, mut server) = pair(tight());
    let mut allowed = 4;
    for index in 0..2_000 {
        let id = StreamId::new(Role::Client, BIDI, index);
        if index == allowed {
            let refused = server.on_reset_stream(id, 0, 0);
            assert_eq!(code(refused), Some(Code::STREAM_LIMIT_ERROR));
            while let Some(accepted) = server.accept(BIDI) {
                assert_eq!(server.read(accepted, &mut [0]), Err(ReadError::Reset(7)));
            }
            let packet = fill(&mut server).unwrap();
            acked(&mut server, &packet);
            while let Some(packet) = fill(&mut server) {
                acked(&mut server, &packet);
            }
            let last = server.remote_limit_for_test();
            assert!(last > allowed);
            allowed = last;
        }
        server.on_stop_sending(id, 7).unwrap();
        server.on_reset_stream(id, 7, 0).unwrap();
        assert!(server.counts().open <= 8);
        assert!(server.pending_events_for_test() <= 64);
        if index % 4 == 3 {
            events(&mut server);
        }
    }
}

#[test]
fn too_many_gaps_in_stream_data_close_connection() {
    let (_, mut server) = pair(Config::default());
    let id = StreamId::new(Role::Client, UNI, 0);
    let refused = (0..200_000)
        .map(|i| server.on_stream(id, 2 * i + 1, false, b"x"))
        .find_map(Result::err)
        .unwrap();
    assert_eq!(refused.code, Code::INTERNAL_ERROR);
    assert!(server.memory() < 2 << 20, "{}", server.memory());
}
