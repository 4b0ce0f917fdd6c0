//! `clearway trace convert`.

use std::fs::File;
use std::io;
use std::path::Path;

use clearway_trace::Sink as _;
use clearway_trace::event::EventData;
use clearway_trace::qlog::{Description, Reader, Writer};

use super::args::Convert;
use crate::failure::{Failure, Kind};
use crate::traces::{Compression, open};

/// Rewrites a trace.
///
/// # Errors
/// If the input cannot be read, is not qlog or has no events, or the output cannot be written.
pub(super) fn command(args: &Convert) -> Result<(), Failure> {
    let from = args.input.display();
    let unreadable = |error: &dyn std::error::Error| {
        Failure::caused(Kind::Arguments, format!("cannot read {from}"), error)
    };
    let unwritable = |error: &io::Error| {
        let what = format!("cannot write {}", args.output.display());
        Failure::caused(Kind::Output, what, error)
    };
    let input = open(&args.input).map_err(|error| unreadable(&error))?;
    let mut reader = Reader::new(input).map_err(|error| unreadable(&error))?;
    if same_file(&args.input, &args.output) {
        let message = format!("cannot convert {from} onto itself: choose another --output");
        return Err(Failure::new(Kind::Arguments, message));
    }
    let compression = Compression::of_name(&args.output);
    let created = File::create(&args.output).and_then(|file| compression.encode(file));
    let mut output = created.map_err(|error| unwritable(&error))?;
    let header = reader.header();
    let description = Description {
        role: header.role,
        title: header.title.clone().unwrap_or_default(),
        original_dcid: header.group.clone(),
        wall_clock: None,
    };
    let traces = header.traces;
    let mut writer = Writer::with_dialect(&mut output, &description, args.dialect);
    let (mut written, mut nameless, mut more) = (0_u64, 0_u64, false);
    while let Some(event) = reader.next() {
        let event = event.map_err(|error| unreadable(&error))?;
        // A sequential file holds one trace.
        if reader.header().traces != traces {
            more = true;
            break;
        }
        written += 1;
        nameless += u64::from(matches!(event.data, EventData::Other { .. }));
        writer.event(&event);
        if let Some(kind) = writer.error() {
            return Err(unwritable(&kind.into()));
        }
    }
    writer.flush();
    if let Some(kind) = writer.error() {
        return Err(unwritable(&kind.into()));
    }
    drop(writer);
    output.finish().map_err(|error| unwritable(&error))?;
    if written == 0 {
        let message = format!("no qlog events in {from}: the output has a header only");
        return Err(Failure::new(Kind::Arguments, message));
    }
    say!("trace: wrote {written} events to {}", args.output.display());
    if nameless > 0 {
        say!(
            "trace: warning: of {nameless} events of other protocols only times and names were kept"
        );
    }
    if reader.problems().unreadable() > 0 {
        let count = reader.problems().unreadable();
        say!("trace: warning: {count} records could not be read and were left out");
    }
    if more {
        say!("trace: warning: {from} has more traces; only the first was converted");
    }
    Ok(())
}

/// Whether two names are of one file that exists.
fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        (Err(_), _) | (_, Err(_)) => false,
    }
}
