//! Priorities of requests that fail or arrive late (RFC 9218 §7).

use clearway_http3::{Code, Config, Event, Limits, Priority};
use clearway_quic::Role;

use crate::hostile::hostile_peer::{
    DATA, HEADERS, PRIORITY_UPDATE, frame, get, headers, request as fields, varints,
};
use crate::memory::{MemoryEndpoint, request};

/// How many priorities are remembered before their requests arrive.
const EARLY: usize = 2;

fn server() -> MemoryEndpoint {
    let config = Config {
        limits: Limits {
            max_early_priorities: EARLY,
            max_requests: 3,
            max_field_section: 1_000,
            ..Limits::default()
        },
        ..Config::default()
    };
    MemoryEndpoint::with(Role::Server, config)
}

fn update(server: &mut MemoryEndpoint, n: u64, urgency: u8) -> Vec<Event> {
    let control = server.uni(0);
    let value = format!("u={urgency}");
    let payload = [varints(&[request(n).as_u64()]), value.into_bytes()].concat();
    server
        .transport
        .feed(control, &frame(PRIORITY_UPDATE, &payload));
    server.process()
}

fn urgency(server: &MemoryEndpoint, n: u64) -> Option<u8> {
    let priority = server.http.priority(request(n));
    priority.map(|Priority { urgency, .. }| urgency)
}

/// How a request fails before it is reported to the application.
#[derive(Clone, Copy, Debug)]
enum Failure {
    Malformed,
    Incomplete,
    Reset,
    TooLarge,
    TooMany,
    AfterGoaway,
}

/// Makes the request fail.
fn fail(server: &mut MemoryEndpoint, n: u64, how: Failure) {
    let id = request(n);
    match how {
        Failure::Malformed => server.transport.feed(id, &headers(&[("no", "method")])),
        Failure::Incomplete => server.transport.feed_end(id),
        Failure::Reset => {
            server.transport.feed(id, &get()[..5]);
            server.process();
            server.transport.feed_reset(id, Code::REQUEST_CANCELLED.0);
        }
        Failure::TooLarge => server.transport.feed(id, &frame(HEADERS, &[0; 1_001])),
        Failure::TooMany | Failure::AfterGoaway => server.transport.feed(id, &get()),
    }
    let events = server.process();
    assert_eq!(events, [], "{how:?}");
}

#[test]
fn priority_of_a_failed_request_is_dropped() {
    for how in [
        Failure::Malformed,
        Failure::Incomplete,
        Failure::Reset,
        Failure::TooLarge,
        Failure::TooMany,
        Failure::AfterGoaway,
    ] {
        let mut server = server();
        let mut next = 0;
        if matches!(how, Failure::TooMany) {
            for n in 0..3 {
                server.transport.feed(request(n), &get());
            }
            assert_eq!(server.process().len(), 3);
            next = 3;
        }
        if matches!(how, Failure::AfterGoaway) {
            // The first GOAWAY announces the shutdown, the second the last request.
            server.http.shutdown(&mut server.transport);
            server.http.shutdown(&mut server.transport);
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

/// A PRIORITY_UPDATE that arrives before the header section overrides its Priority field, also
/// between the first byte and the header section.
#[test]
fn priority_update_before_the_header_section_overrides_its_field() {
    let mut asked = Vec::from(fields("GET"));
    asked.push(("priority", "u=5"));
    let asked = headers(&asked);
    for ahead in [true, false] {
        let mut server = server();
        if ahead {
            assert_eq!(update(&mut server, 0, 1), []);
        }
        server.transport.feed(request(0), &asked[..5]);
        assert_eq!(server.process(), []);
        if !ahead {
            // The application has not seen the request yet.
            assert_eq!(update(&mut server, 0, 1), []);
        }
        server.transport.feed(request(0), &asked[5..]);
        let events = server.process();
        assert!(matches!(events[..], [Event::Request { .. }]), "{events:?}");
        assert_eq!(urgency(&server, 0), Some(1), "{ahead}");
        // From here on, a change is reported.
        let events = update(&mut server, 0, 7);
        assert!(matches!(events[..], [Event::PriorityChanged { .. }]));
        assert_eq!(urgency(&server, 0), Some(7));
    }
    let mut server = server();
    server.transport.feed(request(0), &asked);
    server.transport.feed(request(0), &frame(DATA, b"x"));
    server.process();
    assert_eq!(
        urgency(&server, 0),
        Some(5),
        "the priority in the header section"
    );
}
