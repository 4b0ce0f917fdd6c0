//! Recorded connections between two of our endpoints in virtual time: healthy ones have no
//! findings, and counts in the trace match those of the connection.

use std::time::Duration;

use clearway_links::Direction;
use clearway_quic::stream::Directionality;
use clearway_recovery::congestion::Algorithm;
use clearway_testing::{Setup, World, download, path};
use clearway_trace::detect::{Detector, Finding, Profile, examine};
use clearway_trace::event::{Event, EventData, Frame};
use clearway_trace::{Breakdown, Recorder, Shared};

type Trace = Shared<Vec<Event>>;

/// A world whose ends are recorded from their first event on.
fn recorded(setup: Setup, spec: &str, seed: u64) -> (World, Trace, Trace) {
    let mut world = World::new(setup, path(spec, seed), seed);
    let (client, server) = (Trace::default(), Trace::default());
    let origin = world.now;
    world.connect();
    let recorder = Recorder::since(origin, client.clone());
    world.client.connection().set_observer(Box::new(recorder));
    while world.server.connections.is_empty() {
        assert!(world.step());
    }
    let recorder = Recorder::since(origin, server.clone());
    world.server.connection().set_observer(Box::new(recorder));
    (world, client, server)
}

fn confirm(world: &mut World) {
    let done = world.run_until(Duration::from_secs(20), |world| {
        world.client.connection().is_confirmed() && world.server.connection().is_confirmed()
    });
    assert!(done, "no handshake");
}

fn examined(trace: &Trace) -> Vec<Finding> {
    trace.with(|events| examine(&Profile::default(), events))
}

fn assert_healthy(trace: &Trace, whose: &str) {
    let said: Vec<String> = examined(trace)
        .iter()
        .map(|finding| format!("{}: {}", finding.detector, finding.sentence()))
        .collect();
    assert!(said.is_empty(), "{whose}: {said:#?}");
}

fn setup(controller: Algorithm) -> Setup {
    let mut setup = Setup::new();
    setup.client.controller = controller.into();
    setup.server.controller = controller.into();
    setup
}

#[test]
fn healthy_bulk_transfers_have_no_findings() {
    for controller in [Algorithm::Cubic, Algorithm::NewReno] {
        for spec in [
            "rate=100M delay=5ms queue=250",
            "rate=10M delay=15ms queue=25",
            "rate=50M delay=20ms queue=40 loss=0.1%",
            "rate=20M delay=50ms queue=400",
            "rate=100M delay=500us queue=100",
        ] {
            let (mut world, client, server) = recorded(setup(controller), spec, 7);
            confirm(&mut world);
            assert!(
                download(&mut world, 8_000_000, Duration::from_secs(120)),
                "{spec}"
            );
            world.run_for(Duration::from_secs(2));
            let whose = format!("{controller} over {spec}");
            assert_healthy(&client, &format!("client, {whose}"));
            assert_healthy(&server, &format!("server, {whose}"));
        }
    }
}

#[test]
fn lossy_path_causes_findings_of_probes_and_losses_but_no_errors() {
    let (mut world, client, server) = recorded(
        setup(Algorithm::Cubic),
        "rate=20M delay=20ms queue=100 loss=3%",
        3,
    );
    confirm(&mut world);
    assert!(download(&mut world, 3_000_000, Duration::from_secs(120)));
    for trace in [client, server] {
        let defects: Vec<String> = examined(&trace)
            .iter()
            .filter(|it| !matches!(it.detector, Detector::PtoStorm | Detector::LossLimited))
            .map(Finding::sentence)
            .collect();
        assert!(defects.is_empty(), "{defects:#?}");
    }
}

