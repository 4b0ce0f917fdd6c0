//! Runs `clearway doctor`.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clearway_doctor::{Diagnosis, Error, Focus, Health, Recording, render};

use super::args::{Args, Other, TuneArgs};
use super::hops;
use crate::failure::{Failure, Kind};
use crate::output::{print, print_json};

/// Watches the host and prints the verdict.
///
/// # Errors
/// If nothing can be seen (exit code 2), or the output cannot be written.
pub(crate) fn command(args: &Args) -> Result<ExitCode, Failure> {
    let focus = Focus {
        pid: args.pid,
        port: args.port,
    };
    match &args.other {
        Some(Other::Path(args)) => return hops::path(args),
        Some(Other::Tune(args)) => return tune(args),
        None if args.watch => return watch(args, &focus),
        None => {}
    }
    // Before anybody waits for the verdict.
    let report = args.report.as_deref().map(create).transpose()?;
    let (recording, diagnosis) = diagnose(args, &focus)?;
    if let Some(mut report) = report {
        let page = render::html::html(&recording, &diagnosis);
        report
            .write_all(page.as_bytes())
            .map_err(|error| Failure::caused(Kind::Output, "cannot write the report", &error))?;
    }
    if args.json {
        print_json(&diagnosis)?;
    } else {
        let colour = std::io::stdout().is_terminal();
        let text = render::text::text(&diagnosis, colour);
        print(|out| out.write_all(text.as_bytes()))?;
    }
    Ok(code(diagnosis.health))
}

fn code(health: Health) -> ExitCode {
    match health {
        Health::Healthy | Health::Filling => ExitCode::SUCCESS,
        Health::Losing => ExitCode::from(1),
    }
}

#[cfg(target_os = "linux")]
fn diagnose(args: &Args, focus: &Focus) -> Result<(Recording, Diagnosis), Failure> {
    if !args.json && std::io::stderr().is_terminal() {
        say!("watching for {} …", args.interval);
    }
    clearway_doctor::diagnose(&namespace(args), focus, args.interval.0)
        .map_err(|error| cannot_see(&error))
}

#[cfg(target_os = "linux")]
fn namespace(args: &Args) -> clearway_doctor::Namespace {
    use clearway_doctor::Namespace;
    match (&args.netns, args.pid) {
        (Some(name), _) => Namespace::Named(name.clone()),
        (None, Some(pid)) => Namespace::OfProcess(pid),
        (None, None) => Namespace::Own,
    }
}

#[cfg(target_os = "linux")]
fn watch(args: &Args, focus: &Focus) -> Result<ExitCode, Failure> {
    /// A picture a second: faster than anybody reads, and cheap.
    const REFRESH: core::time::Duration = core::time::Duration::from_secs(1);
    if !std::io::stdout().is_terminal() {
        let message = "--watch needs a terminal; use --json in scripts";
        return Err(Failure::new(Kind::Arguments, message));
    }
    let namespace = namespace(args);
    let name = namespace.to_string();
    let health = namespace
        .run(|| render::watch::watch(name, focus, args.interval.0, REFRESH))
        .map_err(|error| cannot_see(&error))?;
    Ok(health.map_or(ExitCode::SUCCESS, code))
}

#[cfg(not(target_os = "linux"))]
fn watch(_: &Args, _: &Focus) -> Result<ExitCode, Failure> {
    Err(cannot_see(&Error::NotLinux))
}

#[cfg(target_os = "linux")]
fn tune(args: &TuneArgs) -> Result<ExitCode, Failure> {
    use clearway_doctor::tune::{Host, check, text};
    let findings = check(&Host);
    if args.json {
        print_json(&findings)?;
    } else {
        print(|out| out.write_all(text(&findings).as_bytes()))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(not(target_os = "linux"))]
fn tune(_: &TuneArgs) -> Result<ExitCode, Failure> {
    Err(cannot_see(&Error::NotLinux))
}

/// Creates the file of a report. One that exists is not overwritten.
fn create(path: &std::path::Path) -> Result<std::fs::File, Failure> {
    let new = std::fs::File::create_new(path);
    new.map_err(|error| {
        Failure::new(
            Kind::Arguments,
            format!("cannot create {}: {error}", path.display()),
        )
    })
}

#[cfg(not(target_os = "linux"))]
fn diagnose(_: &Args, _: &Focus) -> Result<(Recording, Diagnosis), Failure> {
    Err(cannot_see(&Error::NotLinux))
}

pub(super) fn cannot_see(error: &Error) -> Failure {
    Failure::new(Kind::Arguments, error.to_string())
}
