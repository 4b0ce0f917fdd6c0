//! The grid: names with values, put in place of `{name}`.

use core::ops::Range;
use std::collections::BTreeSet;

use super::error::{ScenarioError, Source, suggest};
use super::tree::{Leaf, Table, Value};

/// Points that a grid has at most.
pub const MOST_POINTS: usize = 10_000;

/// A name's value, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    name: String,
    value: String,
    span: Range<usize>,
}

/// A value for each name of a grid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// The point of the grid, for people: `rate=10M rtt=30ms`.
    pub label: String,
    values: Vec<Setting>,
}

impl Assignment {
    /// A mistake in what a value was put into is the value's, if the mistake
    /// quotes it: that is where it has to be mended.
    pub(super) fn blame(&self, error: ScenarioError, source: &Source<'_>) -> ScenarioError {
        let line = source.text.lines().nth(error.line - 1).unwrap_or_default();
        let begin = line.char_indices().nth(error.column - 1);
        let leaf = begin.map_or("", |(at, _)| &line[at..]);
        let words = leaf.split(|c: char| c.is_whitespace() || "=\",".contains(c));
        let words: Vec<&str> = words.filter(|word| word.contains('{')).collect();
        let quoted: Vec<&str> = error.problem.split('"').skip(1).step_by(2).collect();
        let is_it = |setting: &&Setting| {
            let brace = format!("{{{}}}", setting.name);
            let mut own = words.iter().filter(|word| word.contains(&brace));
            own.any(|word| quoted.contains(&word.replace(&brace, &setting.value).as_str()))
        };
        match self.values.iter().find(is_it) {
            Some(setting) => source.error(&setting.span, error.problem, error.right),
            None => error,
        }
    }

    fn and(&self, point: &Self) -> Self {
        let space = if self.label.is_empty() { "" } else { " " };
        let mut values = self.values.clone();
        values.extend(point.values.iter().cloned());
        Self {
            label: format!("{}{space}{}", self.label, point.label),
            values,
        }
    }
}

/// One dimension: `[grid]`'s names, or the `[variants]` as a whole.
#[derive(Clone, Debug)]
struct Axis {
    name: String,
    span: Range<usize>,
    points: Vec<Assignment>,
}

/// Names with the values they take.
#[derive(Clone, Debug, Default)]
pub(super) struct Grid(Vec<Axis>);

impl Grid {
    /// `[grid]`: each name with its values.
    pub(super) fn read(table: Option<Table>, source: &Source<'_>) -> Result<Self, ScenarioError> {
        let mut axes = Vec::new();
        for (key, value) in table.into_iter().flat_map(Table::rest) {
            let values = value.leaves(source, &key.text)?;
            if values.is_empty() {
                let problem = format!("{} has no values", key.text);
                let right = "write at least one, such as [\"10M\"]";
                return Err(source.error(&key.span, problem, right));
            }
            for leaf in std::iter::once(&key).chain(&values) {
                one_line(leaf, source)?;
            }
            let point = |leaf: Leaf| Assignment {
                label: format!("{}={}", key.text, leaf.text),
                values: vec![Setting {
                    name: key.text.clone(),
                    value: leaf.text,
                    span: leaf.span,
                }],
            };
            axes.push(Axis {
                points: values.into_iter().map(point).collect(),
                name: key.text.clone(),
                span: key.span.clone(),
            });
        }
        Ok(Self(axes))
    }

    /// `[variants.NAME]`: several values at once under one name.
    pub(super) fn with_variants(
        mut self,
        table: Option<Table>,
        source: &Source<'_>,
    ) -> Result<Self, ScenarioError> {
        let Some(table) = table else { return Ok(self) };
        let span = table.span.clone();
        let mut points = Vec::new();
        for (name, value) in table.rest() {
            one_line(&name, source)?;
            let Value::Table(own) = value else {
                let right = "write [variants.NAME] and values below it";
                return Err(source.error(&name.span, "a variant is a table", right));
            };
            let mut values = Vec::new();
            for (key, value) in own.rest() {
                let leaf = value.leaf(source, "a variant's value")?;
                values.push(Setting {
                    name: key.text,
                    value: leaf.text,
                    span: leaf.span,
                });
            }
            points.push(Assignment {
                label: name.text,
                values,
            });
        }
        if points.is_empty() {
            let right = "write [variants.NAME] and values below it, or leave it out";
            return Err(source.error(&span, "there is no variant", right));
        }
        let axis = Axis {
            name: String::new(),
            span,
            points,
        };
        self.0.insert(0, axis);
        Ok(self)
    }

