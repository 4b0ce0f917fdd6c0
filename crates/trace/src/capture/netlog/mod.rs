//! The log of Chrome's network stack (`chrome --log-net-log=FILE`, or chrome://net-export), as far
//! as it is about QUIC.
//!
//! It is a JSON document: constants, which name the numbers of event types, then events, each with
//! its source. A session of QUIC is a source; it logs the frames of a packet that it sends before
//! the packet, and those of one that it received after the packet's header. Times are whole
//! milliseconds, except for the time at which a packet was sent.

mod frames;

use std::collections::{HashMap, VecDeque};
use std::io::Read;
use std::net::SocketAddr;

use clearway_quic::Role;
use serde_json::Value;

use self::frames::{field, frame, number, text};
use super::connection::{Observation, Observed};
use super::end::End;
use super::file::FileError;
use super::reader::{CapturedEvent, CapturedTrace, MAX_CONNECTIONS, Problems};
use crate::event::{self, Frame, Packet, PacketType};
use crate::qlog::{ReadError, Splitter};

/// An event type without which there is no session to read.
const ESSENTIAL: &str = "QUIC_SESSION_PACKET_SENT";
/// Maximum number of frames of one packet.
const MAX_FRAMES: usize = 1024;
/// Maximum number of packets that are lost at once.
const MAX_LOST: usize = 4096;
/// The time at which a packet was sent lies at most this far from that of its event, in
/// microseconds.
const MAX_APART: u64 = 5_000;

/// A session of QUIC.
#[derive(Debug)]
struct Session {
    end: End,
    /// The time of its first event, in microseconds.
    start: u64,
    /// Frames of the packet that is sent next.
    sending: Vec<Frame>,
    /// The packet that is being received.
    receiving: Option<(u64, Packet)>,
    /// What it shows as lost, which Chrome logs before its ACK frame.
    lost: Vec<(u64, u64)>,
    /// The size of the datagram that is being received.
    datagram: Option<u64>,
    /// The error code of the CONNECTION_CLOSE frame.
    wire_code: Option<u64>,
    packets: u64,
}

/// Reads a netlog.
#[derive(Debug)]
pub(super) struct NetlogReader<R> {
    splitter: Splitter<R>,
    /// Names of event types by their numbers.
    types: HashMap<u64, String>,
    sessions: Vec<Session>,
    /// Sessions by the number of their source.
    sources: HashMap<u64, usize>,
    traces: Vec<CapturedTrace>,
    problems: Problems,
    ahead: VecDeque<CapturedEvent>,
    ended: bool,
}

impl<R: Read> NetlogReader<R> {
    /// Opens a netlog.
    ///
    /// # Errors
    /// If reading fails.
    pub(super) fn new(input: R) -> Result<Self, FileError> {
        let splitter = Splitter::new(input).map_err(|error| match error {
            ReadError::Io(error) => FileError::Io(error),
            ReadError::Empty { .. } | ReadError::NotQlog { .. } => {
                FileError::NotCapture { found: 0 }
            }
        })?;
        Ok(Self {
            splitter,
            types: HashMap::new(),
            sessions: Vec::new(),
            sources: HashMap::new(),
            traces: Vec::new(),
            problems: Problems::default(),
            ahead: VecDeque::new(),
            ended: false,
        })
    }

    pub(super) fn traces(&self) -> &[CapturedTrace] {
        &self.traces
    }

    pub(super) fn problems(&self) -> Problems {
        let mut sum = self.problems;
        for session in &self.sessions {
            sum.opened = sum.opened.saturating_add(session.packets);
        }
        sum
    }

    pub(super) const fn offset(&self) -> u64 {
        self.splitter.offset()
    }

