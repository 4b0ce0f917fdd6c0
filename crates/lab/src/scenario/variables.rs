//! The grid: variables with values that replace `{name}`.

use core::ops::Range;
use std::collections::BTreeSet;

use super::error::{ScenarioError, Source, suggest};
use super::tree::{Scalar, Table, Value};

/// Maximum number of points of a grid.
pub const MOST_POINTS: usize = 10_000;

/// A value of a variable, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    name: String,
    value: String,
    span: Range<usize>,
}

/// One value for each variable of a grid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// The name of the grid point: `rate=10M rtt=30ms`.
    pub label: String,
    values: Vec<Setting>,
}

impl Assignment {
    /// Moves an error to the position of the value that it quotes, because that is where it has to
    /// be fixed.
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
            Some(setting) => source.error(&setting.span, error.problem, error.help),
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

/// One dimension: a variable of `[grid]`, or `[variants]` as a whole.
#[derive(Clone, Debug)]
struct Axis {
    name: String,
    span: Range<usize>,
    points: Vec<Assignment>,
}

/// The variables with the values they take.
#[derive(Clone, Debug, Default)]
pub(super) struct Grid(Vec<Axis>);

impl Grid {
    /// Reads `[grid]`: each variable with its values.
    pub(super) fn read(table: Option<Table>, source: &Source<'_>) -> Result<Self, ScenarioError> {
        let mut axes = Vec::new();
        for (key, value) in table.into_iter().flat_map(Table::rest) {
            let values = value.leaves(source, &key.text)?;
            if values.is_empty() {
                let problem = format!("{} has no values", key.text);
                let help = "expected at least one, such as [\"10M\"]";
                return Err(source.error(&key.span, problem, help));
            }
            for leaf in std::iter::once(&key).chain(&values) {
                one_line(leaf, source)?;
            }
            let point = |leaf: Scalar| Assignment {
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

    /// Reads `[variants.NAME]`: several values under one name.
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
                let help = "expected [variants.NAME] followed by its values";
                return Err(source.error(&name.span, "each variant must be a table", help));
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
            let help = "add [variants.NAME] tables, or remove [variants]";
            return Err(source.error(&span, "[variants] is empty", help));
        }
        let axis = Axis {
            name: String::new(),
            span,
            points,
        };
        self.0.insert(0, axis);
        Ok(self)
    }

    /// The same grid, with the values of `smaller` where it has any.
    pub(super) fn with(&self, smaller: &Self, source: &Source<'_>) -> Result<Self, ScenarioError> {
        let names: Vec<&str> = self.names().collect();
        if let Some(axis) = smaller.0.iter().find(|axis| !names.contains(&&*axis.name)) {
            let problem = format!("[ci] grid sets {:?}, which is not in [grid]", axis.name);
            let help = if names.is_empty() {
                "add a [grid] table that contains it".to_owned()
            } else {
                suggest(&axis.name, &names)
            };
            return Err(source.error(&axis.span, problem, help));
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

    /// Checks that every variable is used, and that the number of points is plausible.
    pub(super) fn check(
        &self,
        mentions: &BTreeSet<String>,
        source: &Source<'_>,
    ) -> Result<(), ScenarioError> {
        let unused = |axis: &&Axis| !axis.name.is_empty() && !mentions.contains(&axis.name);
        if let Some(axis) = self.0.iter().find(unused) {
            let name = &axis.name;
            let problem = format!("[grid] sets {name:?}, but {{{name}}} is not used");
            let help = format!("use {{{name}}} where its value belongs, or remove it");
            return Err(source.error(&axis.span, problem, help));
        }
        let points = self.0.iter().map(|axis| axis.points.len());
        let points = points.fold(1, usize::saturating_mul);
        let last = self.0.last().filter(|_| points > MOST_POINTS);
        last.map_or(Ok(()), |axis| {
            let problem = format!("the grid has {points} points");
            let help = format!("expected at most {MOST_POINTS}");
            Err(source.error(&axis.span, problem, help))
        })
    }

    /// Only these variants, if any are named.
    pub(super) fn only(
        mut self,
        names: &[Scalar],
        source: &Source<'_>,
    ) -> Result<Self, ScenarioError> {
        let Some(variants) = self.0.first_mut().filter(|axis| axis.name.is_empty()) else {
            return match names.first() {
                None => Ok(self),
                Some(leaf) => {
                    let help = "add [variants.NAME] tables";
                    Err(source.error(&leaf.span, "the scenario has no variants", help))
                }
            };
        };
        let known: Vec<String> = variants.points.iter().map(|p| p.label.clone()).collect();
        if let Some(leaf) = names.iter().find(|leaf| !known.contains(&leaf.text)) {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let problem = format!("unknown variant {:?}", leaf.text);
            return Err(source.error(&leaf.span, problem, suggest(&leaf.text, &known)));
        }
        if !names.is_empty() {
            variants
                .points
                .retain(|point| names.iter().any(|leaf| leaf.text == point.label));
        }
        Ok(self)
    }

    /// All combinations, the last variable changing fastest; a single one without variables if
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

/// Checks that a part of a point's name has no control characters.
fn one_line(leaf: &Scalar, source: &Source<'_>) -> Result<(), ScenarioError> {
    if !leaf.text.contains(char::is_control) {
        return Ok(());
    }
    let problem = format!(
        "{:?} is part of a grid point's name and must not contain control characters",
        leaf.text
    );
    Err(source.error(
        &leaf.span,
        problem,
        "expected a single line of printable text",
    ))
}

/// Replaces `{name}` by its value.
pub(super) fn substitute(
    leaf: &Scalar,
    variables: &Assignment,
    source: &Source<'_>,
) -> Result<String, ScenarioError> {
    let mut out = String::with_capacity(leaf.text.len());
    let mut rest = leaf.text.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let Some((name, behind)) = after.split_once('}') else {
            return Err(source.error(&leaf.span, "unclosed brace", "expected {name}"));
        };
        let values = &variables.values;
        let Some(setting) = values.iter().find(|setting| setting.name == name) else {
            let known: Vec<&str> = values.iter().map(|known| known.name.as_str()).collect();
            let help = if known.is_empty() {
                "the scenario has no [grid] or [variants]".to_owned()
            } else {
                format!("expected one of {}", known.join(", "))
            };
            return Err(source.error(&leaf.span, format!("no value for {{{name}}}"), help));
        };
        out.push_str(&setting.value);
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}
