//! Recordings of Cloudflare's h3i: its actions, written as qlog events, one JSON object a line.
//!
//! | event | becomes |
//! |---|---|
//! | `http3:stream_type_set` | the stream type on that stream |
//! | `http3:frame_created` with headers, data, settings, goaway, cancel_push, max_push_id | that HTTP/3 frame |
//! | `quic:packet_sent` with `stream` (only its FIN), `datagram`, `reset_stream`, `stop_sending`, `connection_close` | that frame |
//! | `h3i:wait` with a time | a wait |
//! | `h3i:wait` for a stream's headers, data or end | a wait for the response |
//!
//! These are the names that h3i 0.7 writes; those of its earlier versions (`http:`, `transport:`) are read, too. Streams keep
//! the IDs that were recorded.

use serde_json::Value;

use crate::script::{Case, ScriptError, parse};

/// Longest wait that is replayed; longer ones are cut to this.
const MAX_WAIT_MILLIS: u64 = 60_000;

/// Why a recording cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// A line is not a JSON object.
    #[error("line {line}: invalid JSON: {reason}")]
    Json {
        /// The line, from 1.
        line: usize,
        /// What the parser says.
        reason: String,
    },
    /// An event has no meaning here.
    #[error("line {line}: {reason}")]
    Event {
        /// The line, from 1.
        line: usize,
        /// What was expected.
        reason: String,
    },
    /// The recording has no event that h3i replays.
    #[error(
        "no recorded actions: expected the file <timestamp>-qlog.sqlog that h3i writes, with events \
         such as http3:frame_created"
    )]
    Empty,
    /// The sequence cannot be made a case.
    #[error("cannot make a case of the recording: {0}")]
    Script(#[from] ScriptError),
}

/// Makes a case of a recording. `expect` holds what is expected, as lines of a script say it
/// behind `expect`, such as `close H3_MESSAGE_ERROR`; without any, the connection has to go on.
///
/// # Errors
/// If the recording has an event that cannot be replayed, or `name` or `expect` is invalid.
pub fn h3i(name: &str, recording: &str, expect: &[&str]) -> Result<Case, ImportError> {
    let mut lines = vec![
        format!("case {name}"),
        format!("title recorded sequence {name}"),
        "source recorded with h3i".to_owned(),
        "layer http3".to_owned(),
        "connect".to_owned(),
    ];
    let head = lines.len();
    let mut streams = Streams::default();
    for (number, text) in (1..).zip(recording.lines()) {
        // JSON text sequences begin each record with this character (RFC 7464).
        let text = text.trim_start_matches('\u{1e}').trim();
        if text.is_empty() {
            continue;
        }
        let event: Value = serde_json::from_str(text).map_err(|error| ImportError::Json {
            line: number,
            reason: error.to_string(),
        })?;
        streams
            .event(&event, &mut lines)
            .map_err(|reason| ImportError::Event {
                line: number,
                reason,
            })?;
    }
    if lines.len() == head {
        return Err(ImportError::Empty);
    }
    match expect {
        [] => lines.push("expect alive".to_owned()),
        all => lines.extend(all.iter().map(|outcome| format!("expect {outcome}"))),
    }
    let mut cases = parse(&lines.join("\n"))?;
    // One `case` line makes one case.
    cases.pop().ok_or(ImportError::Empty)
}

/// How far each recorded stream is written.
#[derive(Default)]
struct Streams {
    written: std::collections::BTreeMap<u64, u64>,
}

impl Streams {
    fn event(&mut self, event: &Value, lines: &mut Vec<String>) -> Result<(), String> {
        let (name, data) = (event["name"].as_str().unwrap_or_default(), &event["data"]);
        let fin = |value: &Value| value["fin_stream"].as_bool().unwrap_or(false);
        match name {
            "http3:stream_type_set" | "h3:stream_type_set" | "http:stream_type_set" => {
                let id = number(data, "stream_id")?;
                let mut bytes = Vec::new();
                crate::wire::put_varint(&mut bytes, stream_type(data)?);
                self.stream(id, &bytes, fin(event), lines);
            }
            "http3:frame_created" | "h3:frame_created" | "http:frame_created" => {
                let id = number(data, "stream_id")?;
                let bytes = frame(&data["frame"])?;
                self.stream(id, &bytes, fin(event), lines);
            }
            "quic:packet_sent" | "transport:packet_sent" => {
                for frame in data["frames"].as_array().into_iter().flatten() {
                    self.packet_frame(frame, lines)?;
                }
            }
            "h3i:wait" => lines.push(wait(data)?),
            // The header of the file, and events that h3i does not replay either.
            _ => {}
        }
        Ok(())
    }

