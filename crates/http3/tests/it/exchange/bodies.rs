//! Messages: header sections, bodies, trailers.

use bytes::Bytes;
use clearway_http3::{Body, BodyError, Field, Limits, Request, Response, SendError, field};
use clearway_quic::stream::StreamId;

use crate::common::{CLEAN_PATH, Setup, World, pattern};
use crate::exchange::pair::{Pair, get, post, respond};

#[test]
fn get_receives_a_small_body() {
    let mut pair = Pair::connected();
    let id = pair.request(&get().with("user-agent", "test"), true);
    assert_eq!(id.as_u64(), 0);
    let log = pair.run_until_response(id, |world, _, id, request| {
        assert_eq!(request, &get().with("user-agent", "test"));
        respond(
            world,
            id,
            &Response::new(200).with("content-length", "5"),
            "hello",
        );
    });
    assert_eq!(log.body, b"hello");
    assert_eq!(
        log.response,
        Some(Response::new(200).with("content-length", "5"))
    );
    assert!(pair.server.log(id).ended);
    pair.assert_idle();
}

#[test]
fn bodies_and_trailers_arrive_in_both_directions() {
    let mut pair = Pair::connected();
    let up: Vec<Bytes> = (0..40).map(|i| pattern(i * 1000 + 1)).collect();
    let down: Vec<Bytes> = vec![pattern(1_500_000), pattern(1), pattern(4096), pattern(4097)];
    let trailers = |name: &'static str| vec![field(name, "done"), field("x", "")];
    let id = pair.request(&post(), false);
    pair.client.write(id, up.clone(), Some(trailers("up")));
    let answer = down.clone();
    let log = pair.run_until_response(id, |world, server, id, _| {
        let (http, quic) = world.server.split();
        http.respond(quic, id, &Response::new(200), false)
            .expect("responds");
        server.write(id, answer.clone(), Some(trailers("down")));
    });
    assert!(log.body == down.concat(), "{} bytes down", log.body.len());
    assert_eq!(log.trailers, Some(trailers("down")));
    let asked = pair.server.log(id);
    assert!(asked.body == up.concat(), "{} bytes up", asked.body.len());
    assert_eq!(asked.trailers, Some(trailers("up")));
    assert!(asked.ended);
    pair.assert_idle();
}

#[test]
fn interim_responses_do_not_end_a_request() {
    let mut pair = Pair::connected();
    let id = pair.request(&get(), true);
    let log = pair.run_until_response(id, |world, _, id, _| {
        let (http, quic) = world.server.split();
        let hint = Response::new(103).with("link", "</a.css>");
        for interim in [&Response::new(100), &hint] {
            http.send_informational(quic, id, interim).expect("informs");
        }
        assert!(
            http.send_informational(quic, id, &Response::new(200))
                .is_err()
        );
        respond(world, id, &Response::new(200), "x");
        let (http, quic) = world.server.split();
        assert!(
            http.send_informational(quic, id, &Response::new(100))
                .is_err()
        );
    });
    let statuses: Vec<_> = log.informational.iter().map(|r| r.status).collect();
    assert_eq!(statuses, [100, 103]);
    assert_eq!(log.informational[1].fields, [field("link", "</a.css>")]);
    assert_eq!(log.body, b"x");
    pair.assert_idle();
}

#[test]
fn messages_without_content_end_with_their_header_section() {
    let mut pair = Pair::connected();
    for (method, status, length) in [
        ("GET", 200, Some("0")),
        ("GET", 200, None),
        ("HEAD", 200, Some("1234")),
        ("GET", 204, None),
        ("GET", 304, Some("77")),
        ("POST", 201, None),
    ] {
        let mut request = Request::new(method, "localhost", "/");
        if method == "POST" {
            request = request.with("content-length", "0");
        }
        let id = pair.request(&request, true);
        let mut response = Response::new(status);
        if let Some(length) = length {
            response = response.with("content-length", length);
        }
        let expected = response.clone();
        let log = pair.run_until_response(id, |world, _, id, _| {
            let (http, quic) = world.server.split();
            http.respond(quic, id, &response, true).expect("responds");
        });
        assert_eq!(log.response, Some(expected), "{method} {status}");
        assert!(log.body.is_empty() && log.failed.is_none());
    }
    pair.assert_idle();
}

