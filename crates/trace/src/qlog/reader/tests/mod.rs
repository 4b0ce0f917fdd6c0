mod parallel;

use proptest::prelude::*;

use super::split::MAX_RECORD;
use super::*;
use crate::event::{EventData, Frame, PacketType, Role, TimerChange, TimerKind};

/// All events of a text, the reader, and whether it ended without an error.
fn read(text: &[u8]) -> (Vec<Event>, Header, Problems) {
    let mut reader = Reader::new(text).expect("qlog");
    let events = (&mut reader).map(|event| event.expect("memory")).collect();
    (events, reader.header().clone(), reader.problems().clone())
}

fn sequence(records: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        out.push(0x1e);
        out.extend_from_slice(record.as_bytes());
        out.push(b'\n');
    }
    out
}

const MS: u64 = 1_000_000;

#[test]
fn sequences_of_0_3_as_quiche_and_neqo_write_them() {
    let text = sequence(&[
        r#"{"qlog_version":"0.3","qlog_format":"JSON-SEQ","title":"a client","trace":{"vantage_point":{"name":"x","type":"client"},"title":"t","configuration":{"time_offset":0.0},"common_fields":{"group_id":"c0ffee","reference_time":0.0}}}"#,
        r#"{"time":0.5,"name":"transport:parameters_set","data":{"owner":"remote","initial_max_data":100,"ack_delay_exponent":3,"max_idle_timeout":30000}}"#,
        r#"{"time":1.25,"name":"transport:packet_sent","data":{"header":{"packet_type":"initial","packet_number":0,"version":"1","scil":8,"dcil":8},"raw":{"length":1200,"payload_length":1174},"send_at_time":1.25,"frames":[{"frame_type":"crypto","offset":0,"length":300},{"frame_type":"padding"}]}}"#,
        r#"{"time":2,"name":"transport:packet_received","data":{"header":{"packet_type":"1RTT","packet_number":4},"raw":{"length":40},"frames":[{"frame_type":"ack","ack_delay":0.012,"acked_ranges":[[0,0],[2,9]]}]}}"#,
        r#"{"time":2.5,"name":"recovery:metrics_updated","data":{"smoothed_rtt":12.5,"congestion_window":13500,"ssthresh":18446744073709551615,"bytes_in_flight":0}}"#,
        r#"{"time":3,"name":"recovery:congestion_state_updated","data":{"old":"slow_start","new":"recovery"}}"#,
        r#"{"time":4,"name":"recovery:packet_lost","data":{"header":{"packet_type":"1RTT","packet_number":7},"trigger":"time_threshold"}}"#,
        r#"{"time":5,"name":"http:frame_created","data":{}}"#,
    ]);
    let (events, header, problems) = read(&text);
    assert_eq!(header.role, Some(Role::Client));
    assert_eq!(header.group.as_deref(), Some("c0ffee"));
    assert_eq!(header.version.as_deref(), Some("0.3"));
    assert_eq!(
        problems,
        Problems {
            other_events: 1,
            ..Problems::default()
        }
    );
    let times: Vec<u64> = events.iter().map(|event| event.time / 10_000).collect();
    assert_eq!(times, [50, 125, 200, 250, 300, 400, 500]);
    let EventData::PacketSent(sent) = &events[1].data else {
        panic!("{:?}", events[1]);
    };
    assert_eq!(
        (sent.kind, sent.number, sent.size),
        (PacketType::Initial, Some(0), Some(1200))
    );
    assert_eq!(
        sent.frames()[0],
        Frame::Crypto {
            offset: 0,
            len: 300
        }
    );
    let EventData::PacketReceived(received) = &events[2].data else {
        panic!("{:?}", events[2]);
    };
    let Frame::Ack { delay, ranges, .. } = &received.frames()[0] else {
        panic!("{received:?}");
    };
    assert_eq!(*delay, Some(12_000));
    assert_eq!(ranges.as_slice(), [(0, 0), (2, 9)]);
    let EventData::RecoveryMetricsUpdated(metrics) = &events[3].data else {
        panic!("{:?}", events[3]);
    };
    assert_eq!(metrics.smoothed_rtt, Some(12_500_000));
    assert_eq!(metrics.ssthresh, None, "the largest number means none");
    assert_eq!(metrics.bytes_in_flight, Some(0), "zero is a value");
}

