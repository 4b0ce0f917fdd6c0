//! Bars: the results that a scenario requires.

use super::error::{ScenarioError, Source, suggest};
use super::tree::{Scalar, Table, Value};
use super::units::Unit;
use super::variables::{Assignment, substitute};
use crate::measure::{METRICS, Metric, Outcome, metric};

/// The runs over which a bar holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregation {
    /// Every seed.
    Every,
    /// The median over all seeds.
    Median,
}

/// A bar: a metric with its limit.
#[derive(Clone, Copy, Debug)]
pub struct Bar {
    /// The metric.
    pub metric: &'static Metric,
    /// Whether the limit is a maximum or a minimum.
    pub at_most: bool,
    /// The limit, in the metric's unit.
    pub limit: f64,
    /// The runs over which it holds.
    pub over: Aggregation,
}

impl Bar {
    /// Whether `value` passes; a run without a value fails.
    #[must_use]
    pub fn passes(&self, value: Option<f64>) -> bool {
        value.is_some_and(|value| {
            if self.at_most {
                value <= self.limit
            } else {
                value >= self.limit
            }
        })
    }

    /// Whether a run passes.
    #[must_use]
    pub fn passes_run(&self, run: &Outcome) -> bool {
        self.passes((self.metric.of)(run))
    }

    /// `util ≥ 85.0 %`.
    #[must_use]
    pub fn text(&self) -> String {
        let sign = if self.at_most { "≤" } else { "≥" };
        let over = match self.over {
            Aggregation::Every => "",
            Aggregation::Median => " (median)",
        };
        let limit = self.metric.unit.show(self.limit);
        format!("{} {sign} {limit}{over}", self.metric.name)
    }
}

/// A bar as written in the file.
#[derive(Clone, Debug)]
struct BarText {
    metric: &'static Metric,
    at_most: bool,
    limit: Scalar,
    over: Aggregation,
}

/// All bars as written: general ones, then those of some controllers.
#[derive(Clone, Debug, Default)]
pub(super) struct Bars {
    general: Vec<BarText>,
    particular: Vec<(Scalar, Vec<BarText>)>,
}

/// Names that are clearer than those of the metrics.
const ALIASES: &[(&str, &str, bool)] = &[
    ("completes_within", "time", true),
    ("recovers_within", "recovery", true),
];

/// The metric and direction that a key names.
fn key(name: &str) -> Option<(&'static Metric, bool)> {
    if let Some((_, of, at_most)) = ALIASES.iter().find(|(alias, ..)| *alias == name) {
        return Some((metric(of)?, *at_most));
    }
    match name.strip_suffix("_max") {
        Some(of) => Some((metric(of)?, true)),
        None => Some((metric(name.strip_suffix("_min")?)?, false)),
    }
}

fn unknown(name: &Scalar, source: &Source<'_>) -> ScenarioError {
    let mut known: Vec<String> = ALIASES
        .iter()
        .map(|(name, ..)| (*name).to_owned())
        .collect();
    for metric in METRICS {
        known.extend([
            format!("{}_min", metric.name),
            format!("{}_max", metric.name),
        ]);
    }
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    source.error(
        &name.span,
        format!("unknown bar or controller {:?}", name.text),
        suggest(&name.text, &known),
    )
}

impl BarText {
    fn read(
        (metric, at_most): (&'static Metric, bool),
        value: Value,
        source: &Source<'_>,
    ) -> Result<Self, ScenarioError> {
        let (limit, over) = match value {
            Value::Table(mut table) => {
                let limit = table.require(source, "value", "\"85%\"")?;
                let over = table.take_leaf(source, "over")?;
                table.finish(source, "a bar")?;
                (limit, over)
            }
            Value::Scalar(leaf) => (leaf, None),
            list @ Value::List(..) => (list.leaf(source, metric.name)?, None),
        };
        let over = match over {
            None => Aggregation::Every,
            Some(leaf) => match leaf.text.as_str() {
                "every" => Aggregation::Every,
                "median" => Aggregation::Median,
                other => {
                    let problem = format!("invalid value {other:?} for over");
                    return Err(source.error(&leaf.span, problem, "expected every or median"));
                }
            },
        };
        Ok(Self {
            metric,
            at_most,
            limit,
            over,
        })
    }

    /// Compiles the bar; `None` if it is lifted.
    fn compile(
        &self,
        variables: &Assignment,
        source: &Source<'_>,
    ) -> Result<Option<Bar>, ScenarioError> {
        let text = substitute(&self.limit, variables, source)?;
        if text == "none" {
            return Ok(None);
        }
        let limit = self
            .metric
            .unit
            .parse(&text)
            .map_err(|problem| source.error(&self.limit.span, problem, ""))?;
        if self.metric.unit == Unit::Share && !self.at_most && limit > 1.0 {
            let problem = format!("{} cannot exceed 100%, found {text:?}", self.metric.name);
            return Err(source.error(&self.limit.span, problem, "expected at most 100%"));
        }
        Ok(Some(Bar {
            metric: self.metric,
            at_most: self.at_most,
            limit,
            over: self.over,
        }))
    }
}

impl Bars {
    pub(super) fn read(table: Option<Table>, source: &Source<'_>) -> Result<Self, ScenarioError> {
        let mut this = Self::default();
        let Some(table) = table else { return Ok(this) };
        for (name, value) in table.rest() {
            if let Some(found) = key(&name.text) {
                this.general.push(BarText::read(found, value, source)?);
                continue;
            }
            let Value::Table(own) = value else {
                return Err(unknown(&name, source));
            };
            let mut bars = Vec::new();
            for (name, value) in own.rest() {
                let found = key(&name.text).ok_or_else(|| unknown(&name, source))?;
                bars.push(BarText::read(found, value, source)?);
            }
            this.particular.push((name, bars));
        }
        Ok(this)
    }

