//! The scenarios that come with the lab.

use std::sync::LazyLock;

use super::error::suggest;
use super::parse::Scenario;

macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../scenarios/", $name)))),*]
    };
}

/// Every file, in the order of the catalogue.
const FILES: &[(&str, &str)] = files! {
    "01_death_spiral.toml"
};

/// All scenarios, in the order of their numbers.
#[must_use]
pub fn catalogue() -> &'static [Scenario] {
    static ALL: LazyLock<Vec<Scenario>> = LazyLock::new(|| {
        let read = |(file, text): &(&str, &str)| match Scenario::parse(file, text) {
            Ok(scenario) => scenario,
            // A test reads every file.
            Err(error) => unreachable!("a scenario of the catalogue has a mistake: {error}"),
        };
        FILES.iter().map(read).collect()
    });
    &ALL
}

/// The scenario with this name or number.
///
/// # Errors
/// If there is none; the message lists the names.
pub fn find(name: &str) -> Result<&'static Scenario, String> {
    let all = catalogue();
    let number = name.parse::<u32>().ok();
    all.iter()
        .find(|scenario| scenario.name == name || Some(scenario.number) == number)
        .ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|scenario| scenario.name.as_str()).collect();
            format!("no scenario is called {name:?}; {}", suggest(name, &names))
        })
}
