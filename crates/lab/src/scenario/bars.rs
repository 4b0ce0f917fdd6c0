//! What has to come of a run.

use super::error::{ScenarioError, Source, suggest};
use super::tree::{Leaf, Table, Value};
use super::units::Unit;
use super::variables::{Assignment, substitute};
use crate::measure::{METRICS, Metric, Outcome, metric};

/// Over which runs a bar holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Every seed.
    Every,
    /// The median over all seeds.
    Median,
}

/// A bar: a figure with its limit.
#[derive(Clone, Copy, Debug)]
pub struct Bar {
    /// The figure.
    pub metric: &'static Metric,
    /// Whether the limit is the most, or the least, that passes.
    pub at_most: bool,
    /// The limit, in the metric's unit.
    pub limit: f64,
    /// Over which runs it holds.
    pub over: Over,
}

impl Bar {
    /// Whether `value` passes; a run that does not have the figure fails.
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
            Over::Every => "",
            Over::Median => " (median)",
        };
        let limit = self.metric.unit.show(self.limit);
        format!("{} {sign} {limit}{over}", self.metric.name)
    }
}

/// A bar as written.
#[derive(Clone, Debug)]
struct Written {
    metric: &'static Metric,
    at_most: bool,
    limit: Leaf,
    over: Over,
}

/// All bars as written: for everybody, then for some controllers.
#[derive(Clone, Debug, Default)]
pub(super) struct Bars {
    general: Vec<Written>,
    particular: Vec<(Leaf, Vec<Written>)>,
}

/// Names that are clearer than those of their metrics.
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

fn unknown(name: &Leaf, source: &Source<'_>) -> ScenarioError {
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
        format!("no bar and no controller is called {:?}", name.text),
        suggest(&name.text, &known),
    )
}

impl Written {
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
            Value::Leaf(leaf) => (leaf, None),
            list @ Value::List(..) => (list.leaf(source, metric.name)?, None),
        };
        let over = match over {
            None => Over::Every,
            Some(leaf) => match leaf.text.as_str() {
                "every" => Over::Every,
                "median" => Over::Median,
                other => {
                    let problem = format!("a bar cannot hold over {other:?}");
                    return Err(source.error(&leaf.span, problem, "write every or median"));
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

    /// `None`: the bar is lifted.
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
            let problem = format!("{} never reaches {text:?}", self.metric.name);
            return Err(source.error(&self.limit.span, problem, "write at most 100%"));
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
                this.general.push(Written::read(found, value, source)?);
                continue;
            }
            let Value::Table(own) = value else {
                return Err(unknown(&name, source));
            };
            let mut bars = Vec::new();
            for (name, value) in own.rest() {
                let found = key(&name.text).ok_or_else(|| unknown(&name, source))?;
                bars.push(Written::read(found, value, source)?);
            }
            this.particular.push((name, bars));
        }
        Ok(this)
    }

    /// The bars of one controller: its own in place of the general ones.
    pub(super) fn compile(
        &self,
        controller: &str,
        variables: &Assignment,
        source: &Source<'_>,
    ) -> Result<Vec<Bar>, ScenarioError> {
        let own: Vec<&Written> = self
            .particular
            .iter()
            .filter(|(name, _)| name.text == controller)
            .flat_map(|(_, bars)| bars)
            .collect();
        let replaced = |bar: &Written| {
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
    pub(super) fn controllers(&self) -> impl Iterator<Item = &Leaf> {
        self.particular.iter().map(|(name, _)| name)
    }

    /// The bars of everybody must compile.
    pub(super) fn check(
        &self,
        variables: &Assignment,
        source: &Source<'_>,
    ) -> Result<(), ScenarioError> {
        self.controllers()
            .try_for_each(|name| self.compile(&name.text, variables, source).map(drop))
    }
}

/// A bar that is known to be missed: it stays where it is, and says so.
#[derive(Clone, Debug)]
pub struct Missed {
    /// Whose miss it is.
    pub controller: String,
    /// Only points of the grid whose name contains this; empty for all.
    pub variant: String,
    /// The bar's metric.
    pub metric: &'static str,
    /// Why, and what was measured.
    pub reason: String,
}

/// A [`Missed`] with the places of what it names.
#[derive(Clone, Debug)]
pub(super) struct MissedText {
    pub(super) missed: Missed,
    controller: Leaf,
    variant: Option<Leaf>,
    bar: Leaf,
}

impl MissedText {
    /// `[[missed]]` tables.
    pub(super) fn read(
        value: Option<Value>,
        source: &Source<'_>,
    ) -> Result<Vec<Self>, ScenarioError> {
        let right = "write [[missed]] with controller, bar and reason";
        match value {
            None => Ok(Vec::new()),
            Some(Value::List(items, _)) => items
                .into_iter()
                .flat_map(|item| match item {
                    Value::Table(table) => Self::of_table(table, source).map_or_else(
                        |error| vec![Err(error)],
                        |all| all.into_iter().map(Ok).collect(),
                    ),
                    Value::Leaf(_) | Value::List(..) => {
                        vec![Err(source.error(item.span(), "a miss is a table", right))]
                    }
                })
                .collect(),
            Some(other) => Err(source.error(other.span(), "missed is no list of tables", right)),
        }
    }

    /// One for each controller that it names.
    fn of_table(mut table: Table, source: &Source<'_>) -> Result<Vec<Self>, ScenarioError> {
        let controllers = table.take_leaves(source, "controller")?;
        if controllers.is_empty() {
            let right = "write controller = [\"cubic\"]";
            return Err(source.error(&table.span, "nobody is said to miss it", right));
        }
        let variant = table.take_leaf(source, "variant")?;
        let bar = table.require(source, "bar", "\"util_min\"")?;
        let reason = table.require(source, "reason", "\"why\"")?;
        table.finish(source, "[[missed]]")?;
        let (metric, _) = key(&bar.text).ok_or_else(|| unknown(&bar, source))?;
        let all = controllers.into_iter().map(|controller| Self {
            missed: Missed {
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

    /// What it says is missed must be set somewhere.
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
            let right = format!("there are {}", labels.collect::<Vec<_>>().join("; "));
            let problem = format!("no point of the grid has {:?} in its name", variant.text);
            return Err(source.error(&variant.span, problem, right));
        }
        let problem = format!("{} has no bar {}", controller.text, self.bar.text);
        let right = "write the bar into [pass], or leave its miss out";
        Err(source.error(&self.bar.span, problem, right))
    }
}
