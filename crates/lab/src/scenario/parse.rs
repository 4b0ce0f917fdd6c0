//! Parses TOML files into scenarios, and compiles scenarios into cases.

use core::time::Duration;

use clearway_recovery::congestion::Algorithm;
use clearway_trace::Detector;

use super::bars::{Bars, KnownMissText};
use super::case::Case;
use super::error::{ScenarioError, Source, suggest};
use super::flows::FlowsText;
use super::network::{NetworkText, count, time};
use super::transport::TransportText;
use super::tree::{Scalar, Table, Value};
use super::variables::{Assignment, Grid, substitute};
use super::{CONTROLLERS, Size, units};

/// A scenario: a network, its flows, and the required results.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Its number in the catalogue; 0 outside of it.
    pub number: u32,
    /// Its title, in one line.
    pub title: String,
    /// An explanation of why it matters.
    pub explanation: String,
    /// The source of its numbers.
    pub origin: String,
    /// Why it cannot be run yet, if so.
    pub waiting: Option<String>,
    /// The controllers that it is run with.
    pub controllers: Vec<String>,
    /// Number of seeds of the full and of the CI size.
    seeds: [u64; 2],
    file: String,
    text: String,
    duration: [Scalar; 2],
    warmup: [Option<Scalar>; 2],
    recovery_from: Vec<Scalar>,
    recovery_rate: Option<Scalar>,
    network: NetworkText,
    flows: Vec<FlowsText>,
    most_flows: Option<u32>,
    bars: Bars,
    grids: [Grid; 2],
    expected_findings: Vec<String>,
    transport: TransportText,
    missed: Vec<KnownMissText>,
}

