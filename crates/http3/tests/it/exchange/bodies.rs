//! Messages: header sections, bodies, trailers.

use bytes::Bytes;
use clearway_http3::{Body, BodyError, Field, Limits, Request, Response, SendError, field};
use clearway_quic::stream::StreamId;

use crate::common::{CALM, Setup, World, pattern};
use crate::exchange::talk::{Talk, get, post, respond};

#[test]
fn a_get_with_a_small_body() {
    let mut talk = Talk::calm();
    let id = talk.request(&get().with("user-agent", "test"), true);
    assert_eq!(id.as_u64(), 0);
    let heard = talk.answer(id, |world, _, id, request| {
        assert_eq!(request, &get().with("user-agent", "test"));
        respond(
            world,
            id,
            &Response::new(200).with("content-length", "5"),
            "hello",
        );
    });
    assert_eq!(heard.body, b"hello");
    assert_eq!(
        heard.response,
        Some(Response::new(200).with("content-length", "5"))
    );
    assert!(talk.server.heard(id).ended);
    talk.settle();
}

#[test]
fn bodies_and_trailers_both_ways() {
    let mut talk = Talk::calm();
    let up: Vec<Bytes> = (0..40).map(|i| pattern(i * 1000 + 1)).collect();
    let down: Vec<Bytes> = vec![pattern(1_500_000), pattern(1), pattern(4096), pattern(4097)];
    let trailers = |name: &'static str| vec![field(name, "done"), field("x", "")];
    let id = talk.request(&post(), false);
    talk.client.write(id, up.clone(), Some(trailers("up")));
    let answer = down.clone();
    let heard = talk.answer(id, |world, server, id, _| {
        let (http, quic) = world.server.split();
        http.respond(quic, id, &Response::new(200), false)
            .expect("responds");
        server.write(id, answer.clone(), Some(trailers("down")));
    });
    assert!(
        heard.body == down.concat(),
        "{} bytes down",
        heard.body.len()
    );
    assert_eq!(heard.trailers, Some(trailers("down")));
    let asked = talk.server.heard(id);
    assert!(asked.body == up.concat(), "{} bytes up", asked.body.len());
    assert_eq!(asked.trailers, Some(trailers("up")));
    assert!(asked.ended);
    talk.settle();
}

