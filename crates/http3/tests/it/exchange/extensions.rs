//! Tunnels, datagrams, priorities, requests in 0-RTT.

use std::time::Duration;

use bytes::Bytes;
use clearway_http3::{Code, Event, Priority, Request, Response, SendError};
use clearway_quic::stream::StreamId;

use crate::common::{Setup, World, pattern};
use crate::exchange::talk::{Talk, get, post};

#[test]
fn a_tunnel() {
    let mut talk = Talk::calm();
    let id = talk.request(&Request::connect("example.org:443"), false);
    talk.serve(
        "the tunnel",
        |world, _, id, request| {
            assert!(request.is_connect() && request.authority == "example.org:443");
            let (http, quic) = world.server.split();
            http.respond(quic, id, &Response::new(200), false)
                .expect("responds");
            assert!(http.send_trailers(quic, id, &[]).is_err(), "in a tunnel");
        },
        |client, _| client.heard(id).response.is_some(),
    );
    talk.client.write(id, vec![pattern(100_000)], None);
    talk.server.write(id, vec![pattern(200_000)], None);
    talk.serve(
        "both ends",
        |_, _, _, _| {},
        |client, server| client.heard(id).ended && server.heard(id).ended,
    );
    assert!(talk.client.heard(id).body == pattern(200_000));
    assert!(talk.server.heard(id).body == pattern(100_000));
    talk.settle();
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
fn extended_connect_with_datagrams() {
    let mut talk = Talk::new(World::calm(datagram_setup()));
    let id = talk.request(&extended().with("capsule-protocol", "?1"), false);
    talk.serve(
        "the tunnel",
        |world, _, id, request| {
            assert_eq!(request.protocol, "connect-udp");
            let (http, quic) = world.server.split();
            http.respond(quic, id, &Response::new(200), false)
                .expect("responds");
            http.send_datagram(quic, id, b"from the server")
                .expect("sends");
        },
        |client, _| client.heard(id).response.is_some(),
    );
    let (http, quic) = talk.world.client.split();
    let room = http.max_datagram_size(quic, id).expect("room");
    assert!(room > 1000);
    http.send_datagram(quic, id, &pattern(room)).expect("sends");
    assert!(http.send_datagram(quic, id, &pattern(room + 1)).is_err());
    assert!(
        http.send_datagram(quic, StreamId::from_wire(40), b"x")
            .is_err()
    );
    talk.world.run_for(Duration::from_millis(200));
    let (http, quic) = talk.world.server.split();
    assert_eq!(http.recv_datagram(quic), Some((id, pattern(room))));
    assert_eq!(http.recv_datagram(quic), None);
    let (http, quic) = talk.world.client.split();
    let got = http.recv_datagram(quic);
    assert_eq!(got, Some((id, Bytes::from_static(b"from the server"))));
    talk.client.turn(&mut talk.world.client);
    assert!(talk.client.others.contains(&Event::DatagramReceived));
}

#[test]
fn what_was_not_offered_is_not_used() {
    let mut talk = Talk::calm();
    let (http, quic) = talk.world.client.split();
    assert!(matches!(
        http.request(quic, &extended(), false),
        Err(SendError::Unsupported(_))
    ));
    let id = http.request(quic, &get(), true).expect("a request");
    assert!(http.send_datagram(quic, id, b"x").is_err());
    assert_eq!(http.max_datagram_size(quic, id), None);
}

#[test]
fn priorities_reach_the_scheduler() {
    let mut talk = Talk::calm();
    let slow = talk.request(&get().with("priority", "u=6"), true);
    let usual = talk.request(&get(), true);
    let quick = talk.request(&get().with("priority", "u=5"), true);
    let (http, quic) = talk.world.client.split();
    let first = Priority {
        urgency: 0,
        incremental: true,
    };
    http.set_priority(quic, quick, first).expect("says so");
    let mut order = Vec::new();
    let ids = [slow, usual, quick];
    talk.serve(
        "three bodies",
        |world, server, id, _| {
            let (http, quic) = world.server.split();
            http.respond(quic, id, &Response::new(200), false)
                .expect("responds");
            server.write(id, vec![pattern(300_000)], None);
        },
        |client, _| {
            for id in ids {
                if client.heard(id).ended && !order.contains(&id) {
                    order.push(id);
                }
            }
            order.len() == 3
        },
    );
    assert_eq!(order, [quick, usual, slow]);
    talk.settle();
    // Once a request has arrived, a change is told.
    let late = talk.request(&post(), false);
    talk.serve(
        "the request",
        |_, _, _, _| {},
        |_, server| server.heard(late).request.is_some(),
    );
    assert_eq!(
        talk.world.server.http().priority(late),
        Some(Priority::default())
    );
    let (http, quic) = talk.world.client.split();
    http.set_priority(quic, late, first).expect("says so");
    let changed = Event::PriorityChanged {
        stream: late,
        priority: first,
    };
    talk.serve(
        "the change",
        |_, _, _, _| {},
        |_, server| server.others.contains(&changed),
    );
    assert_eq!(talk.world.server.http().priority(late), Some(first));
}

/// A first connection for a ticket, then a request in 0-RTT while the server's
/// settings have become what `change` makes of them.
fn early(change: impl FnOnce(&mut clearway_http3::Config)) -> (Talk, StreamId) {
    let mut setup = Setup::default();
    setup.server.extended_connect = true;
    let mut world = World::calm(setup);
    world.run_for(Duration::from_secs(1));
    let known = *world.client.http().peer_settings().expect("settings");
    assert!(known.enable_connect_protocol);
    world
        .client
        .quic()
        .close(clearway_quic::Instant::ZERO, 0x100, b"");
    world.run_for(Duration::from_secs(5));
    world
        .client
        .configure(|config| config.remembered_settings = Some(known));
    world.server.configure(change);
    world.connect();
    assert!(world.client.quic().has_zero_rtt());
    let (http, quic) = world.client.split();
    http.start(quic);
    // Allowed by what is remembered.
    let id = http.request(quic, &extended(), false).expect("a request");
    (Talk::new(world), id)
}

#[test]
fn remembered_settings_allow_early_requests() {
    let (mut talk, id) = early(|config| config.limits.max_field_section += 1);
    talk.serve(
        "a response",
        |world, _, id, _| {
            let (http, quic) = world.server.split();
            http.respond(quic, id, &Response::new(200), false)
                .expect("responds");
        },
        |client, _| client.heard(id).response.is_some(),
    );
    assert_eq!(talk.world.client.quic().zero_rtt_accepted(), Some(true));
    assert_eq!(talk.world.client.closed, None);
}

#[test]
fn settings_must_not_shrink_after_early_data() {
    let (mut talk, _) = early(|config| config.limits.max_field_section -= 1);
    let code = talk.world.own_close_code(clearway_quic::Role::Client);
    assert_eq!(code, Some(Code::SETTINGS_ERROR));
    let (mut talk, _) = early(|config| config.qpack_max_table_capacity *= 2);
    let code = talk.world.own_close_code(clearway_quic::Role::Client);
    assert_eq!(code, Some(Code::QPACK_DECODER_STREAM_ERROR));
}
