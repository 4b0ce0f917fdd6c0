//! RESET_STREAM_AT (draft-ietf-quic-reliable-stream-reset).

use std::time::Duration;

use clearway_quic::connection::Connection;
use clearway_quic::stream::{Config, Directionality, ReadError, StreamId};
use clearway_quic::testing::Streams;
use clearway_quic::wire::{Frame, Frames, Writer};
use clearway_quic::{Instant, Role};
use clearway_testing::{Setup, World, path};

const STREAMS: usize = 50;
const WRITTEN: usize = 3_000;
const RELIABLE: usize = 2_000;
const CODE: u64 = 7;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// Reads what there is; the code once the reset was read.
fn read(connection: &mut Connection, id: StreamId, into: &mut Vec<u8>) -> Option<u64> {
    let mut buffer = [0; 4_096];
    loop {
        match connection.read(id, &mut buffer) {
            Ok(Some(len)) => into.extend_from_slice(&buffer[..len]),
            Ok(None) => panic!("{id:?} ended without a reset"),
            // Unknown before the first of its frames has arrived.
            Err(ReadError::Blocked | ReadError::Unknown) => return None,
            Err(ReadError::Reset(code)) => return Some(code),
        }
    }
}

#[test]
fn data_before_reliable_size_survives_loss_and_the_rest_is_not_sent() {
    for seed in 0..5 {
        let link = path("rate=10M delay=10ms loss=20%", seed);
        let mut world = World::new(Setup::new(), link, seed);
        world.handshake();
        let client = world.client.connection();
        let mut ids = Vec::new();
        for _ in 0..STREAMS {
            let id = client.open(Directionality::Unidirectional).expect("credit");
            assert_eq!(client.write(id, &pattern(WRITTEN)), Ok(WRITTEN));
            assert_eq!(client.reset_at(id, CODE, RELIABLE as u64), Ok(()));
            ids.push(id);
        }
        let mut received = vec![Vec::new(); STREAMS];
        let mut codes = vec![None; STREAMS];
        let done = world.run_until(Duration::from_secs(60), |world| {
            let server = world.server.connection();
            while server.accept(Directionality::Unidirectional).is_some() {}
            for (at, &id) in ids.iter().enumerate() {
                if codes[at].is_none() {
                    codes[at] = read(server, id, &mut received[at]);
                }
            }
            codes.iter().all(Option::is_some)
        });
        assert!(done, "{codes:?}");
        for (data, code) in received.iter().zip(&codes) {
            assert_eq!(*data, pattern(RELIABLE));
            assert_eq!(*code, Some(CODE));
        }
        // The client is done with them too.
        let client_done = |world: &mut World| {
            let client = world.client.connection();
            ids.iter().all(|&id| client.reset(id, 0).is_err())
        };
        assert!(world.run_until(Duration::from_secs(10), client_done));
    }
}

/// The frames that a reset after `written` bytes causes.
fn frames(supported: bool) -> Vec<String> {
    let mut streams = Streams::new(Role::Client, Config::default());
    let limits = Streams::new(Role::Server, Config::default()).initial_limits();
    streams.set_peer_limits(limits);
    streams.set_reliable_resets(supported);
    let id = streams
        .open(Directionality::Unidirectional)
        .expect("credit");
    streams.write(id, &pattern(100)).expect("room");
    streams.reset_at(id, CODE, 10).expect("a stream");
    let mut buffer = [0; 500];
    let mut w = Writer::new(&mut buffer);
    for _ in 0..2 {
        streams.fill(&mut w, Instant::ZERO, Duration::ZERO, &mut |_| {});
    }
    let name = |frame: Frame<'_>| match frame {
        Frame::Stream { data, fin, .. } => format!("{} bytes, {fin}", data.len()),
        Frame::ResetStream { final_size, .. } => format!("reset, {final_size}"),
        Frame::ResetStreamAt {
            final_size,
            reliable_size,
            ..
        } => format!("reset, {final_size}, {reliable_size}"),
        other => format!("{other:?}"),
    };
    let frames = Frames::new(w.filled()).map(|frame| name(frame.expect("a frame of ours")));
    frames.collect()
}

#[test]
fn reset_follows_the_data_that_it_promises() {
    assert_eq!(frames(true), ["10 bytes, false", "reset, 10, 10"]);
}

#[test]
fn peer_without_the_extension_is_sent_a_plain_reset() {
    assert_eq!(frames(false), ["reset, 0"]);
}
