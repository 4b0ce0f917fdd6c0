//! Parts of a batch: which runs this machine does, and the file with their results.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use clearway_lab::run::{Row, Settings, Shard, Task, run_while};
use serde::{Deserialize, Serialize};

use super::args::{Run, RunSelection, Sweep};
use super::choose::{PlannedRuns, SelectedScenario};
use super::run::{progress, say_speed};
use super::watch::RunOutputs;
use crate::failure::{Failure, Kind};
use crate::terminal;

/// The version of the format of results.
pub(super) const VERSION: u32 = 1;

/// What a batch was started with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum BatchCommand {
    Run(Run),
    Sweep(Sweep),
}

/// A scenario with its text: the machine that joins the results need not have the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BatchScenario {
    pub(super) origin: String,
    pub(super) text: String,
}

/// The first line of results. Equal in all parts of a batch, but for the shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct BatchHeader {
    pub(super) version: u32,
    /// The version of the program: other code gives other results.
    pub(super) program: String,
    pub(super) command: BatchCommand,
    pub(super) scenarios: Vec<BatchScenario>,
    /// The number of runs of all parts together.
    pub(super) runs: u64,
    pub(super) shard: String,
}

/// A line of results.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum BatchLine {
    /// The first.
    Batch(BatchHeader),
    /// The result of the run with this index in the whole plan.
    Row { index: u64, row: Row },
    /// The last, so that a part that was cut off is not taken for a whole one.
    End { runs: u64 },
}

/// Does the runs of one part, and writes their results.
///
/// # Errors
/// If the results cannot be written.
pub(super) fn run(
    command: &BatchCommand,
    chosen: &[SelectedScenario],
    planned: &PlannedRuns,
    (shard, path): (Shard, &Path),
    extent: &RunSelection,
    watches: &RunOutputs,
) -> Result<(), Failure> {
    let unwritable = |error: &std::io::Error| {
        Failure::caused(
            Kind::Output,
            format!("cannot write {}", path.display()),
            error,
        )
    };
    let file = File::create(path).map_err(|error| unwritable(&error))?;
    let mut out = BufWriter::new(file);
    let mut write = |line: &BatchLine| {
        serde_json::to_writer(&mut out, line)?;
        out.write_all(b"\n")?;
        out.flush()
    };
    let scenarios = chosen.iter().map(|each| BatchScenario {
        origin: each.origin.clone(),
        text: each.scenario.text().to_owned(),
    });
    let header = BatchHeader {
        version: VERSION,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        command: command.clone(),
        scenarios: scenarios.collect(),
        runs: planned.plan.tasks.len() as u64,
        shard: shard.to_string(),
    };
    write(&BatchLine::Batch(header)).map_err(|error| unwritable(&error))?;
    let mut own = planned.plan.clone();
    let all = planned.plan.tasks.iter().zip(0..);
    let indices: Vec<(u64, Task)> = all
        .filter(|(_, index)| shard.has(*index))
        .map(|(task, index)| (index, *task))
        .collect();
    own.tasks = indices.iter().map(|(_, task)| *task).collect();
    let bar = progress(own.tasks.len() as u64);
    terminal::show(&bar);
    let extras = |task: &Task| watches.extras(task);
    let settings = Settings {
        threads: extent.threads(),
        progress: &|done| bar.set_position(done as u64),
        extras: &extras,
    };
    let (mut done, mut broken) = (0, None);
    let speed = run_while(&own, &settings, |_, row| {
        let index = indices[done as usize].0;
        done += 1;
        broken = write(&BatchLine::Row { index, row }).err();
        broken.is_none()
    });
    terminal::clear();
    if broken.is_none() {
        broken = write(&BatchLine::End { runs: done }).err();
    }
    say_speed(&own, &speed);
    if let Some(error) = broken {
        return Err(unwritable(&error));
    }
    let all = planned.plan.tasks.len();
    say!(
        "lab: shard {shard}: {done} of {all} runs; join the results of all {} with \
         `clearway lab merge`",
        shard.count()
    );
    Ok(())
}
