//! `clearway lab league` and `clearway lab compare`.

use clearway_lab::measure::metric;
use clearway_lab::run::Group;

use super::args::{Compare, Extent, League};
use super::run::{execute, say_speed};
use super::watch::Watches;
use super::{choose, table};
use crate::failure::Failure;

/// The figure that says most about a network: what everybody's first bar is on,
/// or goodput where they differ.
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
    let plan = choose::plan(&scenarios, &args.extent)?;
    let (groups, speed) = execute(&plan, &args.extent, &Watches::none())?;
    let mut controllers: Vec<&str> = Vec::new();
    for group in &groups {
        if !controllers.contains(&group.controller.as_str()) {
            controllers.push(&group.controller);
        }
    }
    if !args.extent.json {
        table::print_rows(&standings(&groups, &controllers))?;
    }
    say_speed(&plan, &speed);
    Ok(())
}

/// Groups of the same network, in order of their first appearance.
fn networks(groups: &[Group]) -> Vec<(&str, &str)> {
    let mut networks: Vec<(&str, &str)> = Vec::new();
    for group in groups {
        let network = (group.scenario.as_str(), group.variant.as_str());
        if !networks.contains(&network) {
            networks.push(network);
        }
    }
    networks
}

fn find<'a>(groups: &'a [Group], network: (&str, &str), controller: &str) -> Option<&'a Group> {
    groups.iter().find(|group| {
        (group.scenario.as_str(), group.variant.as_str()) == network
            && group.controller == controller
    })
}

fn standings(groups: &[Group], controllers: &[&str]) -> Vec<Vec<String>> {
    let mut rows = vec![vec![
        "scenario".to_owned(),
        "variant".to_owned(),
        "figure".to_owned(),
    ]];
    rows[0].extend(controllers.iter().map(|name| (*name).to_owned()));
    let mut passed = vec![0; controllers.len()];
    for network in networks(groups) {
        let own: Vec<_> = controllers
            .iter()
            .map(|name| find(groups, network, name))
            .collect();
        let figure = headline(&own);
        let mut row = vec![
            network.0.to_owned(),
            network.1.to_owned(),
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
        let all = groups.iter().filter(|group| group.controller == **name);
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
    let scenarios = choose::scenarios(&args.scenarios)?;
    let extent = Extent {
        controller: vec![args.a.clone(), args.b.clone()],
        seeds: args.extent.seeds,
        variant: args.extent.variant.clone(),
        ..args.extent
    };
    let plan = choose::plan(&scenarios, &extent)?;
    let (groups, speed) = execute(&plan, &extent, &Watches::none())?;
    if !extent.json {
        table::print_rows(&side_by_side(&groups, &args.a, &args.b))?;
    }
    say_speed(&plan, &speed);
    Ok(())
}

fn side_by_side(groups: &[Group], a: &str, b: &str) -> Vec<Vec<String>> {
    let mut rows = vec![
        ["scenario", "variant", "figure", a, b, "ratio"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for network in networks(groups) {
        let (Some(first), Some(second)) = (find(groups, network, a), find(groups, network, b))
        else {
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
                network.0.to_owned(),
                network.1.to_owned(),
                (*name).to_owned(),
                metric.unit.show(x),
                metric.unit.show(y),
                ratio,
            ]);
        }
    }
    rows
}
