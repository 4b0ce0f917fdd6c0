//! Every condition of RFC 9114, 9204, 9218 and 9297 that closes the connection, with the exact code
//! that the peer receives.

use clearway_http3::Code;
use clearway_quic::Role;
use clearway_quic::stream::Directionality;

use crate::common::Setup;
use crate::hostile::hostile_peer::*;

/// A description, the expected code, and what the hostile peer does.
type Case = (&'static str, Code, fn(&mut HostileTest));

fn check(hostile: Role, cases: &[Case]) {
    for (what, code, act) in cases {
        let mut test = HostileTest::new(hostile);
        act(&mut test);
        assert_eq!(test.close_code(), Some(*code), "{what}, from a {hostile:?}");
    }
}

/// Checks the cases in both roles.
fn check_both(cases: &[Case]) {
    check(Role::Client, cases);
    check(Role::Server, cases);
}

fn control(test: &mut HostileTest, kind: u64, payload: &[u8]) {
    let control = test.control;
    test.write(control, &frame(kind, payload));
}

fn one_id(test: &mut HostileTest, kind: u64, id: u64) {
    control(test, kind, &varints(&[id]));
}

#[test]
fn first_control_frame_other_than_settings_is_missing_settings() {
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
            let mut test = HostileTest::without_settings(hostile, Setup::default());
            test.uni(&[varints(&[0]), frame(kind, &[0])].concat());
            let missing = Some(Code::MISSING_SETTINGS);
            assert_eq!(test.close_code(), missing, "{kind:#x} from a {hostile:?}");
        }
    }
}

#[test]
fn invalid_settings_close_the_connection() {
    let settings_error = Code::SETTINGS_ERROR;
    let cases: &[(&str, Vec<u8>, Code)] = &[
        (
            "a duplicate setting",
            varints(&[6, 1, 6, 2]),
            settings_error,
        ),
        (
            "a duplicate unknown setting",
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
        (
            "a setting without a value",
            varints(&[6]),
            Code::FRAME_ERROR,
        ),
        ("half a value", vec![6, 0x40], Code::FRAME_ERROR),
        ("too many settings", vec![0x21; 5000], Code::EXCESSIVE_LOAD),
    ];
    for hostile in [Role::Client, Role::Server] {
        for (what, payload, code) in cases {
            let mut test = HostileTest::without_settings(hostile, Setup::default());
            test.uni(&[varints(&[0]), frame(SETTINGS, payload)].concat());
            assert_eq!(test.close_code(), Some(*code), "{what}, from a {hostile:?}");
        }
    }
}

#[test]
fn second_critical_stream_is_a_stream_creation_error() {
    check_both(&[
        (
            "a second control stream",
            Code::STREAM_CREATION_ERROR,
            |test| {
                test.uni(&varints(&[0]));
            },
        ),
        (
            "a second encoder stream",
            Code::STREAM_CREATION_ERROR,
            |test| {
                test.uni(&varints(&[2]));
                test.uni(&varints(&[2]));
            },
        ),
        (
            "a second decoder stream",
            Code::STREAM_CREATION_ERROR,
            |test| {
                test.uni(&varints(&[3]));
                test.uni(&varints(&[3]));
            },
        ),
    ]);
}

#[test]
fn closed_critical_stream_closes_the_connection() {
    let closed = Code::CLOSED_CRITICAL_STREAM;
    check_both(&[
        ("the control stream ends", closed, |test| {
            let control = test.control;
            test.finish(control);
        }),
        ("the control stream ends within a frame", closed, |test| {
            let control = test.control;
            test.write(control, &[0x07]);
            test.finish(control);
        }),
        ("the control stream is reset", closed, |test| {
            let control = test.control;
            test.reset(control, 0x100);
        }),
        ("the encoder stream ends", closed, |test| {
            let id = test.uni(&varints(&[2]));
            test.finish(id);
        }),
        ("the decoder stream ends", closed, |test| {
            let id = test.uni(&varints(&[3]));
            test.finish(id);
        }),
        ("the decoder stream is reset", closed, |test| {
            let id = test.uni(&varints(&[3]));
            test.run();
            test.reset(id, 0);
        }),
        ("STOP_SENDING for our control stream", closed, |test| {
            let id = test.first_uni_of_victim();
            let quic = test.world.host(test.hostile).connection();
            quic.stop(id, 0x100).expect("stops");
        }),
    ]);
}

#[test]
fn request_frames_on_the_control_stream_are_unexpected() {
    let unexpected = Code::FRAME_UNEXPECTED;
    check_both(&[
        ("DATA", unexpected, |test| control(test, DATA, b"x")),
        ("HEADERS", unexpected, |test| {
            control(test, HEADERS, &[0, 0]);
        }),
        ("a second SETTINGS", unexpected, |test| {
            control(test, SETTINGS, &[]);
        }),
        ("PUSH_PROMISE", unexpected, |test| {
            control(test, PUSH_PROMISE, &[0, 0, 0]);
        }),
        ("HTTP/2's PRIORITY", unexpected, |test| {
            control(test, 0x02, &[]);
        }),
        ("HTTP/2's PING", unexpected, |test| control(test, 0x06, &[])),
        ("HTTP/2's WINDOW_UPDATE", unexpected, |test| {
            control(test, 0x08, &[]);
        }),
        ("HTTP/2's CONTINUATION", unexpected, |test| {
            control(test, 0x09, &[]);
        }),
    ]);
    check(
        Role::Server,
        &[
            ("MAX_PUSH_ID", unexpected, |test| {
                one_id(test, MAX_PUSH_ID, 1);
            }),
            ("PRIORITY_UPDATE", unexpected, |test| {
                one_id(test, PRIORITY_UPDATE, 0);
            }),
            ("PRIORITY_UPDATE of a push", unexpected, |test| {
                one_id(test, PRIORITY_UPDATE_PUSH, 0);
            }),
        ],
    );
}

#[test]
fn control_frames_on_a_request_stream_are_unexpected() {
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
        let mut test = HostileTest::new(Role::Client);
        test.bidi(&frame(kind, &[0]));
        let unexpected = Some(Code::FRAME_UNEXPECTED);
        assert_eq!(test.close_code(), unexpected, "{kind:#x} in a request");
        if kind == PUSH_PROMISE {
            continue;
        }
        let mut test = HostileTest::new(Role::Server);
        let id = test.send_request(&clearway_http3::Request::get("localhost", "/"));
        test.write(id, &frame(kind, &[0]));
        assert_eq!(test.close_code(), unexpected, "{kind:#x} in a response");
    }
}

