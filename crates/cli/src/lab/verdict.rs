//! What fell short, and how to see it again.

use std::borrow::Cow;

use clearway_lab::run::{Group, Shortfall};

use super::args::Extent;
use super::run::Ran;
use crate::failure::{Failure, Kind};

/// Says which bars were not reached and how to see it again. Misses that their
/// scenario knows of are told, but are no failure.
///
/// # Errors
/// If a bar was not reached.
pub(super) fn verdict(ran: &Ran, extent: &Extent, specimen: Option<&str>) -> Result<(), Failure> {
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
    let message = format!("{failed} of {} did not reach their bars", groups.len());
    Err(Failure::new(Kind::Other, message))
}

/// Says what fell short; `replay` gives the command that shows it again, from
/// the group's place.
pub(super) fn tell(ran: &Ran, replay: impl Fn(usize, &Shortfall) -> String) {
    for (place, group) in ran.groups.iter().enumerate() {
        for shortfall in &group.shortfalls {
            let what = match &shortfall.bar {
                Some(bar) => format!("{}, but {}", bar.text(), shortfall.found),
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
                "reached {}: {}, though its scenario calls it missed",
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

/// The one command that shows it again.
pub(super) fn replay(
    group: &Group,
    origin: &str,
    shortfall: &Shortfall,
    extent: &Extent,
    specimen: Option<&str>,
) -> String {
    let mut words = vec!["clearway".to_owned(), "lab".to_owned(), "run".to_owned()];
    // Only a file's name can begin so, and would be taken for an option.
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
    if extent.http3 {
        words.push("--http3".to_owned());
    }
    if let Some(name) = specimen {
        option(&mut words, "--specimen", name);
    }
    command_line(&words)
}

/// Adds an option with its value, which may begin like an option.
pub(super) fn option(words: &mut Vec<String>, name: &str, value: &str) {
    if value.starts_with('-') {
        words.push(format!("{name}={value}"));
    } else {
        words.extend([name.to_owned(), value.to_owned()]);
    }
}

/// Words as a shell takes them.
pub(super) fn command_line(words: &[String]) -> String {
    let quoted = words.iter().map(|word| {
        // What came from a command line holds no zero byte, the one thing that
        // cannot be quoted.
        shlex::try_quote(word).map_or_else(|_| word.clone(), Cow::into_owned)
    });
    quoted.collect::<Vec<_>>().join(" ")
}