    /// The same with other values where `smaller` has some.
    pub(super) fn with(&self, smaller: &Self, source: &Source<'_>) -> Result<Self, ScenarioError> {
        let names: Vec<&str> = self.names().collect();
        if let Some(axis) = smaller.0.iter().find(|axis| !names.contains(&&*axis.name)) {
            let problem = format!("[ci] grid has {:?}, which [grid] has not", axis.name);
            let right = if names.is_empty() {
                "there is no [grid]: write one, of which this is the smaller".to_owned()
            } else {
                suggest(&axis.name, &names)
            };
            return Err(source.error(&axis.span, problem, right));
        }
        let axes = self.0.iter().map(|axis| {
            let replaced = smaller.0.iter().find(|other| other.name == axis.name);
            replaced.unwrap_or(axis).clone()
        });
        Ok(Self(axes.collect()))
    }

    /// The names of `[grid]`.
    fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.0.iter().map(|axis| axis.name.as_str());
        names.filter(|name| !name.is_empty())
    }

    /// Every name must be put somewhere, and the points must be a number that
    /// somebody can have meant.
    pub(super) fn check(
        &self,
        mentions: &BTreeSet<String>,
        source: &Source<'_>,
    ) -> Result<(), ScenarioError> {
        let unused = |axis: &&Axis| !axis.name.is_empty() && !mentions.contains(&axis.name);
        if let Some(axis) = self.0.iter().find(unused) {
            let name = &axis.name;
            let problem = format!("[grid] has {name:?}, but {{{name}}} is nowhere");
            let right = format!("write {{{name}}} where its value belongs, or leave it out");
            return Err(source.error(&axis.span, problem, right));
        }
        let points = self.0.iter().map(|axis| axis.points.len());
        let points = points.fold(1, usize::saturating_mul);
        let last = self.0.last().filter(|_| points > MOST_POINTS);
        last.map_or(Ok(()), |axis| {
            let problem = format!("the grid has {points} points");
            let right = format!("write at most {MOST_POINTS}");
            Err(source.error(&axis.span, problem, right))
        })
    }

    /// Only these of the variants, if any are named.
    pub(super) fn only(
        mut self,
        names: &[Leaf],
        source: &Source<'_>,
    ) -> Result<Self, ScenarioError> {
        let Some(variants) = self.0.first_mut().filter(|axis| axis.name.is_empty()) else {
            return match names.first() {
                None => Ok(self),
                Some(leaf) => {
                    let right = "write [variants.NAME] tables first";
                    Err(source.error(&leaf.span, "there are no variants", right))
                }
            };
        };
        let known: Vec<String> = variants.points.iter().map(|p| p.label.clone()).collect();
        if let Some(leaf) = names.iter().find(|leaf| !known.contains(&leaf.text)) {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let problem = format!("no variant is called {:?}", leaf.text);
            return Err(source.error(&leaf.span, problem, suggest(&leaf.text, &known)));
        }
        if !names.is_empty() {
            variants
                .points
                .retain(|point| names.iter().any(|leaf| leaf.text == point.label));
        }
        Ok(self)
    }

    /// Every combination, the last name changing fastest; one without names if
    /// there is no grid.
    pub(super) fn assignments(&self) -> Vec<Assignment> {
        let mut all = vec![Assignment::default()];
        for axis in &self.0 {
            all = all
                .iter()
                .flat_map(|before| axis.points.iter().map(|point| before.and(point)))
                .collect();
        }
        all
    }
}

/// What becomes part of a point's name has to fit in a line.
fn one_line(leaf: &Leaf, source: &Source<'_>) -> Result<(), ScenarioError> {
    if !leaf.text.contains(char::is_control) {
        return Ok(());
    }
    let problem = format!("{:?} is part of a name and more than a line", leaf.text);
    Err(source.error(&leaf.span, problem, "write it in one line"))
}

/// Puts values in place of `{name}`.
pub(super) fn substitute(
    leaf: &Leaf,
    variables: &Assignment,
    source: &Source<'_>,
) -> Result<String, ScenarioError> {
    let mut out = String::with_capacity(leaf.text.len());
    let mut rest = leaf.text.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let Some((name, behind)) = after.split_once('}') else {
            return Err(source.error(&leaf.span, "a brace is not closed", "write {name}"));
        };
        let values = &variables.values;
        let Some(setting) = values.iter().find(|setting| setting.name == name) else {
            let known: Vec<&str> = values.iter().map(|known| known.name.as_str()).collect();
            let right = if known.is_empty() {
                "there is no [grid] that could name one".to_owned()
            } else {
                format!("[grid] and [variants] have {}", known.join(", "))
            };
            return Err(source.error(&leaf.span, format!("no value for {{{name}}}"), right));
        };
        out.push_str(&setting.value);
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}
