//! Runs of tests, several at once: nearly all of their time is waiting.

use std::{
    collections::VecDeque,
    num::NonZeroUsize,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
};

use anyhow::Result;

use super::{
    Run,
    endpoint::Endpoint,
    report::Cell,
    test::{Outcome, Test},
};

/// A cell of the table that is to be filled.
#[derive(Clone, Copy)]
pub(crate) struct Planned<'a> {
    pub(crate) test: &'a Test,
    pub(crate) client: &'a Endpoint,
    pub(crate) server: &'a Endpoint,
}

impl Planned<'_> {
    /// Runs the test once.
    pub(crate) fn run(&self, repetition: u32, options: &Run) -> Outcome {
        let seed = options.seed.saturating_add(repetition.into());
        let outcome = self.test.run(self.client, self.server, seed, options);
        // What keeps one test from being run says nothing of the others.
        outcome.unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")))
    }

    fn repetitions(&self, options: &Run) -> u32 {
        options.repetitions.max(self.test.measured_runs)
    }
}

/// What has come of the runs of a cell so far.
#[derive(Default)]
struct Progress {
    done: bool,
    runs: u32,
    passed: u32,
    measured: Vec<u64>,
    failure: Option<Outcome>,
}

impl Progress {
    /// Takes the outcome of a run, of `wanted`. Returns the cell once nothing more is to be run.
    fn take(&mut self, outcome: Outcome, wanted: u32, planned: &Planned<'_>) -> Option<Cell> {
        self.runs += 1;
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Measured(kbit) => {
                self.passed += 1;
                self.measured.push(kbit);
            }
            other => {
                self.failure.get_or_insert(other);
            }
        }
        (self.runs == wanted).then(|| self.cell(planned))
    }

    /// Returns the cell that the runs so far make.
    fn cell(&mut self, planned: &Planned<'_>) -> Cell {
        let failure = self.failure.take();
        Cell {
            last: failure.unwrap_or_else(|| self.judged(planned)),
            passed: self.passed,
            runs: self.runs,
        }
    }

    fn judged(&mut self, planned: &Planned<'_>) -> Outcome {
        self.measured.sort_unstable();
        match self.measured.get(self.measured.len() / 2) {
            None => Outcome::Passed,
            Some(median) => planned.test.judge_median(*median, planned.server),
        }
    }
}

