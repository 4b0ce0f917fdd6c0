//! Requests and responses between two ends of ours.

mod common;

use std::time::Duration;

use bytes::Bytes;
use clearway_http3::{
    Body, BodyError, Code, Event, Field, Limits, Priority, Request, Response, SendError, field,
};
use clearway_quic::stream::StreamId;
use common::{CALM, Heard, Peer, Setup, World, pattern};

/// Two ends and what they hear.
struct Talk {
    world: World,
    client: Peer,
    server: Peer,
}

impl Talk {
    fn new(world: World) -> Self {
        Self {
            world,
            client: Peer::default(),
            server: Peer::default(),
        }
    }

    fn calm() -> Self {
        Self::new(World::calm(Setup::default()))
    }

    fn request(&mut self, request: &Request, end: bool) -> StreamId {
        let (http, quic) = self.world.client.split();
        http.request(quic, request, end).expect("a request")
    }

    /// Runs, serving requests with `serve`, until `done`.
    fn serve(
        &mut self,
        what: &str,
        mut serve: impl FnMut(&mut World, &mut Peer, StreamId, &Request),
        mut done: impl FnMut(&mut Peer, &mut Peer) -> bool,
    ) {
        let (client, server) = (&mut self.client, &mut self.server);
        self.world.must(what, |world| {
            client.turn(&mut world.client);
            for (id, request) in server.turn(&mut world.server) {
                serve(world, server, id, &request);
            }
            done(client, server)
        });
    }

    /// Runs until the client has the whole response.
    fn answer(
        &mut self,
        id: StreamId,
        mut serve: impl FnMut(&mut World, &mut Peer, StreamId, &Request),
    ) -> &Heard {
        self.serve(
            "a response",
            |world, server, id, request| serve(world, server, id, request),
            |client, _| client.heard(id).ended,
        );
        self.client.heard(id)
    }

    /// Both ends let go of everything.
    fn settle(&mut self) {
        self.serve(
            "idle",
            |_, _, _, _| {},
            |client, server| client.is_idle() && server.is_idle(),
        );
        self.world.run_for(Duration::from_millis(500));
        self.client.turn(&mut self.world.client);
        self.server.turn(&mut self.world.server);
        assert_eq!(self.world.client.http().open_requests(), 0);
        assert_eq!(self.world.server.http().open_requests(), 0);
        assert_eq!(
            (&self.world.client.closed, &self.world.server.closed),
            (&None, &None)
        );
    }
}

fn get() -> Request {
    Request::get("localhost", "/")
}

fn post() -> Request {
    Request::new("POST", "localhost", "/")
}

fn respond(world: &mut World, id: StreamId, response: &Response, body: impl Into<Bytes>) {
    let (http, quic) = world.server.split();
    http.respond_with(quic, id, response, body.into())
        .expect("responds");
}

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
            http.inform(quic, id, interim).expect("informs");
        }
        assert!(http.inform(quic, id, &Response::new(200)).is_err());
        respond(world, id, &Response::new(200), "x");
        let (http, quic) = world.server.split();
        assert!(http.inform(quic, id, &Response::new(100)).is_err());
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
            http.respond_with(quic, id, &none, Bytes::from_static(b"x")),
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
fn a_client_that_loses_interest() {
    let mut talk = Talk::calm();
    let id = talk.request(&get(), true);
    let started = |client: &mut Peer| !client.heard(id).body.is_empty();
    talk.serve(
        "the body to begin",
        |world, server, id, _| {
            let (http, quic) = world.server.split();
            http.respond(quic, id, &Response::new(200), false)
                .expect("responds");
            server.write(id, (0..200).map(|_| pattern(50_000)).collect(), None);
        },
        |client, _| started(client),
    );
    let (http, quic) = talk.world.client.split();
    http.cancel(quic, id);
    assert_eq!(http.read_body(quic, id), Err(BodyError::Unknown));
    talk.serve(
        "the server to hear",
        |_, _, _, _| {},
        |_, server| server.heard(id).stopped == Some(Code::REQUEST_CANCELLED),
    );
    assert_eq!(talk.world.server.http().counters().abandoned, 1);
    let next = talk.request(&get(), true);
    let heard = talk.answer(next, |world, _, id, _| {
        respond(world, id, &Response::new(200), "still here");
    });
    assert_eq!(heard.body, b"still here");
    talk.settle();
}