    fn next_event(&mut self) -> Result<Option<CapturedEvent>, FileError> {
        loop {
            if let Some(event) = self.ahead.pop_front() {
                return Ok(Some(event));
            }
            if self.ended {
                return Ok(None);
            }
            let record = match self.splitter.next() {
                Ok(Some(record)) => record,
                Ok(None) => {
                    self.finish();
                    continue;
                }
                Err(error) => {
                    self.finish();
                    return Err(error.into());
                }
            };
            let value = if record.damaged {
                None
            } else {
                serde_json::from_slice::<Value>(&record.bytes).ok()
            };
            let understood = match value {
                Some(value) if record.event => self.on_record(&value).is_some(),
                Some(value) => {
                    if let Err(error) = self.on_header(&value, record.offset) {
                        self.finish();
                        return Err(error);
                    }
                    true
                }
                None => false,
            };
            if !understood {
                self.problems.bad_records = self.problems.bad_records.saturating_add(1);
                self.problems.first_bad_record.get_or_insert(record.offset);
            }
        }
    }

    /// Takes the names of event types; without those of sessions nothing in the log has a meaning.
    fn on_header(&mut self, header: &Value, offset: u64) -> Result<(), FileError> {
        let types = header
            .get("constants")
            .and_then(|constants| constants.get("logEventTypes"))
            .and_then(Value::as_object);
        for (name, number) in types.into_iter().flatten() {
            if let (Some(number), true) = (number.as_u64(), name.starts_with("QUIC_SESSION")) {
                self.types.insert(number, name.clone());
            }
        }
        if self.types.values().any(|name| name == ESSENTIAL) {
            return Ok(());
        }
        Err(FileError::Netlog {
            offset,
            found: types.map(serde_json::Map::len),
        })
    }

    /// Processes an event; `None` if it lacks what every event has, or what one of its type has.
    fn on_record(&mut self, value: &Value) -> Option<()> {
        let kind = number(value.get("type")?)?;
        let source = number(value.get("source")?.get("id")?)?;
        let time = number(value.get("time")?)?.saturating_mul(1_000);
        let Some(name) = self.types.get(&kind).cloned() else {
            return Some(());
        };
        let params = value.get("params").unwrap_or(&Value::Null);
        let Some(at) = self.session(source, time, params) else {
            return Some(());
        };
        let session = self.sessions.get_mut(at)?;
        let name = name.strip_prefix("QUIC_SESSION_").unwrap_or_default();
        let understood = session.on_event(name, time, params);
        session.take_events(at, &mut self.ahead);
        understood
    }

    /// The session of this source; a new one if there is room.
    fn session(&mut self, source: u64, time: u64, params: &Value) -> Option<usize> {
        if let Some(known) = self.sources.get(&source) {
            return Some(*known);
        }
        let at = self.sessions.len();
        if at >= MAX_CONNECTIONS {
            let ignored = &mut self.problems.ignored_connections;
            *ignored = ignored.saturating_add(1);
            return None;
        }
        let dcid = params.get("connection_id").and_then(Value::as_str);
        let dcid = dcid.unwrap_or_default().trim_start_matches("0x");
        let client = address(params.get("self_address"));
        let server = address(params.get("peer_address"));
        self.sources.insert(source, at);
        self.sessions.push(Session {
            end: End::of_log(dcid),
            start: time,
            sending: Vec::new(),
            receiving: None,
            lost: Vec::new(),
            datagram: None,
            wire_code: None,
            packets: 0,
        });
        self.traces.push(CapturedTrace {
            connection: at,
            role: event::Role::Client,
            client,
            server,
            original_dcid: dcid.to_owned(),
        });
        Some(at)
    }

    fn finish(&mut self) {
        self.ended = true;
        for (at, session) in self.sessions.iter_mut().enumerate() {
            session.received();
            session.end.finish();
            session.take_events(at, &mut self.ahead);
        }
    }
}

impl<R: Read> Iterator for NetlogReader<R> {
    type Item = Result<CapturedEvent, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_event().transpose()
    }
}

