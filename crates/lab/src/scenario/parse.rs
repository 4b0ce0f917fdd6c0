//! From a TOML file to cases.

use core::time::Duration;

use clearway_quic::connection::Config;
use clearway_recovery::congestion::Algorithm;
use clearway_trace::Detector;

use super::bars::{Bars, Missed};
use super::case::Case;
use super::error::{ScenarioError, Source, suggest};
use super::flows::FlowsText;
use super::network::{NetworkText, count, time};
use super::tree::{Leaf, Table, Value};
use super::variables::{Assignment, Grid, substitute};
use super::{CONTROLLERS, Size, units};
use crate::stack::Certificates;

/// A network, what happens in it, and what has to come of it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Its number in the catalogue; 0 for a user's own.
    pub number: u32,
    /// What it is, in a line.
    pub title: String,
    /// Why anybody should care.
    pub explanation: String,
    /// Where its figures come from.
    pub origin: String,
    /// What it waits for, if it cannot be run yet.
    pub waiting: Option<String>,
    /// Controllers it is for.
    pub controllers: Vec<String>,
    /// Seeds of the full and of the CI size.
    seeds: [u64; 2],
    file: String,
    text: String,
    duration: [Leaf; 2],
    warmup: [Option<Leaf>; 2],
    recovery_from: Vec<Leaf>,
    recovery_rate: Option<Leaf>,
    network: NetworkText,
    flows: Vec<FlowsText>,
    most_flows: Option<u32>,
    bars: Bars,
    grids: [Grid; 2],
    expected_findings: Vec<String>,
    transport: TransportText,
    missed: Vec<Missed>,
}

impl Scenario {
    /// Reads a scenario; `file` is its name in error messages.
    ///
    /// # Errors
    /// The first mistake, with its place and what would be right. Every
    /// variant of the grid is looked at.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let source = Source { file, text };
        let mut table = Table::parse(&source)?;
        let this = Self::read(&mut table, &source)?;
        table.finish(&source, "a scenario")?;
        this.check(&source)?;
        Ok(this)
    }

    fn read(table: &mut Table, source: &Source<'_>) -> Result<Self, ScenarioError> {
        let mut ci = table
            .take_table(source, "ci")?
            .map_or_else(|| Table::parse(&Source { file: "", text: "" }), Ok)?;
        let duration = table.require(source, "duration", "\"60s\"")?;
        let warmup = table.take_leaf(source, "warmup")?;
        let seeds = seeds(table.take_leaf(source, "seeds")?, 1, source)?;
        let grid = Grid::read(table.take_table(source, "grid")?, source)?
            .with_variants(table.take_table(source, "variants")?, source)?;
        let ci_grid = Grid::read(ci.take_table(source, "grid")?, source)?;
        let ci_variants = ci.take_leaves(source, "variants")?;
        let network = table
            .take_table(source, "network")?
            .ok_or_else(|| source.error(&(0..0), "[network] is missing", "write [network]"))?;
        let this = Self {
            name: table.require(source, "name", "\"my_network\"")?.text,
            number: match table.take_leaf(source, "number")? {
                Some(leaf) => count(&leaf, &Assignment::default(), source)?,
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
                .map(|leaf| count(&leaf, &Assignment::default(), source))
                .transpose()?,
            bars: Bars::read(table.take_table(source, "pass")?, source)?,
            grids: [
                grid.clone(),
                grid.with(&ci_grid).only(&ci_variants, source)?,
            ],
            expected_findings: expected_findings(table, source)?,
            transport: TransportText::read(table.take_table(source, "transport")?, source)?,
            missed: Missed::read(table.take("missed"), source)?,
        };
        ci.finish(source, "[ci]")?;
        Ok(this)
    }

    /// Every variant must compile, so that no mistake waits for its turn.
    fn check(&self, source: &Source<'_>) -> Result<(), ScenarioError> {
        for size in [Size::Full, Size::Ci] {
            for variables in self.grids[slot(size)].assignments() {
                self.compile(size, &variables, "cubic", source)?;
            }
        }
        if let Some(name) = self.bars.controllers().find(|name| !is_known(name)) {
            return Err(source.error(
                &(0..0),
                format!("[pass.{name}] is for no controller"),
                suggest(name, KNOWN),
            ));
        }
        Ok(())
    }

    /// The file's text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How many seeds a run of this size has.
    #[must_use]
    pub fn seeds(&self, size: Size) -> u64 {
        self.seeds[slot(size)]
    }

    /// All points of the grid for `controller`.
    ///
    /// # Errors
    /// None after [`Scenario::parse`] has looked at them all.
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

    fn compile(
        &self,
        size: Size,
        variables: &Assignment,
        controller: &str,
        source: &Source<'_>,
    ) -> Result<Case, ScenarioError> {
        let duration = time(&self.duration[slot(size)], variables, source)?;
        let warmup = &self.warmup[slot(size)];
        let warmup = warmup.as_ref().map(|leaf| time(leaf, variables, source));
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
            warmup: warmup.transpose()?.unwrap_or_default(),
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
                .cloned()
                .collect(),
            expected_findings: self.expected_findings.clone(),
            transport,
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

/// Controllers that have or will have a name in the catalogue.
const KNOWN: &[&str] = &["newreno", "cubic", "bbr", "prague"];

fn is_known(name: &str) -> bool {
    KNOWN.contains(&name) || name.parse::<Algorithm>().is_ok()
}

/// Checks a controller's name.
pub(super) fn known_controller(
    name: &str,
    leaf: &Leaf,
    source: &Source<'_>,
) -> Result<(), ScenarioError> {
    if is_known(name) {
        return Ok(());
    }
    let problem = format!("no controller is called {name:?}");
    Err(source.error(&leaf.span, problem, suggest(name, KNOWN)))
}

fn text(
    table: &mut Table,
    source: &Source<'_>,
    key: &'static str,
) -> Result<String, ScenarioError> {
    let leaf = table.take_leaf(source, key)?;
    Ok(leaf.map_or_else(String::new, |leaf| leaf.text.trim().to_owned()))
}

fn seeds(leaf: Option<Leaf>, default: u64, source: &Source<'_>) -> Result<u64, ScenarioError> {
    leaf.map_or(Ok(default), |leaf| {
        count(&leaf, &Assignment::default(), source).map(u64::from)
    })
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
            let problem = format!("no detector is called {:?}", leaf.text);
            Err(source.error(&leaf.span, problem, suggest(&leaf.text, &known)))
        })
        .collect()
}