#[test]
fn contained_files_with_calendar_times_as_aioquic_writes_them() {
    let text = br#"{"qlog_format": "JSON", "qlog_version": "0.3", "traces": [{"common_fields": {"ODCID": "ab"}, "events": [
        {"data": {"frames": [{"ack_delay": 0.0, "acked_ranges": [[0, 1]], "frame_type": "ack"}], "header": {"packet_number": 1, "packet_type": "1RTT"}, "raw": {"length": 30}}, "name": "transport:packet_sent", "time": 1700000000000.25},
        {"data": {"cwnd": 14720, "bytes_in_flight": 55, "latest_rtt": 20.5}, "name": "recovery:metrics_updated", "time": 1700000000010.25},
        {"data": {"packet_number": 3, "type": "1RTT"}, "name": "recovery:packet_lost", "time": 1700000000011.5}
    ], "vantage_point": {"name": "aioquic", "type": "server"}}]}"#;
    let (events, header, problems) = read(text);
    assert_eq!(header.group.as_deref(), Some("ab"));
    assert_eq!(problems, Problems::default());
    let times: Vec<u64> = events.iter().map(|event| event.time).collect();
    assert_eq!(times, [0, 10 * MS, 11_250_000]);
    let EventData::RecoveryMetricsUpdated(metrics) = &events[1].data else {
        panic!("{:?}", events[1]);
    };
    assert_eq!(metrics.congestion_window, Some(14_720));
    assert!(matches!(
        events[2].data,
        EventData::PacketLost {
            kind: PacketType::OneRtt,
            number: 3,
            ..
        }
    ));
}

#[test]
fn array_events_in_microseconds_as_picoquic_writes_them() {
    let text = br#"{ "qlog_version": "draft-00", "title": "picoquic", "traces": [
{ "vantage_point": { "name": "backend", "type": "server" }, "title": "p", "event_fields": ["relative_time", "CATEGORY", "EVENT_TYPE", "DATA"],
"configuration": {"time_units": "us"}, "common_fields": { "reference_time": "0"},
"events": [
[10, "TRANSPORT", "PACKET_SENT", { "packet_type": "1rtt", "header": { "packet_number": "5", "packet_size": 1440 }, "frames": [{ "frame_type": "stream", "id": 4, "offset": 100, "length": 16, "fin": true }]}],
[20, "TRANSPORT", "PACKET_RECEIVED", { "packet_type": "1rtt", "header": { "packet_number": "0", "packet_size": 55 }, "frames": [{ "frame_type": "ack_ecn", "ack_delay": 1, "acked_ranges": [[3, 5]], "ecn": [3,0,1]}]}],
[30, "RECOVERY", "METRICS_UPDATED", {"cwnd": 15360, "pacing_rate": 8000000, "bytes_in_flight": 1440}],
[40, "TRANSPORT", "PACKET_SENT", { "frames": [{ "frame_type": "datagram", length: 16}]}],
[50, "RECOVERY", "PACKET_LOST", { "packet_type": "1RTT", "packet_number": 5, "trigger": "timer" }]]}]}"#;
    let (events, header, problems) = read(text);
    assert_eq!(header.role, Some(Role::Server));
    assert_eq!(problems.bad_records, 1, "the one that is no JSON");
    assert!(text[problems.offsets[0] as usize..].starts_with(b"[40, "));
    let times: Vec<u64> = events.iter().map(|event| event.time).collect();
    assert_eq!(times, [10_000, 20_000, 30_000, 50_000]);
    let EventData::PacketSent(sent) = &events[0].data else {
        panic!("{:?}", events[0]);
    };
    assert_eq!((sent.number, sent.size), (Some(5), Some(1_440)));
    assert_eq!(
        sent.frames(),
        [Frame::Stream {
            stream: 4,
            offset: 100,
            len: 16,
            fin: true
        }]
    );
    let EventData::PacketReceived(received) = &events[1].data else {
        panic!("{:?}", events[1]);
    };
    assert!(matches!(
        received.frames()[0],
        Frame::Ack {
            ecn: Some([3, 0, 1]),
            ..
        }
    ));
}

