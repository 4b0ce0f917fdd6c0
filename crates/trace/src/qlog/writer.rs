//! Writes events to a qlog file, without ever waiting for it.

use std::io::{self, Write};

use super::json::Json;
use super::{Dialect, MAIN_SCHEMA_DRAFT, QUIC_EVENTS_DRAFT, encode};
use crate::event::{Event, EventData, Role};
use crate::sink::Sink;

/// Bytes gathered before they are passed to the output.
const BATCH: usize = 32 << 10;

/// Maximum number of bytes held while the output accepts nothing; further events are dropped.
const BOUND: usize = 1 << 20;

/// The header of a file.
#[derive(Clone, Debug, Default)]
pub struct Description {
    /// The end that records the trace.
    pub role: Option<Role>,
    /// A short title.
    pub title: String,
    /// The Destination Connection ID of the client's first Initial, in hex, which both ends' files
    /// share (`group_id`).
    pub original_dcid: Option<String>,
    /// When the trace began, in RFC 3339, if there is a clock.
    pub wall_clock: Option<String>,
}

/// Counters of a writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterStats {
    /// Events encoded.
    pub written: u64,
    /// Events dropped because the output accepted nothing for too long or failed.
    pub dropped: u64,
    /// Bytes passed to the output.
    pub bytes: u64,
}

/// Writes a trace as JSON text sequences (RFC 7464).
///
/// The output is never waited for: after `WouldBlock` it is tried again later, and until then a
/// bounded buffer fills. When that is full, events are dropped and counted, and the gap is recorded
/// in its place. An output that fails otherwise is not used again. A plain file is a suitable
/// output; for one that may block see [`Spool`](super::Spool).
pub struct Writer<W: Write> {
    output: W,
    dialect: Dialect,
    buffer: Vec<u8>,
    /// Bytes of `buffer` already passed on.
    done: usize,
    /// Events dropped since the last event written.
    gap: u64,
    failed: Option<io::ErrorKind>,
    stats: WriterStats,
}

