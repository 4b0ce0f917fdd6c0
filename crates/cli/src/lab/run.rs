//! `clearway lab run`.

use std::io::Write as _;

use clearway_lab::run::{Group, Plan, Row, Settings, Speed, Task, judge, run_while};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::args::{Run, RunSelection};
use super::choose::PlannedRuns;
use super::verdict::verdict;
use super::watch::RunOutputs;
use super::{choose, specimen, table};
use crate::failure::Failure;
use crate::output;
use crate::terminal;

/// Runs scenarios and checks their bars.
///
/// # Errors
/// If a bar was missed, or like [`super::command`].
pub(super) fn command(args: &Run) -> Result<(), Failure> {
    let planned = match &args.specimen {
        Some(name) => specimen::plan(name, &args.scenarios, &args.extent)?,
        None => choose::plan(&choose::scenarios(&args.scenarios)?, &args.extent)?,
    };
    let watches = RunOutputs::new(&planned.plan, args)?;
    let ran = execute(&planned, &args.extent, &watches)?;
    // Results are printed first, whatever happened to files.
    let printed = if args.extent.json {
        Ok(())
    } else {
        table::print(&ran.groups)
    };
    say_speed(&planned.plan, &ran.speed);
    let written = watches.conclude();
    let judged = verdict(&ran, &args.extent, args.specimen.as_deref());
    printed.and(written).and(judged)
}

/// The results of a plan.
pub(super) struct RunResults {
    /// The cases with their results.
    pub(super) groups: Vec<Group>,
    /// What selected each case.
    pub(super) origins: Vec<String>,
    pub(super) speed: Speed,
}

/// Runs a plan with a progress bar; prints rows if JSON is wanted.
pub(super) fn execute(
    planned: &PlannedRuns,
    extent: &RunSelection,
    watches: &RunOutputs,
) -> Result<RunResults, Failure> {
    let plan = &planned.plan;
    let bar = progress(plan.tasks.len() as u64);
    let (mut groups, mut origins) = (Vec::new(), Vec::new());
    let mut rows: Vec<Row> = Vec::new();
    let mut broken = None;
    let extras = |task: &Task| watches.extras(task);
    terminal::show(&bar);
    let settings = Settings {
        threads: extent.threads(),
        progress: &|done| bar.set_position(done as u64),
        extras: &extras,
    };
    let mut left = 0;
    let speed = run_while(plan, &settings, |task, row| {
        if extent.json {
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
            origins.push(planned.origins[task.case].clone());
        }
        broken.is_none()
    });
    terminal::clear();
    let ran = RunResults {
        groups,
        origins,
        speed,
    };
    broken.map_or(Ok(ran), Err)
}

fn print_row(row: &Row) -> Result<(), Failure> {
    output::print(|out| {
        output::write_json(&mut *out, row)?;
        writeln!(out)
    })
}

fn progress(runs: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(runs), ProgressDrawTarget::stderr()).with_style(style)
}

/// Prints the speed, and what was skipped.
pub(super) fn say_speed(plan: &Plan, speed: &Speed) {
    for (name, reason) in &plan.skipped {
        say!("lab: skipped: {name}: {reason}");
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