impl Session {
    /// Processes the event `QUIC_SESSION_{name}` at `time` (microseconds); `None` if it lacks the
    /// number of its packet.
    fn on_event(&mut self, name: &str, time: u64, params: &Value) -> Option<()> {
        match name {
            "PACKET_SENT" => {
                self.received();
                self.sent(time, params)?;
            }
            "PACKET_LOST" => {
                let number = field(params, "packet_number")?;
                if self.receiving.is_some() && self.lost.len() < MAX_LOST {
                    self.lost.push((time, number));
                } else {
                    self.received();
                    self.observe(time, Role::Client, Observed::Lost(number));
                }
            }
            "PACKET_RECEIVED" => {
                self.received();
                self.datagram = field(params, "size");
            }
            "UNAUTHENTICATED_PACKET_HEADER_RECEIVED" => {
                self.received();
                let kind = match text(params, "long_header_type") {
                    Some("INITIAL") => PacketType::Initial,
                    Some("HANDSHAKE") => PacketType::Handshake,
                    Some("RETRY") => PacketType::Retry,
                    Some("ZERO_RTT_PROTECTED") => PacketType::ZeroRtt,
                    Some(_) => PacketType::Unknown,
                    None => PacketType::OneRtt,
                };
                let number = field(params, "packet_number").unwrap_or(0);
                let mut packet = Packet::new(kind, number, 0);
                // The datagram's size belongs to the first of its packets.
                packet.size = self.datagram.take();
                packet.frames = Some(Vec::new());
                self.receiving = Some((time, packet));
            }
            "CONNECTION_CLOSE_FRAME_SENT" | "CONNECTION_CLOSE_FRAME_RECEIVED" => {
                self.wire_code = self.wire_code.or(field(params, "quic_wire_error"));
            }
            "CLOSED" => {
                self.received();
                self.closed(time, params);
            }
            _ => {
                if let Some(name) = name.strip_suffix("_SENT") {
                    let frame = frame(name, params);
                    if self.sending.len() < MAX_FRAMES {
                        self.sending.extend(frame);
                    }
                } else if let Some(name) = name.strip_suffix("_RECEIVED")
                    && let Some((_, packet)) = &mut self.receiving
                    && let Some(frames) = &mut packet.frames
                    && frames.len() < MAX_FRAMES
                {
                    frames.extend(frame(name, params));
                }
            }
        }
        Some(())
    }

    /// The packet that was being received is complete.
    fn received(&mut self) {
        if let Some((time, packet)) = self.receiving.take() {
            self.observe(time, Role::Server, Observed::Packet(packet));
        }
        for (time, number) in core::mem::take(&mut self.lost) {
            self.observe(time, Role::Client, Observed::Lost(number));
        }
    }

    fn sent(&mut self, time: u64, params: &Value) -> Option<()> {
        let kind = match text(params, "encryption_level") {
            Some("ENCRYPTION_INITIAL") => PacketType::Initial,
            Some("ENCRYPTION_HANDSHAKE") => PacketType::Handshake,
            Some("ENCRYPTION_ZERO_RTT") => PacketType::ZeroRtt,
            _ => PacketType::OneRtt,
        };
        let frames = core::mem::take(&mut self.sending);
        let number = field(params, "packet_number")?;
        let mut packet = Packet::new(kind, number, 0);
        packet.size = field(params, "size");
        packet.frames = Some(frames);
        let exact = field(params, "sent_time_us");
        let exact = exact.filter(|exact| exact.abs_diff(time) <= MAX_APART);
        self.observe(
            exact.unwrap_or(time),
            Role::Client,
            Observed::Packet(packet),
        );
        Some(())
    }

    /// The session ended: with the code on the wire, or else Chrome's own.
    fn closed(&mut self, time: u64, params: &Value) {
        let by_peer = params.get("from_peer").and_then(Value::as_bool) == Some(true);
        let from = if by_peer { Role::Server } else { Role::Client };
        let code = self.wire_code.or(field(params, "quic_error")).unwrap_or(0);
        let reason = text(params, "details").unwrap_or_default().to_owned();
        self.observe(time, from, Observed::Closed { code, reason });
    }

    fn observe(&mut self, micros: u64, from: Role, data: Observed) {
        if matches!(data, Observed::Packet(_)) {
            self.packets = self.packets.saturating_add(1);
        }
        let time = micros.saturating_sub(self.start).saturating_mul(1_000);
        self.end.observe(&Observation { time, from, data });
    }

    fn take_events(&mut self, trace: usize, ahead: &mut VecDeque<CapturedEvent>) {
        let told = self.end.take_events();
        ahead.extend(told.map(|event| CapturedEvent { trace, event }));
    }
}

fn address(value: Option<&Value>) -> Option<SocketAddr> {
    value?.as_str()?.parse().ok()
}
