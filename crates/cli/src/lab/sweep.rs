//! `clearway lab sweep`.

use std::io::{self, Write as _};

use clearway_lab::sweep;

use super::args::Sweep;
use super::run::{execute, say_speed};
use super::watch::Watches;
use super::{choose, table};
use crate::failure::{Failure, Kind};

/// Runs a grid of paths.
///
/// # Errors
/// If a value makes no sense or a transfer did not complete.
pub(super) fn command(args: &Sweep) -> Result<(), Failure> {
    let sweep = sweep::Sweep {
        rate: args.rate.0.clone(),
        rtt: args.rtt.0.clone(),
        queue: args.queue.0.clone(),
        loss: args.loss.0.clone(),
        also: args.also.clone(),
        traffic: args.traffic.clone(),
        bytes: args.bytes.clone(),
        duration: args.duration.clone(),
    };
    let scenario = sweep
        .scenario()
        .map_err(|error| Failure::new(Kind::Arguments, error.to_string()))?;
    if args.print {
        write!(io::stdout().lock(), "{}", sweep.text())?;
        return Ok(());
    }
    let plan = choose::plan(&[scenario], &args.extent)?;
    let (groups, speed) = execute(&plan, &args.extent, &Watches::none())?;
    if !args.extent.json {
        table::print(&groups)?;
    }
    say_speed(&plan, &speed);
    let failed = groups.iter().filter(|group| !group.passed()).count();
    if failed > 0 {
        let message = format!("{failed} of {} points did not complete", groups.len());
        return Err(Failure::new(Kind::Other, message));
    }
    Ok(())
}
