//! Credit that gets lost on its way.

use super::*;
use crate::stream::Sendability;

/// A writer with more to say than its credit allows, and the reader.
fn pressed() -> (Streams, Streams, StreamId) {
    let (mut client, server) = pair(tight());
    let id = client.open(UNI).unwrap();
    client.write(id, &[0; 20_000]).unwrap();
    (client, server, id)
}

/// Carries so many packets and has the reader read all of them.
fn carry_some(client: &mut Streams, server: &mut Streams, id: StreamId, packets: usize) {
    for _ in 0..packets {
        let packet = fill(client).unwrap();
        deliver(server, &packet.bytes).unwrap();
        acked(client, &packet);
    }
    read_all(server, id, &mut Vec::new()).unwrap();
}

#[test]
fn max_data_is_repeated_until_acknowledged() {
    let (mut client, mut server, id) = pressed();
    carry_some(&mut client, &mut server, id, 1);
    assert_eq!(ride(&mut server).contents, [], "most of it is left");
    let first = fill(&mut server).unwrap();
    carry_some(&mut client, &mut server, id, 3);
    let again = ride(&mut server);
    let newest = StreamContent::MaxStreamData(id, server_limit(&again, id));
    assert!(again.contents.contains(&newest), "{again:?}");
    assert_eq!(ride(&mut server).contents, [], "once for what arrived");
    carry_some(&mut client, &mut server, id, 1);
    let third = ride(&mut server);
    assert!(server_limit(&third, id) > server_limit(&again, id));
    // One of them arrives: the rest of the packets need no riders.
    deliver(&mut client, &third.bytes).unwrap();
    acked(&mut server, &third);
    acked(&mut server, &first);
    carry_some(&mut client, &mut server, id, 1);
    assert_eq!(ride(&mut server).contents, []);
}

fn server_limit(packet: &Packet, id: StreamId) -> u64 {
    let limits = packet.contents.iter().filter_map(|content| match content {
        StreamContent::MaxStreamData(of, limit) if *of == id => Some(*limit),
        _ => None,
    });
    limits.max().expect("MAX_STREAM_DATA")
}

#[test]
fn repeated_max_data_does_not_cause_a_packet() {
    let (mut client, mut server, id) = pressed();
    carry_some(&mut client, &mut server, id, 3);
    let granted = fill(&mut server).unwrap();
    assert_eq!(granted.contents.len(), 2, "{granted:?}");
    carry_some(&mut client, &mut server, id, 1);
    while fill(&mut server).is_some() {}
    // The next byte leaves less than half a window, and brings nothing to grant.
    let packet = fill_at(&mut client, Instant::ZERO, 100).unwrap();
    deliver(&mut server, &packet.bytes).unwrap();
    assert!(matches!(server.sendability(), Sendability::Blocked(_)));
    assert_eq!(ride(&mut server).contents.len(), 2);
}

#[test]
fn no_max_data_is_repeated_while_nothing_is_read() {
    let (mut client, mut server, _) = pressed();
    while let Some(packet) = fill(&mut client) {
        deliver(&mut server, &packet.bytes).unwrap();
        assert_eq!(ride(&mut server).contents, []);
        assert_eq!(fill(&mut server).map(|p| p.contents), None);
    }
}

#[test]
fn stream_with_known_final_size_gets_no_max_stream_data() {
    let (mut client, mut server) = pair(tight());
    let id = client.open(UNI).unwrap();
    client.write(id, &[0; 5_000]).unwrap();
    client.finish(id).unwrap();
    carry(&mut client, &mut server);
    let mut out = [0; 4_000];
    server.read(id, &mut out).unwrap();
    client.on_lost(&StreamContent::Data {
        id,
        offset: 0,
        len: 1_000,
        fin: false,
    });
    carry(&mut client, &mut server);
    let riders = ride(&mut server).contents;
    assert!(
        riders
            .iter()
            .all(|rider| matches!(rider, StreamContent::MaxData(_))),
        "{riders:?}"
    );
}

/// The update was lost and its sender does not know yet: the blocked peer does.
#[test]
fn data_blocked_is_answered_with_current_limit() {
    let (mut client, mut server, id) = pressed();
    let mut blocked = Vec::new();
    while let Some(packet) = fill(&mut client) {
        blocked.extend(packet.contents.iter().copied());
        deliver(&mut server, &packet.bytes).unwrap();
        acked(&mut client, &packet);
    }
    assert_eq!(
        blocked.last(),
        Some(&StreamContent::StreamDataBlocked(id, 6_000))
    );
    read_all(&mut server, id, &mut Vec::new()).unwrap();
    let update = fill(&mut server).unwrap();
    assert_eq!(fill(&mut server).map(|p| p.contents), None);
    server.on_stream_data_blocked(id, 6_000).unwrap();
    server.on_data_blocked(10_000);
    let repeated = fill(&mut server).unwrap();
    assert_eq!(server_limit(&repeated, id), server_limit(&update, id));
    let newest = server_limit(&repeated, id);
    server.on_stream_data_blocked(id, newest).unwrap();
    assert_eq!(fill(&mut server).map(|p| p.contents), None, "it has it all");
}

#[test]
fn streams_blocked_is_answered_with_current_limit() {
    let (_, mut server) = pair(tight());
    server.on_streams_blocked(UNI, 2).unwrap();
    assert_eq!(fill(&mut server).map(|p| p.contents), None, "it has it all");
    server.on_streams_blocked(UNI, 1).unwrap();
    let contents = fill(&mut server).unwrap().contents;
    assert_eq!(contents, [StreamContent::MaxStreams(UNI, 2)]);
}