    /// The bars of one controller: its own replace the general ones.
    pub(super) fn compile(
        &self,
        controller: &str,
        variables: &Assignment,
        source: &Source<'_>,
    ) -> Result<Vec<Bar>, ScenarioError> {
        let own: Vec<&BarText> = self
            .particular
            .iter()
            .filter(|(name, _)| name.text == controller)
            .flat_map(|(_, bars)| bars)
            .collect();
        let replaced = |bar: &BarText| {
            own.iter()
                .any(|own| own.metric.name == bar.metric.name && own.at_most == bar.at_most)
        };
        let general = self.general.iter().filter(|bar| !replaced(bar));
        general
            .chain(own.iter().copied())
            .filter_map(|bar| bar.compile(variables, source).transpose())
            .collect()
    }

    /// Controllers that have bars of their own.
    pub(super) fn controllers(&self) -> impl Iterator<Item = &Scalar> {
        self.particular.iter().map(|(name, _)| name)
    }

    /// Checks that the bars of every controller compile.
    pub(super) fn check(
        &self,
        variables: &Assignment,
        source: &Source<'_>,
    ) -> Result<(), ScenarioError> {
        self.controllers()
            .try_for_each(|name| self.compile(&name.text, variables, source).map(drop))
    }
}

/// A bar that is known to be missed: it remains in place, and is reported as known.
#[derive(Clone, Debug)]
pub struct KnownMiss {
    /// The controller that misses it.
    pub controller: String,
    /// Applies only to grid points whose name contains this; empty for all.
    pub variant: String,
    /// The bar's metric.
    pub metric: &'static str,
    /// The reason, and what was measured.
    pub reason: String,
}

/// A [`KnownMiss`] with the positions of its parts.
#[derive(Clone, Debug)]
pub(super) struct KnownMissText {
    pub(super) missed: KnownMiss,
    controller: Scalar,
    variant: Option<Scalar>,
    bar: Scalar,
}

impl KnownMissText {
    /// Reads the `[[missed]]` tables.
    pub(super) fn read(
        value: Option<Value>,
        source: &Source<'_>,
    ) -> Result<Vec<Self>, ScenarioError> {
        let help = "expected [[missed]] with controller, bar and reason";
        match value {
            None => Ok(Vec::new()),
            Some(Value::List(items, _)) => items
                .into_iter()
                .flat_map(|item| match item {
                    Value::Table(table) => Self::of_table(table, source).map_or_else(
                        |error| vec![Err(error)],
                        |all| all.into_iter().map(Ok).collect(),
                    ),
                    Value::Scalar(_) | Value::List(..) => {
                        vec![Err(source.error(
                            item.span(),
                            "each entry of missed must be a table",
                            help,
                        ))]
                    }
                })
                .collect(),
            Some(other) => Err(source.error(other.span(), "missed must be a list of tables", help)),
        }
    }

    /// One entry for each controller named.
    fn of_table(mut table: Table, source: &Source<'_>) -> Result<Vec<Self>, ScenarioError> {
        let controllers = table.take_leaves(source, "controller")?;
        if controllers.is_empty() {
            let help = "expected one or more names such as controller = [\"cubic\"]";
            return Err(source.error(&table.span, "controller is missing or empty", help));
        }
        let variant = table.take_leaf(source, "variant")?;
        let bar = table.require(source, "bar", "\"util_min\"")?;
        let reason = table.require(source, "reason", "\"why\"")?;
        table.finish(source, "[[missed]]")?;
        let (metric, _) = key(&bar.text).ok_or_else(|| unknown(&bar, source))?;
        let all = controllers.into_iter().map(|controller| Self {
            missed: KnownMiss {
                controller: controller.text.clone(),
                variant: variant
                    .as_ref()
                    .map_or_else(String::new, |leaf| leaf.text.clone()),
                metric: metric.name,
                reason: reason.text.clone(),
            },
            controller,
            variant: variant.clone(),
            bar: bar.clone(),
        });
        Ok(all.collect())
    }

    pub(super) fn is_of(&self, controller: &str, variant: &str) -> bool {
        self.missed.controller == controller && variant.contains(&self.missed.variant)
    }

    /// Checks that the bar it refers to exists.
    pub(super) fn check(
        &self,
        bars: &Bars,
        points: &[Assignment],
        source: &Source<'_>,
    ) -> Result<(), ScenarioError> {
        let controller = &self.controller;
        super::parse::known_controller(&controller.text, controller, source)?;
        let own = points
            .iter()
            .filter(|point| self.is_of(&controller.text, &point.label));
        let mut nowhere = true;
        for point in own {
            nowhere = false;
            let set = bars.compile(&controller.text, point, source)?;
            if set.iter().any(|bar| bar.metric.name == self.missed.metric) {
                return Ok(());
            }
        }
        if let Some(variant) = self.variant.as_ref().filter(|_| nowhere) {
            let labels = points.iter().take(20).map(|point| point.label.as_str());
            let help = format!(
                "expected part of one of {}",
                labels.collect::<Vec<_>>().join("; ")
            );
            let problem = format!("no grid point has {:?} in its name", variant.text);
            return Err(source.error(&variant.span, problem, help));
        }
        let problem = format!("{} has no bar {}", controller.text, self.bar.text);
        let help = "add the bar to [pass], or remove this entry";
        Err(source.error(&self.bar.span, problem, help))
    }
}
