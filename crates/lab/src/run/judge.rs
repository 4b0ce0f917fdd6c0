//! Checks runs against their bars.

use std::collections::{BTreeMap, BTreeSet};

use clearway_trace::{Detector, Severity};

use super::row::Row;
use crate::measure::percentile;
use crate::scenario::{Aggregation, Bar, Case, KnownMiss};

/// A bar that was missed.
#[derive(Clone, Debug)]
pub struct Shortfall {
    /// The bar; `None` if something happened that must never happen.
    pub bar: Option<Bar>,
    /// What was measured, or what happened.
    pub found: String,
    /// The seed of the run to look at, or of the first of them.
    pub seed: u64,
    /// Number of seeds, from there on, that reproduce it: one, but all of the case for a bar on
    /// their median.
    pub seeds: u64,
    /// Number of runs that missed it.
    pub runs: u64,
    /// The reason, if the scenario lists it as known.
    pub known: Option<String>,
}

/// All seeds of one case.
#[derive(Clone, Debug)]
pub struct Group {
    /// The scenario.
    pub scenario: String,
    /// The point of its grid.
    pub variant: String,
    /// The controller.
    pub controller: String,
    /// Its runs.
    pub rows: Vec<Row>,
    /// Its bars.
    pub bars: Vec<Bar>,
    /// Known misses that did not occur.
    pub reached_after_all: Vec<KnownMiss>,
    /// The bars that were missed.
    pub shortfalls: Vec<Shortfall>,
}

impl Group {
    /// Whether no bar was missed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.shortfalls.is_empty()
    }

    /// Whether no bar was missed except those known to be missed.
    #[must_use]
    pub fn is_as_known(&self) -> bool {
        self.shortfalls.iter().all(|short| short.known.is_some())
    }

    /// Marks a bar on every seed as missed by chance if at most a tenth of at least ten seeds
    /// miss it: over seeds that nobody has chosen, that a bar holds for each of them is more than
    /// its scenario asks for. What must never happen, and findings, are not excused.
    pub fn excuse_chance(&mut self) {
        const FEWEST: u64 = 10;
        let seeds = self.rows.len() as u64;
        for short in &mut self.shortfalls {
            let on_every = |bar: &Bar| bar.over == Aggregation::Every;
            let rare = seeds >= FEWEST && short.runs * 10 <= seeds;
            if rare && short.known.is_none() && short.bar.as_ref().is_some_and(on_every) {
                let (runs, seed) = (short.runs, short.seed);
                short.known = Some(format!(
                    "{runs} of {seeds} seeds, at most a tenth; the worst is --seed {seed}"
                ));
            }
        }
    }

    /// The values of a metric over all runs that have it.
    #[must_use]
    pub fn values(&self, name: &str) -> Vec<f64> {
        self.rows.iter().filter_map(|row| row.get(name)).collect()
    }

    /// The median goodput of a flow of each controller, with the number of such flows, in the order
    /// of the flows.
    #[must_use]
    pub fn goodput_by_controller(&self) -> Vec<(String, usize, Option<f64>)> {
        let mut all: Vec<(String, usize, Vec<f64>)> = Vec::new();
        for (number, row) in self.rows.iter().enumerate() {
            for flow in &row.flows {
                let known = all.iter().position(|(name, ..)| *name == flow.controller);
                let index = known.unwrap_or_else(|| {
                    all.push((flow.controller.clone(), 0, Vec::new()));
                    all.len() - 1
                });
                all[index].1 += usize::from(number == 0);
                all[index].2.extend(flow.goodput);
            }
        }
        let medians = all.into_iter();
        medians
            .map(|(name, flows, values)| (name, flows, percentile(&values, 0.5)))
            .collect()
    }

    /// The median of a metric.
    #[must_use]
    pub fn median(&self, name: &str) -> Option<f64> {
        percentile(&self.values(name), 0.5)
    }
}

/// Checks the runs of one case.
#[must_use]
pub fn judge(case: &Case, rows: Vec<Row>) -> Group {
    let mut group = Group {
        scenario: case.scenario.clone(),
        variant: case.variant.clone(),
        controller: rows
            .first()
            .map_or_else(|| case.controller.clone(), |row| row.controller.clone()),
        rows,
        bars: case.bars.clone(),
        reached_after_all: Vec::new(),
        shortfalls: Vec::new(),
    };
    group.shortfalls = violations(&group.rows);
    group.shortfalls.extend(undeclared(&group.rows));
    for bar in &group.bars {
        let fallen = match bar.over {
            Aggregation::Every => every(bar, &group.rows),
            Aggregation::Median => median(bar, &group),
        };
        group.shortfalls.extend(fallen);
    }
    excuse(case, &mut group);
    group
}

/// Marks the shortfalls that the scenario lists as known.
fn excuse(case: &Case, group: &mut Group) {
    for missed in &case.missed {
        let mut happened = false;
        for shortfall in &mut group.shortfalls {
            let is_it = |bar: &Bar| bar.metric.name == missed.metric;
            if shortfall.bar.as_ref().is_some_and(is_it) {
                shortfall.known = Some(missed.reason.clone());
                happened = true;
            }
        }
        if !happened {
            group.reached_after_all.push(missed.clone());
        }
    }
}

fn show(bar: &Bar, value: Option<f64>) -> String {
    value.map_or_else(|| "never".to_owned(), |value| bar.metric.unit.show(value))
}