#[test]
fn headers_and_data_out_of_order_are_unexpected() {
    let unexpected = Code::FRAME_UNEXPECTED;
    check(
        Role::Client,
        &[
            ("a third header section", unexpected, |test| {
                let id =
                    test.bidi(&[get(), headers(&[("a", "b")]), headers(&[("c", "d")])].concat());
                let _ = test.read_all(id);
            }),
            ("DATA after trailers", unexpected, |test| {
                let id = test.bidi(&[get(), headers(&[("a", "b")]), frame(DATA, b"x")].concat());
                let _ = test.read_all(id);
            }),
            ("HEADERS in a tunnel", unexpected, |test| {
                let connect = headers(&[(":method", "CONNECT"), (":authority", "h:1")]);
                let id = test.bidi(&[connect, headers(&[("a", "b")])].concat());
                let _ = test.read_all(id);
            }),
        ],
    );
    check(
        Role::Server,
        &[("DATA after an interim response", unexpected, |test| {
            let id = test.send_request(&clearway_http3::Request::get("localhost", "/"));
            let interim = headers(&[(":status", "103")]);
            test.write(id, &[interim, frame(DATA, b"x")].concat());
        })],
    );
}

#[test]
fn stream_end_within_a_frame_is_a_frame_error() {
    let frame_error = Code::FRAME_ERROR;
    check(
        Role::Client,
        &[
            ("half a type", frame_error, |test| {
                test.bidi_with_end(&[0x40]);
            }),
            ("a type without a length", frame_error, |test| {
                test.bidi_with_end(&[0x01]);
            }),
            ("half a header section", frame_error, |test| {
                test.bidi_with_end(&get()[..5]);
            }),
            ("half a DATA frame", frame_error, |test| {
                let id = test.bidi_with_end(&[get(), frame(DATA, b"four")[..4].to_vec()].concat());
                let _ = test.read_all(id);
            }),
            ("half an unknown frame", frame_error, |test| {
                let id =
                    test.bidi_with_end(&[get(), frame(RESERVED, b"four")[..3].to_vec()].concat());
                let _ = test.read_all(id);
            }),
        ],
    );
    check(
        Role::Server,
        &[("half a response", frame_error, |test| {
            let id = test.send_request(&clearway_http3::Request::get("localhost", "/"));
            test.write(id, &ok()[..2]);
            test.finish(id);
        })],
    );
}

