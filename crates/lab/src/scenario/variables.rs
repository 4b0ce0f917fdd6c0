//! The grid: names with values, put in place of `{name}`.

use super::error::{ScenarioError, Source, suggest};
use super::tree::{Leaf, Table, Value};

/// A value for each name of a grid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// The point of the grid, for people: `rate=10M rtt=30ms`.
    pub label: String,
    values: Vec<(String, String)>,
}

impl Assignment {
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
            let point = |leaf: Leaf| Assignment {
                label: format!("{}={}", key.text, leaf.text),
                values: vec![(key.text.clone(), leaf.text)],
            };
            axes.push(Axis {
                points: values.into_iter().map(point).collect(),
                name: key.text.clone(),
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
        let mut points = Vec::new();
        for (name, value) in table.rest() {
            let Value::Table(own) = value else {
                let right = "write [variants.NAME] and values below it";
                return Err(source.error(&name.span, "a variant is a table", right));
            };
            let mut values = Vec::new();
            for (key, value) in own.rest() {
                values.push((key.text, value.leaf(source, "a variant's value")?.text));
            }
            points.push(Assignment {
                label: name.text,
                values,
            });
        }
        self.0.insert(
            0,
            Axis {
                name: String::new(),
                points,
            },
        );
        Ok(self)
    }

    /// The same with other values where `smaller` has some.
    pub(super) fn with(&self, smaller: &Self) -> Self {
        let axes = self.0.iter().map(|axis| {
            let replaced = smaller.0.iter().find(|other| other.name == axis.name);
            replaced.unwrap_or(axis).clone()
        });
        Self(axes.collect())
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
        let Some((_, value)) = values.iter().find(|(known, _)| known == name) else {
            let known: Vec<&str> = values.iter().map(|(name, _)| name.as_str()).collect();
            let right = if known.is_empty() {
                "there is no [grid] that could name one".to_owned()
            } else {
                format!("[grid] and [variants] have {}", known.join(", "))
            };
            return Err(source.error(&leaf.span, format!("no value for {{{name}}}"), right));
        };
        out.push_str(value);
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}
