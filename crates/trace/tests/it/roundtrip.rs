//! Round trip of a recorded connection through both dialects.

use std::time::Duration;

use clearway_quic::stream::Directionality;
use clearway_testing::{Setup, World, download, path};
use clearway_trace::event::{Event, EventData, Frame, Role};
use clearway_trace::qlog::{Description, Dialect, Problems, Reader, Writer};
use clearway_trace::{Recorder, Shared, Sink, Tee};

/// Parts of an event that a file does not store.
fn as_written(event: &Event) -> Event {
    let mut event = event.clone();
    match &mut event.data {
        EventData::PacketSent(packet) => packet.in_flight = None,
        EventData::RecoveryMetricsUpdated(metrics) => metrics.extra.sort(),
        EventData::ConnectionStarted(started) => {
            started.role = None;
            started.original_dcid = None;
        }
        _ => {}
    }
    event
}

#[test]
fn recorded_connection_round_trips_in_both_dialects() {
    let spec = "rate=20M delay=10ms queue=60 loss=1%";
    let mut world = World::new(Setup::new(), path(spec, 4), 4);
    let events: Shared<Vec<Event>> = Shared::default();
    let description = Description {
        role: Some(Role::Client),
        title: "a \"quoted\" title".into(),
        original_dcid: Some("0102".into()),
        wall_clock: None,
    };
    let newest = Shared::new(Writer::new(Vec::new(), &description));
    let qvis = Shared::new(Writer::with_dialect(
        Vec::new(),
        &description,
        Dialect::Qvis,
    ));
    world.connect();
    let sinks = Tee(events.clone(), Tee(newest.clone(), qvis.clone()));
    let recorder = Box::new(Recorder::new(sinks));
    world.client.connection().set_observer(recorder);
    world.run_until(Duration::from_secs(5), |world| {
        world.client.connection().is_confirmed()
    });
    assert!(download(&mut world, 300_000, Duration::from_secs(20)));
    let now = world.now;
    world.client.connection().close(now, 7, b"done");
    world.run_for(Duration::from_secs(2));
    events.with(|events| {
        for (time, data) in [
            (events[events.len() - 1].time, scenario()),
            (events[events.len() - 1].time, marker()),
            (
                events[events.len() - 1].time,
                EventData::EventsDropped { count: 12 },
            ),
        ] {
            let event = Event { time, data };
            newest.with(|writer| writer.event(&event));
            qvis.with(|writer| writer.event(&event));
            events.push(event);
        }
    });
    let expected: Vec<Event> = events.with(|events| events.iter().map(as_written).collect());
    assert!(expected.len() > 500, "{}", expected.len());
    for (name, writer) in [("newest", newest), ("qvis", qvis)] {
        let text = writer.with(|writer| {
            let other = Writer::new(Vec::new(), &description);
            core::mem::replace(writer, other).finish()
        });
        let mut reader = Reader::new(&text[..]).expect("qlog");
        let read: Vec<Event> = (&mut reader).map(|event| event.expect("memory")).collect();
        assert_eq!(*reader.problems(), Problems::default(), "{name}");
        assert_eq!(reader.header().role, Some(Role::Client));
        assert_eq!(reader.header().group.as_deref(), Some("0102"));
        for (read, written) in read.iter().zip(&expected) {
            let mut read = read.clone();
            if let EventData::ConnectionStarted(started) = &mut read.data {
                started.original_dcid = None;
            }
            assert_eq!(read, *written, "{name}");
        }
        assert_eq!(read.len(), expected.len(), "{name}");
    }
}

/// All frames of sent or received packets in a trace.
fn frames(events: &[Event]) -> Vec<Frame> {
    let of = |event: &Event| match &event.data {
        EventData::PacketSent(packet) | EventData::PacketReceived(packet) => {
            packet.frames().to_vec()
        }
        _ => Vec::new(),
    };
    events.iter().flat_map(of).collect()
}

#[test]
fn reset_at_an_offset_is_recorded_with_its_reliable_size() {
    let mut world = World::new(Setup::new(), path("rate=20M delay=10ms", 4), 4);
    world.handshake();
    let description = Description::default();
    let traces = [Dialect::Newest, Dialect::Qvis]
        .map(|dialect| Shared::new(Writer::with_dialect(Vec::new(), &description, dialect)));
    let [sender, receiver] = traces.clone();
    let recorder = Box::new(Recorder::new(receiver));
    world.server.connection().set_observer(recorder);
    let client = world.client.connection();
    client.set_observer(Box::new(Recorder::new(sender)));
    let id = client.open(Directionality::Unidirectional).expect("credit");
    assert_eq!(client.write(id, &[0; 3_000]), Ok(3_000));
    world.run_for(Duration::from_secs(1));
    // Everything has been sent, so that the final size is not the reliable size.
    assert_eq!(world.client.connection().reset_at(id, 7, 2_000), Ok(()));
    world.run_for(Duration::from_secs(1));
    for trace in traces {
        let text = trace.with(|writer| {
            let other = Writer::new(Vec::new(), &description);
            core::mem::replace(writer, other).finish()
        });
        let mut reader = Reader::new(&text[..]).expect("qlog");
        let read: Vec<Event> = (&mut reader).map(|event| event.expect("memory")).collect();
        assert_eq!(*reader.problems(), Problems::default());
        let resets: Vec<Frame> = frames(&read)
            .into_iter()
            .filter(|frame| frame.name().starts_with("reset_stream"))
            .collect();
        let expected = Frame::ResetStreamAt {
            stream: id.as_u64(),
            code: 7,
            final_size: 3_000,
            reliable_size: 2_000,
        };
        assert_eq!(resets, [expected]);
    }
}

fn scenario() -> EventData {
    EventData::Scenario {
        name: "death_spiral".into(),
        details: vec![("seed".into(), "7".into())],
    }
}

fn marker() -> EventData {
    EventData::Marker {
        kind: "loss".into(),
        message: "30 % from now on".into(),
    }
}