fn flows(table: &mut Table, source: &Source<'_>) -> Result<Vec<FlowsText>, ScenarioError> {
    let right = "write [[flows]] with traffic = \"download\"";
    match table.take("flows") {
        Some(Value::List(items, _)) => items
            .into_iter()
            .map(|item| match item {
                Value::Table(table) => FlowsText::read(table, source),
                Value::Leaf(_) | Value::List(..) => {
                    Err(source.error(item.span(), "a flow is a table", right))
                }
            })
            .collect(),
        Some(other) => Err(source.error(other.span(), "flows is no list of tables", right)),
        None => Err(source.error(&(0..0), "[[flows]] is missing", right)),
    }
}

/// `[transport]` as written.
#[derive(Clone, Debug)]
struct TransportText {
    acks: Option<Leaf>,
    max_ack_delay: Option<Leaf>,
    mtu: Option<Leaf>,
    window: Option<Leaf>,
    budget: Option<Leaf>,
    key_update_after: Option<Leaf>,
    certificates: Option<Leaf>,
    x25519_only: Option<Leaf>,
    ecn: Option<Leaf>,
    idle_timeout: Option<Leaf>,
    initial_rtt: Option<Leaf>,
}

impl TransportText {
    fn read(table: Option<Table>, source: &Source<'_>) -> Result<Self, ScenarioError> {
        let mut table = table.map_or_else(|| Table::parse(&Source { file: "", text: "" }), Ok)?;
        let this = Self {
            acks: table.take_leaf(source, "acks")?,
            max_ack_delay: table.take_leaf(source, "max_ack_delay")?,
            mtu: table.take_leaf(source, "mtu")?,
            window: table.take_leaf(source, "window")?,
            budget: table.take_leaf(source, "budget")?,
            key_update_after: table.take_leaf(source, "key_update_after")?,
            certificates: table.take_leaf(source, "certificates")?,
            x25519_only: table.take_leaf(source, "x25519_only")?,
            ecn: table.take_leaf(source, "ecn")?,
            idle_timeout: table.take_leaf(source, "idle_timeout")?,
            initial_rtt: table.take_leaf(source, "initial_rtt")?,
        };
        table.finish(source, "[transport]")?;
        Ok(this)
    }

