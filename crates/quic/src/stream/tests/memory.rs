//! What `Streams::memory` reports, against what the allocator says: budgets go by it.

use super::*;
use crate::stream::Priority;

/// Fails unless the report is right. Hash tables and B-trees do not tell what they
/// allocate: it may be more by half, and a few nodes.
fn assert_reports_what_it_holds(streams: Streams, what: &str, least: usize) {
    let reported = streams.memory();
    let freed = allocation_counter::measure(|| drop(streams)).bytes_current;
    let held = usize::try_from(-freed).expect("dropping frees");
    assert!(held >= least, "{what}: only {held} bytes are held");
    assert!(
        reported + 512 >= held && reported <= held + held / 2 + 2_048,
        "{what}: {reported} bytes reported, {held} held"
    );
}

fn wide() -> Config {
    Config {
        max_bidi_streams: 2_000,
        max_uni_streams: 2_000,
        ..Config::default()
    }
}

#[test]
fn memory_counts_written_data_and_schedule() {
    let (mut client, _) = pair(wide());
    for n in 0..400 {
        let id = client.open(BIDI).expect("a stream");
        let (urgency, incremental) = ((n % 8) as u8, n % 3 == 0);
        client.set_priority(
            id,
            Priority {
                urgency,
                incremental,
            },
        );
        client.write(id, &[1; 700]).expect("room");
    }
    assert_reports_what_it_holds(client, "written data", 400 * 700);
}

#[test]
fn memory_counts_streams_that_hold_no_data() {
    let (mut client, _) = pair(wide());
    for _ in 0..1_500 {
        client.open(UNI).expect("a stream");
    }
    assert_reports_what_it_holds(client, "open streams", 1_500 * 16);
}

/// Every second packet is acknowledged, and some are lost.
#[test]
fn memory_counts_state_of_data_in_flight() {
    let (mut client, _) = pair(Config {
        stream_window: 1 << 20,
        connection_window: 4 << 20,
        ..wide()
    });
    for _ in 0..4 {
        let id = client.open(BIDI).expect("a stream");
        client.write(id, &[1; 200_000]).expect("room");
    }
    let mut packets = Vec::new();
    while packets.len() < 400 {
        packets.extend(fill(&mut client));
    }
    for (n, packet) in packets.iter().enumerate() {
        match n % 4 {
            1 | 3 => acked(&mut client, packet),
            2 => lost(&mut client, packet),
            _ => {}
        }
    }
    assert_reports_what_it_holds(client, "data in flight", 400_000);
}

#[test]
fn memory_counts_unread_data() {
    let (_, mut server) = pair(wide());
    for n in 0..100 {
        let id = StreamId::new(Role::Client, BIDI, n);
        server.on_stream(id, 0, false, &[1; 3_000]).expect("room");
    }
    assert_reports_what_it_holds(server, "unread data", 100 * 3_000);
}

#[test]
fn memory_counts_fragments_behind_gaps() {
    let (_, mut server) = pair(wide());
    for n in 0..50 {
        let id = StreamId::new(Role::Client, UNI, n);
        for piece in 0..30 {
            let offset = 1 + piece * 40;
            server.on_stream(id, offset, false, b"x").expect("room");
        }
    }
    assert_reports_what_it_holds(server, "fragments", 50 * 500);
}

#[test]
fn memory_counts_unpolled_events() {
    let (_, mut server) = pair(wide());
    for n in 0..1_000 {
        let id = StreamId::new(Role::Client, UNI, n);
        server.on_stream(id, 0, true, b"").expect("room");
    }
    assert_reports_what_it_holds(server, "events", 1_000 * 24);
}

#[test]
fn memory_counts_control_frames_to_send() {
    let (mut client, mut server) = pair(wide());
    for n in 0..500 {
        let id = StreamId::new(Role::Client, BIDI, n);
        server.on_stream(id, 0, false, b"x").expect("room");
        server.stop(id, 7).expect("a stream to stop");
        server.reset(id, 7).expect("a stream to reset");
    }
    for _ in 0..300 {
        let id = client.open(BIDI).expect("a stream");
        client.reset(id, 7).expect("a stream to reset");
    }
    assert_reports_what_it_holds(server, "stops and resets", 500 * 24);
    assert_reports_what_it_holds(client, "resets", 300 * 24);
}

#[test]
fn memory_of_finished_streams_is_freed() {
    let (mut client, mut server) = pair(wide());
    for _ in 0..500 {
        let id = client.open(UNI).expect("a stream");
        client.write(id, &[1; 500]).expect("room");
        client.finish(id).expect("a stream to finish");
        carry(&mut client, &mut server);
        let mut data = Vec::new();
        assert_eq!(read_all(&mut server, id, &mut data), Ok(true));
        carry(&mut server, &mut client);
    }
    events(&mut client);
    events(&mut server);
    for (streams, what) in [(client, "sender"), (server, "receiver")] {
        let memory = streams.memory();
        assert!(memory < 100_000, "{what}: {memory} bytes");
        assert_reports_what_it_holds(streams, what, 0);
    }
}