#[test]
fn lines_without_separators_and_timers_as_quic_go_writes_them() {
    let text = concat!(
        r#"{"qlog_format":"NDJSON","qlog_version":"draft-02","title":"quic-go qlog","trace":{"vantage_point":{"type":"client"},"common_fields":{"ODCID":"0102","reference_time":1700000000000,"time_format":"relative"}}}"#,
        "\n",
        r#"{"time":1.5,"name":"recovery:loss_timer_updated","data":{"event_type":"set","timer_type":"pto","packet_number_space":"application_data","delta":75.5}}"#,
        "\n\n",
        r#"{"time":2,"name":"recovery:loss_timer_updated","data":{"event_type":"expired","timer_type":"ack"}}"#,
        "\n",
        r#"{"time":3,"name":"transport:connection_closed","data":{"owner":"local","application_code":256,"reason":""}}"#,
        "\n",
        r#"{"time":4,"name":"transport:packet_sent","data":{"header":{"packet_type":"1RTT","packet_number":1},"raw":{"length":99},"frames":[{"frame_type":"max_data","maximum":7},{"frame_type":"#,
    );
    let (events, header, problems) = read(text.as_bytes());
    assert_eq!(header.group.as_deref(), Some("0102"));
    assert_eq!(problems.bad_records, 1, "the last line is cut off");
    assert!(text[problems.offsets[0] as usize..].starts_with("{\"time\":4"));
    assert_eq!(
        events[0].data,
        EventData::TimerUpdated {
            kind: Some(TimerKind::Pto),
            change: TimerChange::Set(Some(75_500_000)),
        }
    );
    assert!(matches!(
        &events[2].data,
        EventData::ConnectionClosed(closed) if closed.code == Some(256) && closed.application
    ));
}

#[test]
fn relative_times_are_summed() {
    let text = sequence(&[
        r#"{"file_schema":"urn:ietf:params:qlog:file:sequential","trace":{"event_schemas":[],"common_fields":{"time_format":"relative_to_previous_event"}}}"#,
        r#"{"time":5,"name":"quic:mtu_updated","data":{"new":1}}"#,
        r#"{"time":7,"name":"quic:mtu_updated","data":{"new":2}}"#,
    ]);
    let (events, ..) = read(&text);
    assert_eq!(events[1].time, 12 * MS);
}

#[test]
fn malformed_records_are_counted_and_skipped() {
    let mut text = sequence(&[
        r#"{"file_schema":"f","trace":{"event_schemas":[]}}"#,
        r#"{"time":1,"name":"quic:mtu_updated","data":{"new":1}}"#,
        r#"{"time":2,"name":"quic:mtu_upd"#,
        r#"{"time":3,"name":"quic:mtu_updated","data":{}}"#,
        r#"{"name":"quic:mtu_updated","data":{"new":4}}"#,
    ]);
    let long = text.len() as u64 + 1;
    text.extend_from_slice(&sequence(&[&"x".repeat(MAX_RECORD + 5)]));
    text.extend_from_slice(&sequence(&[
        r#"{"time":6,"name":"quic:mtu_updated","data":{"new":6}}"#,
    ]));
    let (events, _, problems) = read(&text);
    assert_eq!(events.len(), 2);
    assert_eq!(events[1].time, 6 * MS);
    assert_eq!(problems.bad_records, 2);
    assert_eq!(problems.senseless_events, 2);
    assert_eq!(problems.offsets[1], long);
}

#[test]
fn negative_values_are_counted() {
    let text = sequence(&[
        r#"{"file_schema":"f","trace":{"event_schemas":[]}}"#,
        r#"{"time":1,"name":"quic:mtu_updated","data":{"new":1}}"#,
        r#"{"time":-5,"name":"quic:mtu_updated","data":{"new":2}}"#,
        r#"{"time":-0.25,"name":"quic:mtu_updated","data":{"new":2}}"#,
        r#"{"time":2,"name":"recovery:packet_lost","data":{"header":{"packet_type":"1RTT","packet_number":-1}}}"#,
        r#"{"time":3,"name":"quic:packet_sent","data":{"header":{"packet_type":"1RTT","packet_number":-1}}}"#,
        r#"{"time":4,"name":"recovery:metrics_updated","data":{"congestion_window":-1}}"#,
        r#"{"time":5,"name":"recovery:metrics_updated","data":{"congestion_window":9,"ssthresh":-1}}"#,
        r#"{"time":6,"name":"quic:mtu_upd"#,
    ]);
    let (events, _, problems) = read(&text);
    assert_eq!(
        events.len(),
        2,
        "the first, and one with an unset threshold"
    );
    assert_eq!((problems.bad_records, problems.senseless_events), (1, 5));
    assert_eq!(problems.unreadable(), 6);
}