    fn stream(&mut self, id: u64, bytes: &[u8], fin: bool, lines: &mut Vec<String>) {
        let written = self.written.entry(id).or_default();
        let name = if fin { "STREAM_FIN" } else { "STREAM" };
        // A frame has to fit into a packet.
        let mut pieces: Vec<_> = bytes.chunks(1_000).collect();
        if pieces.is_empty() {
            pieces.push(&[]);
        }
        let last = pieces.len() - 1;
        for (at, piece) in pieces.into_iter().enumerate() {
            let name = if at == last { name } else { "STREAM" };
            let hex = crate::wire::hex(piece);
            lines.push(format!(
                "send 1rtt: {name} id={id} offset={written} data=hex:{hex}"
            ));
            *written += piece.len() as u64;
        }
    }

    fn packet_frame(&mut self, frame: &Value, lines: &mut Vec<String>) -> Result<(), String> {
        match frame["frame_type"].as_str().unwrap_or_default() {
            // Only the end: h3i does not replay the bytes of such frames either.
            "stream" if frame["fin"].as_bool() == Some(true) => {
                self.stream(number(frame, "stream_id")?, &[], true, lines);
            }
            "datagram" => {
                let data = frame["raw"]["data"].as_str().unwrap_or_default();
                let hex = crate::wire::hex(data.as_bytes());
                lines.push(format!("send 1rtt: DATAGRAM data=hex:{hex}"));
            }
            "reset_stream" => {
                let id = number(frame, "stream_id")?;
                let size = self.written.get(&id).copied().unwrap_or(0);
                let code = number(frame, "error_code")?;
                lines.push(format!(
                    "send 1rtt: RESET_STREAM id={id} code={code} final_size={size}"
                ));
            }
            "stop_sending" => lines.push(format!(
                "send 1rtt: STOP_SENDING id={} code={}",
                number(frame, "stream_id")?,
                number(frame, "error_code")?
            )),
            "connection_close" => {
                let space = frame["error_space"].as_str().unwrap_or_default();
                let name = match space.contains("application") {
                    true => "APPLICATION_CLOSE",
                    false => "CONNECTION_CLOSE",
                };
                let code = number(frame, "error_code")?;
                lines.push(format!("send 1rtt: {name} code={code}"));
            }
            _ => {}
        }
        Ok(())
    }
}

fn number(value: &Value, key: &str) -> Result<u64, String> {
    value[key]
        .as_u64()
        .ok_or_else(|| format!("missing {key:?}: expected a number, found {}", value[key]))
}

fn stream_type(data: &Value) -> Result<u64, String> {
    match data["stream_type"].as_str().unwrap_or_default() {
        "control" => Ok(0x00),
        "push" => Ok(0x01),
        "qpack_encode" => Ok(0x02),
        "qpack_decode" => Ok(0x03),
        _ => number(data, "stream_type_bytes").or_else(|_| number(data, "stream_type_value")),
    }
}

/// Returns an HTTP/3 frame's bytes.
fn frame(frame: &Value) -> Result<Vec<u8>, String> {
    use crate::wire::http::{field_section, kind, put_frame};
    let mut out = Vec::new();
    let texts = |list: &str, key: &str| {
        let entries = frame[list].as_array().into_iter().flatten();
        let texts = entries.map(|entry| entry[key].as_str().unwrap_or_default().to_owned());
        texts.collect::<Vec<_>>()
    };
    let varint = |key: &str| {
        let mut payload = Vec::new();
        crate::wire::put_varint(&mut payload, number(frame, key)?);
        Ok::<_, String>(payload)
    };
    match frame["frame_type"].as_str().unwrap_or_default() {
        "headers" => {
            let (names, values) = (texts("headers", "name"), texts("headers", "value"));
            let fields = names.iter().zip(&values);
            let section = field_section(fields.map(|(n, v)| (n.as_bytes(), v.as_bytes())));
            put_frame(&mut out, kind::HEADERS, &section);
        }
        "data" => {
            let data = frame["raw"]["data"].as_str().unwrap_or_default();
            put_frame(&mut out, kind::DATA, data.as_bytes());
        }
        "settings" => {
            let mut payload = Vec::new();
            for setting in frame["settings"].as_array().into_iter().flatten() {
                crate::wire::put_varint(&mut payload, setting_id(setting)?);
                crate::wire::put_varint(&mut payload, number(setting, "value")?);
            }
            put_frame(&mut out, kind::SETTINGS, &payload);
        }
        "goaway" => put_frame(&mut out, kind::GOAWAY, &varint("id")?),
        "cancel_push" => put_frame(&mut out, kind::CANCEL_PUSH, &varint("push_id")?),
        "max_push_id" => put_frame(&mut out, kind::MAX_PUSH_ID, &varint("push_id")?),
        other => {
            return Err(format!(
                "unknown frame {other:?}: expected headers, data, settings, goaway, cancel_push or \
                 max_push_id"
            ));
        }
    }
    Ok(out)
}