#[test]
fn a_server_that_breaks_off() {
    let mut talk = Talk::calm();
    let id = talk.request(&get(), true);
    talk.serve(
        "the reset",
        |world, _, id, _| {
            let (http, quic) = world.server.split();
            let response = Response::new(200).with("content-length", "10");
            http.respond(quic, id, &response, false).expect("responds");
            let mut half = Bytes::from_static(b"12345");
            http.write_body(quic, id, &mut half).expect("writes");
            http.reset(quic, id, Code::INTERNAL_ERROR);
        },
        |client, _| client.heard(id).reset.is_some(),
    );
    assert_eq!(talk.client.heard(id).reset, Some(Code::INTERNAL_ERROR));
    talk.settle();
}

#[test]
fn an_early_response_needs_no_more_of_the_request() {
    let mut talk = Talk::calm();
    let id = talk.request(&post(), false);
    talk.client
        .write(id, (0..400).map(|_| pattern(50_000)).collect(), None);
    let heard = talk.answer(id, |world, _, id, _| {
        let (http, quic) = world.server.split();
        http.stop(quic, id, Code::NO_ERROR);
        http.respond_with(quic, id, &Response::new(413), Bytes::from_static(b"no"))
            .expect("responds");
    });
    assert_eq!(heard.body, b"no");
    assert_eq!(heard.stopped, Some(Code::NO_ERROR));
    talk.settle();
}

#[test]
fn a_graceful_shutdown_loses_nothing() {
    let mut talk = Talk::calm();
    let first = talk.request(&get(), true);
    talk.serve(
        "the first to arrive",
        |_, _, _, _| {},
        |_, server| server.heard(first).request.is_some(),
    );
    let (http, quic) = talk.world.server.split();
    http.shutdown(quic);
    // On its way while the server says that it will end.
    let second = talk.request(&get(), true);
    talk.serve(
        "the second to arrive",
        |_, _, _, _| {},
        |_, server| server.heard(second).request.is_some(),
    );
    talk.serve(
        "the warning",
        |_, _, _, _| {},
        |client, _| client.others.contains(&Event::GoAway { id: (1 << 62) - 4 }),
    );
    let (http, quic) = talk.world.client.split();
    assert_eq!(http.request(quic, &get(), true), Err(SendError::GoingAway));
    let (http, quic) = talk.world.server.split();
    http.shutdown(quic);
    http.shutdown(quic);
    for id in [first, second] {
        respond(&mut talk.world, id, &Response::new(200), "bye");
    }
    talk.serve(
        "the answers",
        |_, _, _, _| {},
        |client, _| {
            client.others.contains(&Event::GoAway { id: 8 })
                && client.heard(first).ended
                && client.heard(second).ended
        },
    );
    assert!(talk.world.server.http().is_going_away());
    talk.settle();
}

#[test]
fn requests_after_the_last_word_can_be_repeated_elsewhere() {
    let mut talk = Talk::calm();
    let (http, quic) = talk.world.server.split();
    http.shutdown(quic);
    http.shutdown(quic);
    let id = talk.request(&get(), true);
    talk.serve(
        "the rejection",
        |_, _, _, _| panic!("served"),
        |client, _| client.heard(id).rejected,
    );
    talk.settle();
    assert_eq!(talk.world.server.http().counters().rejected, 1);
}

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
            assert!(http.trailers(quic, id, &[]).is_err(), "in a tunnel");
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
fn an_idle_connection_is_small() {
    let mut talk = Talk::calm();
    let id = talk.request(&get(), true);
    talk.answer(id, |world, _, id, _| {
        respond(world, id, &Response::new(200), "x");
    });
    talk.settle();
    for http in [talk.world.client.http(), talk.world.server.http()] {
        http.release();
        let size = size_of::<clearway_http3::Connection>();
        assert!(size <= 1536, "{size} bytes");
        assert!(http.memory() <= 4096, "{} bytes", http.memory());
    }
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
        .configure(|config| config.remembered = Some(known));
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
    let code = talk.world.close_code(clearway_quic::Role::Client);
    assert_eq!(code, Some(Code::SETTINGS_ERROR));
    let (mut talk, _) = early(|config| config.qpack_max_table_capacity *= 2);
    let code = talk.world.close_code(clearway_quic::Role::Client);
    assert_eq!(code, Some(Code::QPACK_DECODER_STREAM_ERROR));
}