#[test]
fn sender_cannot_exceed_or_miss_its_content_length() {
    let mut pair = Pair::connected();
    let bad = get().with("Upper", "x");
    let (http, quic) = pair.world.client.split();
    assert!(matches!(
        http.request(quic, &bad, true),
        Err(SendError::Malformed(_))
    ));
    let short = post().with("content-length", "5");
    assert_eq!(
        http.request(quic, &short, true),
        Err(SendError::WrongLength)
    );
    let id = http.request(quic, &short, false).expect("a request");
    let mut long = Bytes::from_static(b"123456");
    assert_eq!(
        http.write_body(quic, id, &mut long),
        Err(SendError::WrongLength)
    );
    assert_eq!(long.len(), 6);
    let mut part = Bytes::from_static(b"123");
    assert_eq!(http.write_body(quic, id, &mut part), Ok(()));
    assert!(part.is_empty());
    assert_eq!(http.finish(quic, id), Err(SendError::WrongLength));
    let mut rest = Bytes::from_static(b"45");
    assert_eq!(http.write_body(quic, id, &mut rest), Ok(()));
    assert_eq!(http.finish(quic, id), Ok(()));
    assert_eq!(http.finish(quic, id), Err(SendError::Unknown));
    let log = pair.run_until_response(id, |world, _, id, _| {
        let (http, quic) = world.server.split();
        let mut early = Bytes::from_static(b"x");
        assert!(matches!(
            http.write_body(quic, id, &mut early),
            Err(SendError::OutOfOrder(_))
        ));
        assert!(matches!(
            http.finish(quic, id),
            Err(SendError::OutOfOrder(_))
        ));
        let none = Response::new(204);
        assert_eq!(
            http.respond_with_body(quic, id, &none, Bytes::from_static(b"x")),
            Err(SendError::WrongLength)
        );
        http.respond(quic, id, &none, false).expect("responds");
        assert_eq!(
            http.write_body(quic, id, &mut early),
            Err(SendError::WrongLength)
        );
        assert!(
            http.respond(quic, id, &none, false).is_err(),
            "a second one"
        );
        http.finish(quic, id).expect("finishes");
    });
    assert_eq!(log.response, Some(Response::new(204)));
    assert_eq!(pair.server.log(id).body, b"12345");
    pair.assert_idle();
}

/// Many requests, at most `at_once` at a time; every response names its request.
fn many(path: &str, seed: u64, count: usize, at_once: usize) {
    let mut setup = Setup::default();
    setup.server_quic.streams.max_bidi_streams = at_once as u64;
    let mut world = World::new(setup, path, seed);
    world.handshake();
    let mut pair = Pair::new(world);
    let mut sent = Vec::new();
    let (client, server) = (&mut pair.client, &mut pair.server);
    pair.world.must("all answers", |world| {
        client.process(&mut world.client);
        for (id, request) in server.process(&mut world.server) {
            let response = Response::new(200).with("x-path", request.path.clone());
            respond(world, id, &response, request.path);
        }
        let (http, quic) = world.client.split();
        while sent.len() < count {
            let request = Request::get("localhost", format!("/{}", sent.len()));
            match http.request(quic, &request.with("user-agent", "many"), true) {
                Ok(id) => sent.push(id),
                Err(SendError::TooManyRequests) => break,
                Err(error) => panic!("{error}"),
            }
        }
        sent.len() == count && sent.iter().all(|id| client.log(*id).ended)
    });
    for (i, id) in sent.iter().enumerate() {
        assert_eq!(pair.client.log(*id).body, format!("/{i}").as_bytes());
    }
    assert_eq!(pair.world.server.app.counters().requests, count as u64);
    pair.assert_idle();
}

#[test]
fn thousands_of_requests_are_answered() {
    many("rate=100M delay=5ms queue=1000", 1, 5000, 100);
}

#[test]
fn requests_are_answered_over_a_lossy_path() {
    for seed in 0..3 {
        many("rate=20M delay=10ms queue=250 loss=5%", seed, 300, 50);
    }
}

#[test]
fn bodies_arrive_over_a_lossy_path() {
    let mut world = World::new(Setup::default(), "rate=20M delay=10ms queue=250 loss=5%", 7);
    world.handshake();
    let mut pair = Pair::new(world);
    let body = pattern(400_000);
    let ids: Vec<StreamId> = (0..4)
        .map(|_| {
            let id = pair.request(&post(), false);
            let trailers = Some(vec![field("sum", "1")]);
            pair.client.write(id, vec![body.clone()], trailers);
            id
        })
        .collect();
    pair.serve(
        "four echoes",
        |world, server, id, _| {
            let (http, quic) = world.server.split();
            http.respond(quic, id, &Response::new(200), false)
                .expect("responds");
            server.write(id, vec![body.clone()], None);
        },
        |client, server| {
            ids.iter()
                .all(|id| client.log(*id).ended && server.log(*id).ended)
        },
    );
    for id in ids {
        assert!(pair.client.log(id).body == body);
        assert!(pair.server.log(id).body == body);
        assert_eq!(pair.server.log(id).trailers, Some(vec![field("sum", "1")]));
    }
    pair.assert_idle();
}

