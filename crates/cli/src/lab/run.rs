//! `clearway lab run`.

use std::io::Write as _;

use clearway_lab::run::{Group, Plan, Row, Settings, Speed, Task, judge, run_while};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::args::{Run, RunSelection};
use super::batch::{self, BatchCommand};
use super::choose::{PlannedRuns, SelectedScenario};
use super::verdict::verdict;
use super::watch::RunOutputs;
use super::{choose, specimen, table};
use crate::failure::{Failure, Kind};
use crate::output;
use crate::terminal;

/// Runs scenarios and checks their bars.
///
/// # Errors
/// If a bar was missed, or like [`super::command`].
pub(super) fn command(args: &Run) -> Result<(), Failure> {
    let drawn;
    let args = match args.fresh {
        true => {
            drawn = fresh(args)?;
            &drawn
        }
        false => args,
    };
    let chosen = match &args.specimen {
        Some(name) => specimen::scenarios(name, &args.scenarios)?,
        None => choose::scenarios(&args.scenarios)?,
    };
    let planned = plan(&chosen, args)?;
    let watches = RunOutputs::new(&planned.plan, &args.watch())?;
    if let (Some(shard), Some(file)) = (args.part.shard, &args.part.results) {
        let batch = BatchCommand::Run(args.clone());
        let done = batch::run(
            &batch,
            &chosen,
            &planned,
            (shard, file),
            &args.extent,
            &watches,
        );
        return done.and(watches.conclude());
    }
    let mut ran = execute(&planned, &args.extent, &watches)?;
    if args.fresh {
        ran.groups.iter_mut().for_each(Group::excuse_chance);
    }
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

/// Seeds of each case in a run with fresh seeds: enough to tell a tenth from a half.
const FRESH_SEEDS: u64 = 20;

/// The same with a first seed that nobody has chosen. Seeds have nine digits at most, so that
/// people can copy them.
fn fresh(args: &Run) -> Result<Run, Failure> {
    let mut bytes = [0; 8];
    let drawn = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    drawn.map_err(|error| {
        Failure::caused(
            Kind::Other,
            "cannot draw a seed",
            &std::io::Error::from(error),
        )
    })?;
    let mut args = args.clone();
    args.extent.seed = u64::from_ne_bytes(bytes) % 1_000_000_000;
    args.extent.seeds.get_or_insert(FRESH_SEEDS);
    let (seed, seeds) = (args.extent.seed, args.extent.seeds.unwrap_or(FRESH_SEEDS));
    say!("lab: fresh seeds: --seed {seed} --seeds {seeds}");
    Ok(args)
}

/// The runs that `args` ask for.
///
/// # Errors
/// If there are none, or too many.
pub(super) fn plan(chosen: &[SelectedScenario], args: &Run) -> Result<PlannedRuns, Failure> {
    let mut planned = choose::plan(chosen, &args.extent)?;
    if let Some(name) = &args.specimen {
        specimen::infect(name, &mut planned)?;
    }
    Ok(planned)
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

pub(super) fn progress(runs: u64) -> ProgressBar {
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
