//! The streams of two endpoints over a channel that loses, reorders and duplicates packets.
//!
//! Both endpoints follow the protocol, so no frame may be an error, and what is read is what was
//! written, in order.
#![no_main]

use std::collections::BTreeMap;
use std::time::Duration;

use clearway_quic::stream::{Config, Directionality, ReadError, StreamId, WriteError};
use clearway_quic::testing::{StreamContent, Streams};
use clearway_quic::wire::{Frame, Frames, Writer};
use clearway_quic::{Instant, Role};
use libfuzzer_sys::fuzz_target;

#[derive(arbitrary::Arbitrary, Clone, Copy, Debug)]
enum Act {
    Open(bool),
    Accept(bool),
    Write(u8, u16),
    Finish(u8),
    Reset(u8),
    /// Resets a stream, except for its first bytes.
    ResetAt(u8, u16),
    Stop(u8),
    Read(u8, u16),
    /// Sends a packet of at most this many bytes.
    Send(u8),
    /// Delivers this packet, counted from the oldest, and acknowledges it.
    Deliver(u8),
    /// Delivers this packet; its acknowledgment is delayed.
    Repeat(u8),
    Lose(u8),
}

#[derive(Debug)]
struct Sent {
    payload: Vec<u8>,
    contents: Vec<StreamContent>,
}

struct Endpoint {
    streams: Streams,
    ids: Vec<StreamId>,
    /// How many bytes were written on and read from each stream.
    written: BTreeMap<StreamId, u64>,
    read: BTreeMap<StreamId, u64>,
    finished: BTreeMap<StreamId, u64>,
    sent: Vec<Sent>,
}

fuzz_target!(|acts: Vec<(bool, Act)>| {
    let config = Config {
        max_bidi_streams: 3,
        max_uni_streams: 3,
        stream_window: 300,
        connection_window: 700,
        receive_budget: 2000,
        send_budget: 2000,
        ..Config::default()
    };
    let mut endpoints = [
        Endpoint::new(Role::Client, &config),
        Endpoint::new(Role::Server, &config),
    ];
    let limits = endpoints[0].streams.initial_limits();
    for endpoint in &mut endpoints {
        endpoint.streams.set_peer_limits(limits);
        endpoint.streams.set_reliable_resets(true);
    }
    let mut now = Instant::ZERO;
    for (second, act) in acts {
        now += Duration::from_millis(1);
        let (left, right) = endpoints.split_at_mut(1);
        let (endpoint, peer) = if second {
            (&mut right[0], &mut left[0])
        } else {
            (&mut left[0], &mut right[0])
        };
        endpoint.act(now, act, peer);
        for endpoint in &endpoints {
            assert!(endpoint.streams.memory() < 1 << 20);
        }
    }
});

impl Endpoint {
    fn new(role: Role, config: &Config) -> Self {
        Self {
            streams: Streams::new(role, config.clone()),
            ids: Vec::new(),
            written: BTreeMap::new(),
            read: BTreeMap::new(),
            finished: BTreeMap::new(),
            sent: Vec::new(),
        }
    }

    fn id(&self, pick: u8) -> Option<StreamId> {
        let len = self.ids.len();
        (len > 0).then(|| self.ids[usize::from(pick) % len])
    }

    fn act(&mut self, now: Instant, act: Act, peer: &mut Self) {
        match act {
            Act::Open(uni) => self.ids.extend(self.streams.open(direction(uni))),
            Act::Accept(uni) => self.ids.extend(self.streams.accept(direction(uni))),
            Act::Write(pick, len) => self.write(pick, len),
            Act::Finish(pick) => self.finish(pick),
            Act::Reset(pick) => {
                let _ = self.id(pick).map(|id| self.streams.reset(id, 7));
            }
            Act::ResetAt(pick, size) => {
                if let Some(id) = self.id(pick) {
                    let _ = self.streams.reset_at(id, 7, u64::from(size % 2048));
                }
            }
            Act::Stop(pick) => {
                let _ = self.id(pick).map(|id| self.streams.stop(id, 8));
            }
            Act::Read(pick, len) => self.read(pick, len, peer),
            Act::Send(size) => self.send(now, size),
            Act::Deliver(pick) => {
                if let Some(packet) = self.take(pick) {
                    peer.receive(&packet);
                    for content in &packet.contents {
                        self.streams.on_acked(content);
                    }
                }
            }
            Act::Repeat(pick) => {
                if let Some(packet) = self.take(pick) {
                    peer.receive(&packet);
                    self.sent.push(packet);
                }
            }
            Act::Lose(pick) => {
                if let Some(packet) = self.take(pick) {
                    for content in &packet.contents {
                        self.streams.on_lost(content);
                    }
                }
            }
        }
        while self.streams.poll_event().is_some() {}
    }

