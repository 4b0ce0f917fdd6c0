//! The league: everybody through the same networks, by the same bars.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use clearway_lab::measure::metric;
use clearway_lab::run::{Group, Plan, Row, Settings, Speed, Task, judge, run_all};
use clearway_lab::scenario::{Bar, Scenario, ScenarioError, Size};
use serde::Serialize;

use crate::capture::Captures;
use crate::entrant::Entrant;
use crate::outside::{self, Outside};

/// Figures that only a stack's own books have. A bar on one is not applied to
/// the rivals.
const OWN_BOOKS: &[&str] = &[
    "flow_controlled",
    "app_limited",
    "window_limited",
    "key_updates",
    "ptos",
];

/// One entrant in one network.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Standing {
    pub(crate) entrant: String,
    pub(crate) scenario: String,
    pub(crate) variant: String,
    pub(crate) runs: usize,
    pub(crate) passed: bool,
    /// The figure the scenario is mainly about, and its median.
    pub(crate) figure: &'static str,
    pub(crate) value: Option<f64>,
    pub(crate) misses: Vec<Miss>,
    /// Bars that could not be applied.
    pub(crate) unmeasured: Vec<String>,
    /// Why it misses, if it does.
    pub(crate) diagnosis: Option<String>,
    /// Medians of all figures.
    pub(crate) medians: BTreeMap<&'static str, f64>,
}

/// A bar not reached.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Miss {
    /// The bar; nothing, if the run did what must never happen.
    pub(crate) bar: Option<String>,
    pub(crate) found: String,
    pub(crate) seed: u64,
    pub(crate) runs: u64,
    /// What the scenario says of it.
    pub(crate) known: Option<String>,
}

/// Everything to run: a plan, and who runs each of its cases.
pub(crate) struct League {
    plan: Plan,
    entrants: Vec<Entrant>,
}

impl League {
    /// Every entrant in every scenario that is for it.
    pub(crate) fn new(
        scenarios: &[&Scenario],
        entrants: &[Entrant],
        size: Size,
        seeds: Option<u64>,
    ) -> Result<Self, ScenarioError> {
        let mut plan = Plan::default();
        let mut whose = Vec::new();
        for scenario in scenarios.iter().filter(|one| one.waiting.is_none()) {
            let seeds = seeds.unwrap_or_else(|| scenario.seeds(size));
            for entrant in entrants.iter().filter(|one| one.takes_part_in(scenario)) {
                let cases = scenario.cases(size, entrant.judged_as())?;
                for mut case in cases.into_iter().filter(|case| entrant.carries(case)) {
                    if !entrant.is_ours() {
                        // What is known of our misses says nothing of theirs.
                        case.missed.clear();
                    }
                    plan.add_case(case, 1, seeds);
                    whose.resize(plan.cases.len(), *entrant);
                }
            }
        }
        Ok(Self {
            plan,
            entrants: whose,
        })
    }

