//! Every event that Clearway writes is valid by its own rule of the drafts, and the check notices
//! what is not.

mod examples;

use std::collections::BTreeMap;
use std::time::Duration;

use clearway_qlog_schema::Schema;
use clearway_testing::{Setup, World, download, path};
use clearway_trace::event::{Event, EventData, Role};
use clearway_trace::qlog::{Description, Writer};
use clearway_trace::{Recorder, Shared, Sink as _};
use serde_json::{Value, json};

/// Number of events of a kind that are checked at most.
const MOST: usize = 12;

/// The rule of an event's data; `None` for events of other schemas, which Clearway does not write.
fn rule(data: &EventData) -> Option<&'static str> {
    Some(match data {
        EventData::ConnectionStarted(_) => "QUICConnectionStarted",
        EventData::ConnectionClosed(_) => "QUICConnectionClosed",
        EventData::ConnectionStateUpdated { .. } => "QUICConnectionStateUpdated",
        EventData::ParametersSet(_) => "QUICParametersSet",
        EventData::VersionInformation { .. } => "QUICVersionInformation",
        EventData::AlpnInformation { .. } => "QUICALPNInformation",
        EventData::PacketSent(_) => "QUICPacketSent",
        EventData::PacketReceived(_) => "QUICPacketReceived",
        EventData::PacketDropped { .. } => "QUICPacketDropped",
        EventData::PacketLost { .. } => "QUICPacketLost",
        EventData::StreamDataRead { .. } => "QUICStreamDataMoved",
        EventData::DataBlockedUpdated { .. } => "QUICConnectionDataBlockedUpdated",
        EventData::StreamDataBlockedUpdated { .. } => "QUICStreamDataBlockedUpdated",
        EventData::MigrationStateUpdated { .. } => "QUICMigrationStateUpdated",
        EventData::TupleAssigned { .. } => "QUICTupleAssigned",
        EventData::TimerUpdated { .. } => "QUICTimerUpdated",
        EventData::KeyUpdated { .. } => "QUICKeyUpdated",
        EventData::KeyDiscarded { .. } => "QUICKeyDiscarded",
        EventData::RecoveryParametersSet(_) => "QUICRecoveryParametersSet",
        EventData::RecoveryMetricsUpdated(_) => "QUICRecoveryMetricsUpdated",
        EventData::CongestionStateUpdated { .. } => "QUICCongestionStateUpdated",
        EventData::EcnStateUpdated { .. } => "QUICECNStateUpdated",
        EventData::MtuUpdated { .. } => "QUICMTUUpdated",
        EventData::Scenario { .. } => "SimulationScenario",
        EventData::Marker { .. } => "SimulationMarker",
        EventData::EventsDropped { .. } => "LogLevelWarning",
        EventData::Other { .. } => return None,
    })
}

/// Number of rules above.
const RULES: usize = 26;

/// The header and the events of a file.
fn written(events: &[Event]) -> (Value, Vec<Value>) {
    let description = Description {
        role: Some(Role::Server),
        title: "a title".into(),
        original_dcid: Some("0a0b0c0d0e0f0001".into()),
        wall_clock: Some("2026-11-22T10:00:00.000Z".into()),
    };
    let mut writer = Writer::new(Vec::new(), &description);
    for event in events {
        writer.event(event);
    }
    let text = String::from_utf8(writer.finish()).expect("JSON is UTF-8");
    let record = |record: &str| serde_json::from_str(record).expect("each record is JSON");
    let mut records = text.split('\u{1e}').skip(1).map(record);
    (records.next().expect("a header"), records.collect())
}

/// The data of all events, by their rule.
fn by_rule(events: &[Event]) -> BTreeMap<&'static str, Vec<Value>> {
    let mut all: BTreeMap<_, Vec<Value>> = BTreeMap::new();
    let (_, records) = written(events);
    assert_eq!(records.len(), events.len());
    for (event, record) in events.iter().zip(records) {
        let rule = rule(&event.data).expect("an event that Clearway writes");
        all.entry(rule).or_default().push(record["data"].clone());
    }
    all
}

