//! What to run: cases times seeds, in an order that does not depend on how
//! many threads run them.

use core::fmt;

use clearway_recovery::congestion::{Algorithm, AlgorithmError};

use crate::scenario::{Case, Scenario, ScenarioError, Size, suggest};

/// Maximum number of runs in a plan: their results are kept until the last is done.
pub const MOST_RUNS: u64 = 1_000_000;

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The index of the case in [`Plan::cases`].
    pub case: usize,
    /// The seed.
    pub seed: u64,
}

/// The runs to do.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Every case.
    pub cases: Vec<Case>,
    /// Every run.
    pub tasks: Vec<Task>,
    /// Scenarios that are skipped, with the reason.
    pub skipped: Vec<(String, String)>,
}

/// Why a plan cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// A scenario has an error.
    Scenario(ScenarioError),
    /// There is no such controller.
    Controller(String),
    /// The seeds exceed the largest number.
    Seeds {
        /// The first.
        first: u64,
        /// How many.
        count: u64,
    },
    /// More runs than [`MOST_RUNS`].
    Runs(u64),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scenario(error) => error.fmt(f),
            Self::Controller(message) => f.write_str(message),
            Self::Seeds { first, count } => write!(
                f,
                "cannot run {count} seeds starting at {first}: the largest seed is {}",
                u64::MAX - 1
            ),
            Self::Runs(runs) => write!(
                f,
                "the plan has {runs} runs, but the limit is {MOST_RUNS}: choose fewer seeds, \
                 controllers, scenarios or grid points"
            ),
        }
    }
}

impl std::error::Error for PlanError {}

impl From<ScenarioError> for PlanError {
    fn from(error: ScenarioError) -> Self {
        Self::Scenario(error)
    }
}

/// Whether this build includes the controller.
#[must_use]
pub fn available(controller: &str) -> bool {
    controller.parse::<Algorithm>().is_ok()
}

/// The error for an unknown controller, with a suggestion.
fn unknown(name: &str, error: &AlgorithmError) -> String {
    if !matches!(error, AlgorithmError::Unknown(_)) {
        return error.to_string();
    }
    let mut known: Vec<String> = Algorithm::ALL.iter().map(ToString::to_string).collect();
    known.push("fixed:BYTES".to_owned());
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let help = suggest(name, &known);
    format!("unknown controller {name:?}; {help}")
}

impl Plan {
    /// Adds a scenario's runs.
    ///
    /// `controllers` replaces the scenario's own controllers; empty means those of them that this
    /// build includes. `seeds` is the first seed and the number of seeds.
    ///
    /// # Errors
    /// If a requested controller does not exist, the seeds exceed the largest number, or there are
    /// too many runs.
    pub fn add(
        &mut self,
        scenario: &Scenario,
        size: Size,
        controllers: &[String],
        seeds: Option<(u64, u64)>,
    ) -> Result<(), PlanError> {
        if let Some(reason) = &scenario.waiting {
            self.skipped.push((scenario.name.clone(), reason.clone()));
            return Ok(());
        }
        let (first, count) = seeds.unwrap_or((1, scenario.seeds(size)));
        if first.checked_add(count).is_none() {
            return Err(PlanError::Seeds { first, count });
        }
        let chosen = if controllers.is_empty() {
            &scenario.controllers
        } else {
            controllers
        };
        for controller in chosen {
            if let Err(error) = controller.parse::<Algorithm>() {
                if controllers.is_empty() {
                    let reason = format!("{controller}: not in this build");
                    self.skipped.push((scenario.name.clone(), reason));
                    continue;
                }
                return Err(PlanError::Controller(unknown(controller, &error)));
            }
            let cases = scenario.cases(size, controller)?;
            let more = count.saturating_mul(cases.len() as u64);
            let runs = more.saturating_add(self.tasks.len() as u64);
            if runs > MOST_RUNS {
                return Err(PlanError::Runs(runs));
            }
            for case in cases {
                self.add_case(case, first, count);
            }
        }
        Ok(())
    }

    /// Keeps only the runs of cases for which `keep` returns true.
    pub fn retain(&mut self, keep: impl Fn(&Case) -> bool) {
        let cases = &self.cases;
        self.tasks.retain(|task| keep(&cases[task.case]));
    }

    /// Adds one case with `count` seeds from `first` on.
    pub fn add_case(&mut self, case: Case, first: u64, count: u64) {
        let absent = case
            .flows
            .iter()
            .filter_map(|flow| flow.controller.as_deref())
            .find(|name| !available(name));
        if let Some(name) = absent {
            let reason = format!("{}: {name} is not in this build", case.variant);
            self.skipped.push((case.scenario, reason));
            return;
        }
        let index = self.cases.len();
        self.cases.push(case);
        let seeds = first..first.saturating_add(count);
        self.tasks
            .extend(seeds.map(|seed| Task { case: index, seed }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::find;

    fn add(controllers: &[&str], seeds: (u64, u64)) -> Result<Plan, String> {
        let mut plan = Plan::default();
        let controllers: Vec<String> = controllers.iter().map(|&name| name.to_owned()).collect();
        let scenario = find("shallow_25").unwrap();
        plan.add(scenario, Size::Ci, &controllers, Some(seeds))
            .map_err(|error| error.to_string())?;
        Ok(plan)
    }

    #[test]
    fn impossible_plan_is_rejected_before_it_is_expanded() {
        assert_eq!(add(&["cubic"], (3, 2)).unwrap().tasks.len(), 2);
        let error = add(&["cubic"], (1, 1_000_000_000)).unwrap_err();
        assert!(error.contains("the plan has 1000000000 runs"), "{error}");
        let error = add(&["cubic"], (1, u64::MAX)).unwrap_err();
        assert!(
            error.contains("cannot run 18446744073709551615 seeds"),
            "{error}"
        );
        // Two that fit by themselves do not fit together.
        assert!(add(&["cubic"], (1, 600_000)).is_ok());
        assert!(add(&["cubic", "newreno"], (1, 600_000)).is_err());
    }

    #[test]
    fn misspelled_controller_gets_a_suggestion() {
        let error = add(&["cubik"], (1, 1)).unwrap_err();
        assert!(error.contains("did you mean cubic?"), "{error}");
    }
}
