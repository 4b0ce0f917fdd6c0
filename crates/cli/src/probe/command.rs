//! The `clearway probe` command.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clearway_prober::{Case, Probe, ProbeError, Report, TargetError, Verdict, html, table};
use serde_json::json;

use super::{Args, selection};
use crate::connect;
use crate::failure::{Failure, Kind};
use crate::interrupt::unless_interrupted;
use crate::output::{print, print_json};

/// Probes a server. The exit code says whether it deviates.
///
/// # Errors
/// If arguments are invalid, there is no HTTP/3 server, a case could not be run, or the output
/// cannot be written.
pub(crate) fn command(args: &Args) -> Result<ExitCode, Failure> {
    let cases = selection::cases(args)?;
    let Some(url) = args.url.as_deref().filter(|_| !args.list) else {
        return list(args, &cases).map(|()| ExitCode::SUCCESS);
    };
    let probe = probe(args, url)?;
    if let Some(file) = &args.report {
        // Before the cases run, which takes a while.
        let mut options = fs::OpenOptions::new();
        let opened = options.create(true).append(true).open(file);
        opened.map_err(|error| unwritable(file, &error))?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let report = runtime.block_on(async {
        let running = probe.run(&cases, |_| {});
        unless_interrupted(running).await
    })?;
    let report = report.map_err(|error| failure(&error))?;
    if let Some(file) = &args.report {
        fs::write(file, html(&report)).map_err(|error| unwritable(file, &error))?;
    }
    match args.json {
        true => print_json(&report)?,
        false => print(|out| out.write_all(text(&report, args.all).as_bytes()))?,
    }
    conclude(&report)
}

fn unwritable(file: &Path, error: &std::io::Error) -> Failure {
    let message = format!("cannot write {}", file.display());
    Failure::caused(Kind::Output, message, error)
}

/// Returns the exit code, or why there is none.
fn conclude(report: &Report) -> Result<ExitCode, Failure> {
    let deviations = report.count(Verdict::Deviation);
    if deviations > 0 {
        let cases = report.results.len();
        let message = format!("the server deviates in {deviations} of {cases} cases");
        return Err(Failure::new(Kind::Deviation, message));
    }
    match report.with(Verdict::NotRun).next() {
        Some(first) => {
            let count = report.count(Verdict::NotRun);
            let message = format!(
                "not all cases could be run ({count} were not), such as {}: {}",
                first.name, first.came
            );
            Err(Failure::new(Kind::Connection, message))
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

/// What a server sends ends up on a terminal.
fn text(report: &Report, all: bool) -> String {
    crate::printable::lines(&table(report, all)).into_owned()
}

fn probe(args: &Args, url: &str) -> Result<Probe, Failure> {
    let probe = Probe::new(url, args.trust.trust()?).map_err(|error| target_failure(&error))?;
    let (host, port) = probe.host_and_port();
    let address = connect::resolved(&args.connect.resolve, host, port);
    let mut probe = probe
        .connect_timeout(args.connect.connect_timeout.0)
        .patience(args.patience.0)
        .parallel(args.parallel.into());
    if let Some(address) = address {
        probe = probe.address(address);
    }
    if args.connect.writes_key_log()? {
        probe = probe.key_log_from_env();
    }
    Ok(probe)
}

fn list(args: &Args, cases: &[Case]) -> Result<(), Failure> {
    if args.json {
        let all: Vec<_> = cases
            .iter()
            .map(|case| {
                json!({
                    "name": case.name,
                    "title": case.title,
                    "source": case.source,
                    "layer": case.layer,
                    "requirement": case.requirement,
                    "intrusive": case.intrusive,
                    "script": case.script,
                    "expected": case.expectation(),
                })
            })
            .collect();
        return print_json(&all);
    }
    let widest = |of: fn(&Case) -> usize| cases.iter().map(of).max().unwrap_or(0);
    let name = widest(|case| case.name.len());
    let source = widest(|case| case.source.chars().count());
    print(|out| {
        for case in cases {
            let mark = if case.intrusive { " (--intrusive)" } else { "" };
            writeln!(
                out,
                "{:<name$}  {:<source$}  {}{mark}",
                case.name, case.source, case.title
            )?;
        }
        Ok(())
    })
}

fn failure(error: &ProbeError) -> Failure {
    let kind = match error {
        ProbeError::Target(error) => return target_failure(error),
        ProbeError::Connect { .. } | ProbeError::NotHttp3 { .. } => Kind::Connection,
        ProbeError::Certificate { .. } => {
            let message = format!("{error}; use --cacert FILE, --fingerprint HEX or -k");
            return Failure::new(Kind::Certificate, message);
        }
    };
    Failure::new(kind, error.to_string())
}

fn target_failure(error: &TargetError) -> Failure {
    match error {
        TargetError::Url { .. } | TargetError::Roots(_) => {
            Failure::new(Kind::Arguments, error.to_string())
        }
        TargetError::NoRoots => {
            let message =
                "this host has no root certificates; use --cacert FILE, --fingerprint HEX or -k";
            Failure::new(Kind::Arguments, message)
        }
        TargetError::Resolve { .. } => Failure::new(Kind::Address, error.to_string()),
    }
}
