//! Runs `clearway doctor`.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clearway_doctor::{Diagnosis, Error, Focus, Health, render};

use super::Args;
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
    let diagnosis = diagnose(args, &focus)?;
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
fn diagnose(args: &Args, focus: &Focus) -> Result<Diagnosis, Failure> {
    use clearway_doctor::Namespace;

    let namespace = match (&args.netns, args.pid) {
        (Some(name), _) => Namespace::Named(name.clone()),
        (None, Some(pid)) => Namespace::OfProcess(pid),
        (None, None) => Namespace::Own,
    };
    if !args.json && std::io::stderr().is_terminal() {
        say!("watching for {} …", args.interval);
    }
    clearway_doctor::diagnose(&namespace, focus, args.interval.0)
        .map(|(_, diagnosis)| diagnosis)
        .map_err(|error| cannot_see(&error))
}

#[cfg(not(target_os = "linux"))]
fn diagnose(_: &Args, _: &Focus) -> Result<Diagnosis, Failure> {
    Err(cannot_see(&Error::NotLinux))
}

fn cannot_see(error: &Error) -> Failure {
    Failure::new(Kind::Arguments, error.to_string())
}