#[test]
fn backward_times_are_counted() {
    let event =
        |time: &str| format!(r#"{{"time":{time},"name":"quic:mtu_updated","data":{{"new":1}}}}"#);
    let file = |times: &[&str]| {
        let mut records = vec![r#"{"file_schema":"f","trace":{"event_schemas":[]}}"#.to_owned()];
        records.extend(times.iter().map(|time| event(time)));
        let records: Vec<&str> = records.iter().map(String::as_str).collect();
        sequence(&records)
    };
    let earlier = |times: &[&str]| read(&file(times)).2.earlier_events;
    assert_eq!(earlier(&["1", "1", "2", "3"]), 0);
    assert_eq!(
        earlier(&["1", "5", "2", "3", "6"]),
        2,
        "two come after the 5"
    );
    // Dates: nothing is before the first that sets zero, but this one is.
    assert_eq!(earlier(&["1700000000005", "1700000000001"]), 1);
}

#[test]
fn several_traces_in_one_file_are_read_in_sequence() {
    let text = br#"{"qlog_version":"0.3","traces":[
        {"vantage_point":{"type":"client"},"events":[{"time":1,"name":"connectivity:mtu_updated","data":{"new":1}}]},
        {"vantage_point":{"type":"server"},"events":[{"time":2,"name":"connectivity:mtu_updated","data":{"new":2}},{"time":3,"name":"a","data":{}}]}]}"#;
    let mut reader = Reader::new(&text[..]).expect("qlog");
    assert_eq!(reader.header().role, Some(Role::Client));
    assert!(reader.next().is_some());
    assert!(reader.next().is_some());
    assert_eq!(reader.header().role, Some(Role::Server));
    assert_eq!(reader.header().traces, 2);
    assert!(reader.next().is_some());
    assert!(reader.next().is_none());
    assert_eq!(
        *reader.problems(),
        Problems {
            other_events: 1,
            ..Problems::default()
        }
    );
}

#[test]
fn non_qlog_file_is_rejected() {
    for (text, expected) in [
        ("", "the file is empty: found nothing in 0 bytes"),
        ("  \n", "the file is empty: found nothing in 3 bytes"),
        (
            "hello",
            "not a qlog file: found the byte 0x68 at offset 0, expected ",
        ),
        (
            " [1]",
            "not a qlog file: found the byte 0x5b at offset 1, expected ",
        ),
    ] {
        let error = Reader::new(text.as_bytes()).expect_err("no qlog");
        assert!(error.to_string().starts_with(expected), "{text:?}: {error}");
    }
}

proptest! {
    /// Whatever is done to a file, reading ends, and every byte was looked at.
    #[test]
    fn damaged_file_is_read_to_the_end(
        shape in 0_usize..3,
        cuts in prop::collection::vec((0_usize..2_000, any::<u8>()), 0..8),
        end in 0_usize..2_000,
    ) {
        let event = r#"{"time":1,"name":"transport:packet_sent","data":{"header":{"packet_type":"1RTT","packet_number":1},"frames":[{"frame_type":"ack","acked_ranges":[[1,2]]}]}}"#;
        let header = r#"{"qlog_version":"0.3","trace":{"vantage_point":{"type":"client"}}}"#;
        let mut text = match shape {
            0 => sequence(&[header, event, event, event]),
            1 => format!("{header}\n{event}\n{event}\n").into_bytes(),
            _ => format!(r#"{{"qlog_version":"0.3","traces":[{{"events":[{event},{event},{event}]}}]}}"#).into_bytes(),
        };
        for (at, byte) in cuts {
            let at = at % text.len();
            text[at] = byte;
        }
        text.truncate(end);
        if let Ok(mut reader) = Reader::new(&text[..]) {
            for event in &mut reader {
                prop_assert!(event.is_ok());
            }
            prop_assert_eq!(reader.offset(), text.len() as u64);
        }
    }
}