fn assert_valid(all: &BTreeMap<&'static str, Vec<Value>>) {
    let schema = Schema::new();
    let mut wrong = Vec::new();
    for (rule, values) in all {
        // From the whole trace, not only its beginning.
        let step = values.len().div_ceil(MOST);
        let chosen: Vec<Value> = values.iter().step_by(step).cloned().collect();
        for (value, checked) in chosen.iter().zip(schema.rule(rule).check(&chosen)) {
            if let Err(error) = checked {
                wrong.push(format!("{rule}: {value}\n  {error}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn at_least_three_of_every_event_are_valid() {
    let all = by_rule(&examples::all());
    assert_eq!(all.len(), RULES, "{:?}", all.keys());
    for (rule, values) in &all {
        assert!(values.len() >= 3, "{rule}: {}", values.len());
    }
    let schema = Schema::new();
    let mut wrong = Vec::new();
    for (rule, values) in &all {
        for (value, checked) in values.iter().zip(schema.rule(rule).check(values)) {
            if let Err(error) = checked {
                wrong.push(format!("{rule}: {value}\n  {error}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_frame_is_valid_by_its_own_rule() {
    let schema = Schema::new();
    let frames = schema.rule("$QuicFrame");
    let sent = examples::frames();
    let event = examples::packet_with(sent.clone());
    let (_, records) = written(&[event]);
    let values = records[0]["data"]["frames"]
        .as_array()
        .expect("frames")
        .clone();
    assert_eq!(values.len(), sent.len());
    let mut wrong = Vec::new();
    for (value, checked) in values.iter().zip(frames.check(&values)) {
        if let Err(error) = checked {
            wrong.push(format!("{value}\n  {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn recorded_transfer_with_losses_is_valid() {
    let spec = "rate=20M delay=10ms queue=60 loss=2%";
    let mut world = World::new(Setup::new(), path(spec, 4), 4);
    let events: Shared<Vec<Event>> = Shared::default();
    world.connect();
    while world.server.connections.is_empty() {
        assert!(world.step());
    }
    let recorder = Box::new(Recorder::new(events.clone()));
    world.server.connection().set_observer(recorder);
    world.run_until(Duration::from_secs(5), |world| {
        world.client.connection().is_confirmed()
    });
    assert!(download(&mut world, 1_000_000, Duration::from_secs(20)));
    let now = world.now;
    world.client.connection().close(now, 7, b"done");
    world.run_for(Duration::from_secs(2));
    let events = events.with(core::mem::take);
    assert!(events.len() > 1_000, "{}", events.len());
    assert_valid(&by_rule(&events));
}

#[test]
fn header_and_whole_events_are_valid() {
    let schema = Schema::new();
    let (header, records) = written(&examples::all());
    let header = schema.rule("QlogFileSeq").check(&[header]);
    assert_eq!(header, [Ok(())]);
    for (record, checked) in records.iter().zip(schema.rule("Event").check(&records)) {
        assert_eq!(checked, Ok(()), "{record}");
    }
}

/// A check that accepts everything would prove nothing.
#[test]
fn wrong_data_is_rejected_by_every_rule() {
    let schema = Schema::new();
    for (rule, values) in by_rule(&examples::all()) {
        let mut wrong = Vec::new();
        for value in values.iter().take(3) {
            let Value::Object(fields) = value else {
                panic!("{value}");
            };
            for name in fields.keys() {
                // No field is an array of numbers and booleans.
                let mut changed = value.clone();
                changed[name] = json!([1, true]);
                wrong.push(changed);
            }
            let mut extended = value.clone();
            extended["no_such_field"] = json!(1);
            wrong.push(extended);
        }
        for (value, checked) in wrong.iter().zip(schema.rule(rule).check(&wrong)) {
            assert!(checked.is_err(), "{rule} accepts {value}");
        }
    }
}