    /// Runs it all.
    pub(crate) fn run(
        &self,
        threads: usize,
        captures: Option<&Arc<Captures>>,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> (Vec<Standing>, Speed) {
        let seen: Mutex<BTreeMap<usize, Vec<Outside>>> = Mutex::default();
        // A run's watcher outlives the closure that makes it.
        let seen = Arc::new(seen);
        let extras = |task: &Task| {
            let mut extras = self.entrants[task.case].extras(&self.plan.cases[task.case]);
            let (seen, case) = (seen.clone(), task.case);
            let network = self.plan.cases[case].clone();
            extras.after = Some(Box::new(move |outcome| {
                let outside = Outside::of(&network, outcome);
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.entry(case).or_default().extend(outside);
            }));
            if let Some(captures) = captures {
                let (name, case) = (self.entrants[task.case].name(), &self.plan.cases[task.case]);
                captures.record(&name, (case, task), &mut extras);
            }
            extras
        };
        let all = self.plan.tasks.len();
        let settings = Settings {
            threads,
            progress: &|done| progress(done, all),
            extras: &extras,
        };
        let mut rows: BTreeMap<usize, Vec<Row>> = BTreeMap::new();
        let speed = run_all(&self.plan, &settings, |task, row| {
            rows.entry(task.case).or_default().push(row);
        });
        let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        let standings = rows.into_iter().map(|(case, rows)| {
            let outsides = seen.get(&case).map_or(&[][..], Vec::as_slice);
            self.standing(case, rows, Outside::median(outsides).as_ref())
        });
        (standings.collect(), speed)
    }

    fn standing(&self, case: usize, rows: Vec<Row>, outside: Option<&Outside>) -> Standing {
        let entrant = self.entrants[case];
        let mut group = judge(&self.plan.cases[case], rows);
        let unmeasured = if entrant.is_ours() {
            Vec::new()
        } else {
            lift(&mut group)
        };
        let mut figures = group.bars.iter().map(|bar| bar.metric.name);
        let figure = figures
            .find(|name| !OWN_BOOKS.contains(name))
            .unwrap_or("goodput");
        let diagnosis = (!group.passed()).then(|| {
            if entrant.is_ours() {
                outside::of_ours(&group)
            } else {
                outside::of_rival(&group, outside)
            }
        });
        let misses = group.shortfalls.iter().map(|short| Miss {
            bar: short.bar.as_ref().map(Bar::text),
            found: short.found.clone(),
            seed: short.seed,
            runs: short.runs,
            known: short.known.clone(),
        });
        Standing {
            entrant: entrant.name(),
            scenario: group.scenario.clone(),
            variant: group.variant.clone(),
            runs: group.rows.len(),
            passed: group.passed(),
            figure,
            value: group.median(figure),
            misses: misses.collect(),
            unmeasured,
            diagnosis,
            medians: medians(&group),
        }
    }
}

fn medians(group: &Group) -> BTreeMap<&'static str, f64> {
    let names = clearway_lab::measure::METRICS.iter().map(|one| one.name);
    names
        .filter_map(|name| Some((name, group.median(name)?)))
        .collect()
}

/// Takes away the bars that only a stack's own books could tell.
fn lift(group: &mut Group) -> Vec<String> {
    let is_own = |name: &str| OWN_BOOKS.contains(&name);
    group.shortfalls.retain(|short| {
        let bar = short.bar.as_ref();
        !bar.is_some_and(|bar| is_own(bar.metric.name))
    });
    let lifted = group.bars.iter().filter(|bar| is_own(bar.metric.name));
    lifted.map(Bar::text).collect()
}

/// A figure with its unit.
pub(crate) fn show(figure: &str, value: Option<f64>) -> String {
    match (value, metric(figure)) {
        (Some(value), Some(metric)) => metric.unit.show(value),
        (None, _) | (_, None) => "never".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clearway_lab::scenario::find;

    use super::*;
    use crate::entrant;
    use crate::settings::Controller;

    #[test]
    fn all_stacks_are_judged_by_the_same_criteria() {
        let entrants = [
            Entrant::Clearway("cubic"),
            Entrant::Quinn(Controller::Cubic),
        ];
        let scenarios = [find("death_spiral").expect("a scenario")];
        let league = League::new(&scenarios, &entrants, Size::Ci, Some(1)).expect("a league");
        let bars = |case: usize| -> Vec<String> {
            let bars = &league.plan.cases[case].bars;
            bars.iter().map(clearway_lab::scenario::Bar::text).collect()
        };
        // Its two variants of ours, then those of the rival.
        assert_eq!(bars(0), bars(2));
        let (standings, speed) = league.run(1, None, &|_, _| {});
        assert_eq!(speed.runs, 4);
        let mut names: Vec<&str> = standings.iter().map(|one| one.entrant.as_str()).collect();
        names.dedup();
        assert_eq!(names, ["clearway/cubic", "quinn/cubic"]);
        assert!(standings.iter().all(|one| one.value.is_some()));
    }

    #[test]
    fn bars_on_a_stacks_own_books_are_not_held_against_rivals() {
        let scenarios = [find("tiny_window").expect("a scenario")];
        let entrants: Vec<Entrant> = entrant::ALL
            .iter()
            .copied()
            .filter(|one| one.judged_as() == "cubic")
            .collect();
        let league = League::new(&scenarios, &entrants, Size::Ci, Some(1)).expect("a league");
        let (standings, _) = league.run(1, None, &|_, _| {});
        for standing in &standings {
            let is_ours = standing.entrant.starts_with("clearway");
            assert_eq!(standing.unmeasured.is_empty(), is_ours);
        }
    }
}