#[test]
fn frame_that_is_not_exactly_one_integer_is_a_frame_error() {
    let frame_error = Code::FRAME_ERROR;
    check_both(&[
        ("an empty GOAWAY", frame_error, |test| {
            control(test, GOAWAY, &[]);
        }),
        ("a GOAWAY with a byte too many", frame_error, |test| {
            control(test, GOAWAY, &[0, 0]);
        }),
        ("half a GOAWAY", frame_error, |test| {
            control(test, GOAWAY, &[0x40]);
        }),
        ("a huge GOAWAY", frame_error, |test| {
            control(test, GOAWAY, &[0; 9]);
        }),
        ("an empty CANCEL_PUSH", frame_error, |test| {
            control(test, CANCEL_PUSH, &[]);
        }),
        ("a CANCEL_PUSH with a byte too many", frame_error, |test| {
            control(test, CANCEL_PUSH, &[0, 0]);
        }),
    ]);
    check(
        Role::Client,
        &[
            ("an empty MAX_PUSH_ID", frame_error, |test| {
                control(test, MAX_PUSH_ID, &[]);
            }),
            ("a MAX_PUSH_ID with a byte too many", frame_error, |test| {
                control(test, MAX_PUSH_ID, &[0, 0]);
            }),
            ("an empty PRIORITY_UPDATE", frame_error, |test| {
                control(test, PRIORITY_UPDATE, &[]);
            }),
        ],
    );
}

#[test]
fn invalid_stream_and_push_ids_are_id_errors() {
    let id_error = Code::ID_ERROR;
    check(
        Role::Client,
        &[
            ("a GOAWAY with an increased identifier", id_error, |test| {
                one_id(test, GOAWAY, 4);
                one_id(test, GOAWAY, 5);
            }),
            ("CANCEL_PUSH for an unknown push ID", id_error, |test| {
                one_id(test, CANCEL_PUSH, 0);
            }),
            ("a decreased MAX_PUSH_ID", id_error, |test| {
                one_id(test, MAX_PUSH_ID, 9);
                one_id(test, MAX_PUSH_ID, 8);
            }),
            ("PRIORITY_UPDATE for a push ID", id_error, |test| {
                one_id(test, PRIORITY_UPDATE_PUSH, 0);
            }),
            (
                "PRIORITY_UPDATE for a stream that is not a request stream",
                id_error,
                |test| {
                    one_id(test, PRIORITY_UPDATE, 2);
                },
            ),
            (
                "PRIORITY_UPDATE for a stream beyond the limit on streams",
                id_error,
                |test| one_id(test, PRIORITY_UPDATE, 4 * 100),
            ),
            (
                "a push stream from a client",
                Code::STREAM_CREATION_ERROR,
                |test| {
                    test.uni(&varints(&[1, 0]));
                },
            ),
        ],
    );
    check(
        Role::Server,
        &[
            ("a GOAWAY with an increased identifier", id_error, |test| {
                one_id(test, GOAWAY, 4);
                one_id(test, GOAWAY, 8);
            }),
            ("GOAWAY with a unidirectional stream", id_error, |test| {
                one_id(test, GOAWAY, 6);
            }),
            ("GOAWAY with a stream of the server", id_error, |test| {
                one_id(test, GOAWAY, 1);
            }),
            ("CANCEL_PUSH", id_error, |test| one_id(test, CANCEL_PUSH, 0)),
            ("a push stream", id_error, |test| {
                test.uni(&varints(&[1, 0]));
            }),
            ("PUSH_PROMISE", id_error, |test| {
                let id = test.send_request(&clearway_http3::Request::get("localhost", "/"));
                test.write(id, &frame(PUSH_PROMISE, &[0, 0, 0]));
            }),
            (
                "a request stream opened by a server",
                Code::STREAM_CREATION_ERROR,
                |test| {
                    let id = test.open(Directionality::Bidirectional);
                    test.write(id, &get());
                },
            ),
        ],
    );
}

