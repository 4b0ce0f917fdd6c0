//! Turns, budgets and windows among streams.

use super::*;
use crate::stream::{Priority, WriteError};

fn data_order(packets: &[Packet]) -> Vec<u64> {
    let mut order: Vec<u64> = packets
        .iter()
        .flat_map(|p| &p.contents)
        .filter_map(|c| match c {
            StreamContent::Data { id, .. } => Some(id.as_u64()),
            StreamContent::Reset(_)
            | StreamContent::StopSending(_)
            | StreamContent::MaxData(_)
            | StreamContent::MaxStreamData(..)
            | StreamContent::MaxStreams(..)
            | StreamContent::DataBlocked(_)
            | StreamContent::StreamDataBlocked(..)
            | StreamContent::StreamsBlocked(..) => None,
        })
        .collect();
    order.dedup();
    order
}

fn priority(urgency: u8, incremental: bool) -> Priority {
    Priority {
        urgency,
        incremental,
    }
}

#[test]
fn streams_are_sent_by_urgency_then_in_order_and_round_robin_alternately() {
    let (mut client, mut server) = pair(Config::default());
    for (urgency, incremental) in [(3, true), (3, true), (5, false), (3, false), (0, false)] {
        let id = client.open(BIDI).unwrap();
        client.write(id, &[0; 3_000]).unwrap();
        client.set_priority(id, priority(urgency, incremental));
    }
    let order = data_order(&carry(&mut client, &mut server));
    assert_eq!(order[..5], [16, 12, 0, 12, 4], "{order:?}");
    assert_eq!(order.last(), Some(&8));
    assert!(order.iter().filter(|&&id| id == 0).count() > 1, "{order:?}");
}

#[test]
fn long_stream_does_not_delay_later_ones_of_its_urgency_to_its_end() {
    let (mut client, mut server) = pair(Config {
        stream_window: 64 << 20,
        connection_window: 64 << 20,
        ..Config::default()
    });
    let [long, short] = [4 << 20, 3_000].map(|len| {
        let id = client.open(UNI).unwrap();
        client.set_send_window_hint(4 << 20);
        client.set_priority(id, priority(3, false));
        assert_eq!(client.write(id, &vec![0; len]).unwrap(), len);
        id
    });
    let packets = carry(&mut client, &mut server);
    let first_of_short = packets
        .iter()
        .position(|packet| data_order(core::slice::from_ref(packet)).contains(&short.as_u64()))
        .unwrap();
    let before: usize = packets[..first_of_short]
        .iter()
        .map(|p| p.bytes.len())
        .sum();
    assert!((256 << 10..260 << 10).contains(&before), "{before}");
    // Asked for once more, it has not got another turn alone.
    client.set_priority(long, priority(3, false));
    client.write(long, &[0; 3_000]).unwrap();
    let urgent = client.open(UNI).unwrap();
    client.set_priority(urgent, priority(3, false));
    client.write(urgent, &[0; 3_000]).unwrap();
    let order = data_order(&carry(&mut client, &mut server));
    assert_eq!(order[0], urgent.as_u64(), "{order:?}");
}

#[test]
fn retransmissions_are_sent_before_new_data() {
    let (mut client, mut server) = pair(Config::default());
    let old = client.open(BIDI).unwrap();
    client.write(old, &[0; 1_000]).unwrap();
    let packet = fill(&mut client).unwrap();
    let urgent = client.open(BIDI).unwrap();
    client.set_priority(urgent, priority(0, false));
    client.write(urgent, &[0; 1_000]).unwrap();
    lost(&mut client, &packet);
    let order = data_order(&carry(&mut client, &mut server));
    assert_eq!(order, [old.as_u64(), urgent.as_u64()]);
}

#[test]
fn small_streams_share_a_packet_and_last_frame_fills_it() {
    let (mut client, mut server) = pair(Config::default());
    for _ in 0..20 {
        let id = client.open(UNI).unwrap();
        client.write(id, &[1; 100]).unwrap();
        client.finish(id).unwrap();
    }
    let packets = carry(&mut client, &mut server);
    assert_eq!(packets.len(), 2);
    assert_eq!(packets[0].bytes.len(), PACKET);
    assert!(packets[0].contents.len() > 10);
}

#[test]
fn send_buffers_follow_congestion_window_and_wake_writers_once() {
    let (mut client, _) = pair(Config {
        stream_window: 64 << 20,
        connection_window: 64 << 20,
        ..Config::default()
    });
    let id = client.open(UNI).unwrap();
    let block = vec![0; 64 << 10];
    let fill_up = |client: &mut Streams| {
        let mut total = 0;
        while let Ok(n) = client.write(id, &block) {
            total += n;
        }
        assert_eq!(client.write(id, &block), Err(WriteError::Blocked));
        total
    };
    assert_eq!(fill_up(&mut client), 1 << 20);
    assert_eq!(events(&mut client), []);
    client.set_send_window_hint(4 << 20);
    assert_eq!(events(&mut client), [StreamEvent::Writable(id)]);
    assert_eq!(fill_up(&mut client), 7 << 20);
    let mut told = 0;
    let mut freed = 0;
    while freed < 2 << 20 {
        let packet = fill(&mut client).unwrap();
        acked(&mut client, &packet);
        freed += packet.bytes.len();
        let news = events(&mut client);
        assert!(news.is_empty() || freed >= 2 << 20, "{freed}");
        told += news.len();
    }
    while told == 0 {
        let packet = fill(&mut client).unwrap();
        acked(&mut client, &packet);
        told += events(&mut client).len();
    }
    assert_eq!(told, 1);
}

