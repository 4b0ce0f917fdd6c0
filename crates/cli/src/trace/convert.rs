//! `clearway trace convert`.

use std::error::Error;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use clearway_trace::Sink as _;
use clearway_trace::capture::{self, CapturedTrace, KeyLog};
use clearway_trace::event::{Event, EventData};
use clearway_trace::qlog::{Description, Reader, Writer};

use super::args::Convert;
use crate::failure::{Failure, Kind};
use crate::traces::{Compression, EventSorter, OutOfOrder, TraceReader, unreadable_records};

/// Rewrites a trace.
///
/// # Errors
/// If the input cannot be read, is of no known format or has no events, or the output cannot be
/// written.
pub(super) fn command(args: &Convert) -> Result<(), Failure> {
    let secrets = args.secrets.load()?;
    let from = args.input.display();
    let opened = TraceReader::open(&args.input, &secrets);
    let reader = opened.map_err(|error| unreadable(args, &*error))?;
    if same_file(&args.input, &args.output) {
        let message = format!("cannot convert {from} onto itself: choose another --output");
        return Err(Failure::new(Kind::Arguments, message));
    }
    let written = match reader {
        TraceReader::Qlog(reader) => convert_qlog(args, *reader)?,
        TraceReader::Capture(reader) => convert_capture(args, *reader, &secrets)?,
    };
    if written == 0 {
        let message = format!("no events in {from}: the output has a header only");
        return Err(Failure::new(Kind::Arguments, message));
    }
    say!("trace: wrote {written} events to {}", args.output.display());
    Ok(())
}

fn unreadable(args: &Convert, error: &dyn Error) -> Failure {
    let what = format!("cannot read {}", args.input.display());
    Failure::caused(Kind::Arguments, what, error)
}

fn unwritable(args: &Convert, error: &io::Error) -> Failure {
    let what = format!("cannot write {}", args.output.display());
    Failure::caused(Kind::Output, what, error)
}

fn convert_qlog<R: Read>(args: &Convert, mut reader: Reader<R>) -> Result<u64, Failure> {
    let from = args.input.display();
    let header = reader.header();
    let description = Description {
        role: header.role,
        title: header.title.clone().unwrap_or_default(),
        original_dcid: header.group.clone(),
        wall_clock: None,
    };
    let traces = header.traces;
    let (mut nameless, mut more) = (0_u64, false);
    let written = write(args, &description, |writer| {
        while let Some(event) = reader.next() {
            let event = event.map_err(|error| unreadable(args, &error))?;
            // A sequential file holds one trace.
            if reader.header().traces != traces {
                more = true;
                break;
            }
            nameless += u64::from(matches!(event.data, EventData::Other { .. }));
            writer(&event)?;
        }
        Ok(())
    })?;
    if nameless > 0 {
        say!(
            "trace: warning: of {nameless} events of other protocols only times and names were kept"
        );
    }
    if reader.problems().unreadable() > 0 {
        let unreadable = unreadable_records(reader.problems().unreadable());
        say!("trace: warning: the result is incomplete: {unreadable}");
    }
    if more {
        say!("trace: warning: {from} has more traces; only the first was converted");
    }
    Ok(written)
}

/// Writes what one end of one connection did.
fn convert_capture<R: Read>(
    args: &Convert,
    reader: capture::Reader<R>,
    secrets: &KeyLog,
) -> Result<u64, Failure> {
    let (trace, number) = choose(args, reader)?;
    let again = TraceReader::open(&args.input, secrets);
    let TraceReader::Capture(mut reader) = again.map_err(|error| unreadable(args, &*error))? else {
        let message = format!("{} changed while it was read", args.input.display());
        return Err(Failure::new(Kind::Arguments, message));
    };
    let description = Description {
        role: Some(trace.role),
        title: args.input.display().to_string(),
        original_dcid: Some(trace.original_dcid),
        wall_clock: None,
    };
    let mut sorter = EventSorter::default();
    let late = |late: OutOfOrder| unreadable(args, &late);
    let mut broken = None;
    let written = write(args, &description, |writer| {
        for captured in reader.by_ref() {
            match captured {
                Ok(captured) if captured.trace == number => {
                    if let Some(event) = sorter.push(captured.event).map_err(late)? {
                        writer(&event)?;
                    }
                }
                Ok(_) => {}
                Err(error) => broken = Some(error),
            }
        }
        while let Some(event) = sorter.pop() {
            writer(&event)?;
        }
        Ok(())
    })?;
    if let Some(broken) = broken {
        say!("trace: warning: {broken}");
    }
    let connections = reader.traces().last().map_or(0, |it| it.connection + 1);
    if connections > 1 {
        let chosen = args.connection;
        say!(
            "trace: warning: converted connection {chosen} of {connections}; choose another with \
             --connection"
        );
    }
    Ok(written)
}

/// The trace to convert, and its number.
fn choose<R: Read>(
    args: &Convert,
    mut reader: capture::Reader<R>,
) -> Result<(CapturedTrace, usize), Failure> {
    let mut bytes: Vec<u64> = Vec::new();
    let mut broken = None;
    for captured in reader.by_ref() {
        match captured {
            Ok(captured) => {
                if bytes.len() <= captured.trace {
                    bytes.resize(captured.trace + 1, 0);
                }
                if let EventData::PacketSent(packet) = &captured.event.data {
                    bytes[captured.trace] += packet.size.unwrap_or(0);
                }
            }
            Err(error) => broken = Some(error),
        }
    }
    let wanted = |(_, trace): &(usize, &CapturedTrace)| {
        trace.connection + 1 == args.connection as usize
            && args.role.is_none_or(|role| role == trace.role)
    };
    let candidates = reader.traces().iter().enumerate().filter(wanted);
    let chosen = candidates.max_by_key(|(number, _)| bytes.get(*number).copied());
    if let Some((number, trace)) = chosen {
        return Ok((trace.clone(), number));
    }
    if let Some(broken) = broken {
        return Err(unreadable(args, &broken));
    }
    let connections = reader.traces().last().map_or(0, |it| it.connection + 1);
    let wanted = args.connection;
    let message = format!(
        "no connection {wanted} in {}: found {connections} QUIC connections whose beginning was \
         captured",
        args.input.display()
    );
    Err(Failure::new(Kind::Arguments, message))
}

/// Writes a file of the events that `fill` passes to its argument; returns how many.
fn write(
    args: &Convert,
    description: &Description,
    fill: impl FnOnce(&mut dyn FnMut(&Event) -> Result<(), Failure>) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let compression = Compression::of_name(&args.output);
    let created = File::create(&args.output).and_then(|file| compression.encode(file));
    let mut output = created.map_err(|error| unwritable(args, &error))?;
    let mut writer = Writer::with_dialect(&mut output, description, args.dialect);
    let mut written = 0_u64;
    fill(&mut |event| {
        written += 1;
        writer.event(event);
        match writer.error() {
            Some(kind) => Err(unwritable(args, &kind.into())),
            None => Ok(()),
        }
    })?;
    writer.flush();
    if let Some(kind) = writer.error() {
        return Err(unwritable(args, &kind.into()));
    }
    drop(writer);
    output.finish().map_err(|error| unwritable(args, &error))?;
    Ok(written)
}

/// Whether two names are of one file that exists.
fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        (Err(_), _) | (_, Err(_)) => false,
    }
}