impl Scenario {
    /// Parses a scenario; `file` is its name in error messages.
    ///
    /// # Errors
    /// The first error, with its position and what to write instead. Every grid point is checked.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let source = Source { file, text };
        let mut table = Table::parse(&source)?;
        let this = Self::read(&mut table, &source)?;
        table.finish(&source, "a scenario")?;
        this.check(&source)?;
        Ok(this)
    }

    fn read(table: &mut Table, source: &Source<'_>) -> Result<Self, ScenarioError> {
        let mentions = table.mentions();
        let mut ci = table
            .take_table(source, "ci")?
            .map_or_else(|| Table::parse(&Source { file: "", text: "" }), Ok)?;
        let duration = table.require(source, "duration", "\"60s\"")?;
        let warmup = table.take_leaf(source, "warmup")?;
        let seeds = seeds(table.take_leaf(source, "seeds")?, 1, source)?;
        let grid = Grid::read(table.take_table(source, "grid")?, source)?
            .with_variants(table.take_table(source, "variants")?, source)?;
        grid.check(&mentions, source)?;
        let ci_grid = Grid::read(ci.take_table(source, "grid")?, source)?;
        let ci_variants = ci.take_leaves(source, "variants")?;
        let ci_grid = grid.with(&ci_grid, source)?.only(&ci_variants, source)?;
        ci_grid.check(&mentions, source)?;
        let network = table
            .take_table(source, "network")?
            .ok_or_else(|| source.error(&(0..0), "missing [network]", "add a [network] table"))?;
        let this = Self {
            name: name(table, source)?,
            number: match table.take_leaf(source, "number")? {
                Some(leaf) => count(&leaf, u32::MAX, &Assignment::default(), source)?,
                None => 0,
            },
            title: text(table, source, "title")?,
            explanation: text(table, source, "explanation")?,
            origin: text(table, source, "source")?,
            waiting: table.take_leaf(source, "waiting")?.map(|leaf| leaf.text),
            controllers: controllers(table, source)?,
            seeds: [
                seeds,
                self::seeds(ci.take_leaf(source, "seeds")?, seeds, source)?,
            ],
            file: source.file.to_owned(),
            text: source.text.to_owned(),
            duration: [
                duration.clone(),
                ci.take_leaf(source, "duration")?.unwrap_or(duration),
            ],
            warmup: [warmup.clone(), ci.take_leaf(source, "warmup")?.or(warmup)],
            recovery_from: table.take_leaves(source, "recovery_from")?,
            recovery_rate: table.take_leaf(source, "recovery_rate")?,
            network: NetworkText::read(network, source)?,
            flows: flows(table, source)?,
            most_flows: ci
                .take_leaf(source, "flows")?
                .map(|leaf| count(&leaf, u32::MAX, &Assignment::default(), source))
                .transpose()?,
            bars: Bars::read(table.take_table(source, "pass")?, source)?,
            grids: [grid, ci_grid],
            expected_findings: expected_findings(table, source)?,
            transport: TransportText::read(table.take_table(source, "transport")?, source)?,
            missed: KnownMissText::read(table.take("missed"), source)?,
        };
        ci.finish(source, "[ci]")?;
        Ok(this)
    }

    /// Checks that every variant compiles, so that no error appears later.
    fn check(&self, source: &Source<'_>) -> Result<(), ScenarioError> {
        let known = |leaf: &&Scalar| !is_known(&leaf.text);
        if let Some(leaf) = self.bars.controllers().find(known) {
            let problem = format!("unknown controller in [pass.{}]", leaf.text);
            return Err(source.error(&leaf.span, problem, suggest(&leaf.text, Algorithm::NAMES)));
        }
        for size in [Size::Full, Size::Ci] {
            for variables in self.grids[slot(size)].assignments() {
                self.compile(size, &variables, "cubic", source)
                    .and_then(|_| self.bars.check(&variables, source))
                    .map_err(|error| variables.blame(error, source))?;
            }
        }
        let sizes = self.grids.iter().flat_map(Grid::assignments);
        let points: Vec<Assignment> = sizes.collect();
        for missed in &self.missed {
            missed.check(&self.bars, &points, source)?;
        }
        Ok(())
    }

    /// The text of the file.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The number of seeds in a run of this size.
    #[must_use]
    pub fn seeds(&self, size: Size) -> u64 {
        self.seeds[slot(size)]
    }

    /// All grid points for `controller`.
    ///
    /// # Errors
    /// Never after [`Scenario::parse`], which has checked them all.
    pub fn cases(&self, size: Size, controller: &str) -> Result<Vec<Case>, ScenarioError> {
        let source = Source {
            file: &self.file,
            text: &self.text,
        };
        self.grids[slot(size)]
            .assignments()
            .iter()
            .map(|variables| self.compile(size, variables, controller, &source))
            .collect()
    }

    /// The duration, and the warm-up before measurement begins.
    fn times(
        &self,
        size: Size,
        variables: &Assignment,
        source: &Source<'_>,
    ) -> Result<(Duration, Duration), ScenarioError> {
        let leaf = &self.duration[slot(size)];
        let duration = time(leaf, variables, source)?;
        if duration.is_zero() {
            let problem = format!(
                "invalid duration {:?}: must be greater than zero",
                leaf.text
            );
            return Err(source.error(&leaf.span, problem, "expected a time such as 60s"));
        }
        let Some(leaf) = &self.warmup[slot(size)] else {
            return Ok((duration, Duration::ZERO));
        };
        let warmup = time(leaf, variables, source)?;
        if warmup >= duration {
            let problem = format!(
                "invalid warm-up {:?}: must be shorter than the run",
                leaf.text
            );
            let help = match size {
                Size::Full => format!("expected less than the duration, {duration:?}"),
                Size::Ci => format!("expected less than the duration in [ci], {duration:?}"),
            };
            return Err(source.error(&leaf.span, problem, help));
        }
        Ok((duration, warmup))
    }

    fn compile(
        &self,
        size: Size,
        variables: &Assignment,
        controller: &str,
        source: &Source<'_>,
    ) -> Result<Case, ScenarioError> {
        let (duration, warmup) = self.times(size, variables, source)?;
        let most = match size {
            Size::Full => None,
            Size::Ci => self.most_flows,
        };
        let mut flows = Vec::new();
        for text in &self.flows {
            text.compile(variables, most, source, &mut flows)?;
        }
        let recovery = self.recovery_from.iter();
        let (transport, certificates, x25519_only) = self.transport.compile(variables, source)?;
        Ok(Case {
            scenario: self.name.clone(),
            variant: variables.label.clone(),
            controller: controller.to_owned(),
            network: self.network.compile(variables, source)?,
            flows,
            duration,
            warmup,
            recovery_from: recovery
                .map(|leaf| time(leaf, variables, source))
                .filter(|at| at.as_ref().map_or(true, |at| *at < duration))
                .collect::<Result<_, _>>()?,
            recovery_rate: self
                .recovery_rate
                .as_ref()
                .map(|leaf| {
                    let text = substitute(leaf, variables, source)?;
                    let rate = units::Unit::Rate.parse(&text);
                    rate.map_err(|problem| source.error(&leaf.span, problem, ""))
                })
                .transpose()?,
            bars: self.bars.compile(controller, variables, source)?,
            missed: self
                .missed
                .iter()
                .filter(|missed| missed.is_of(controller, &variables.label))
                .map(|text| text.missed.clone())
                .collect(),
            expected_findings: self.expected_findings.clone(),
            transport,
            resumed: self.transport.resumed(variables, source)?,
            certificates,
            x25519_only,
        })
    }
}

