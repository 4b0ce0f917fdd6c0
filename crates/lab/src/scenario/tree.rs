//! TOML with positions: every value can say where it stands.

use core::ops::Range;
use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ScenarioError, Source, is_near, suggest};

/// A scalar as text, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) text: String,
    pub(super) span: Range<usize>,
}

/// A value with its place.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Leaf(Leaf),
    List(Vec<Value>, Range<usize>),
    Table(Table),
}

/// A table whose keys are asked for one by one; what nobody asked for is
/// unknown.
#[derive(Clone, Debug)]
pub(super) struct Table {
    entries: BTreeMap<String, (Range<usize>, Value)>,
    pub(super) span: Range<usize>,
    asked: Vec<&'static str>,
}

impl Value {
    fn read(value: &Spanned<DeValue<'_>>) -> Self {
        let span = value.span();
        let leaf = |text: String| {
            Self::Leaf(Leaf {
                text,
                span: span.clone(),
            })
        };
        match value.get_ref() {
            DeValue::String(text) => leaf(text.to_string()),
            DeValue::Integer(number) => leaf(number.to_string()),
            DeValue::Float(number) => leaf(number.to_string()),
            DeValue::Boolean(truth) => leaf(truth.to_string()),
            DeValue::Datetime(time) => leaf(time.to_string()),
            DeValue::Array(items) => Self::List(items.iter().map(Self::read).collect(), span),
            DeValue::Table(table) => Self::Table(Table::read(table, span)),
        }
    }

    pub(super) fn span(&self) -> &Range<usize> {
        match self {
            Self::Leaf(leaf) => &leaf.span,
            Self::List(_, span) => span,
            Self::Table(table) => &table.span,
        }
    }

    pub(super) fn leaf(self, source: &Source<'_>, what: &str) -> Result<Leaf, ScenarioError> {
        match self {
            Self::Leaf(leaf) => Ok(leaf),
            Self::List(_, span) => {
                Err(source.error(&span, format!("{what} is a list"), "write one value"))
            }
            Self::Table(table) => {
                Err(source.error(&table.span, format!("{what} is a table"), "write one value"))
            }
        }
    }

    /// A list of scalars; a single one counts as a list of one.
    pub(super) fn leaves(
        self,
        source: &Source<'_>,
        what: &str,
    ) -> Result<Vec<Leaf>, ScenarioError> {
        match self {
            Self::Leaf(leaf) => Ok(vec![leaf]),
            Self::List(items, _) => items
                .into_iter()
                .map(|item| item.leaf(source, what))
                .collect(),
            Self::Table(table) => {
                Err(source.error(&table.span, format!("{what} is a table"), "write a list"))
            }
        }
    }
}

impl Table {
    /// Reads a whole file.
    pub(super) fn parse(source: &Source<'_>) -> Result<Self, ScenarioError> {
        match DeTable::parse(source.text) {
            Ok(table) => {
                let span = table.span();
                Ok(Self::read(table.get_ref(), span))
            }
            Err(error) => {
                let span = error.span().unwrap_or(0..0);
                Err(source.error(&span, error.message().trim(), ""))
            }
        }
    }

    fn read(table: &DeTable<'_>, span: Range<usize>) -> Self {
        let entries = table.iter().map(|(key, value)| {
            let entry = (key.span(), Value::read(value));
            (key.get_ref().to_string(), entry)
        });
        Self {
            entries: entries.collect(),
            span,
            asked: Vec::new(),
        }
    }

    /// Takes the value of `key`, if there is one.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Value> {
        self.asked.push(key);
        self.entries.remove(key).map(|(_, value)| value)
    }

    pub(super) fn take_leaf(
        &mut self,
        source: &Source<'_>,
        key: &'static str,
    ) -> Result<Option<Leaf>, ScenarioError> {
        self.take(key).map(|v| v.leaf(source, key)).transpose()
    }

    pub(super) fn take_leaves(
        &mut self,
        source: &Source<'_>,
        key: &'static str,
    ) -> Result<Vec<Leaf>, ScenarioError> {
        self.take(key)
            .map_or(Ok(Vec::new()), |v| v.leaves(source, key))
    }

    pub(super) fn take_table(
        &mut self,
        source: &Source<'_>,
        key: &'static str,
    ) -> Result<Option<Self>, ScenarioError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Table(table)) => Ok(Some(table)),
            Some(other) => Err(source.error(
                other.span(),
                format!("{key} is no table"),
                format!("write [{key}] and settings below it"),
            )),
        }
    }

    pub(super) fn require(
        &mut self,
        source: &Source<'_>,
        key: &'static str,
        example: &str,
    ) -> Result<Leaf, ScenarioError> {
        if let Some(leaf) = self.take_leaf(source, key)? {
            return Ok(leaf);
        }
        let right = format!("write {key} = {example}");
        Err(match self.misspelt(key) {
            Some((name, span)) => source.error(
                span,
                format!("there is no setting {name:?}"),
                format!("did you mean {key}? Then {right}"),
            ),
            None => {
                let begin = self.span.start..self.span.start;
                source.error(&begin, format!("{key} is missing"), right)
            }
        })
    }

    /// What is there and was probably meant to be `key`.
    fn misspelt(&self, key: &str) -> Option<(&str, &Range<usize>)> {
        let mut near = self.entries.iter().filter(|(name, _)| is_near(name, key));
        near.next().map(|(name, (span, _))| (name.as_str(), span))
    }

    /// Everything that is left, whatever its names.
    pub(super) fn rest(self) -> impl Iterator<Item = (Leaf, Value)> {
        self.entries.into_iter().map(|(key, (span, value))| {
            let key = Leaf { text: key, span };
            (key, value)
        })
    }

    /// Every key must have been asked for.
    pub(super) fn finish(self, source: &Source<'_>, place: &str) -> Result<(), ScenarioError> {
        let Some((key, (span, _))) = self.entries.iter().next() else {
            return Ok(());
        };
        Err(source.error(
            span,
            format!("{place} has no setting {key:?}"),
            suggest(key, &self.asked),
        ))
    }
}
