//! Tunnels, datagrams, priorities, requests in 0-RTT.

use std::time::Duration;

use bytes::Bytes;
use clearway_http3::{Code, Event, Priority, Request, Response, SendError};
use clearway_quic::stream::StreamId;

use crate::common::{Setup, World, pattern};
use crate::exchange::pair::{Pair, get, post};

#[test]
fn connect_opens_a_tunnel_in_both_directions() {
    let mut pair = Pair::connected();
    let id = pair.request(&Request::connect("example.org:443"), false);
    pair.serve(
        "the tunnel",
        |world, _, id, request| {
            assert!(request.is_connect() && request.authority == "example.org:443");
            let (http, quic) = world.server.split();
            http.respond(quic, id, &Response::new(200), false)
                .expect("responds");
            assert!(http.send_trailers(quic, id, &[]).is_err(), "in a tunnel");
        },
        |client, _| client.log(id).response.is_some(),
    );
    pair.client.write(id, vec![pattern(100_000)], None);
    pair.server.write(id, vec![pattern(200_000)], None);
    pair.serve(
        "both ends",
        |_, _, _, _| {},
        |client, server| client.log(id).ended && server.log(id).ended,
    );
    assert!(pair.client.log(id).body == pattern(200_000));
    assert!(pair.server.log(id).body == pattern(100_000));
    pair.assert_idle();
}

fn datagram_setup() -> Setup {
    let mut setup = Setup::default();
    for config in [&mut setup.client, &mut setup.server] {
        config.datagrams = true;
        config.extended_connect = true;
    }
    for config in [&mut setup.client_quic, &mut setup.server_quic] {
        config.datagram_buffer = 1 << 20;
    }
    setup
}

fn extended() -> Request {
    Request {
        protocol: "connect-udp".into(),
        path: "/.well-known/masque/udp/a/1/".into(),
        scheme: "https".into(),
        ..Request::connect("localhost")
    }
}

#[test]
fn extended_connect_carries_datagrams() {
    let mut pair = Pair::new(World::connected(datagram_setup()));
    let id = pair.request(&extended().with("capsule-protocol", "?1"), false);
    pair.serve(
        "the tunnel",
        |world, _, id, request| {
            assert_eq!(request.protocol, "connect-udp");
            let (http, quic) = world.server.split();
            http.respond(quic, id, &Response::new(200), false)
                .expect("responds");
            http.send_datagram(quic, id, b"from the server")
                .expect("sends");
        },
        |client, _| client.log(id).response.is_some(),
    );
    let (http, quic) = pair.world.client.split();
    let room = http.max_datagram_size(quic, id).expect("room");
    assert!(room > 1000);
    http.send_datagram(quic, id, &pattern(room)).expect("sends");
    assert!(http.send_datagram(quic, id, &pattern(room + 1)).is_err());
    assert!(
        http.send_datagram(quic, StreamId::from_wire(40), b"x")
            .is_err()
    );
    pair.world.run_for(Duration::from_millis(200));
    let (http, quic) = pair.world.server.split();
    assert_eq!(http.recv_datagram(quic), Some((id, pattern(room))));
    assert_eq!(http.recv_datagram(quic), None);
    let (http, quic) = pair.world.client.split();
    let got = http.recv_datagram(quic);
    assert_eq!(got, Some((id, Bytes::from_static(b"from the server"))));
    pair.client.process(&mut pair.world.client);
    assert!(pair.client.others.contains(&Event::DatagramReceived));
}

/// The quarter stream ID of the next request, and a payload.
fn early_datagram(id: StreamId, payload: &[u8]) -> Bytes {
    clearway_http3::datagram::encode(id, payload)
}

#[test]
fn datagrams_before_their_request_are_received_after_it() {
    let mut pair = Pair::new(World::connected(datagram_setup()));
    let (first, second) = (StreamId::from_wire(0), StreamId::from_wire(4));
    let (_, quic) = pair.world.client.split();
    for (id, payload) in [(second, "other"), (first, "one"), (first, "two")] {
        let datagram = early_datagram(id, payload.as_bytes());
        quic.send_datagram(datagram).expect("sends");
    }
    pair.world.run_for(Duration::from_millis(200));
    let (http, quic) = pair.world.server.split();
    assert_eq!(http.recv_datagram(quic), None, "before the request");
    assert_eq!(pair.request(&extended(), false), first);
    pair.world.run_for(Duration::from_millis(200));
    let events: Vec<Event> = pair.world.server.app.events.drain(..).collect();
    let (http, quic) = pair.world.server.split();
    let request = events
        .iter()
        .position(|it| matches!(it, Event::Request { .. }));
    let datagram = events.iter().rposition(|it| *it == Event::DatagramReceived);
    assert!(request.is_some() && request < datagram, "{events:?}");
    for payload in ["one", "two"] {
        let received = http.recv_datagram(quic);
        assert_eq!(received, Some((first, Bytes::from(payload))));
    }
    assert_eq!(http.recv_datagram(quic), None);
    assert_eq!(http.counters().datagrams_dropped, 0);
    // The client's second request was never sent: the memory is released when the connection rests.
    http.release();
    assert_eq!(http.counters().datagrams_dropped, 1);
}

