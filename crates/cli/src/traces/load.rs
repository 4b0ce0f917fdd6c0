//! Reads a trace file of any stack, and examines the connections in it.

use std::io::Read;
use std::path::Path;

use clearway_trace::capture::KeyLog;
use clearway_trace::event::Event;
use clearway_trace::qlog::{Problems, Reader};
use clearway_trace::{Examination, Examiner, Sink as _};

use super::captured::{self, unreadable_records};
use super::order::{EventSorter, OutOfOrder};
use super::reader::TraceReader;
use crate::failure::{Failure, Kind};

/// What a file contains.
#[derive(Debug)]
pub(crate) struct TraceFile {
    /// The name by which it was given.
    pub(crate) name: String,
    /// Its title, or else its name.
    pub(crate) title: String,
    pub(crate) events: u64,
    /// Problems of the file, not of the connections in it.
    pub(crate) problems: Problems,
    /// What else is wrong with it, and what to do.
    pub(crate) notes: Vec<String>,
    /// Whether it is a capture: what its traces say was derived from packets.
    pub(crate) is_capture: bool,
    /// Why reading ended before the end of the file.
    pub(crate) broken: Option<String>,
    /// Its traces; at least one.
    pub(crate) traces: Vec<Examination>,
}

/// One trace while it is read.
struct OpenTrace {
    examiner: Examiner,
    sorter: EventSorter,
}

/// Reads a file.
///
/// # Errors
/// If it cannot be read, is of no known format or has no events.
pub(crate) fn load(path: &Path, secrets: &KeyLog) -> Result<TraceFile, Failure> {
    let name = path.display().to_string();
    let reader = TraceReader::open(path, secrets).map_err(|error| cannot_read(&name, &*error))?;
    load_from(reader, name)
}

fn cannot_read(name: &str, error: &dyn std::error::Error) -> Failure {
    Failure::caused(Kind::Arguments, format!("cannot read {name}"), error)
}

/// Reads a trace from `input`.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_from(reader: TraceReader, name: String) -> Result<TraceFile, Failure> {
    let mut file = TraceFile {
        title: name.clone(),
        name,
        events: 0,
        problems: Problems::default(),
        notes: Vec::new(),
        is_capture: false,
        broken: None,
        traces: Vec::new(),
    };
    let mut reader = match reader {
        TraceReader::Qlog(reader) => reader,
        TraceReader::Capture(mut reader) => {
            file.is_capture = true;
            captured::read_all(&mut reader, &mut file);
            return of_capture(file);
        }
    };
    read_all(&mut reader, &mut file);
    file.problems = reader.problems().clone();
    if let Some(title) = &reader.header().title {
        file.title.clone_from(title);
    }
    if file.events > file.problems.other_events {
        return Ok(file);
    }
    let mut message = format!("no qlog events in {}", file.name);
    let other = file.problems.other_events;
    if other > 0 {
        message.push_str(&format!(", but {other} events of other protocols"));
    }
    for warning in file.warnings() {
        message.push_str(&format!("; {warning}"));
    }
    Err(Failure::new(Kind::Arguments, message))
}

/// A capture that has been read.
fn of_capture(mut file: TraceFile) -> Result<TraceFile, Failure> {
    if !file.traces.is_empty() {
        return Ok(file);
    }
    if let Some(broken) = file.broken.take() {
        let message = format!("cannot read {}: {broken}", file.name);
        return Err(Failure::new(Kind::Arguments, message));
    }
    let mut message = format!("no QUIC connections in {}", file.name);
    for note in &file.notes {
        message.push_str(&format!("; {note}"));
    }
    Err(Failure::new(Kind::Arguments, message))
}

/// Reads to the end, or until reading fails. A file may contain several traces, each with times
/// of its own: they are examined one by one.
fn read_all<R: Read>(reader: &mut Reader<R>, file: &mut TraceFile) {
    let mut traces = reader.header().traces;
    let mut open = OpenTrace::new(reader);
    while let Some(event) = reader.next() {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                let offset = reader.offset();
                file.broken = Some(format!("reading failed after {offset} bytes: {error}"));
                break;
            }
        };
        if reader.header().traces != traces {
            traces = reader.header().traces;
            let before = core::mem::replace(&mut open, OpenTrace::new(reader));
            file.traces.extend(before.finish());
        }
        file.events += 1;
        if let Err(late) = open.take(event) {
            file.broken = Some(format!("{late}, near byte {}", reader.offset()));
            break;
        }
    }
    file.traces.extend(open.finish());
}

impl OpenTrace {
    fn new<R: Read>(reader: &Reader<R>) -> Self {
        Self {
            examiner: Examiner::new(reader.header().role),
            sorter: EventSorter::default(),
        }
    }

    fn take(&mut self, event: Event) -> Result<(), OutOfOrder> {
        if let Some(event) = self.sorter.push(event)? {
            self.examiner.event(&event);
        }
        Ok(())
    }

    /// Ends the trace; `None` if it has no events.
    fn finish(mut self) -> Option<Examination> {
        while let Some(event) = self.sorter.pop() {
            self.examiner.event(&event);
        }
        let examined = self.examiner.finish();
        (examined.totals.events > 0).then_some(examined)
    }
}

impl TraceFile {
    /// What is wrong with the file itself, and makes its diagnosis less certain.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let problems = &self.problems;
        if problems.unreadable() > 0 {
            let mut text = unreadable_records(problems.unreadable());
            if let Some(offset) = problems.offsets.first() {
                text.push_str(&format!(", the first at byte {offset}"));
            }
            warnings.push(text);
        }
        if problems.earlier_events > 0 {
            let count = problems.earlier_events;
            warnings.push(format!(
                "{count} events were out of order and have been sorted"
            ));
        }
        warnings.extend(self.notes.iter().cloned());
        warnings.extend(self.broken.clone());
        warnings
    }
}
