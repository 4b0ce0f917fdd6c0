//! `clearway demo` from start to end.

use std::io::{self, Write as _};

use super::Args;
use super::report::{Report, picture, summary};
use super::run::{Run, download};
use crate::failure::{Failure, Kind};

/// Runs the downloads one after the other.
///
/// # Errors
/// If any of them did not complete: the first one's failure.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    say!(
        "demo: {} with {}; 100 Mbit/s, 10 ms, 30 % loss to the client for 2 s",
        args.size,
        args.controller
    );
    let mut first_failure = None;
    let mut reports = Vec::new();
    for run in 1..=args.runs {
        let outcome = runtime.block_on(download(&Run {
            number: run,
            runs: args.runs,
            seed: args.seed.wrapping_add(u64::from(run - 1)),
            controller: args.controller,
            size: args.size.0,
        }));
        say!("{}", outcome.report.line(args.runs));
        eprint!("{}", outcome.report.details());
        if args.runs == 1 || !outcome.report.completed {
            eprint!("{}", picture(&outcome.series));
        }
        if args.json {
            print(&outcome.report)?;
        }
        first_failure = first_failure.or(outcome.failure);
        reports.push(outcome.report);
    }
    if args.runs > 1 {
        say!("{}", summary(&reports));
    }
    match first_failure {
        None => Ok(()),
        Some(failure) if args.runs == 1 => Err(failure),
        Some(failure) => Err(Failure::new(
            failure.kind,
            format!("{}; first: {failure}", summary(&reports)),
        )),
    }
}

fn print(report: &Report) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    serde_json::to_writer(&mut stdout, report)
        .map_err(io::Error::from)
        .and_then(|()| writeln!(stdout))
        .map_err(|error| Failure::caused(Kind::Other, "cannot write to stdout", &error))
}