#[test]
fn datagram_for_a_request_without_semantics_resets_it() {
    for early in [true, false] {
        let mut pair = Pair::new(World::connected(datagram_setup()));
        let send = |pair: &mut Pair| {
            let (_, quic) = pair.world.client.split();
            let datagram = early_datagram(StreamId::from_wire(0), b"x");
            quic.send_datagram(datagram).expect("sends");
            pair.world.run_for(Duration::from_millis(200));
        };
        if early {
            send(&mut pair);
        }
        let id = pair.request(&post(), false);
        pair.world.run_for(Duration::from_millis(200));
        if !early {
            send(&mut pair);
        }
        let (http, quic) = pair.world.server.split();
        assert_eq!(http.recv_datagram(quic), None);
        let events: Vec<Event> = std::iter::from_fn(|| http.poll_event()).collect();
        let failed = events.iter().find_map(|event| match event {
            Event::Failed { stream, error } => Some((*stream, error.code)),
            _ => None,
        });
        assert_eq!(failed, Some((id, Code::DATAGRAM_ERROR)), "{events:?}");
        assert_eq!(http.open_requests(), 0);
    }
}

#[test]
fn extensions_that_the_peer_does_not_offer_are_unsupported() {
    let mut pair = Pair::connected();
    let (http, quic) = pair.world.client.split();
    assert!(matches!(
        http.request(quic, &extended(), false),
        Err(SendError::Unsupported(_))
    ));
    let id = http.request(quic, &get(), true).expect("a request");
    assert!(http.send_datagram(quic, id, b"x").is_err());
    assert_eq!(http.max_datagram_size(quic, id), None);
}

#[test]
fn responses_are_sent_in_the_order_of_their_priorities() {
    let mut pair = Pair::connected();
    let slow = pair.request(&get().with("priority", "u=6"), true);
    let usual = pair.request(&get(), true);
    let quick = pair.request(&get().with("priority", "u=5"), true);
    let (http, quic) = pair.world.client.split();
    let first = Priority {
        urgency: 0,
        incremental: true,
    };
    http.set_priority(quic, quick, first)
        .expect("the request is open");
    let mut order = Vec::new();
    let ids = [slow, usual, quick];
    pair.serve(
        "three bodies",
        |world, server, id, _| {
            let (http, quic) = world.server.split();
            http.respond(quic, id, &Response::new(200), false)
                .expect("responds");
            server.write(id, vec![pattern(300_000)], None);
        },
        |client, _| {
            for id in ids {
                if client.log(id).ended && !order.contains(&id) {
                    order.push(id);
                }
            }
            order.len() == 3
        },
    );
    assert_eq!(order, [quick, usual, slow]);
    pair.assert_idle();
    // Once a request has arrived, a change is reported.
    let late = pair.request(&post(), false);
    pair.serve(
        "the request",
        |_, _, _, _| {},
        |_, server| server.log(late).request.is_some(),
    );
    assert_eq!(
        pair.world.server.app.priority(late),
        Some(Priority::default())
    );
    let (http, quic) = pair.world.client.split();
    http.set_priority(quic, late, first)
        .expect("the request is open");
    let changed = Event::PriorityChanged {
        stream: late,
        priority: first,
    };
    pair.serve(
        "the change",
        |_, _, _, _| {},
        |_, server| server.others.contains(&changed),
    );
    assert_eq!(pair.world.server.app.priority(late), Some(first));
}

/// Connects once for a ticket, and then sends a request in 0-RTT to a server whose configuration
/// `change` has changed meanwhile.
fn early(change: impl FnOnce(&mut clearway_http3::Config)) -> (Pair, StreamId) {
    let mut setup = Setup::default();
    setup.server.extended_connect = true;
    let mut world = World::connected(setup);
    world.run_for(Duration::from_secs(1));
    let known = *world.client.app.peer_settings().expect("settings");
    assert!(known.enable_connect_protocol);
    world
        .client
        .connection()
        .close(clearway_quic::Instant::ZERO, 0x100, b"");
    world.run_for(Duration::from_secs(5));
    world
        .client
        .app
        .configure(|config| config.remembered_settings = Some(known));
    world.server.app.configure(change);
    world.connect();
    assert!(world.client.connection().has_zero_rtt());
    let (http, quic) = world.client.split();
    http.start(quic);
    // Allowed by the remembered settings.
    let id = http.request(quic, &extended(), false).expect("a request");
    (Pair::new(world), id)
}

#[test]
fn remembered_settings_allow_requests_in_0rtt() {
    let (mut pair, id) = early(|config| config.limits.max_field_section += 1);
    pair.serve(
        "a response",
        |world, _, id, _| {
            let (http, quic) = world.server.split();
            http.respond(quic, id, &Response::new(200), false)
                .expect("responds");
        },
        |client, _| client.log(id).response.is_some(),
    );
    assert_eq!(
        pair.world.client.connection().zero_rtt_accepted(),
        Some(true)
    );
    assert_eq!(pair.world.client.app.closed, None);
}

#[test]
fn settings_below_the_remembered_ones_close_the_connection_after_0rtt() {
    let (mut pair, _) = early(|config| config.limits.max_field_section -= 1);
    let code = pair.world.own_close_code(clearway_quic::Role::Client);
    assert_eq!(code, Some(Code::SETTINGS_ERROR));
    let (mut pair, _) = early(|config| config.qpack_max_table_capacity *= 2);
    let code = pair.world.own_close_code(clearway_quic::Role::Client);
    assert_eq!(code, Some(Code::QPACK_DECODER_STREAM_ERROR));
}