const fn slot(size: Size) -> usize {
    match size {
        Size::Full => 0,
        Size::Ci => 1,
    }
}

/// Maximum number of seeds of a scenario.
const MOST_SEEDS: u32 = 1_000_000;

fn is_known(name: &str) -> bool {
    name.parse::<Algorithm>().is_ok()
}

/// Checks a controller's name.
pub(super) fn known_controller(
    name: &str,
    leaf: &Scalar,
    source: &Source<'_>,
) -> Result<(), ScenarioError> {
    if is_known(name) {
        return Ok(());
    }
    let problem = format!("unknown controller {name:?}");
    Err(source.error(&leaf.span, problem, suggest(name, Algorithm::NAMES)))
}

fn text(
    table: &mut Table,
    source: &Source<'_>,
    key: &'static str,
) -> Result<String, ScenarioError> {
    let leaf = table.take_leaf(source, key)?;
    Ok(leaf.map_or_else(String::new, |leaf| leaf.text.trim().to_owned()))
}

fn seeds(leaf: Option<Scalar>, default: u64, source: &Source<'_>) -> Result<u64, ScenarioError> {
    leaf.map_or(Ok(default), |leaf| {
        count(&leaf, MOST_SEEDS, &Assignment::default(), source).map(u64::from)
    })
}

/// The name of a scenario, as used in tables, file names and replay commands.
fn name(table: &mut Table, source: &Source<'_>) -> Result<String, ScenarioError> {
    const LONGEST: usize = 64;
    let leaf = table.require(source, "name", "\"my_network\"")?;
    let name = leaf.text.as_str();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins && name.chars().all(plain) && name.len() <= LONGEST {
        return Ok(leaf.text);
    }
    let problem = format!("invalid scenario name {name:?}");
    let help = format!(
        "expected up to {LONGEST} letters (a-z, A-Z), digits, _, - and ., the first a letter or a \
         digit, such as my_network"
    );
    Err(source.error(&leaf.span, problem, help))
}

fn controllers(table: &mut Table, source: &Source<'_>) -> Result<Vec<String>, ScenarioError> {
    let leaves = table.take_leaves(source, "controllers")?;
    if leaves.is_empty() {
        return Ok(CONTROLLERS.iter().map(|name| (*name).to_owned()).collect());
    }
    leaves
        .into_iter()
        .map(|leaf| known_controller(&leaf.text, &leaf, source).map(|()| leaf.text))
        .collect()
}

fn expected_findings(table: &mut Table, source: &Source<'_>) -> Result<Vec<String>, ScenarioError> {
    let known: Vec<&str> = Detector::ALL.iter().map(|each| each.name()).collect();
    table
        .take_leaves(source, "expected_findings")?
        .into_iter()
        .map(|leaf| {
            if known.contains(&leaf.text.as_str()) {
                return Ok(leaf.text);
            }
            let problem = format!("unknown detector {:?}", leaf.text);
            Err(source.error(&leaf.span, problem, suggest(&leaf.text, &known)))
        })
        .collect()
}

fn flows(table: &mut Table, source: &Source<'_>) -> Result<Vec<FlowsText>, ScenarioError> {
    let help = "expected [[flows]] with settings such as traffic = \"download\"";
    match table.take("flows") {
        Some(Value::List(items, _)) => items
            .into_iter()
            .map(|item| match item {
                Value::Table(table) => FlowsText::read(table, source),
                Value::Scalar(_) | Value::List(..) => {
                    Err(source.error(item.span(), "each flow must be a table", help))
                }
            })
            .collect(),
        Some(other) => Err(source.error(other.span(), "flows must be a list of tables", help)),
        None => Err(source.error(&(0..0), "missing [[flows]]", help)),
    }
}
