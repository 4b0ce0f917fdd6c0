//! `clearway lab run`.

use std::io::{self, Write as _};

use clearway_lab::run::{Group, Plan, Row, Settings, Speed, Task, judge, run_all};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::args::{Extent, Run};
use super::watch::Watches;
use super::{choose, specimen, table};
use crate::failure::{Failure, Kind};

/// Runs scenarios and judges them.
///
/// # Errors
/// If a bar was not reached, or as [`super::command`].
pub(super) fn command(args: &Run) -> Result<(), Failure> {
    let plan = match &args.specimen {
        Some(name) => specimen::plan(name, &args.scenarios, &args.extent)?,
        None => choose::plan(&choose::scenarios(&args.scenarios)?, &args.extent)?,
    };
    let watches = Watches::new(&plan, args)?;
    let (groups, speed) = execute(&plan, &args.extent, &watches)?;
    watches.conclude()?;
    if !args.extent.json {
        table::print(&groups)?;
    }
    say_speed(&plan, &speed);
    verdict(
        &groups,
        &args.extent,
        &args.scenarios,
        args.specimen.as_deref(),
    )
}

/// Runs a plan with a progress bar; prints rows if JSON is wanted.
pub(super) fn execute(
    plan: &Plan,
    extent: &Extent,
    watches: &Watches,
) -> Result<(Vec<Group>, Speed), Failure> {
    let bar = progress(plan.tasks.len() as u64);
    let mut groups: Vec<Group> = Vec::new();
    let mut rows: Vec<Row> = Vec::new();
    let mut broken = None;
    let extras = |task: &Task| watches.extras(task);
    let settings = Settings {
        threads: extent.threads(),
        progress: &|done| bar.set_position(done as u64),
        extras: &extras,
    };
    let mut left = 0;
    let speed = run_all(plan, &settings, |task, row| {
        if extent.json && broken.is_none() {
            broken = print_row(&row).err();
        }
        if left == 0 {
            left = plan.tasks.iter().filter(|t| t.case == task.case).count();
        }
        rows.push(row);
        left -= 1;
        if left == 0 {
            let case = &plan.cases[task.case];
            groups.push(judge(case, core::mem::take(&mut rows)));
        }
    });
    bar.finish_and_clear();
    broken.map_or(Ok((groups, speed)), |error| Err(error.into()))
}

fn print_row(row: &Row) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, row)?;
    writeln!(out)
}

fn progress(runs: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(runs), ProgressDrawTarget::stderr()).with_style(style)
}

/// How fast it was, and what was not run.
pub(super) fn say_speed(plan: &Plan, speed: &Speed) {
    for (name, reason) in &plan.skipped {
        say!("lab: not run: {name}: {reason}");
    }
    say!(
        "lab: {} runs, {:.0} s simulated in {:.1} s: {:.2} million events/s, {:.0} × real time",
        speed.runs,
        speed.simulated.as_secs_f64(),
        speed.took.as_secs_f64(),
        speed.events_per_second() / 1e6,
        speed.times_real_time(),
    );
}

/// Says which bars were not reached and how to see it again. Misses that their
/// scenario knows of are told, but are no failure.
pub(super) fn verdict(
    groups: &[Group],
    extent: &Extent,
    names: &[String],
    specimen: Option<&str>,
) -> Result<(), Failure> {
    for group in groups {
        for shortfall in &group.shortfalls {
            let what = match &shortfall.bar {
                Some(bar) => format!("{}, but {}", bar.text(), shortfall.found),
                None => shortfall.found.clone(),
            };
            let word = shortfall.known.as_ref().map_or("FAILED", |_| "missed");
            say!(
                "{word} {}: {what} ({} of {} runs)",
                title(group),
                shortfall.runs,
                group.rows.len(),
            );
            match &shortfall.known {
                Some(reason) => say!("  known: {reason}"),
                None => {
                    let bug = specimen.map(|name| format!(" --specimen {name}"));
                    let bug = bug.unwrap_or_default();
                    let replay = replay(group, shortfall.seed, extent, names);
                    say!("  replay: {replay}{bug}");
                }
            }
        }
        for missed in &group.reached_after_all {
            say!(
                "reached {}: {}, though its scenario calls it missed",
                title(group),
                missed.metric
            );
        }
    }
    let failed = groups.iter().filter(|group| !group.is_as_known()).count();
    if failed == 0 {
        return Ok(());
    }
    let message = format!("{failed} of {} did not reach their bars", groups.len());
    Err(Failure::new(Kind::Other, message))
}

/// A group's name for people.
fn title(group: &Group) -> String {
    let space = if group.variant.is_empty() { "" } else { " " };
    format!(
        "{} {}{space}{}",
        group.scenario, group.controller, group.variant
    )
}

/// The one command that shows a run again.
fn replay(group: &Group, seed: u64, extent: &Extent, names: &[String]) -> String {
    // A file has to be named as the user named it.
    let is_file = |name: &&String| name.contains('/') || name.ends_with(".toml");
    let name = match names.iter().filter(is_file).count() {
        1 if names.len() == 1 => names[0].as_str(),
        _ => group.scenario.as_str(),
    };
    let size = if extent.full { " --full" } else { "" };
    let variant = if group.variant.is_empty() {
        String::new()
    } else {
        format!(" --variant '{}'", group.variant)
    };
    format!(
        "clearway lab run {name} --controller {}{variant} --seed {seed} --seeds 1{size}",
        group.controller
    )
}
