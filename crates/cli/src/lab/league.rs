//! `clearway lab league` and `clearway lab compare`.

use clearway_lab::measure::metric;
use clearway_lab::run::Group;

use super::args::{Compare, League, RunSelection};
use super::run::{RunResults, execute, say_speed};
use super::verdict::{replay, tell};
use super::watch::RunOutputs;
use super::{choose, table};
use crate::failure::{Failure, Kind};

/// The metric that best describes a network: that of the first bar if all controllers share it, or
/// else goodput.
fn headline(groups: &[Option<&Group>]) -> &'static str {
    let first = |group: &&Group| group.bars.first().map(|bar| bar.metric.name);
    let mut figures = groups.iter().flatten().map(first);
    match figures.next().flatten() {
        Some(figure) if figures.all(|other| other == Some(figure)) => figure,
        Some(_) | None => "goodput",
    }
}

/// Runs the catalogue and prints one line per network, one column per
/// controller. Bars are shown, not enforced: a league compares.
///
/// # Errors
/// If the arguments make no sense.
pub(super) fn command(args: &League) -> Result<(), Failure> {
    let scenarios = choose::scenarios(&args.scenarios)?;
    let planned = choose::plan(&scenarios, &args.extent)?;
    let ran = execute(&planned, &args.extent, &RunOutputs::none())?;
    let mut controllers: Vec<&str> = Vec::new();
    for group in &ran.groups {
        if !controllers.contains(&group.controller.as_str()) {
            controllers.push(&group.controller);
        }
    }
    let printed = if args.extent.json {
        Ok(())
    } else {
        table::print_rows(&standings(&ran, &controllers))
    };
    say_speed(&planned.plan, &ran.speed);
    tell(&ran, |place, shortfall| {
        replay(
            &ran.groups[place],
            &ran.origins[place],
            shortfall,
            &args.extent,
            None,
        )
    });
    printed
}

/// What distinguishes a network from others: two files may use the same name.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Network<'a> {
    origin: &'a str,
    scenario: &'a str,
    variant: &'a str,
}

impl<'a> Network<'a> {
    fn of(group: &'a Group, origin: &'a str) -> Self {
        Self {
            origin,
            scenario: &group.scenario,
            variant: &group.variant,
        }
    }
}

/// The groups with their networks.
fn with_networks(ran: &RunResults) -> impl Iterator<Item = (Network<'_>, &Group)> {
    let groups = ran.groups.iter().zip(&ran.origins);
    groups.map(|(group, origin)| (Network::of(group, origin), group))
}

/// All networks, in order of their first appearance.
fn networks(ran: &RunResults) -> Vec<Network<'_>> {
    let mut networks = Vec::new();
    for (network, _) in with_networks(ran) {
        if !networks.contains(&network) {
            networks.push(network);
        }
    }
    networks
}

fn find<'a>(ran: &'a RunResults, network: Network<'_>, controller: &str) -> Option<&'a Group> {
    let mut groups = with_networks(ran);
    let found = groups.find(|(own, group)| *own == network && group.controller == controller);
    found.map(|(_, group)| group)
}

fn standings(ran: &RunResults, controllers: &[&str]) -> Vec<Vec<String>> {
    let mut rows = vec![vec![
        "scenario".to_owned(),
        "variant".to_owned(),
        "figure".to_owned(),
    ]];
    rows[0].extend(controllers.iter().map(|name| (*name).to_owned()));
    let mut passed = vec![0; controllers.len()];
    for network in networks(ran) {
        let own: Vec<_> = controllers
            .iter()
            .map(|name| find(ran, network, name))
            .collect();
        let figure = headline(&own);
        let mut row = vec![
            network.scenario.to_owned(),
            network.variant.to_owned(),
            figure.to_owned(),
        ];
        for (index, group) in own.into_iter().enumerate() {
            row.push(group.map_or_else(String::new, |group| {
                passed[index] += usize::from(group.passed());
                let mark = if group.passed() { "" } else { " ✗" };
                format!("{}{mark}", table::value(group, figure))
            }));
        }
        rows.push(row);
    }
    let mut last = vec!["bars reached".to_owned(), String::new(), String::new()];
    for (name, passed) in controllers.iter().zip(passed) {
        let all = ran.groups.iter().filter(|group| group.controller == **name);
        last.push(format!("{passed} of {}", all.count()));
    }
    rows.push(last);
    rows
}

/// What two controllers are compared by.
const COMPARED: &[&str] = &["time", "goodput", "loss", "rtt_p95"];

/// Runs two controllers and prints them side by side with their ratio.
///
/// # Errors
/// If the arguments make no sense.
pub(super) fn compare(args: &Compare) -> Result<(), Failure> {
    if !args.extent.controller.is_empty() {
        let message = "compare takes its two controllers as arguments, not by --controller: \
                       clearway lab compare cubic bbr";
        return Err(Failure::new(Kind::Arguments, message));
    }
    let scenarios = choose::scenarios(&args.scenarios)?;
    let extent = RunSelection {
        controller: vec![args.a.clone(), args.b.clone()],
        seeds: args.extent.seeds,
        variant: args.extent.variant.clone(),
        ..args.extent
    };
    let planned = choose::plan(&scenarios, &extent)?;
    let ran = execute(&planned, &extent, &RunOutputs::none())?;
    if !extent.json {
        table::print_rows(&side_by_side(&ran, &args.a, &args.b))?;
    }
    say_speed(&planned.plan, &ran.speed);
    Ok(())
}

fn side_by_side(ran: &RunResults, a: &str, b: &str) -> Vec<Vec<String>> {
    let mut rows = vec![
        ["scenario", "variant", "figure", a, b, "ratio"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for network in networks(ran) {
        let (Some(first), Some(second)) = (find(ran, network, a), find(ran, network, b)) else {
            continue;
        };
        for name in COMPARED {
            let (Some(x), Some(y), Some(metric)) =
                (first.median(name), second.median(name), metric(name))
            else {
                continue;
            };
            let ratio = if x > 0.0 {
                format!("{:.2}", y / x)
            } else {
                String::new()
            };
            rows.push(vec![
                network.scenario.to_owned(),
                network.variant.to_owned(),
                (*name).to_owned(),
                metric.unit.show(x),
                metric.unit.show(y),
                ratio,
            ]);
        }
    }
    rows
}