#[test]
fn slow_reader_blocks_the_writer() {
    let mut setup = Setup::default();
    setup.client_quic.streams.stream_window = 16 << 10;
    setup.client_quic.streams.receive_budget = 1 << 20;
    let mut pair = Pair::new(World::connected(setup));
    let id = pair.request(&get(), true);
    let body = pattern(2_000_000);
    let (mut written, mut blocked) = (0, 0);
    let mut got = Vec::new();
    let (server, client) = (&mut pair.server, &mut pair.client);
    pair.world.must("the body", |world| {
        client.process(&mut world.client);
        for (id, _) in server.process(&mut world.server) {
            let (http, quic) = world.server.split();
            http.respond(quic, id, &Response::new(200), false)
                .expect("responds");
        }
        let (http, quic) = world.server.split();
        while written < body.len() {
            let mut piece = body.slice(written..body.len().min(written + 10_000));
            let len = piece.len();
            match http.write_body(quic, id, &mut piece) {
                Ok(()) => written += len,
                Err(SendError::Blocked) => {
                    assert_eq!(piece.len(), len, "taken in part");
                    blocked += 1;
                    break;
                }
                Err(SendError::Unknown | SendError::OutOfOrder(_)) => break,
                Err(error) => panic!("{error}"),
            }
            if written == body.len() {
                http.finish(quic, id).expect("finishes");
            }
        }
        got.clone_from(&client.log(id).body);
        client.log(id).ended
    });
    assert!(blocked > 0, "the window never closed");
    assert!(got == body);
}

#[test]
fn read_before_the_response_blocks_and_after_its_end_fails() {
    let mut pair = Pair::connected();
    let id = pair.request(&get(), true);
    let (http, quic) = pair.world.client.split();
    assert_eq!(http.read_body(quic, id), Ok(Body::Blocked));
    let none = StreamId::from_wire(400);
    assert_eq!(http.read_body(quic, none), Err(BodyError::Unknown));
    pair.run_until_response(id, |world, _, id, _| {
        respond(world, id, &Response::new(200), "x");
    });
    let (http, quic) = pair.world.client.split();
    assert_eq!(http.read_body(quic, id), Err(BodyError::Unknown));
}

#[test]
fn fields_arrive_unchanged_with_compression() {
    let mut pair = Pair::connected();
    let secret = Field {
        sensitive: true,
        ..field("authorization", "Basic c2VjcmV0")
    };
    for round in 0..20 {
        let mut request = get()
            .with("x-round", format!("{round}"))
            .with("accept", "*/*");
        request.fields.push(secret.clone());
        let id = pair.request(&request, true);
        let sent = request.clone();
        let log = pair.run_until_response(id, |world, _, id, request| {
            assert_eq!(request, &sent);
            let response = Response::new(200)
                .with("set-cookie", "a=b")
                .with("set-cookie", "c=d")
                .with("server", "clearway");
            respond(world, id, &response, "x");
        });
        let fields = &log.response.as_ref().expect("a response").fields;
        assert_eq!(fields.len(), 3);
        let [first, second, _] = &fields[..] else {
            unreachable!()
        };
        assert_eq!(
            (&first.value[..], &second.value[..]),
            (&b"a=b"[..], &b"c=d"[..])
        );
    }
    pair.assert_idle();
}

#[test]
fn oversized_header_section_is_not_sent_or_answered_with_431() {
    let mut setup = Setup::default();
    setup.server.limits = Limits {
        max_field_section: 1000,
        ..Limits::default()
    };
    let mut pair = Pair::new(World::connected(setup.clone()));
    let large = get().with("x", vec![b'x'; 1000]);
    let (http, quic) = pair.world.client.split();
    let refused = http.request(quic, &large, true);
    assert!(
        matches!(refused, Err(SendError::TooLarge { limit: 1000, .. })),
        "{refused:?}"
    );
    // A client that does not know the limit yet sends it, and receives 431.
    let mut world = World::new(setup, CLEAN_PATH, 1);
    world.connect();
    world.must("keys", |world| !world.client.connection().is_handshaking());
    let mut pair = Pair::new(world);
    let id = pair.request(&large, true);
    let log = pair.run_until_response(id, |_, _, _, _| panic!("the request is reported"));
    assert_eq!(log.response.as_ref().map(|r| r.status), Some(431));
    assert_eq!(pair.world.server.app.counters().too_large, 1);
    pair.assert_idle();
}