fn every(bar: &Bar, rows: &[Row]) -> Option<Shortfall> {
    let name = bar.metric.name;
    let short: Vec<&Row> = rows
        .iter()
        .filter(|row| !bar.passes(row.get(name)))
        .collect();
    // The worst run is shown; one without a value is worse than any.
    let worst = |row: &&&Row| {
        let value = row
            .get(name)
            .unwrap_or(if bar.at_most { f64::INFINITY } else { 0.0 });
        if bar.at_most { value } else { -value }
    };
    let row = short.iter().max_by(|a, b| worst(a).total_cmp(&worst(b)))?;
    Some(Shortfall {
        bar: Some(*bar),
        found: show(bar, row.get(name)),
        seed: row.seed,
        seeds: 1,
        runs: short.len() as u64,
        known: None,
    })
}

fn median(bar: &Bar, group: &Group) -> Option<Shortfall> {
    let name = bar.metric.name;
    let value = group.median(name);
    let short = group.rows.iter().filter(|row| !bar.passes(row.get(name)));
    (!bar.passes(value)).then(|| Shortfall {
        bar: Some(*bar),
        found: show(bar, value),
        seed: group.rows.first().map_or(0, |row| row.seed),
        seeds: group.rows.len() as u64,
        runs: short.count() as u64,
        known: None,
    })
}

/// One shortfall for each detector with findings that the scenario does not declare. A note says what
/// held a flow back, and is no fault.
fn undeclared(rows: &[Row]) -> Vec<Shortfall> {
    let mut found: BTreeMap<Detector, (u64, String, u64)> = BTreeMap::new();
    for row in rows {
        let mut counted = Vec::new();
        let faults = row
            .findings
            .iter()
            .filter(|it| it.severity > Severity::Note);
        for finding in faults {
            let first = || (row.seed, finding.sentence(), 0);
            let entry = found.entry(finding.detector).or_insert_with(first);
            if !counted.contains(&finding.detector) {
                counted.push(finding.detector);
                entry.2 += 1;
            }
        }
    }
    found
        .into_iter()
        .map(|(detector, (seed, sentence, runs))| Shortfall {
            bar: None,
            found: format!("undeclared finding {detector}: {sentence}"),
            seed,
            seeds: 1,
            runs,
            known: None,
        })
        .collect()
}

/// One shortfall for each different violation.
fn violations(rows: &[Row]) -> Vec<Shortfall> {
    let mut found: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for row in rows {
        // Several flows may have the same violation in one run.
        let different: BTreeSet<&str> = row.violations.iter().map(String::as_str).collect();
        for violation in different {
            let entry = found.entry(violation).or_insert((row.seed, 0));
            entry.1 += 1;
        }
    }
    found
        .into_iter()
        .map(|(what, (seed, runs))| Shortfall {
            bar: None,
            found: what.to_owned(),
            seed,
            seeds: 1,
            runs,
            known: None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Scenario, Size};

    const TEXT: &str = r#"
name = "mine"
duration = "10s"
[network]
both = "rate=10M queue=25"
[[flows]]
traffic = "download"
bytes = "1MB"
[pass]
time_max = { value = "2s", over = "median" }
"#;

    fn case() -> Case {
        let scenario = Scenario::parse("mine.toml", TEXT).unwrap();
        scenario.cases(Size::Full, "cubic").unwrap().remove(0)
    }

    /// Runs that took these numbers of seconds, from seed 7 on.
    fn rows(times: &[f64]) -> Vec<Row> {
        let row = |(seed, &time)| Row {
            scenario: "mine".to_owned(),
            variant: String::new(),
            controller: "cubic".to_owned(),
            seed,
            finished: true,
            ended: time,
            metrics: [("time".to_owned(), time)].into(),
            limits: BTreeMap::new(),
            flows: Vec::new(),
            findings: Vec::new(),
            violations: vec!["twice".to_owned(); 2],
            failed: Vec::new(),
            digest: String::new(),
            events: 0,
        };
        (7_u64..).zip(times).map(row).collect()
    }

    #[test]
    fn replay_of_missed_median_runs_all_seeds() {
        let group = judge(&case(), rows(&[3.0, 1.0, 3.0, 4.0, 1.5]));
        let short = group.shortfalls.iter().find(|short| short.bar.is_some());
        let short = short.expect("the median is 3 s");
        assert_eq!((short.seed, short.seeds), (7, 5));
        assert_eq!(short.runs, 3, "two are fast enough");
        let group = judge(&case(), rows(&[3.0, 1.0, 1.0]));
        assert!(group.shortfalls.iter().all(|short| short.bar.is_none()));
    }

    #[test]
    fn rare_miss_of_many_seeds_is_excused_and_a_common_one_is_not() {
        let judged = |slow: usize, seeds: usize| {
            let mut case = case();
            case.bars[0].over = Aggregation::Every;
            let times: Vec<f64> = (0..seeds)
                .map(|n| if n < slow { 3.0 } else { 1.0 })
                .collect();
            let mut rows = rows(&times);
            rows.iter_mut().for_each(|row| row.violations.clear());
            let mut group = judge(&case, rows);
            group.excuse_chance();
            group.is_as_known()
        };
        assert!(judged(2, 20), "a tenth");
        assert!(!judged(3, 20), "more than a tenth");
        assert!(!judged(1, 9), "too few seeds to know");
        let mut group = judge(&case(), rows(&[1.0; 20]));
        group.excuse_chance();
        assert!(!group.is_as_known(), "violations are never excused");
    }

    #[test]
    fn run_with_repeated_finding_counts_once() {
        let group = judge(&case(), rows(&[1.0, 1.0]));
        assert_eq!(group.shortfalls.len(), 1);
        assert_eq!(
            (group.shortfalls[0].runs, group.shortfalls[0].seeds),
            (2, 1)
        );
    }
}