#[test]
fn application_pauses_cause_no_finding_and_show_in_the_breakdown() {
    let (mut world, client, server) =
        recorded(setup(Algorithm::Cubic), "rate=50M delay=20ms queue=200", 11);
    confirm(&mut world);
    for _ in 0..4 {
        assert!(download(&mut world, 400_000, Duration::from_secs(20)));
        world.run_for(Duration::from_secs(3));
    }
    assert_healthy(&client, "client");
    assert_healthy(&server, "server");
    let breakdown = server.with(|events| Breakdown::of(events));
    let sum: u64 = breakdown.permille().iter().map(|(_, part)| part).sum();
    assert_eq!(sum, 1_000);
    let idle = breakdown.spent(clearway_recovery::limit::Limit::Application);
    assert!(idle > breakdown.life() / 2, "{breakdown}");
    assert!(breakdown.to_string().contains("% network"), "{breakdown}");
}

#[test]
fn outage_is_reported_only_as_pto_storm() {
    let (mut world, _, server) =
        recorded(setup(Algorithm::Cubic), "rate=10M delay=40ms queue=60", 5);
    confirm(&mut world);
    let mut dead = false;
    let end = world.now + Duration::from_secs(3);
    let start = world.now + Duration::from_secs(1);
    let id = world
        .client
        .connection()
        .open(Directionality::Bidirectional)
        .expect("a stream");
    world.client.connection().write(id, b"go").expect("writes");
    let mut serving = None;
    world.run_until(Duration::from_secs(12), |world| {
        let now = world.now;
        let wanted = now >= start && now < end;
        if wanted != dead {
            dead = wanted;
            world.filter = Some(Box::new(move |_: Direction, _| !wanted));
        }
        let server = world.server.connection();
        serving = serving.or_else(|| server.accept(Directionality::Bidirectional));
        if let Some(id) = serving {
            while server.write(id, &[7; 4096]).is_ok_and(|len| len > 0) {}
        }
        while let Ok(Some(_)) = world.client.connection().read_chunk(id, usize::MAX) {}
        false
    });
    let findings = examined(&server);
    let detectors: Vec<Detector> = findings.iter().map(|each| each.detector).collect();
    assert!(detectors.contains(&Detector::PtoStorm), "{findings:#?}");
    assert!(
        detectors.iter().all(|each| *each == Detector::PtoStorm),
        "{findings:#?}"
    );
}

#[test]
fn trace_counts_match_connection_counts() {
    let (mut world, client, server) = recorded(
        setup(Algorithm::Cubic),
        "rate=20M delay=10ms queue=60 loss=1%",
        9,
    );
    confirm(&mut world);
    assert!(download(&mut world, 2_000_000, Duration::from_secs(60)));
    let now = world.now;
    for (trace, connection) in [
        (&client, world.client.connection()),
        (&server, world.server.connection()),
    ] {
        let stats = connection.stats(now);
        let count = |wanted: fn(&EventData) -> bool| {
            trace.with(|events| events.iter().filter(|event| wanted(&event.data)).count() as u64)
        };
        let lost = count(|data| {
            matches!(
                data,
                EventData::PacketLost {
                    mtu_probe: false,
                    ..
                }
            )
        });
        assert_eq!(lost, stats.counters.packets_lost);
    }
    let moved: u64 = client.with(|events| {
        let read = |event: &Event| match event.data {
            EventData::StreamDataRead { len, .. } => len,
            _ => 0,
        };
        events.iter().map(read).sum()
    });
    // What was read last is recorded with the next event.
    assert!((1_900_000..=2_000_000).contains(&moved), "{moved}");
    let sent: u64 = server.with(|events| {
        let bytes = |event: &Event| match &event.data {
            EventData::PacketSent(packet) => packet.frames().iter().map(stream_bytes).sum(),
            _ => 0,
        };
        events.iter().map(bytes).sum()
    });
    assert!(sent > 2_000_000, "retransmissions included: {sent}");
}

fn stream_bytes(frame: &Frame) -> u64 {
    match frame {
        Frame::Stream { len, .. } => *len,
        _ => 0,
    }
}