#[test]
fn streams_without_credit_leave_send_buffer_to_others() {
    let (mut client, mut server) = pair(Config {
        stream_window: 100_000,
        connection_window: 64 << 20,
        ..Config::default()
    });
    for _ in 0..90 {
        let id = client.open(BIDI).unwrap();
        while client.write(id, &[0; 10_000]).is_ok() {}
        carry(&mut client, &mut server);
    }
    assert_eq!(client.counts().stalled, 90);
    let last = client.open(BIDI).unwrap();
    assert_eq!(client.write(last, &[0; 90_000]), Ok(90_000));
}

#[test]
fn every_blocked_writer_becomes_writable() {
    let (mut client, mut server) = pair(Config {
        stream_window: 64 << 20,
        connection_window: 64 << 20,
        ..Config::default()
    });
    let mut waiting = Vec::new();
    for _ in 0..100 {
        let id = client.open(UNI).unwrap();
        while client.write(id, &[0; 50_000]).is_ok() {}
        waiting.push(id);
    }
    assert_eq!(events(&mut client), []);
    carry(&mut client, &mut server);
    let mut told: Vec<StreamId> = events(&mut client)
        .into_iter()
        .filter_map(|e| match e {
            StreamEvent::Writable(id) => Some(id),
            StreamEvent::Opened(_)
            | StreamEvent::Readable(_)
            | StreamEvent::Finished(_)
            | StreamEvent::Stopped { .. }
            | StreamEvent::StreamsAvailable(_) => None,
        })
        .collect();
    told.sort_unstable();
    assert_eq!(told, waiting);
}

/// 1 Gbit/s × 100 ms: 12.5 MB in flight. No window was set.
#[test]
fn default_windows_grow_to_long_fat_path() {
    const PER_RTT: usize = 12_500_000;
    let (mut client, mut server) = pair(Config::default());
    let id = client.open(UNI).unwrap();
    client.set_send_window_hint(PER_RTT as u64);
    let block = bytes::Bytes::from(vec![0; 1 << 20]);
    let mut now = Instant::ZERO;
    let mut carried = Vec::new();
    for _ in 0..12 {
        now += RTT;
        let mut this_round = 0;
        while this_round < PER_RTT {
            while client.write_chunk(id, &mut block.clone()).is_ok() {}
            let Some(packet) = fill_at(&mut client, now, 16_000) else {
                break;
            };
            deliver(&mut server, &packet.bytes).unwrap();
            acked(&mut client, &packet);
            this_round += packet.bytes.len();
            while let Ok(Some(_)) = server.read_chunk(id, usize::MAX) {}
        }
        carried.push(this_round);
        while let Some(credit) = fill_at(&mut server, now, PACKET) {
            deliver(&mut client, &credit.bytes).unwrap();
        }
    }
    assert!(carried[9..].iter().all(|&n| n >= PER_RTT), "{carried:?}");
}

#[test]
fn idle_reader_bounds_data_a_peer_can_store() {
    let config = Config::default();
    let (mut client, mut server) = pair(config.clone());
    for _ in 0..50 {
        let id = client.open(BIDI).unwrap();
        while client.write(id, &[0; 50_000]).is_ok() {}
    }
    settle(&mut client, &mut server);
    let held = server.counts().receive_buffered as u64;
    assert!(held >= config.connection_window, "{held}");
    assert!(held <= config.connection_window + 50 * (64 << 10), "{held}");
    assert_eq!(server.counts().receive_window, config.connection_window);
}

#[test]
fn ten_thousand_blocked_streams_do_not_delay_others() {
    let (mut client, mut server) = pair(Config {
        max_bidi_streams: 10_000,
        ..Config::default()
    });
    let ids: Vec<StreamId> = (0..10_000).map(|_| client.open(BIDI).unwrap()).collect();
    client.write(ids[9_999], b"only me").unwrap();
    assert!(client.sending.paid.next() == Some(ids[9_999]));
    let packets = carry(&mut client, &mut server);
    assert_eq!(packets.len(), 1);
    assert!(client.sending.paid.is_empty() && client.control.is_empty());
}

/// A peer that grants all credit and acknowledges all but the first packet of each
/// stream: what lies above the holes is held, so it counts, also when the limit is set
/// while the connection is at work.
#[test]
fn data_acknowledged_above_gaps_counts_against_send_limit() {
    let unlimited = Config {
        stream_window: 1 << 40,
        connection_window: 1 << 40,
        receive_budget: 1 << 40,
        ..Config::default()
    };
    let (mut client, _) = pair(unlimited);
    client.set_send_window_hint(1 << 30);
    let ids: Vec<_> = (0..100).map(|_| client.open(BIDI).unwrap()).collect();
    let mut holes = Vec::new();
    let mut taken = 0;
    for limit in [4 << 20, 8 << 20, 2 << 20] {
        client.limit_buffers(u64::MAX, limit);
        let before = taken;
        loop {
            let written: usize = ids
                .iter()
                .map(|&id| client.write(id, &[7; 16 << 10]).unwrap_or(0))
                .sum();
            taken += written as u64;
            while let Some(packet) = fill(&mut client) {
                for content in packet.contents {
                    match content {
                        StreamContent::Data { offset: 0, .. } => holes.push(content),
                        content => client.on_acked(&content),
                    }
                }
            }
            if written == 0 {
                break;
            }
        }
        assert_eq!(taken, before.max(limit));
        // Blocks that are not full yet besides.
        let most = taken as usize + ids.len() * (64 << 10);
        assert!(client.buffered() <= most, "{} bytes", client.buffered());
    }
    for content in holes {
        client.on_acked(&content);
    }
    assert!(client.buffered() < 256 << 10, "{} bytes", client.buffered());
    let told = events(&mut client);
    assert!(!told.is_empty(), "writers hear of the room");
}
