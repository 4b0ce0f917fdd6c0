//! Examines the connections in a packet capture or a netlog.

use std::io::Read;

use clearway_trace::capture::{MAX_CONNECTIONS, Problems, Reader};
use clearway_trace::{Examination, Examiner, Sink as _};

use super::load::TraceFile;
use super::order::EventSorter;

/// An end while its events are read. They are in order of time, but for packets that had to wait
/// for their keys.
struct OpenEnd {
    examiner: Examiner,
    sorter: EventSorter,
}

/// Reads a capture to its end, or as far as it can be understood.
pub(super) fn read_all<R: Read>(reader: &mut Reader<R>, file: &mut TraceFile) {
    let mut ends: Vec<OpenEnd> = Vec::new();
    while let Some(next) = reader.next() {
        let captured = match next {
            Ok(captured) => captured,
            Err(error) => {
                file.broken = Some(error.to_string());
                continue;
            }
        };
        for trace in reader.traces().iter().skip(ends.len()) {
            ends.push(OpenEnd {
                examiner: Examiner::new(Some(trace.role)),
                sorter: EventSorter::default(),
            });
        }
        let Some(end) = ends.get_mut(captured.trace) else {
            continue;
        };
        file.events += 1;
        match end.sorter.push(captured.event) {
            Ok(Some(event)) => end.examiner.event(&event),
            Ok(None) => {}
            Err(late) => {
                file.broken = Some(format!("{late}, near byte {}", reader.offset()));
                break;
            }
        }
    }
    let mut connections: Vec<Vec<Examination>> = Vec::new();
    for (end, trace) in ends.into_iter().zip(reader.traces()) {
        if connections.len() <= trace.connection {
            connections.resize_with(trace.connection + 1, Vec::new);
        }
        connections[trace.connection].extend(end.finish());
    }
    for mut connection in connections {
        // The end that sent the most decides how the transfer went.
        connection.sort_by_key(|it| core::cmp::Reverse(it.totals.bytes_sent));
        file.traces.extend(connection);
    }
    file.notes = notes(reader.problems());
}

impl OpenEnd {
    /// Ends the trace; `None` if this end neither sent nor received anything.
    fn finish(mut self) -> Option<Examination> {
        while let Some(event) = self.sorter.pop() {
            self.examiner.event(&event);
        }
        let examined = self.examiner.finish();
        let packets = examined.totals.packets_sent + examined.totals.packets_received;
        (packets > 0).then_some(examined)
    }
}

/// What of a capture could not be used, and what to do about it.
fn notes(problems: Problems) -> Vec<String> {
    let mut notes = Vec::new();
    let Problems {
        opened: _,
        unopened,
        duplicates: _,
        without_secrets,
        ignored_connections,
        other_datagrams,
        other_frames: _,
        cut_frames,
        bad_records,
        first_bad_record,
    } = problems;
    if without_secrets > 0 {
        notes.push(format!(
            "no TLS secrets for {without_secrets} connections: only sizes and times of their \
             packets are shown; record secrets with SSLKEYLOGFILE and pass --secrets FILE"
        ));
    } else if unopened > 0 {
        notes.push(format!("{unopened} packets could not be decrypted"));
    }
    if cut_frames > 0 {
        notes.push(format!(
            "{cut_frames} packets were not captured whole: capture with tcpdump -s 0"
        ));
    }
    if other_datagrams > 0 {
        notes.push(format!(
            "{other_datagrams} UDP datagrams belong to no QUIC connection whose beginning was \
             captured"
        ));
    }
    if ignored_connections > 0 {
        notes.push(format!(
            "{ignored_connections} records of connections beyond the first {MAX_CONNECTIONS} were \
             left out"
        ));
    }
    if bad_records > 0 {
        let at = first_bad_record.unwrap_or(0);
        notes.push(format!(
            "{}, the first at byte {at}",
            unreadable_records(bad_records)
        ));
    }
    notes
}

/// Returns how many records could not be read, as a clause.
pub(crate) fn unreadable_records(count: u64) -> String {
    match count {
        1 => "1 record could not be read".to_owned(),
        _ => format!("{count} records could not be read"),
    }
}
