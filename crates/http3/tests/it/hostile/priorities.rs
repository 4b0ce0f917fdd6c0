//! Priorities of requests that come to nothing, or come late (RFC 9218 §7).

use clearway_http3::{Code, Config, Event, Limits, Priority};
use clearway_quic::Role;

use crate::hostile::forger::{
    DATA, HEADERS, PRIORITY_UPDATE, frame, get, headers, request as fields, varints,
};
use crate::memory::{End, request};

/// Priorities that are remembered ahead of their requests.
const EARLY: usize = 2;

fn server() -> End {
    let config = Config {
        limits: Limits {
            max_early_priorities: EARLY,
            max_requests: 3,
            max_field_section: 1_000,
            ..Limits::default()
        },
        ..Config::default()
    };
    End::with(Role::Server, config)
}

fn update(server: &mut End, n: u64, urgency: u8) -> Vec<Event> {
    let control = server.uni(0);
    let value = format!("u={urgency}");
    let payload = [varints(&[request(n).as_u64()]), value.into_bytes()].concat();
    server.wire.feed(control, &frame(PRIORITY_UPDATE, &payload));
    server.turn()
}

fn urgency(server: &End, n: u64) -> Option<u8> {
    let priority = server.http.priority(request(n));
    priority.map(|Priority { urgency, .. }| urgency)
}

/// Every way in which a request ends before it is one.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Malformed,
    Incomplete,
    Reset,
    TooLarge,
    TooMany,
    AfterGoaway,
}

/// The request comes to nothing.
fn fail(server: &mut End, n: u64, how: Fate) {
    let id = request(n);
    match how {
        Fate::Malformed => server.wire.feed(id, &headers(&[("no", "method")])),
        Fate::Incomplete => server.wire.feed_end(id),
        Fate::Reset => {
            server.wire.feed(id, &get()[..5]);
            server.turn();
            server.wire.feed_reset(id, Code::REQUEST_CANCELLED.0);
        }
        Fate::TooLarge => server.wire.feed(id, &frame(HEADERS, &[0; 1_001])),
        Fate::TooMany | Fate::AfterGoaway => server.wire.feed(id, &get()),
    }
    let heard = server.turn();
    assert_eq!(heard, [], "{how:?}");
}

#[test]
fn priority_update_for_a_request_that_comes_to_nothing_is_forgotten() {
    for how in [
        Fate::Malformed,
        Fate::Incomplete,
        Fate::Reset,
        Fate::TooLarge,
        Fate::TooMany,
        Fate::AfterGoaway,
    ] {
        let mut server = server();
        let mut next = 0;
        if matches!(how, Fate::TooMany) {
            for n in 0..3 {
                server.wire.feed(request(n), &get());
            }
            assert_eq!(server.turn().len(), 3);
            next = 3;
        }
        if matches!(how, Fate::AfterGoaway) {
            // First that the end is near, then where it is.
            server.http.shutdown(&mut server.wire);
            server.http.shutdown(&mut server.wire);
        }
        for n in next..next + 5 {
            update(&mut server, n, 1);
            fail(&mut server, n, how);
        }
        for n in 100..100 + EARLY as u64 {
            update(&mut server, n, 1);
        }
        let counters = server.http.counters();
        assert_eq!(counters.priorities_dropped, 0, "{how:?}");
        update(&mut server, 200, 1);
        let counters = server.http.counters();
        assert_eq!(counters.priorities_dropped, 1, "{how:?}");
    }
}

/// A priority that came ahead of its request, or between its first byte and its header
/// section, says more than the header section does.
#[test]
fn priority_update_before_the_header_section_wins_over_its_field() {
    let mut asked = Vec::from(fields("GET"));
    asked.push(("priority", "u=5"));
    let asked = headers(&asked);
    for ahead in [true, false] {
        let mut server = server();
        if ahead {
            assert_eq!(update(&mut server, 0, 1), []);
        }
        server.wire.feed(request(0), &asked[..5]);
        assert_eq!(server.turn(), []);
        if !ahead {
            // Nobody has heard of the request whose priority changes.
            assert_eq!(update(&mut server, 0, 1), []);
        }
        server.wire.feed(request(0), &asked[5..]);
        let heard = server.turn();
        assert!(matches!(heard[..], [Event::Request { .. }]), "{heard:?}");
        assert_eq!(urgency(&server, 0), Some(1), "{ahead}");
        // From here on it is a change.
        let heard = update(&mut server, 0, 7);
        assert!(matches!(heard[..], [Event::PriorityChanged { .. }]));
        assert_eq!(urgency(&server, 0), Some(7));
    }
    let mut server = server();
    server.wire.feed(request(0), &asked);
    server.wire.feed(request(0), &frame(DATA, b"x"));
    server.turn();
    assert_eq!(urgency(&server, 0), Some(5), "what the field says");
}