fn setting_id(setting: &Value) -> Result<u64, String> {
    if let Some(id) = setting["name_bytes"].as_u64() {
        return Ok(id);
    }
    let name = setting["name"].as_str().unwrap_or_default();
    match name {
        "QPACK_MAX_TABLE_CAPACITY" => Ok(0x01),
        "MAX_FIELD_SECTION_SIZE" => Ok(0x06),
        "QPACK_BLOCKED_STREAMS" => Ok(0x07),
        "SETTINGS_ENABLE_CONNECT_PROTOCOL" => Ok(0x08),
        "H3_DATAGRAM" => Ok(0x33),
        number => number
            .parse()
            .map_err(|_| format!("unknown setting {name:?}: expected a name of h3i or a number")),
    }
}

fn wait(data: &Value) -> Result<String, String> {
    if let Some(millis) = data["duration"].as_f64() {
        return Ok(format!("wait {}ms", (millis as u64).min(MAX_WAIT_MILLIS)));
    }
    if data["stream_id"].is_u64() {
        // The response is read by the name of a stream, which recorded streams do not have.
        return Ok("wait frame STREAM".to_owned());
    }
    Err(format!(
        "unknown wait {data}: expected a time, or an event of a stream"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDING: &str = r#"{"qlog_version":"0.3","qlog_format":"JSON-SEQ"}
{"time":0.0,"name":"http:stream_type_set","data":{"owner":"local","stream_id":2,"stream_type":"control"}}
{"time":0.1,"name":"http:frame_created","data":{"stream_id":2,"frame":{"frame_type":"settings","settings":[{"name":"MAX_FIELD_SECTION_SIZE","value":100}]}}}
{"time":0.2,"name":"http:frame_created","data":{"stream_id":0,"frame":{"frame_type":"headers","headers":[{"name":":method","value":"GET"}]}},"fin_stream":true}
{"time":0.3,"name":"h3i:wait","data":{"duration":20.0}}
{"time":0.4,"name":"h3i:wait","data":{"stream_id":0,"type":"data"}}
{"time":0.5,"name":"transport:packet_sent","data":{"header":{},"frames":[{"frame_type":"reset_stream","stream_id":2,"error_code":7,"final_size":0}]}}
{"time":0.6,"name":"transport:packet_sent","data":{"header":{},"frames":[{"frame_type":"connection_close","error_space":"application_error","error_code":256}]}}
"#;

    #[test]
    fn recorded_actions_become_steps_in_order() {
        let case = h3i("recorded", RECORDING, &["close H3_MESSAGE_ERROR"]).unwrap();
        let steps: Vec<_> = case.script.iter().map(String::as_str).collect();
        assert_eq!(
            steps,
            [
                "connect",
                "send 1rtt: STREAM id=2 offset=0 data=hex:00",
                "send 1rtt: STREAM id=2 offset=1 data=hex:0403064064",
                "send 1rtt: STREAM_FIN id=0 offset=0 data=hex:010f000027003a6d6574686f6403474554",
                "wait 20ms",
                "wait frame STREAM",
                "send 1rtt: RESET_STREAM id=2 code=7 final_size=6",
                "send 1rtt: APPLICATION_CLOSE code=256",
            ]
        );
        assert_eq!(
            case.expectation(),
            "connection closed with H3_MESSAGE_ERROR"
        );
    }

    /// As h3i 0.7 writes it, with qlog 0.18: record separators, and names of qlog's later drafts.
    const RECORDING_0_7: &str = concat!(
        "\u{1e}",
        r#"{"file_schema":"urn:ietf:params:qlog:file:sequential","serialization_format":"application/qlog+json-seq","title":"h3i","description":"h3i","trace":{"vantage_point":{"type":"client"},"event_schemas":["urn:ietf:params:qlog:events:quic-12","urn:ietf:params:qlog:events:http3-12"]}}"#,
        "\n\u{1e}",
        r#"{"time":0.051,"name":"http3:stream_type_set","data":{"initiator":"local","stream_id":2,"stream_type":"control"}}"#,
        "\n\u{1e}",
        r#"{"time":0.076,"name":"http3:frame_created","data":{"stream_id":2,"frame":{"frame_type":"settings","settings":[{"name":"H3_DATAGRAM","value":1},{"name":"19780","value":1},{"name_bytes":65,"value":2}]}}}"#,
        "\n\u{1e}",
        r#"{"time":0.082,"name":"http3:stream_type_set","data":{"initiator":"local","stream_id":6,"stream_type":"unknown","stream_type_bytes":65}}"#,
        "\n\u{1e}",
        r#"{"time":0.085,"name":"h3i:wait","data":{"duration":12345.5}}"#,
        "\n\u{1e}",
        r#"{"time":0.092,"name":"http3:frame_created","data":{"stream_id":2,"frame":{"frame_type":"max_push_id","push_id":7}}}"#,
        "\n\u{1e}",
        r#"{"time":0.093,"name":"http3:frame_created","data":{"stream_id":2,"frame":{"frame_type":"cancel_push","push_id":5}}}"#,
        "\n\u{1e}",
        r#"{"time":0.095,"name":"quic:packet_sent","data":{"header":{"packet_type":"1RTT","packet_number":0},"frames":[{"frame_type":"stream","stream_id":6,"fin":true,"raw":{"payload_length":0,"data":""}}]}}"#,
        "\n\u{1e}",
        r#"{"time":0.096,"name":"quic:packet_sent","data":{"header":{"packet_type":"1RTT","packet_number":0},"frames":[{"frame_type":"datagram","raw":{"payload_length":2,"data":"ab"}}]}}"#,
        "\n\u{1e}",
        r#"{"time":0.099,"name":"quic:packet_sent","data":{"header":{"packet_type":"1RTT","packet_number":0},"frames":[{"frame_type":"stop_sending","stream_id":0,"error":"unknown","error_code":268}]}}"#,
        "\n",
    );

    #[test]
    fn actions_recorded_by_later_versions_become_steps() {
        let case = h3i("recorded", RECORDING_0_7, &[]).unwrap();
        let steps: Vec<_> = case.script.iter().map(String::as_str).collect();
        assert_eq!(
            steps,
            [
                "connect",
                "send 1rtt: STREAM id=2 offset=0 data=hex:00",
                "send 1rtt: STREAM id=2 offset=1 data=hex:040a330180004d4401404102",
                "send 1rtt: STREAM id=6 offset=0 data=hex:4041",
                "wait 12345ms",
                "send 1rtt: STREAM id=2 offset=13 data=hex:0d0107",
                "send 1rtt: STREAM id=2 offset=16 data=hex:030105",
                "send 1rtt: STREAM_FIN id=6 offset=2 data=hex:",
                "send 1rtt: DATAGRAM data=hex:6162",
                "send 1rtt: STOP_SENDING id=0 code=268",
            ]
        );
    }

    #[test]
    fn invalid_recordings_say_where_and_why() {
        let of = |text: &str| h3i("recorded", text, &[]).unwrap_err().to_string();
        assert!(of("").contains("no recorded actions"));
        assert!(of("{\"name\":\"x\"}").contains("no recorded actions"));
        assert!(of("\n{").starts_with("line 2: invalid JSON"));
        let push = r#"{"name":"http:frame_created","data":{"stream_id":0,"frame":{"frame_type":"push_promise"}}}"#;
        assert!(of(push).contains("unknown frame \"push_promise\""));
        let no_id = r#"{"name":"http:stream_type_set","data":{"stream_type":"control"}}"#;
        assert!(of(no_id).contains("missing \"stream_id\""));
        let quota = r#"{"name":"h3i:wait","data":{"CanOpenNumStreams":{"num":1,"bidi":true}}}"#;
        assert!(of(quota).contains("unknown wait"));
    }
}
