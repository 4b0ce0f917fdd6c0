//! Every condition of RFC 9114, 9204, 9218 and 9297 that ends the connection, with
//! the exact code the peer hears.

use clearway_http3::Code;
use clearway_quic::Role;
use clearway_quic::stream::Directionality;

use crate::common::Setup;
use crate::hostile::forger::*;

/// What a hostile end does, and what it hears.
type Case = (&'static str, Code, fn(&mut Duel));

fn check(hostile: Role, cases: &[Case]) {
    for (what, code, act) in cases {
        let mut duel = Duel::new(hostile);
        act(&mut duel);
        assert_eq!(duel.closed(), Some(*code), "{what}, from a {hostile:?}");
    }
}

/// The same from both ends.
fn check_both(cases: &[Case]) {
    check(Role::Client, cases);
    check(Role::Server, cases);
}

fn control(duel: &mut Duel, kind: u64, payload: &[u8]) {
    let control = duel.control;
    duel.write(control, &frame(kind, payload));
}

fn one_id(duel: &mut Duel, kind: u64, id: u64) {
    control(duel, kind, &varints(&[id]));
}

#[test]
fn the_first_frame_is_settings() {
    for hostile in [Role::Client, Role::Server] {
        for kind in [
            DATA,
            HEADERS,
            GOAWAY,
            MAX_PUSH_ID,
            CANCEL_PUSH,
            RESERVED,
            0x02,
        ] {
            let mut duel = Duel::silent(hostile, Setup::default());
            duel.uni(&[varints(&[0]), frame(kind, &[0])].concat());
            let missing = Some(Code::MISSING_SETTINGS);
            assert_eq!(duel.closed(), missing, "{kind:#x} from a {hostile:?}");
        }
    }
}

#[test]
fn settings_are_read_strictly() {
    let settings_error = Code::SETTINGS_ERROR;
    let cases: &[(&str, Vec<u8>, Code)] = &[
        ("one twice", varints(&[6, 1, 6, 2]), settings_error),
        (
            "an unknown one twice",
            varints(&[0x21, 1, 0x21, 1]),
            settings_error,
        ),
        ("HTTP/2's 0x00", varints(&[0, 1]), settings_error),
        ("HTTP/2's 0x02", varints(&[2, 1]), settings_error),
        ("HTTP/2's 0x03", varints(&[3, 1]), settings_error),
        ("HTTP/2's 0x04", varints(&[4, 1]), settings_error),
        ("HTTP/2's 0x05", varints(&[5, 1]), settings_error),
        ("extended CONNECT of 2", varints(&[8, 2]), settings_error),
        ("datagrams of 2", varints(&[0x33, 2]), settings_error),
        ("no value", varints(&[6]), Code::FRAME_ERROR),
        ("half a value", vec![6, 0x40], Code::FRAME_ERROR),
        ("far too many", vec![0x21; 5000], Code::EXCESSIVE_LOAD),
    ];
    for hostile in [Role::Client, Role::Server] {
        for (what, payload, code) in cases {
            let mut duel = Duel::silent(hostile, Setup::default());
            duel.uni(&[varints(&[0]), frame(SETTINGS, payload)].concat());
            assert_eq!(duel.closed(), Some(*code), "{what}, from a {hostile:?}");
        }
    }
}

#[test]
fn streams_there_are_one_of() {
    check_both(&[
        (
            "a second control stream",
            Code::STREAM_CREATION_ERROR,
            |duel| {
                duel.uni(&varints(&[0]));
            },
        ),
        (
            "a second encoder stream",
            Code::STREAM_CREATION_ERROR,
            |duel| {
                duel.uni(&varints(&[2]));
                duel.uni(&varints(&[2]));
            },
        ),
        (
            "a second decoder stream",
            Code::STREAM_CREATION_ERROR,
            |duel| {
                duel.uni(&varints(&[3]));
                duel.uni(&varints(&[3]));
            },
        ),
    ]);
}

#[test]
fn critical_streams_stay_open() {
    let closed = Code::CLOSED_CRITICAL_STREAM;
    check_both(&[
        ("the control stream ends", closed, |duel| {
            let control = duel.control;
            duel.finish(control);
        }),
        ("the control stream ends within a frame", closed, |duel| {
            let control = duel.control;
            duel.write(control, &[0x07]);
            duel.finish(control);
        }),
        ("the control stream is reset", closed, |duel| {
            let control = duel.control;
            duel.reset(control, 0x100);
        }),
        ("the encoder stream ends", closed, |duel| {
            let id = duel.uni(&varints(&[2]));
            duel.finish(id);
        }),
        ("the decoder stream ends", closed, |duel| {
            let id = duel.uni(&varints(&[3]));
            duel.finish(id);
        }),
        ("the decoder stream is reset", closed, |duel| {
            let id = duel.uni(&varints(&[3]));
            duel.run();
            duel.reset(id, 0);
        }),
        ("our control stream is refused", closed, |duel| {
            let id = duel.first_uni_of_victim();
            let quic = duel.world.host(duel.hostile).connection();
            quic.stop(id, 0x100).expect("stops");
        }),
    ]);
}

#[test]
fn frames_that_have_no_place_on_the_control_stream() {
    let unexpected = Code::FRAME_UNEXPECTED;
    check_both(&[
        ("DATA", unexpected, |duel| control(duel, DATA, b"x")),
        ("HEADERS", unexpected, |duel| {
            control(duel, HEADERS, &[0, 0]);
        }),
        ("a second SETTINGS", unexpected, |duel| {
            control(duel, SETTINGS, &[]);
        }),
        ("PUSH_PROMISE", unexpected, |duel| {
            control(duel, PUSH_PROMISE, &[0, 0, 0]);
        }),
        ("HTTP/2's PRIORITY", unexpected, |duel| {
            control(duel, 0x02, &[]);
        }),
        ("HTTP/2's PING", unexpected, |duel| control(duel, 0x06, &[])),
        ("HTTP/2's WINDOW_UPDATE", unexpected, |duel| {
            control(duel, 0x08, &[]);
        }),
        ("HTTP/2's CONTINUATION", unexpected, |duel| {
            control(duel, 0x09, &[]);
        }),
    ]);
    check(
        Role::Server,
        &[
            ("MAX_PUSH_ID", unexpected, |duel| {
                one_id(duel, MAX_PUSH_ID, 1);
            }),
            ("PRIORITY_UPDATE", unexpected, |duel| {
                one_id(duel, PRIORITY_UPDATE, 0);
            }),
            ("PRIORITY_UPDATE of a push", unexpected, |duel| {
                one_id(duel, PRIORITY_UPDATE_PUSH, 0);
            }),
        ],
    );
}

#[test]
fn frames_that_have_no_place_on_a_request() {
    for kind in [
        CANCEL_PUSH,
        SETTINGS,
        PUSH_PROMISE,
        GOAWAY,
        MAX_PUSH_ID,
        PRIORITY_UPDATE,
        PRIORITY_UPDATE_PUSH,
        0x02,
        0x06,
        0x08,
        0x09,
        DATA,
    ] {
        let mut duel = Duel::new(Role::Client);
        duel.bidi(&frame(kind, &[0]));
        let unexpected = Some(Code::FRAME_UNEXPECTED);
        assert_eq!(duel.closed(), unexpected, "{kind:#x} in a request");
        if kind == PUSH_PROMISE {
            continue;
        }
        let mut duel = Duel::new(Role::Server);
        let id = duel.ask(&clearway_http3::Request::get("localhost", "/"));
        duel.write(id, &frame(kind, &[0]));
        assert_eq!(duel.closed(), unexpected, "{kind:#x} in a response");
    }
}

#[test]
fn messages_have_an_order() {
    let unexpected = Code::FRAME_UNEXPECTED;
    check(
        Role::Client,
        &[
            ("a third header section", unexpected, |duel| {
                let id =
                    duel.bidi(&[get(), headers(&[("a", "b")]), headers(&[("c", "d")])].concat());
                let _ = duel.read_all(id);
            }),
            ("DATA after trailers", unexpected, |duel| {
                let id = duel.bidi(&[get(), headers(&[("a", "b")]), frame(DATA, b"x")].concat());
                let _ = duel.read_all(id);
            }),
            ("HEADERS in a tunnel", unexpected, |duel| {
                let connect = headers(&[(":method", "CONNECT"), (":authority", "h:1")]);
                let id = duel.bidi(&[connect, headers(&[("a", "b")])].concat());
                let _ = duel.read_all(id);
            }),
        ],
    );
    check(
        Role::Server,
        &[("DATA after an interim response", unexpected, |duel| {
            let id = duel.ask(&clearway_http3::Request::get("localhost", "/"));
            let interim = headers(&[(":status", "103")]);
            duel.write(id, &[interim, frame(DATA, b"x")].concat());
        })],
    );
}

#[test]
fn frames_are_whole() {
    let frame_error = Code::FRAME_ERROR;
    check(
        Role::Client,
        &[
            ("half a type", frame_error, |duel| {
                duel.whole(&[0x40]);
            }),
            ("a type without a length", frame_error, |duel| {
                duel.whole(&[0x01]);
            }),
            ("half a header section", frame_error, |duel| {
                duel.whole(&get()[..5]);
            }),
            ("half a DATA frame", frame_error, |duel| {
                let id = duel.whole(&[get(), frame(DATA, b"four")[..4].to_vec()].concat());
                let _ = duel.read_all(id);
            }),
            ("half an unknown frame", frame_error, |duel| {
                let id = duel.whole(&[get(), frame(RESERVED, b"four")[..3].to_vec()].concat());
                let _ = duel.read_all(id);
            }),
        ],
    );
    check(
        Role::Server,
        &[("half a response", frame_error, |duel| {
            let id = duel.ask(&clearway_http3::Request::get("localhost", "/"));
            duel.write(id, &ok()[..2]);
            duel.finish(id);
        })],
    );
}

#[test]
fn frames_of_one_integer_hold_one() {
    let frame_error = Code::FRAME_ERROR;
    check_both(&[
        ("an empty GOAWAY", frame_error, |duel| {
            control(duel, GOAWAY, &[]);
        }),
        ("a long GOAWAY", frame_error, |duel| {
            control(duel, GOAWAY, &[0, 0]);
        }),
        ("half a GOAWAY", frame_error, |duel| {
            control(duel, GOAWAY, &[0x40]);
        }),
        ("a huge GOAWAY", frame_error, |duel| {
            control(duel, GOAWAY, &[0; 9]);
        }),
        ("an empty CANCEL_PUSH", frame_error, |duel| {
            control(duel, CANCEL_PUSH, &[]);
        }),
        ("a long CANCEL_PUSH", frame_error, |duel| {
            control(duel, CANCEL_PUSH, &[0, 0]);
        }),
    ]);
    check(
        Role::Client,
        &[
            ("an empty MAX_PUSH_ID", frame_error, |duel| {
                control(duel, MAX_PUSH_ID, &[]);
            }),
            ("a long MAX_PUSH_ID", frame_error, |duel| {
                control(duel, MAX_PUSH_ID, &[0, 0]);
            }),
            ("an empty PRIORITY_UPDATE", frame_error, |duel| {
                control(duel, PRIORITY_UPDATE, &[]);
            }),
        ],
    );
}

#[test]
fn identifiers_are_those_that_can_be() {
    let id_error = Code::ID_ERROR;
    check(
        Role::Client,
        &[
            ("GOAWAY grows", id_error, |duel| {
                one_id(duel, GOAWAY, 4);
                one_id(duel, GOAWAY, 5);
            }),
            ("CANCEL_PUSH of no push", id_error, |duel| {
                one_id(duel, CANCEL_PUSH, 0);
            }),
            ("MAX_PUSH_ID shrinks", id_error, |duel| {
                one_id(duel, MAX_PUSH_ID, 9);
                one_id(duel, MAX_PUSH_ID, 8);
            }),
            ("the priority of a push", id_error, |duel| {
                one_id(duel, PRIORITY_UPDATE_PUSH, 0);
            }),
            ("the priority of no request", id_error, |duel| {
                one_id(duel, PRIORITY_UPDATE, 2);
            }),
            ("a push by a client", Code::STREAM_CREATION_ERROR, |duel| {
                duel.uni(&varints(&[1, 0]));
            }),
        ],
    );
    check(
        Role::Server,
        &[
            ("GOAWAY grows", id_error, |duel| {
                one_id(duel, GOAWAY, 4);
                one_id(duel, GOAWAY, 8);
            }),
            ("GOAWAY of a unidirectional stream", id_error, |duel| {
                one_id(duel, GOAWAY, 6);
            }),
            ("GOAWAY of a server's stream", id_error, |duel| {
                one_id(duel, GOAWAY, 1);
            }),
            ("CANCEL_PUSH", id_error, |duel| one_id(duel, CANCEL_PUSH, 0)),
            ("a push", id_error, |duel| {
                duel.uni(&varints(&[1, 0]));
            }),
            ("a promise", id_error, |duel| {
                let id = duel.ask(&clearway_http3::Request::get("localhost", "/"));
                duel.write(id, &frame(PUSH_PROMISE, &[0, 0, 0]));
            }),
            (
                "a request by a server",
                Code::STREAM_CREATION_ERROR,
                |duel| {
                    let id = duel.open(Directionality::Bidirectional);
                    duel.write(id, &get());
                },
            ),
        ],
    );
}

#[test]
fn compression_errors() {
    check_both(&[
        (
            "an insert without a table",
            Code::QPACK_ENCODER_STREAM_ERROR,
            |duel| {
                duel.uni(&[2, 0x41, b'a', 0x01, b'b']);
            },
        ),
        (
            "a capacity beyond ours",
            Code::QPACK_ENCODER_STREAM_ERROR,
            |duel| {
                duel.uni(&[2, 0x3f, 0xff, 0xff, 0x7f]);
            },
        ),
        (
            "an acknowledgment of nothing",
            Code::QPACK_DECODER_STREAM_ERROR,
            |duel| {
                duel.uni(&[3, 0x80]);
            },
        ),
        (
            "an increment of zero",
            Code::QPACK_DECODER_STREAM_ERROR,
            |duel| {
                duel.uni(&[3, 0x00]);
            },
        ),
    ]);
    let failed = Code::QPACK_DECOMPRESSION_FAILED;
    check(
        Role::Client,
        &[
            ("an empty section", failed, |duel| {
                duel.whole(&frame(HEADERS, &[]));
            }),
            ("a static entry that is not", failed, |duel| {
                duel.whole(&frame(HEADERS, &[0, 0, 0xff, 0x40]));
            }),
            ("a dynamic entry that is not", failed, |duel| {
                duel.whole(&frame(HEADERS, &[0, 0, 0x80]));
            }),
        ],
    );
}

#[test]
fn datagrams_name_a_stream() {
    let setup = || {
        let mut setup = Setup::default();
        setup.client.datagrams = true;
        setup.server.datagrams = true;
        setup
    };
    for datagram in [&[][..], &[0x40], &[0xff, 255, 255, 255, 255, 255, 255, 255]] {
        let mut duel = Duel::with(Role::Client, setup());
        let quic = duel.world.client.connection();
        quic.send_datagram(bytes::Bytes::copy_from_slice(datagram))
            .expect("sends");
        duel.run();
        let (http, quic) = duel.world.server.split();
        assert_eq!(http.recv_datagram(quic), None);
        assert_eq!(duel.closed(), Some(Code::DATAGRAM_ERROR), "{datagram:?}");
    }
    // One for a stream that is not is dropped (RFC 9297 §2.1).
    let mut duel = Duel::with(Role::Client, setup());
    let quic = duel.world.client.connection();
    quic.send_datagram(bytes::Bytes::from_static(b"\x09x"))
        .expect("sends");
    duel.run();
    let (http, quic) = duel.world.server.split();
    assert_eq!(http.recv_datagram(quic), None);
    assert_eq!(http.counters().datagrams_dropped, 1);
    duel.assert_serves();
}
