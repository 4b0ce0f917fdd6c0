//! Traces with extreme numbers, as anyone can write them into a file.

use clearway_trace::Breakdown;
use clearway_trace::Examination;
use clearway_trace::detect::{Profile, examine};
use clearway_trace::event::Event;
use clearway_trace::qlog::Reader;
use clearway_trace::report::{Panel, html};
use proptest::prelude::*;

const HEADER: &str = r#"{"file_schema":"urn:ietf:params:qlog:file:sequential","serialization_format":"JSON-SEQ","trace":{"vantage_point":{"type":"server"}}}"#;

/// Names and data of events; `#` stands for any number, `@` for any word of [`WORDS`].
const EVENTS: &[(&str, &str)] = &[
    (
        "quic:packet_sent",
        r##""header":{"packet_type":"@","packet_number":#},"raw":{"length":#},"is_mtu_probe_packet":false,"frames":[{"frame_type":"stream","stream_id":#,"offset":#,"length":#}]"##,
    ),
    (
        "quic:packet_sent",
        r##""header":{"packet_type":"1RTT","packet_number":#},"raw":{"length":#},"frames":[{"frame_type":"ping"}]"##,
    ),
    (
        "quic:packet_sent",
        r##""header":{"packet_type":"1RTT","packet_number":#},"raw":{"length":#},"frames":[{"frame_type":"max_data","maximum":#},{"frame_type":"data_blocked","limit":#}]"##,
    ),
    (
        "quic:packet_received",
        r##""header":{"packet_type":"1RTT","packet_number":#},"frames":[{"frame_type":"ack","ack_delay":#,"acked_ranges":[[#,#],[#,#]],"ect0":#,"ect1":#,"ce":#}]"##,
    ),
    (
        "quic:packet_received",
        r##""header":{"packet_type":"@","packet_number":#},"frames":[{"frame_type":"ack","acked_ranges":[[0,#]]},{"frame_type":"data_blocked","limit":#},{"frame_type":"handshake_done"}]"##,
    ),
    (
        "quic:packet_lost",
        r##""header":{"packet_type":"1RTT","packet_number":#}"##,
    ),
    (
        "quic:stream_data_moved",
        r##""stream_id":#,"length":#,"to":"application""##,
    ),
    (
        "quic:connection_data_blocked_updated",
        r#""new":"blocked","reason":"@""#,
    ),
    (
        "quic:connection_data_blocked_updated",
        r#""new":"unblocked""#,
    ),
    (
        "quic:timer_updated",
        r##""timer_type":"pto","event_type":"expired","delta":#"##,
    ),
    (
        "quic:congestion_state_updated",
        r#""new":"@","trigger":"@""#,
    ),
    ("quic:mtu_updated", r##""old":#,"new":#"##),
    ("quic:tuple_assigned", ""),
    ("quic:key_discarded", r#""key_type":"server_1rtt_secret""#),
    ("simulation:marker", r#""type":"@","message":"@""#),
    (
        "loglevel:warning",
        r##""message":"events dropped","code":#"##,
    ),
    (
        "quic:recovery_parameters_set",
        r##""congestion_control":"@","max_datagram_size":#,"initial_congestion_window":#,"minimum_congestion_window":#,"initial_rtt":#,"time_threshold":#"##,
    ),
    (
        "quic:recovery_metrics_updated",
        r##""smoothed_rtt":#,"latest_rtt":#,"min_rtt":#,"rtt_variance":#,"congestion_window":#,"bytes_in_flight":#,"ssthresh":#"##,
    ),
    (
        "quic:recovery_metrics_updated",
        r##""smoothed_rtt":1,"rtt_variance":1,"pto_count":#,"pacing_rate":#,"delivery_rate":#,"delivered":#,"lost":#,"congestion_events":#,"spurious_events":#,"persistent_events":#"##,
    ),
    (
        "quic:recovery_metrics_updated",
        r##""smoothed_rtt":1,"boundary":#,"next_index":#,"max_bw":#,"bw":#,"round_count":#,"probe_wait":#,"t":#,"epoch_shift":#,"in_flight_on_all_paths":#"##,
    ),
    (
        "quic:recovery_metrics_updated",
        r##""smoothed_rtt":1,"recovery_start":#,"epoch_shift":#,"t":#,"delivery_rate":#,"max_bw":#,"cf_lost_packets":{"total":#,"delta":#},"cf_app_limited":false"##,
    ),
];

const WORDS: &[&str] = &[
    "1RTT",
    "initial",
    "handshake",
    "startup",
    "drain",
    "slow_start",
    "recovery",
    "probe_bw_up",
    "probe_bw_down",
    "persistent_congestion",
    "cubic",
    "bbr",
    "pacing",
    "congestion_control",
    "application",
    "connection_flow_control",
    "amplification_protection",
];

/// Numbers at which arithmetic overflows, and some plausible ones.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..40_u64,
        4 => Just(1_200),
        1 => Just(u64::MAX / 1_000_000),
        1 => Just(1 << 32),
        1 => Just(1 << 62),
        2 => Just(u64::MAX - 1),
        3 => Just(u64::MAX),
    ]
}

fn record() -> impl Strategy<Value = String> {
    let numbers = proptest::collection::vec(number(), 12);
    let words = proptest::collection::vec(proptest::sample::select(WORDS), 2);
    (number(), proptest::sample::select(EVENTS), numbers, words).prop_map(
        |(time, (name, data), numbers, words)| {
            let (mut numbers, mut words) = (numbers.iter(), words.iter());
            let mut filled = String::new();
            for letter in data.chars() {
                match letter {
                    '#' => filled.push_str(&numbers.next().unwrap_or(&0).to_string()),
                    '@' => filled.push_str(words.next().unwrap_or(&"")),
                    other => filled.push(other),
                }
            }
            format!(r#"{{"time":{time},"name":"{name}","data":{{{filled}}}}}"#)
        },
    )
}

fn read(records: &[String]) -> Vec<Event> {
    let records = std::iter::once(HEADER).chain(records.iter().map(String::as_str));
    let file: String = records.map(|line| format!("\u{1e}{line}\n")).collect();
    let mut reader = Reader::new(file.as_bytes()).expect("a trace");
    let events = reader
        .by_ref()
        .map(|event| event.expect("readable"))
        .collect();
    assert_eq!(reader.problems().bad_records, 0, "{file}");
    events
}

/// Everything that `clearway lab diagnose` does with a file.
fn judge(records: &[String]) {
    let events = read(records);
    let findings = examine(&Profile::default(), &events);
    for finding in &findings {
        assert!(finding.t0 <= finding.t1, "{finding:?}");
        assert!(!finding.sentence().is_empty());
    }
    let breakdown = Breakdown::of(&events);
    let told: u64 = breakdown.shares().iter().map(|(_, time)| time).sum();
    assert_eq!(told, breakdown.life());
    let tenths: u64 = breakdown.permille().iter().map(|(_, part)| part).sum();
    assert_eq!(tenths, if told == 0 { 0 } else { 1_000 });
    let examination = Examination::of(None, &events);
    assert_eq!(examination.findings, findings);
    assert!(!examination.diagnosis.headline.is_empty());
    let panel = Panel {
        title: "extreme",
        facts: &[],
        examination: &examination,
    };
    let page = html("extreme", &[panel]);
    assert!(page.trim_end().ends_with("</html>"));
}

#[test]
fn detectors_accept_every_number_at_its_maximum() {
    let event = |(name, data): &(&str, &str), time: u64, word: &str| {
        let data = data.replace('#', &u64::MAX.to_string()).replace('@', word);
        format!(r#"{{"time":{time},"name":"{name}","data":{{{data}}}}}"#)
    };
    for word in WORDS {
        let mut records = Vec::new();
        for time in [0, 1, 1_000, u64::MAX, 5] {
            records.extend(EVENTS.iter().map(|it| event(it, time, word)));
        }
        judge(&records);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn detectors_accept_extreme_numbers_in_any_order(
        records in proptest::collection::vec(record(), 1..60),
    ) {
        judge(&records);
    }
}