    fn compile(
        &self,
        variables: &Assignment,
        source: &Source<'_>,
    ) -> Result<(Config, Certificates, bool), ScenarioError> {
        let mut config = Config::default();
        let span = |leaf: &Option<Leaf>| -> Result<Option<Duration>, ScenarioError> {
            let leaf = leaf.as_ref();
            leaf.map(|leaf| time(leaf, variables, source)).transpose()
        };
        config.max_ack_delay = span(&self.max_ack_delay)?.unwrap_or(config.max_ack_delay);
        config.idle_timeout = span(&self.idle_timeout)?.unwrap_or(config.idle_timeout);
        config.initial_rtt = span(&self.initial_rtt)?.unwrap_or(config.initial_rtt);
        if let Some(leaf) = &self.acks {
            acks(&mut config, &substitute(leaf, variables, source)?)
                .map_err(|right| source.error(&leaf.span, "no such way to acknowledge", right))?;
        }
        if let Some(leaf) = &self.mtu {
            config.max_mtu = u16::try_from(count(leaf, variables, source)?)
                .ok()
                .filter(|mtu| *mtu >= 1_200)
                .ok_or_else(|| {
                    let right = "write bytes from 1200 to 65527 (RFC 9000 §14)";
                    source.error(&leaf.span, "no such datagram size", right)
                })?;
        }
        let size = |leaf: &Option<Leaf>| -> Result<Option<u64>, ScenarioError> {
            let Some(leaf) = leaf else { return Ok(None) };
            let text = substitute(leaf, variables, source)?;
            let bytes = units::bytes(&text).map_err(|why| source.error(&leaf.span, why, ""))?;
            Ok(Some(bytes))
        };
        // A window without a budget is one that never grows.
        if let Some(window) = size(&self.window)? {
            config.streams.stream_window = window;
            config.streams.connection_window = window;
            config.streams.receive_budget = size(&self.budget)?.unwrap_or(window);
        }
        if let Some(leaf) = &self.key_update_after {
            config.key_update_after = Some(u64::from(count(leaf, variables, source)?));
        }
        if let Some(leaf) = &self.ecn {
            config.ecn = truth(leaf, variables, source)?;
        }
        let x25519_only = self
            .x25519_only
            .as_ref()
            .map(|leaf| truth(leaf, variables, source));
        Ok((
            config,
            self.certificates(source)?,
            x25519_only.transpose()?.unwrap_or(false),
        ))
    }

    fn certificates(&self, source: &Source<'_>) -> Result<Certificates, ScenarioError> {
        match &self.certificates {
            None => Ok(Certificates::One),
            Some(leaf) => match leaf.text.as_str() {
                "1" => Ok(Certificates::One),
                "9" => Ok(Certificates::ChainOfNine),
                _ => Err(source.error(&leaf.span, "no such chain", "write 1 or 9")),
            },
        }
    }
}

fn truth(leaf: &Leaf, variables: &Assignment, source: &Source<'_>) -> Result<bool, ScenarioError> {
    let text = substitute(leaf, variables, source)?;
    text.parse().map_err(|_| {
        let problem = format!("{text:?} is neither true nor false");
        source.error(&leaf.span, problem, "write true or false")
    })
}

/// How receivers acknowledge.
fn acks(config: &mut Config, text: &str) -> Result<(), &'static str> {
    let (asked, threshold) = match text {
        "asked" => (true, 2),
        "every" => (false, 1),
        "every-2" => (false, 2),
        "every-10" => (false, 10),
        _ => {
            return Err(
                "write asked (as the sender's ACK_FREQUENCY says), every, every-2 or every-10",
            );
        }
    };
    config.ack_frequency = asked;
    config.ack_threshold = threshold;
    Ok(())
}