#[test]
fn invalid_field_compression_closes_the_connection() {
    check_both(&[
        (
            "an insert without a table",
            Code::QPACK_ENCODER_STREAM_ERROR,
            |test| {
                test.uni(&[2, 0x41, b'a', 0x01, b'b']);
            },
        ),
        (
            "a capacity above our setting",
            Code::QPACK_ENCODER_STREAM_ERROR,
            |test| {
                test.uni(&[2, 0x3f, 0xff, 0xff, 0x7f]);
            },
        ),
        (
            "an acknowledgment without a section",
            Code::QPACK_DECODER_STREAM_ERROR,
            |test| {
                test.uni(&[3, 0x80]);
            },
        ),
        (
            "an increment of zero",
            Code::QPACK_DECODER_STREAM_ERROR,
            |test| {
                test.uni(&[3, 0x00]);
            },
        ),
    ]);
    let failed = Code::QPACK_DECOMPRESSION_FAILED;
    check(
        Role::Client,
        &[
            ("an empty section", failed, |test| {
                test.bidi_with_end(&frame(HEADERS, &[]));
            }),
            ("a static table index that does not exist", failed, |test| {
                test.bidi_with_end(&frame(HEADERS, &[0, 0, 0xff, 0x40]));
            }),
            (
                "a dynamic table index that does not exist",
                failed,
                |test| {
                    test.bidi_with_end(&frame(HEADERS, &[0, 0, 0x80]));
                },
            ),
        ],
    );
}

#[test]
fn datagram_without_a_valid_stream_id_is_a_datagram_error() {
    let setup = || {
        let mut setup = Setup::default();
        setup.client.datagrams = true;
        setup.server.datagrams = true;
        setup
    };
    for datagram in [&[][..], &[0x40], &[0xff, 255, 255, 255, 255, 255, 255, 255]] {
        let mut test = HostileTest::with(Role::Client, setup());
        let quic = test.world.client.connection();
        quic.send_datagram(bytes::Bytes::copy_from_slice(datagram))
            .expect("sends");
        test.run();
        let (http, quic) = test.world.server.split();
        assert_eq!(http.recv_datagram(quic), None);
        assert_eq!(
            test.close_code(),
            Some(Code::DATAGRAM_ERROR),
            "{datagram:?}"
        );
    }
    // One for a stream that the client may not open.
    let mut test = HostileTest::with(Role::Client, setup());
    let quic = test.world.client.connection();
    let datagram = [varints(&[100]), b"x".to_vec()].concat();
    quic.send_datagram(datagram.into()).expect("sends");
    test.run();
    let (http, quic) = test.world.server.split();
    assert_eq!(http.recv_datagram(quic), None);
    assert_eq!(test.close_code(), Some(Code::ID_ERROR));
}

#[test]
fn datagrams_of_unknown_streams_are_kept_within_limits() {
    let mut setup = Setup::default();
    setup.client.datagrams = true;
    setup.server.datagrams = true;
    let limits = setup.server.limits.clone();
    let mut test = HostileTest::with(Role::Client, setup);
    for round in 0..20_u64 {
        let quic = test.world.client.connection();
        for n in 0..10 {
            let datagram = [varints(&[9 + n]), vec![0; 1_000]].concat();
            quic.send_datagram(datagram.into()).expect("sends");
        }
        test.run();
        let (http, quic) = test.world.server.split();
        assert_eq!(http.recv_datagram(quic), None);
        let kept = (round + 1) * 10 - http.counters().datagrams_dropped;
        assert!(kept as usize <= limits.max_early_datagrams, "{kept}");
    }
    let (http, _) = test.world.server.split();
    let dropped = http.counters().datagrams_dropped;
    assert_eq!(dropped, 200 - limits.max_early_datagrams as u64);
    test.assert_serves();
}