#[test]
fn interim_responses_do_not_end_a_request() {
    let mut talk = Talk::calm();
    let id = talk.request(&get(), true);
    let heard = talk.answer(id, |world, _, id, _| {
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
    let statuses: Vec<_> = heard.informational.iter().map(|r| r.status).collect();
    assert_eq!(statuses, [100, 103]);
    assert_eq!(heard.informational[1].fields, [field("link", "</a.css>")]);
    assert_eq!(heard.body, b"x");
    talk.settle();
}

#[test]
fn messages_without_content() {
    let mut talk = Talk::calm();
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
        let id = talk.request(&request, true);
        let mut response = Response::new(status);
        if let Some(length) = length {
            response = response.with("content-length", length);
        }
        let expected = response.clone();
        let heard = talk.answer(id, |world, _, id, _| {
            let (http, quic) = world.server.split();
            http.respond(quic, id, &response, true).expect("responds");
        });
        assert_eq!(heard.response, Some(expected), "{method} {status}");
        assert!(heard.body.is_empty() && heard.failed.is_none());
    }
    talk.settle();
}

#[test]
fn a_sender_is_held_to_its_own_words() {
    let mut talk = Talk::calm();
    let bad = get().with("Upper", "x");
    let (http, quic) = talk.world.client.split();
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
    let heard = talk.answer(id, |world, _, id, _| {
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
    assert_eq!(heard.response, Some(Response::new(204)));
    assert_eq!(talk.server.heard(id).body, b"12345");
    talk.settle();
}

/// Many requests, at most so many at a time; every answer names its request.
fn many(path: &str, seed: u64, count: usize, at_once: usize) {
    let mut setup = Setup::default();
    setup.server_quic.streams.max_bidi_streams = at_once as u64;
    let mut world = World::new(setup, path, seed);
    world.handshake();
    let mut talk = Talk::new(world);
    let mut sent = Vec::new();
    let (client, server) = (&mut talk.client, &mut talk.server);
    talk.world.must("all answers", |world| {
        client.turn(&mut world.client);
        for (id, request) in server.turn(&mut world.server) {
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
        sent.len() == count && sent.iter().all(|id| client.heard(*id).ended)
    });
    for (i, id) in sent.iter().enumerate() {
        assert_eq!(talk.client.heard(*id).body, format!("/{i}").as_bytes());
    }
    assert_eq!(talk.world.server.http().counters().requests, count as u64);
    talk.settle();
}

#[test]
fn thousands_of_requests() {
    many("rate=100M delay=5ms queue=1000", 1, 5000, 100);
}

#[test]
fn requests_over_a_lossy_path() {
    for seed in 0..3 {
        many("rate=20M delay=10ms queue=250 loss=5%", seed, 300, 50);
    }
}

#[test]
fn bodies_over_a_lossy_path() {
    let mut world = World::new(Setup::default(), "rate=20M delay=10ms queue=250 loss=5%", 7);
    world.handshake();
    let mut talk = Talk::new(world);
    let body = pattern(400_000);
    let ids: Vec<StreamId> = (0..4)
        .map(|_| {
            let id = talk.request(&post(), false);
            let trailers = Some(vec![field("sum", "1")]);
            talk.client.write(id, vec![body.clone()], trailers);
            id
        })
        .collect();
    talk.serve(
        "four echoes",
        |world, server, id, _| {
            let (http, quic) = world.server.split();
            http.respond(quic, id, &Response::new(200), false)
                .expect("responds");
            server.write(id, vec![body.clone()], None);
        },
        |client, server| {
            ids.iter()
                .all(|id| client.heard(*id).ended && server.heard(*id).ended)
        },
    );
    for id in ids {
        assert!(talk.client.heard(id).body == body);
        assert!(talk.server.heard(id).body == body);
        assert_eq!(
            talk.server.heard(id).trailers,
            Some(vec![field("sum", "1")])
        );
    }
    talk.settle();
}

#[test]
fn a_slow_reader_holds_the_writer_back() {
    let mut setup = Setup::default();
    setup.client_quic.streams.stream_window = 16 << 10;
    setup.client_quic.streams.receive_budget = 1 << 20;
    let mut talk = Talk::new(World::calm(setup));
    let id = talk.request(&get(), true);
    let body = pattern(2_000_000);
    let (mut written, mut blocked) = (0, 0);
    let mut got = Vec::new();
    let (server, client) = (&mut talk.server, &mut talk.client);
    talk.world.must("the body", |world| {
        client.turn(&mut world.client);
        for (id, _) in server.turn(&mut world.server) {
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
        got.clone_from(&client.heard(id).body);
        client.heard(id).ended
    });
    assert!(blocked > 0, "the window never closed");
    assert!(got == body);
}

#[test]
fn reading_before_and_after_is_told_apart() {
    let mut talk = Talk::calm();
    let id = talk.request(&get(), true);
    let (http, quic) = talk.world.client.split();
    assert_eq!(http.read_body(quic, id), Ok(Body::Blocked));
    let none = StreamId::from_wire(400);
    assert_eq!(http.read_body(quic, none), Err(BodyError::Unknown));
    talk.answer(id, |world, _, id, _| {
        respond(world, id, &Response::new(200), "x");
    });
    let (http, quic) = talk.world.client.split();
    assert_eq!(http.read_body(quic, id), Err(BodyError::Unknown));
}

#[test]
fn fields_survive_compression() {
    let mut talk = Talk::calm();
    let secret = Field {
        sensitive: true,
        ..field("authorization", "Basic c2VjcmV0")
    };
    for round in 0..20 {
        let mut request = get()
            .with("x-round", format!("{round}"))
            .with("accept", "*/*");
        request.fields.push(secret.clone());
        let id = talk.request(&request, true);
        let sent = request.clone();
        let heard = talk.answer(id, |world, _, id, request| {
            assert_eq!(request, &sent);
            let response = Response::new(200)
                .with("set-cookie", "a=b")
                .with("set-cookie", "c=d")
                .with("server", "clearway");
            respond(world, id, &response, "x");
        });
        let fields = &heard.response.as_ref().expect("a response").fields;
        assert_eq!(fields.len(), 3);
        let [first, second, _] = &fields[..] else {
            unreachable!()
        };
        assert_eq!(
            (&first.value[..], &second.value[..]),
            (&b"a=b"[..], &b"c=d"[..])
        );
    }
    talk.settle();
}

#[test]
fn header_sections_have_a_limit_both_ways() {
    let mut setup = Setup::default();
    setup.server.limits = Limits {
        max_field_section: 1000,
        ..Limits::default()
    };
    let mut talk = Talk::new(World::calm(setup.clone()));
    let large = get().with("x", vec![b'x'; 1000]);
    let (http, quic) = talk.world.client.split();
    let refused = http.request(quic, &large, true);
    assert!(
        matches!(refused, Err(SendError::TooLarge { limit: 1000, .. })),
        "{refused:?}"
    );
    // A client that has not heard the limit yet sends it, and hears 431.
    let mut world = World::new(setup, CALM, 1);
    world.connect();
    world.must("keys", |world| !world.client.quic().is_handshaking());
    let mut talk = Talk::new(world);
    let id = talk.request(&large, true);
    let heard = talk.answer(id, |_, _, _, _| panic!("taken"));
    assert_eq!(heard.response.as_ref().map(|r| r.status), Some(431));
    assert_eq!(talk.world.server.http().counters().too_large, 1);
    talk.settle();
}
