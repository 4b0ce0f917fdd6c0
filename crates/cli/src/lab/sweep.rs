//! `clearway lab sweep`.

use std::io::Write as _;

use clearway_lab::run::{Group, Shortfall};
use clearway_lab::sweep;

use super::args::Sweep;
use super::batch::{self, BatchCommand};
use super::choose::{self, PlannedRuns, SelectedScenario};
use super::run::{RunResults, execute, say_speed};
use super::table;
use super::verdict::{command_line, option, tell};
use super::watch::{Detection, RunOutputs, Watch};
use crate::failure::{Failure, Kind};
use crate::output;

/// Maximum number of runs of a sweep: all rows form one table.
const MOST_RUNS: usize = 10_000;

/// Runs a grid of paths.
///
/// # Errors
/// If a value is invalid, there are too many points, or a transfer did not complete.
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
        flows: args.flows,
        warmup: args.warmup.clone(),
    };
    let wrong = |message: String| Failure::new(Kind::Arguments, message);
    let scenario = sweep.scenario().map_err(|error| wrong(error.to_string()))?;
    if args.print {
        return output::print(|out| write!(out, "{}", sweep.text()));
    }
    let chosen = SelectedScenario {
        origin: scenario.name.clone(),
        scenario,
    };
    let chosen = [chosen];
    let planned = choose::plan(&chosen, &args.extent)?;
    let runs = planned.plan.tasks.len();
    let points = sweep.points();
    if runs > MOST_RUNS {
        return Err(wrong(format!(
            "the sweep has {points} points and {runs} runs; expected at most {MOST_RUNS} runs"
        )));
    }
    say!("lab: {runs} runs of {points} points");
    let watches = args.outputs(&planned)?;
    if let (Some(shard), Some(file)) = (args.part.shard, &args.part.results) {
        let batch = BatchCommand::Sweep(args.clone());
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
    let ran = execute(&planned, &args.extent, &watches)?;
    let printed = if args.extent.json {
        Ok(())
    } else {
        table::print(&ran.groups)
    };
    say_speed(&planned.plan, &ran.speed);
    let written = watches.conclude();
    let judged = verdict(&ran, args);
    printed.and(written).and(judged)
}

impl Sweep {
    /// The outputs that it asks for.
    fn outputs(&self, planned: &PlannedRuns) -> Result<RunOutputs, Failure> {
        let watch = Watch {
            qlog: self.qlog.as_deref(),
            detect: match self.detect {
                true => Detection::Everywhere,
                false => Detection::None,
            },
            ..Watch::default()
        };
        RunOutputs::new(&planned.plan, &watch)
    }
}

/// Prints what did not complete.
///
/// # Errors
/// If something did not.
pub(super) fn verdict(ran: &RunResults, args: &Sweep) -> Result<(), Failure> {
    tell(ran, |place, shortfall| {
        replay(&ran.groups[place], shortfall, args)
    });
    let groups = &ran.groups;
    let failed = groups.iter().filter(|group| !group.passed()).count();
    if failed > 0 {
        let what = match args.detect {
            true => "failed",
            false => "did not complete",
        };
        let message = format!("{failed} of {} points {what}", groups.len());
        return Err(Failure::new(Kind::Other, message));
    }
    Ok(())
}

/// The command that replays a point.
fn replay(group: &Group, shortfall: &Shortfall, args: &Sweep) -> String {
    let mut words = vec!["clearway".to_owned(), "lab".to_owned(), "sweep".to_owned()];
    let lists = [&args.rate, &args.rtt, &args.queue, &args.loss];
    let whole = lists.map(|list| list.0.join(","));
    let point = point(&group.variant).map(|values| values.map(str::to_owned));
    let values = point.clone().unwrap_or(whole);
    for (name, value) in ["--rate", "--rtt", "--queue", "--loss"].iter().zip(&values) {
        option(&mut words, name, value);
    }
    if point.is_none() {
        option(&mut words, "--variant", &group.variant);
    }
    if !args.also.is_empty() {
        option(&mut words, "--also", &args.also);
    }
    option(&mut words, "--traffic", &args.traffic);
    option(&mut words, "--bytes", &args.bytes);
    option(&mut words, "--duration", &args.duration);
    if args.flows > 1 {
        option(&mut words, "--flows", &args.flows.to_string());
    }
    if args.warmup != "0s" {
        option(&mut words, "--warmup", &args.warmup);
    }
    if args.detect {
        words.push("--detect".to_owned());
    }
    option(&mut words, "--controller", &group.controller);
    option(&mut words, "--seed", &shortfall.seed.to_string());
    option(&mut words, "--seeds", &shortfall.seeds.to_string());
    command_line(&words)
}

/// Rate, RTT, queue and loss of a point, from its name.
fn point(name: &str) -> Option<[&str; 4]> {
    let (loss, rest) = name.strip_prefix("loss=")?.split_once(" queue=")?;
    let (queue, rest) = rest.split_once(" rate=")?;
    let (rate, rtt) = rest.split_once(" rtt=")?;
    Some([rate, rtt, queue, loss])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grid_point_name_lists_its_values() {
        let found = point("loss=30%@0s-2s queue=1bdp rate=10M rtt=10ms");
        assert_eq!(found, Some(["10M", "10ms", "1bdp", "30%@0s-2s"]));
        assert_eq!(point("rate=10M"), None);
    }
}
