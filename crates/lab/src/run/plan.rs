//! What to run: cases times seeds, in an order that does not depend on how
//! many threads run them.

use core::fmt;

use clearway_recovery::congestion::Algorithm;

use crate::scenario::{Case, Scenario, ScenarioError, Size};

/// One run to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The case, by its place in [`Plan::cases`].
    pub case: usize,
    /// The seed.
    pub seed: u64,
}

/// Runs to do.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Every case.
    pub cases: Vec<Case>,
    /// Every run.
    pub tasks: Vec<Task>,
    /// Scenarios that are not run, with the reason.
    pub skipped: Vec<(String, String)>,
}

/// Why there is nothing to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// A scenario has a mistake.
    Scenario(ScenarioError),
    /// No controller is called so.
    Controller(String),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scenario(error) => error.fmt(f),
            Self::Controller(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for PlanError {}

impl From<ScenarioError> for PlanError {
    fn from(error: ScenarioError) -> Self {
        Self::Scenario(error)
    }
}

/// Whether this build has the controller.
#[must_use]
pub fn available(controller: &str) -> bool {
    controller.parse::<Algorithm>().is_ok()
}

impl Plan {
    /// Adds a scenario's runs.
    ///
    /// `controllers`: those to run it with; none means its own, as far as this
    /// build has them. `seeds`: how many, and the first.
    ///
    /// # Errors
    /// If a controller that was asked for does not exist.
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
                return Err(PlanError::Controller(error.to_string()));
            }
            for case in scenario.cases(size, controller)? {
                self.add_case(case, first, count);
            }
        }
        Ok(())
    }

    /// Keeps the runs of those cases only.
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
