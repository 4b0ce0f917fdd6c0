//! TOML with positions: every value knows its place in the file.

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ScenarioError, Source, is_near, suggest};

/// A scalar as text, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scalar {
    pub(super) text: String,
    pub(super) span: Range<usize>,
}

/// A value with its position.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Scalar(Scalar),
    List(Vec<Value>, Range<usize>),
    Table(Table),
}

/// A table whose keys are requested one by one; keys that were never requested are unknown.
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
            Self::Scalar(Scalar {
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

    /// Visits every key and every scalar, with its position.
    fn visit(&self, see: &mut impl FnMut(&str, &Range<usize>)) {
        match self {
            Self::Scalar(leaf) => see(&leaf.text, &leaf.span),
            Self::List(items, _) => items.iter().for_each(|item| item.visit(see)),
            Self::Table(table) => table.visit(see),
        }
    }

    pub(super) fn span(&self) -> &Range<usize> {
        match self {
            Self::Scalar(leaf) => &leaf.span,
            Self::List(_, span) => span,
            Self::Table(table) => &table.span,
        }
    }

    pub(super) fn leaf(self, source: &Source<'_>, what: &str) -> Result<Scalar, ScenarioError> {
        match self {
            Self::Scalar(leaf) => Ok(leaf),
            Self::List(_, span) => {
                Err(source.error(&span, format!("{what} is a list"), "expected one value"))
            }
            Self::Table(table) => Err(source.error(
                &table.span,
                format!("{what} is a table"),
                "expected one value",
            )),
        }
    }

    /// A list of scalars; a single one counts as a list of one.
    pub(super) fn leaves(
        self,
        source: &Source<'_>,
        what: &str,
    ) -> Result<Vec<Scalar>, ScenarioError> {
        match self {
            Self::Scalar(leaf) => Ok(vec![leaf]),
            Self::List(items, _) => items
                .into_iter()
                .map(|item| item.leaf(source, what))
                .collect(),
            Self::Table(table) => {
                Err(source.error(&table.span, format!("{what} is a table"), "expected a list"))
            }
        }
    }
}

impl Table {
    /// Parses a whole file.
    pub(super) fn parse(source: &Source<'_>) -> Result<Self, ScenarioError> {
        match DeTable::parse(source.text) {
            Ok(table) => {
                let span = table.span();
                let this = Self::read(table.get_ref(), span);
                this.printable(source)?;
                Ok(this)
            }
            Err(error) => {
                let span = error.span().unwrap_or(0..0);
                let problem = error.message().trim();
                if problem == "duplicate key" {
                    let key = source.text.get(span.clone()).unwrap_or_default();
                    let problem = format!("{key:?} is set more than once");
                    return Err(source.error(&span, problem, "set it once"));
                }
                Err(source.error(&span, problem, ""))
            }
        }
    }

    /// Rejects control characters, which a terminal would interpret.
    fn printable(&self, source: &Source<'_>) -> Result<(), ScenarioError> {
        let mut wrong = None;
        self.visit(&mut |text, span| {
            let bad = |c: &char| c.is_control() && !matches!(c, '\n' | '\t');
            if let Some(bad) = text.chars().find(bad)
                && wrong.is_none()
            {
                wrong = Some((bad, span.clone()));
            }
        });
        let Some((bad, span)) = wrong else {
            return Ok(());
        };
        let problem = format!("control character U+{:04X} is not allowed", u32::from(bad));
        Err(source.error(&span, problem, "expected printable text"))
    }

    /// Visits every key and every scalar below, with its position.
    fn visit(&self, see: &mut impl FnMut(&str, &Range<usize>)) {
        for (key, (span, value)) in &self.entries {
            see(key, span);
            value.visit(see);
        }
    }

    /// The names in braces, `{name}`, in everything that is compiled.
    pub(super) fn mentions(&self) -> BTreeSet<String> {
        const TEXTS: &[&str] = &["title", "explanation", "source", "waiting"];
        let mut names = BTreeSet::new();
        let compiled = |key: &&String| !TEXTS.contains(&key.as_str());
        for key in self.entries.keys().filter(compiled) {
            self.entries[key].1.visit(&mut |text, _| {
                let braces = text.split('{').skip(1);
                let inside = braces.filter_map(|rest| rest.split_once('}'));
                names.extend(inside.map(|(name, _)| name.to_owned()));
            });
        }
        names
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

    /// Removes and returns the value of `key`, if it exists.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Value> {
        self.asked.push(key);
        self.entries.remove(key).map(|(_, value)| value)
    }

    pub(super) fn take_leaf(
        &mut self,
        source: &Source<'_>,
        key: &'static str,
    ) -> Result<Option<Scalar>, ScenarioError> {
        self.take(key).map(|v| v.leaf(source, key)).transpose()
    }

    pub(super) fn take_leaves(
        &mut self,
        source: &Source<'_>,
        key: &'static str,
    ) -> Result<Vec<Scalar>, ScenarioError> {
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
                format!("{key} must be a table"),
                format!("expected [{key}] followed by its settings"),
            )),
        }
    }

    pub(super) fn require(
        &mut self,
        source: &Source<'_>,
        key: &'static str,
        example: &str,
    ) -> Result<Scalar, ScenarioError> {
        if let Some(leaf) = self.take_leaf(source, key)? {
            return Ok(leaf);
        }
        let help = format!("expected {key} = {example}");
        Err(match self.misspelt(key) {
            Some((name, span)) => source.error(
                span,
                format!("unknown setting {name:?}"),
                format!("did you mean {key}? Expected {key} = {example}"),
            ),
            None => {
                let begin = self.span.start..self.span.start;
                source.error(&begin, format!("missing setting {key:?}"), help)
            }
        })
    }

    /// The existing key that was probably meant to be `key`.
    fn misspelt(&self, key: &str) -> Option<(&str, &Range<usize>)> {
        let mut near = self.entries.iter().filter(|(name, _)| is_near(name, key));
        near.next().map(|(name, (span, _))| (name.as_str(), span))
    }

    /// The remaining entries, whatever their names.
    pub(super) fn rest(self) -> impl Iterator<Item = (Scalar, Value)> {
        self.entries.into_iter().map(|(key, (span, value))| {
            let key = Scalar { text: key, span };
            (key, value)
        })
    }

    /// Rejects keys that were never requested.
    pub(super) fn finish(self, source: &Source<'_>, place: &str) -> Result<(), ScenarioError> {
        let Some((key, (span, _))) = self.entries.iter().next() else {
            return Ok(());
        };
        Err(source.error(
            span,
            format!("unknown setting {key:?} in {place}"),
            suggest(key, &self.asked),
        ))
    }
}