    fn write(&mut self, pick: u8, len: u16) {
        let Some(id) = self.id(pick) else { return };
        let at = self.written.get(&id).copied().unwrap_or(0);
        let data: Vec<u8> = (at..at + u64::from(len % 1024)).map(pattern).collect();
        match self.streams.write(id, &data) {
            Ok(n) => *self.written.entry(id).or_default() += n as u64,
            Err(WriteError::Blocked) => {}
            Err(_) => {}
        }
    }

    fn finish(&mut self, pick: u8) {
        let Some(id) = self.id(pick) else { return };
        if self.streams.finish(id).is_ok() {
            self.finished
                .insert(id, self.written.get(&id).copied().unwrap_or(0));
        }
    }

    fn read(&mut self, pick: u8, len: u16, peer: &Self) {
        let Some(id) = self.id(pick) else { return };
        let mut buffer = vec![0; usize::from(len % 1024)];
        match self.streams.read(id, &mut buffer) {
            Ok(Some(n)) => {
                let at = self.read.entry(id).or_default();
                for &byte in &buffer[..n] {
                    assert_eq!(byte, pattern(*at), "{id:?} at {at}");
                    *at += 1;
                }
                assert!(*at <= peer.written.get(&id).copied().unwrap_or(0));
            }
            Ok(None) => {
                let at = self.read.get(&id).copied().unwrap_or(0);
                assert_eq!(peer.finished.get(&id), Some(&at), "the end of {id:?}");
            }
            Err(ReadError::Blocked) => {}
            Err(_) => {}
        }
    }

    fn send(&mut self, now: Instant, size: u8) {
        let mut buffer = [0; 300];
        let mut contents = Vec::new();
        let mut w = Writer::new(&mut buffer[..40 + usize::from(size)]);
        let rtt = Duration::from_millis(20);
        self.streams
            .fill(&mut w, now, rtt, &mut |content| contents.push(content));
        assert!(!w.overflowed());
        let payload = w.filled().to_vec();
        assert_eq!(payload.is_empty(), contents.is_empty());
        if !contents.is_empty() {
            self.sent.push(Sent { payload, contents });
        }
    }

    fn take(&mut self, pick: u8) -> Option<Sent> {
        let len = self.sent.len();
        (len > 0).then(|| self.sent.remove(usize::from(pick) % len))
    }

    fn receive(&mut self, packet: &Sent) {
        for frame in Frames::new(&packet.payload) {
            let frame = frame.expect("frames of ours");
            let done = match frame {
                Frame::Stream {
                    id,
                    offset,
                    fin,
                    data,
                } => self.streams.on_stream(id, offset, fin, data).map(|_| ()),
                Frame::ResetStream {
                    id,
                    code,
                    final_size,
                } => self.streams.on_reset_stream(id, code, final_size),
                Frame::ResetStreamAt {
                    id,
                    code,
                    final_size,
                    reliable_size,
                } => (self.streams).on_reset_stream_at(id, code, final_size, reliable_size),
                Frame::StopSending { id, code } => self.streams.on_stop_sending(id, code),
                Frame::MaxData(limit) => {
                    self.streams.on_max_data(limit);
                    Ok(())
                }
                Frame::MaxStreamData { id, limit } => self.streams.on_max_stream_data(id, limit),
                Frame::MaxStreams {
                    directionality,
                    limit,
                } => self.streams.on_max_streams(directionality, limit),
                Frame::StreamDataBlocked { id, limit } => {
                    self.streams.on_stream_data_blocked(id, limit)
                }
                Frame::StreamsBlocked {
                    directionality,
                    limit,
                } => self.streams.on_streams_blocked(directionality, limit),
                Frame::DataBlocked { .. } => Ok(()),
                other => panic!("streams wrote {other:?}"),
            };
            done.expect("an honest peer");
        }
    }
}

fn direction(uni: bool) -> Directionality {
    if uni {
        Directionality::Unidirectional
    } else {
        Directionality::Bidirectional
    }
}

fn pattern(at: u64) -> u8 {
    (at % 251) as u8
}