impl<W: Write> core::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Writer")
            .field("dialect", &self.dialect)
            .field("failed", &self.failed)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl<W: Write> Writer<W> {
    /// Starts a trace in the newest draft's dialect.
    pub fn new(output: W, description: &Description) -> Self {
        Self::with_dialect(output, description, Dialect::Newest)
    }

    /// Starts a trace.
    pub fn with_dialect(output: W, description: &Description, dialect: Dialect) -> Self {
        let mut buffer = Vec::with_capacity(BATCH + 4096);
        buffer.push(0x1e);
        header(&mut buffer, description, dialect);
        buffer.push(b'\n');
        Self {
            output,
            dialect,
            buffer,
            done: 0,
            gap: 0,
            failed: None,
            stats: WriterStats::default(),
        }
    }

    /// The counters so far.
    #[must_use]
    pub const fn stats(&self) -> WriterStats {
        self.stats
    }

    /// Why the output is no longer used.
    #[must_use]
    pub const fn error(&self) -> Option<io::ErrorKind> {
        self.failed
    }

    /// Passes gathered bytes to the output, as many as it accepts.
    pub fn flush(&mut self) {
        self.push_out();
        if self.failed.is_none() && self.done == self.buffer.len() {
            let _ = self.output.flush();
        }
    }

    /// Flushes and returns the output.
    pub fn finish(mut self) -> W
    where
        W: Default,
    {
        self.flush();
        core::mem::take(&mut self.output)
    }

    /// Bytes the output has not accepted yet.
    fn waiting(&self) -> usize {
        self.buffer.len().saturating_sub(self.done)
    }

    fn push_out(&mut self) {
        while self.failed.is_none() && self.done < self.buffer.len() {
            let rest = self.buffer.get(self.done..).unwrap_or_default();
            match self.output.write(rest) {
                Ok(0) => self.failed = Some(io::ErrorKind::WriteZero),
                Ok(len) => {
                    self.done = self.done.saturating_add(len).min(self.buffer.len());
                    self.stats.bytes = self.stats.bytes.saturating_add(len as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => self.failed = Some(error.kind()),
            }
        }
        if self.failed.is_some() {
            self.buffer = Vec::new();
            self.done = 0;
        } else if self.done == self.buffer.len() {
            self.buffer.clear();
            self.done = 0;
        }
    }

    fn write(&mut self, event: &Event) {
        self.buffer.push(0x1e);
        encode::event(&mut self.buffer, event, self.dialect);
        self.buffer.push(b'\n');
        self.stats.written = self.stats.written.saturating_add(1);
    }
}

impl<W: Write> Sink for Writer<W> {
    fn event(&mut self, event: &Event) {
        if self.waiting() >= BOUND {
            self.push_out();
        }
        if self.failed.is_some() || self.waiting() >= BOUND {
            self.gap = self.gap.saturating_add(1);
            self.stats.dropped = self.stats.dropped.saturating_add(1);
            return;
        }
        if self.gap > 0 {
            let count = core::mem::take(&mut self.gap);
            let data = EventData::EventsDropped { count };
            let time = event.time;
            self.write(&Event { time, data });
        }
        self.write(event);
        // Events that matter when something hangs or has ended are written at once.
        let turn = matches!(
            event.data,
            EventData::ConnectionClosed(_) | EventData::ConnectionStateUpdated { .. }
        );
        if turn || self.waiting() >= BATCH {
            self.push_out();
        }
        if self.done > BOUND {
            self.buffer.drain(..self.done);
            self.done = 0;
        }
    }
}

impl<W: Write> Drop for Writer<W> {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The schema of the extra fields of `recovery_metrics_updated` and
/// `recovery_parameters_set`; a URI of our own, as the draft asks of extensions.
const EXTENSION: &str = "clearway:qlog:events:quic#controller";

fn header(out: &mut Vec<u8>, description: &Description, dialect: Dialect) {
    Json::new(out).element(|json| {
        match dialect {
            Dialect::Newest => {
                json.text("file_schema", "urn:ietf:params:qlog:file:sequential");
                json.text("serialization_format", "application/qlog+json-seq");
            }
            Dialect::Qvis => {
                json.text("qlog_version", "0.3");
                json.text("qlog_format", "JSON-SEQ");
            }
        }
        if !description.title.is_empty() {
            json.text("title", &description.title);
        }
        json.object("trace", |json| trace(json, description, dialect));
    });
}

fn trace(json: &mut Json<'_>, description: &Description, dialect: Dialect) {
    json.object("vantage_point", |json| {
        json.text("name", "clearway");
        let role = description.role.map_or("unknown", Role::name);
        json.text("type", role);
    });
    json.object("common_fields", |json| {
        if let Some(odcid) = &description.original_dcid {
            json.text("group_id", odcid);
            if dialect == Dialect::Qvis {
                json.text("ODCID", odcid);
            }
        }
        match dialect {
            Dialect::Newest => {
                json.text("time_format", "relative_to_epoch");
                json.object("reference_time", |json| {
                    json.text("clock_type", "monotonic");
                    json.text("epoch", "unknown");
                    if let Some(time) = &description.wall_clock {
                        json.text("wall_clock_time", time);
                    }
                });
            }
            Dialect::Qvis => {
                json.text("time_format", "relative");
                json.u64("reference_time", 0);
            }
        }
    });
    if dialect == Dialect::Newest {
        json.array("event_schemas", |json| {
            let schema = "urn:ietf:params:qlog:events:";
            json.item(&format!("{schema}quic-{QUIC_EVENTS_DRAFT}"));
            json.item(&format!("{schema}loglevel-{MAIN_SCHEMA_DRAFT}"));
            json.item(&format!("{schema}simulation-{MAIN_SCHEMA_DRAFT}"));
            json.item(EXTENSION);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Accepts a number of bytes, then none until told otherwise.
    #[derive(Clone, Default)]
    struct StallingOutput(Arc<Mutex<(Vec<u8>, usize)>>);

    impl StallingOutput {
        fn allow(&self, bytes: usize) {
            self.0.lock().expect("one thread").1 = bytes;
        }

        fn text(&self) -> String {
            String::from_utf8(self.0.lock().expect("one thread").0.clone()).expect("UTF-8")
        }
    }

    impl Write for StallingOutput {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut state = self.0.lock().expect("one thread");
            let len = bytes.len().min(state.1);
            if len == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            state.1 -= len;
            state.0.extend_from_slice(&bytes[..len]);
            Ok(len)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn event(time: u64) -> Event {
        let new = 1_400;
        let data = EventData::MtuUpdated { old: None, new };
        Event { time, data }
    }

    #[test]
    fn first_256_bytes_identify_the_file_format() {
        let mut writer = Writer::new(Vec::new(), &Description::default());
        writer.event(&event(1_500_000));
        let bytes = writer.finish();
        let start = String::from_utf8_lossy(&bytes[..256]).into_owned();
        assert!(
            start.starts_with("\u{1e}{\"file_schema\":\"urn:ietf:params:qlog:file:sequential\"")
        );
        assert!(start.contains("\"serialization_format\":\"application/qlog+json-seq\""));
        let text = String::from_utf8(bytes).expect("UTF-8");
        assert!(text.ends_with(
            "\u{1e}{\"time\":1.5,\"name\":\"quic:mtu_updated\",\"data\":{\"new\":1400}}\n"
        ));
        assert!(text.contains("\"urn:ietf:params:qlog:events:quic-13\""));
    }

    #[test]
    fn stalled_output_drops_events_and_records_the_gap() {
        let output = StallingOutput::default();
        let mut writer = Writer::new(output.clone(), &Description::default());
        for time in 0..40_000 {
            writer.event(&event(time));
        }
        assert!(
            writer.buffer.len() < BOUND + 4096,
            "{}",
            writer.buffer.len()
        );
        let dropped = writer.stats().dropped;
        assert!(dropped > 1_000, "{dropped}");
        output.allow(usize::MAX);
        writer.event(&event(50_000));
        writer.flush();
        assert_eq!(writer.stats().dropped, dropped);
        let text = output.text();
        let gap = format!("\"code\":{dropped}");
        assert_eq!(text.matches(&gap).count(), 1, "{gap}");
        assert!(
            text.ends_with(
                "{\"time\":0.05,\"name\":\"quic:mtu_updated\",\"data\":{\"new\":1400}}\n"
            )
        );
        // Every line is whole, whatever was dropped.
        for line in text.split('\u{1e}').skip(1) {
            serde_json::from_str::<serde_json::Value>(line).expect("JSON");
        }
    }

    #[test]
    fn failed_output_is_not_written_again() {
        struct FailingOutput(u32);
        impl Write for FailingOutput {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                self.0 += 1;
                assert_eq!(self.0, 1, "asked again");
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut writer = Writer::new(FailingOutput(0), &Description::default());
        for time in 0..10_000 {
            writer.event(&event(time));
        }
        assert_eq!(writer.error(), Some(io::ErrorKind::StorageFull));
        assert!(writer.stats().dropped > 9_000);
        assert_eq!(writer.buffer.capacity(), 0);
    }
}
