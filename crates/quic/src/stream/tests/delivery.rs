//! What an end knows about the delivery of what it sent, and about what is new in what it receives.

use super::*;

#[test]
fn end_of_a_stream_is_undelivered_until_it_is_acknowledged() {
    let (mut client, _) = pair(Config::default());
    let id = client.open(UNI).expect("a stream");
    client.write(id, b"data").expect("room");
    assert!(!client.has_undelivered_ends(), "it goes on");
    client.finish(id).expect("an end");
    assert!(client.has_undelivered_ends(), "not sent");
    let first = fill(&mut client).expect("a packet");
    assert!(client.has_undelivered_ends(), "in flight");
    lost(&mut client, &first);
    let second = fill(&mut client).expect("a packet");
    acked(&mut client, &second);
    assert!(!client.has_undelivered_ends());
    let id = client.open(UNI).expect("a stream");
    client.write(id, b"data").expect("room");
    client.reset(id, 7).expect("a reset");
    let reset = fill(&mut client).expect("a packet");
    assert!(client.has_undelivered_ends(), "reset");
    acked(&mut client, &reset);
    assert!(!client.has_undelivered_ends());
}

/// Nothing of it is stored, so only the offsets tell.
#[test]
fn data_of_a_stopped_stream_is_new_once() {
    let (mut client, mut server) = pair(Config::default());
    let id = client.open(UNI).expect("a stream");
    client.write(id, b"first").expect("room");
    let packet = fill(&mut client).expect("a packet");
    deliver(&mut server, &packet.bytes).expect("a stream");
    assert_eq!(server.accept(UNI), Some(id));
    server.stop(id, 7).expect("a stop");
    assert_eq!(server.on_stream(id, 5, false, b"more"), Ok(true));
    assert_eq!(server.on_stream(id, 5, false, b"more"), Ok(false));
    assert_eq!(server.on_stream(id, 9, false, b""), Ok(false));
}
