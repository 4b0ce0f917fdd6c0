//! The `clearway demo` command.

use super::Args;
use super::report::{picture, summary};
use super::run::{Run, download};
use crate::failure::Failure;
use crate::interrupt::unless_interrupted;
use crate::log;
use crate::output::print_json;
use crate::qlog;

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
    let qlog = args.qlog.open("demo")?;
    let mut first_failure = None;
    let mut reports = Vec::new();
    for run in 1..=args.runs {
        let run = Run {
            number: run,
            runs: args.runs,
            seed: args.seed.wrapping_add(u64::from(run - 1)),
            controller: args.controller,
            size: args.size.0,
            qlog: qlog.clone(),
        };
        let interrupted = |failure: Failure| {
            let done = reports.len();
            Failure::new(failure.kind, format!("{failure} after {done} run(s)"))
        };
        let outcome = runtime
            .block_on(unless_interrupted(download(&run)))
            .map_err(interrupted)?;
        say!("{}", outcome.report.line(args.runs));
        say!("{}", outcome.report.details().trim_end());
        if args.runs == 1 || !outcome.report.completed {
            say!("{}", picture(&outcome.series).trim_end());
        }
        if args.json {
            print_json(&outcome.report)?;
        }
        first_failure = first_failure.or(outcome.failure);
        reports.push(outcome.report);
    }
    if args.runs > 1 {
        say!("{}", summary(&reports));
    }
    log::end();
    drop(runtime);
    qlog::finish(qlog);
    match first_failure {
        None => Ok(()),
        Some(failure) if args.runs == 1 => Err(failure),
        Some(failure) => Err(Failure::new(
            failure.kind,
            format!("{}; first: {failure}", summary(&reports)),
        )),
    }
}
