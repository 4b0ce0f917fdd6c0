//! Missed bars, and the commands that replay them.

use std::borrow::Cow;

use clearway_lab::run::{Group, Shortfall};

use super::args::RunSelection;
use super::run::RunResults;
use crate::failure::{Failure, Kind};

/// Prints the missed bars with replay commands. Known misses are printed, but are not failures.
///
/// # Errors
/// If a bar was missed.
pub(super) fn verdict(
    ran: &RunResults,
    extent: &RunSelection,
    specimen: Option<&str>,
) -> Result<(), Failure> {
    tell(ran, |place, shortfall| {
        replay(
            &ran.groups[place],
            &ran.origins[place],
            shortfall,
            extent,
            specimen,
        )
    });
    let groups = &ran.groups;
    let failed = groups.iter().filter(|group| !group.is_as_known()).count();
    if failed == 0 {
        return Ok(());
    }
    let message = format!("{failed} of {} missed their bars", groups.len());
    Err(Failure::new(Kind::Other, message))
}

/// Prints the missed bars; `replay` gives the command that reproduces one, from the index of the
/// group.
pub(super) fn tell(ran: &RunResults, replay: impl Fn(usize, &Shortfall) -> String) {
    for (place, group) in ran.groups.iter().enumerate() {
        for shortfall in &group.shortfalls {
            let what = match &shortfall.bar {
                Some(bar) => format!("{}, found {}", bar.text(), shortfall.found),
                None => shortfall.found.clone(),
            };
            let word = shortfall.known.as_ref().map_or("FAILED", |_| "missed");
            say!(
                "{word} {}: {what} ({} of {} runs)",
                title(group),
                shortfall.runs,
                group.rows.len(),
            );
            if let Some(reason) = &shortfall.known {
                say!("  known: {reason}");
            } else {
                say!("  replay: {}", replay(place, shortfall));
            }
        }
        for missed in &group.reached_after_all {
            say!(
                "reached {}: {}, although its scenario lists it under [[missed]]",
                title(group),
                missed.metric
            );
        }
    }
}

/// A group's name for people.
fn title(group: &Group) -> String {
    let space = if group.variant.is_empty() { "" } else { " " };
    format!(
        "{} {}{space}{}",
        group.scenario, group.controller, group.variant
    )
}

/// The command that reproduces it.
pub(super) fn replay(
    group: &Group,
    origin: &str,
    shortfall: &Shortfall,
    extent: &RunSelection,
    specimen: Option<&str>,
) -> String {
    let mut words = vec!["clearway".to_owned(), "lab".to_owned(), "run".to_owned()];
    // Only a file name can begin with a dash, and would be taken for an option.
    let here = if origin.starts_with('-') { "./" } else { "" };
    words.push(format!("{here}{origin}"));
    option(&mut words, "--controller", &group.controller);
    if !group.variant.is_empty() {
        option(&mut words, "--variant", &group.variant);
    }
    option(&mut words, "--seed", &shortfall.seed.to_string());
    option(&mut words, "--seeds", &shortfall.seeds.to_string());
    if extent.full {
        words.push("--full".to_owned());
    }
    if let Some(name) = extent.slow_start {
        option(&mut words, "--slow-start", name.slow_start().name());
    }
    if extent.http3 {
        words.push("--http3".to_owned());
    }
    if let Some(name) = specimen {
        option(&mut words, "--specimen", name);
    }
    command_line(&words)
}

/// Adds an option with its value, which may begin with a dash.
pub(super) fn option(words: &mut Vec<String>, name: &str, value: &str) {
    if value.starts_with('-') {
        words.push(format!("{name}={value}"));
    } else {
        words.extend([name.to_owned(), value.to_owned()]);
    }
}

/// Quotes words for a shell.
pub(super) fn command_line(words: &[String]) -> String {
    let quoted = words.iter().map(|word| {
        // Arguments contain no zero bytes, the only bytes that cannot be quoted.
        shlex::try_quote(word).map_or_else(|_| word.clone(), Cow::into_owned)
    });
    quoted.collect::<Vec<_>>().join(" ")
}