/// Fills the cells and hands over each when it is done. Of the tests that measure nothing,
/// `options.jobs` are run at once; the others come after them, one at a time.
pub(crate) fn run_all(
    planned: &[Planned<'_>],
    options: &Run,
    run: impl Fn(&Planned<'_>, u32) -> Outcome + Sync,
    mut done: impl FnMut(&Planned<'_>, &Cell) -> Result<()>,
) -> Result<()> {
    let (alone, together): (Vec<_>, Vec<_>) = planned
        .iter()
        .partition(|planned| planned.test.measured_runs > 0);
    for (cells, jobs) in [(together, options.jobs), (alone, NonZeroUsize::MIN)] {
        at_once(&cells, jobs, options, &run, &mut done)?;
    }
    Ok(())
}

/// Returns whether no more runs follow one with this outcome.
fn ends(outcome: &Outcome, options: &Run) -> bool {
    match outcome {
        Outcome::Passed | Outcome::Measured(_) => false,
        Outcome::Unsupported => true,
        Outcome::Failed(_) | Outcome::Missed(..) => !options.count_failures,
    }
}

fn at_once(
    cells: &[&Planned<'_>],
    jobs: NonZeroUsize,
    options: &Run,
    run: &(impl Fn(&Planned<'_>, u32) -> Outcome + Sync),
    done: &mut impl FnMut(&Planned<'_>, &Cell) -> Result<()>,
) -> Result<()> {
    let repetitions = |planned: &Planned<'_>| 0..planned.repetitions(options);
    let runs = cells.iter().enumerate();
    let waiting: VecDeque<(usize, u32)> = runs
        .flat_map(|(at, planned)| repetitions(planned).map(move |repetition| (at, repetition)))
        .collect();
    let waiting = Mutex::new(waiting);
    let over: Vec<AtomicBool> = cells.iter().map(|_| AtomicBool::new(false)).collect();
    let next = || {
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::from_fn(|| waiting.pop_front()).find(|(at, _)| {
            !over
                .get(*at)
                .is_some_and(|over| over.load(Ordering::Relaxed))
        })
    };
    let mut progress: Vec<Progress> = cells.iter().map(|_| Progress::default()).collect();
    let (results, arriving) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.get() {
            let results = results.clone();
            let (next, over) = (&next, &over);
            scope.spawn(move || {
                while let Some((at, repetition)) = next() {
                    let Some(planned) = cells.get(at) else {
                        continue;
                    };
                    let outcome = run(planned, repetition);
                    if let Some(over) = over.get(at).filter(|_| ends(&outcome, options)) {
                        over.store(true, Ordering::Relaxed);
                    }
                    if results.send((at, outcome)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(results);
        for (at, outcome) in arriving {
            let (Some(planned), Some(progress)) = (cells.get(at), progress.get_mut(at)) else {
                continue;
            };
            // Runs that were under way when another one failed say nothing more.
            if progress.done {
                continue;
            }
            let is_last = ends(&outcome, options);
            let cell = progress.take(outcome, planned.repetitions(options), planned);
            if let Some(cell) = cell.or_else(|| is_last.then(|| progress.cell(planned))) {
                progress.done = true;
                done(planned, &cell)?;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{super::catalogue, *};

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        run: Run,
    }

    fn options(arguments: &[&str]) -> Run {
        let arguments = [&["interop"], arguments].concat();
        Arguments::try_parse_from(arguments).expect("valid").run
    }

    /// Returns the cells that come of outcomes by test and repetition.
    fn cells(
        tests: &[&str],
        arguments: &[&str],
        outcome: impl Fn(&str, u32) -> Outcome + Sync,
    ) -> Vec<(&'static str, Outcome, u32)> {
        let ours = Endpoint::ours("unused");
        let chosen = |test: &&Test| tests.contains(&test.name);
        let planned: Vec<Planned<'_>> = catalogue::ALL
            .iter()
            .filter(chosen)
            .map(|test| Planned {
                test,
                client: &ours,
                server: &ours,
            })
            .collect();
        let mut cells = Vec::new();
        let run = |planned: &Planned<'_>, repetition| outcome(planned.test.name, repetition);
        let result = run_all(&planned, &options(arguments), run, |planned, cell| {
            cells.push((planned.test.name, cell.last.clone(), cell.passed));
            Ok(())
        });
        result.expect("no file to write");
        cells
    }

    #[test]
    fn every_repetition_is_run_once_whatever_the_number_of_jobs() {
        for jobs in ["1", "3", "64"] {
            let runs = Mutex::new(Vec::new());
            let tests = ["handshake", "transfer", "retry"];
            let mut cells = cells(
                &tests,
                &["--repetitions", "5", "--jobs", jobs],
                |test, at| {
                    runs.lock().expect("lock").push((test.to_owned(), at));
                    Outcome::Passed
                },
            );
            cells.sort_by_key(|(test, ..)| *test);
            let passed = ["handshake", "retry", "transfer"].map(|test| (test, Outcome::Passed, 5));
            assert_eq!(cells, passed);
            let mut runs = runs.into_inner().expect("lock");
            runs.sort();
            runs.dedup();
            assert_eq!(runs.len(), 15);
        }
    }

    #[test]
    fn cell_ends_with_the_first_run_that_fails() {
        let fails = |_: &str, repetition| match repetition {
            2 => Outcome::Failed("lost".to_owned()),
            3.. => panic!("run after a failure"),
            _ => Outcome::Passed,
        };
        let cells = cells(&["handshake"], &["--repetitions", "9"], fails);
        assert_eq!(
            cells,
            [("handshake", Outcome::Failed("lost".to_owned()), 2)]
        );
    }

    #[test]
    fn failures_are_counted_if_asked_for() {
        let fails = |_: &str, repetition| match repetition {
            2 | 5 => Outcome::Failed("lost".to_owned()),
            _ => Outcome::Passed,
        };
        let arguments = ["--repetitions", "9", "--count-failures", "--jobs", "4"];
        let cells = cells(&["handshake"], &arguments, fails);
        assert_eq!(
            cells,
            [("handshake", Outcome::Failed("lost".to_owned()), 7)]
        );
    }

    #[test]
    fn median_of_measured_runs_is_judged() {
        let figures = [9_500, 9_100, 9_440, 9_420, 9_460];
        let measured = |_: &str, at: u32| Outcome::Measured(figures[at as usize]);
        let cells = cells(&["goodput"], &[], measured);
        assert_eq!(cells, [("goodput", Outcome::Measured(9_440), 5)]);
        let slower = |test: &str, at: u32| match measured(test, at) {
            Outcome::Measured(kbit) => Outcome::Measured(kbit - 20),
            other => other,
        };
        let [(_, Outcome::Missed(9_420, _), 5)] = self::cells(&["goodput"], &[], slower)[..] else {
            panic!("expected a missed bar");
        };
        let [(_, Outcome::Measured(9_420), 5)] = self::cells(&["goodput-prague"], &[], slower)[..]
        else {
            panic!("expected Prague to be reported");
        };
    }
}
