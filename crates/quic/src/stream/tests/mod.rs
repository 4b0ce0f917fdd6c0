//! Two ends of a connection, joined by a channel in memory.

mod delivery;
mod flow_control;
mod groups;
mod limits;
mod memory;
mod sharing;
mod survival;

use core::time::Duration;

use super::{Config, Directionality, ReadError, StreamContent, StreamEvent, StreamId, Streams};
use crate::Role;
use crate::error::TransportError;
use crate::time::Instant;
use crate::wire::{Reader, Writer};

const BIDI: Directionality = Directionality::Bidirectional;
const UNI: Directionality = Directionality::Unidirectional;
const RTT: Duration = Duration::from_millis(100);
const PACKET: usize = 1_200;

/// One packet's frames, and what its sender remembers of them.
#[derive(Clone, Debug)]
struct Packet {
    bytes: Vec<u8>,
    contents: Vec<StreamContent>,
}

/// A client and a server that know each other's limits.
fn pair(config: Config) -> (Streams, Streams) {
    let mut client = Streams::new(Role::Client, config.clone());
    let mut server = Streams::new(Role::Server, config);
    client.set_peer_limits(server.initial_limits());
    server.set_peer_limits(client.initial_limits());
    (client, server)
}

/// Windows so small that every limit is met often.
fn tight() -> Config {
    Config {
        max_bidi_streams: 4,
        max_uni_streams: 2,
        stream_window: 6_000,
        connection_window: 10_000,
        receive_budget: 40_000,
        send_budget: 64 << 10,
        ..Config::default()
    }
}

fn fill_at(from: &mut Streams, now: Instant, size: usize) -> Option<Packet> {
    let mut buffer = vec![0; size];
    let mut w = Writer::new(&mut buffer);
    let mut contents = Vec::new();
    from.fill(&mut w, now, RTT, &mut |content| contents.push(content));
    assert!(!w.overflowed());
    let len = w.written();
    assert_eq!(len == 0, contents.is_empty());
    buffer.truncate(len);
    (len > 0).then_some(Packet {
        bytes: buffer,
        contents,
    })
}

/// What may ride in a packet that leaves for another reason, such as an ACK.
fn ride(from: &mut Streams) -> Packet {
    let mut bytes = vec![0; PACKET];
    let mut w = Writer::new(&mut bytes);
    let mut contents = Vec::new();
    from.fill_urgent_credit(&mut w, Instant::ZERO, RTT, &mut |c| contents.push(c));
    assert!(!w.overflowed());
    let len = w.written();
    bytes.truncate(len);
    Packet { bytes, contents }
}

fn fill(from: &mut Streams) -> Option<Packet> {
    fill_at(from, Instant::ZERO, PACKET)
}

fn acked(sender: &mut Streams, packet: &Packet) {
    packet.contents.iter().for_each(|c| sender.on_acked(c));
}

fn lost(sender: &mut Streams, packet: &Packet) {
    packet.contents.iter().for_each(|c| sender.on_lost(c));
}

/// Decodes a packet into the calls a connection would make.
fn deliver(to: &mut Streams, bytes: &[u8]) -> Result<(), TransportError> {
    let mut r = Reader::new(bytes);
    while !r.is_empty() {
        let kind = r.varint().unwrap();
        if kind & !7 == 8 {
            deliver_stream(to, kind, &mut r)?;
            continue;
        }
        let dir = if kind & 1 == 0 { BIDI } else { UNI };
        let first = r.varint().unwrap();
        let id = StreamId::from_wire(first);
        match kind {
            0x04 => to.on_reset_stream(id, r.varint().unwrap(), r.varint().unwrap())?,
            0x24 => {
                let [code, size, reliable] = [(); 3].map(|()| r.varint().unwrap());
                to.on_reset_stream_at(id, code, size, reliable)?;
            }
            0x05 => to.on_stop_sending(id, r.varint().unwrap())?,
            0x10 => to.on_max_data(first),
            0x11 => to.on_max_stream_data(id, r.varint().unwrap())?,
            0x12 | 0x13 => to.on_max_streams(dir, first)?,
            0x14 => to.on_data_blocked(first),
            0x15 => to.on_stream_data_blocked(id, r.varint().unwrap())?,
            0x16 | 0x17 => to.on_streams_blocked(dir, first)?,
            other => panic!("frame type {other:#x}"),
        }
    }
    Ok(())
}

fn deliver_stream(to: &mut Streams, kind: u64, r: &mut Reader<'_>) -> Result<(), TransportError> {
    let id = StreamId::from_wire(r.varint().unwrap());
    let offset = if kind & 4 == 0 {
        0
    } else {
        r.varint().unwrap()
    };
    let len = if kind & 2 == 0 {
        r.remaining()
    } else {
        r.varint().unwrap() as usize
    };
    to.on_stream(id, offset, kind & 1 != 0, r.bytes(len).unwrap())
        .map(|_| ())
}

/// Carries everything `from` has to send to `to`; answers the packets.
fn carry(from: &mut Streams, to: &mut Streams) -> Vec<Packet> {
    let mut packets = Vec::new();
    while let Some(packet) = fill(from) {
        deliver(to, &packet.bytes).unwrap();
        acked(from, &packet);
        packets.push(packet);
    }
    packets
}

/// Back and forth until both ends are silent.
fn settle(a: &mut Streams, b: &mut Streams) {
    for _ in 0..1_000 {
        if carry(a, b).is_empty() && carry(b, a).is_empty() {
            return;
        }
    }
    panic!("the two ends never fall silent");
}

fn events(streams: &mut Streams) -> Vec<StreamEvent> {
    core::iter::from_fn(|| streams.poll_event()).collect()
}

/// Reads all that can be read; `true` at the end of the stream.
fn read_all(streams: &mut Streams, id: StreamId, out: &mut Vec<u8>) -> Result<bool, ReadError> {
    loop {
        match streams.read_chunk(id, usize::MAX) {
            Ok(Some(chunk)) => out.extend_from_slice(&chunk),
            Ok(None) => return Ok(true),
            Err(ReadError::Blocked) => return Ok(false),
            Err(error @ (ReadError::Reset(_) | ReadError::Unknown)) => return Err(error),
        }
    }
}

/// Bytes of a stream that tell where they belong.
fn pattern(id: StreamId, from: u64, len: usize) -> Vec<u8> {
    let salt = id.as_u64().wrapping_mul(31);
    (from..from + len as u64)
        .map(|at| (at.wrapping_mul(7) + (at >> 8) + salt) as u8)
        .collect()
}
