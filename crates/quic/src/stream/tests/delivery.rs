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

#[test]
fn end_of_a_stream_comes_with_its_last_data_or_alone() {
    let (mut client, mut server) = pair(Config::default());
    for end_comes_later in [false, true] {
        let id = client.open(UNI).expect("a stream");
        let read = |server: &mut Streams, max| {
            let read = server.read_chunk_with_end(id, max);
            read.map(|(chunk, is_last)| (chunk.to_vec(), is_last))
        };
        client.write(id, b"data").expect("room");
        if !end_comes_later {
            client.finish(id).expect("an end");
        }
        let packet = fill(&mut client).expect("a packet");
        deliver(&mut server, &packet.bytes).expect("a stream");
        assert_eq!(read(&mut server, 3), Ok((b"dat".to_vec(), false)));
        assert_eq!(read(&mut server, 3), Ok((b"a".to_vec(), !end_comes_later)));
        if end_comes_later {
            assert_eq!(read(&mut server, 3), Err(ReadError::Blocked));
            client.finish(id).expect("an end");
            let packet = fill(&mut client).expect("a packet");
            deliver(&mut server, &packet.bytes).expect("an end");
            assert_eq!(read(&mut server, 3), Ok((Vec::new(), true)));
        }
        assert_eq!(read(&mut server, 3), Err(ReadError::Unknown));
    }
}
