//! Counters by name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Counters of the kernel by name, such as `Udp.RcvbufErrors`: all of them, known or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// Returns a counter's value, or 0 if the kernel does not have it.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Returns a counter's value if the kernel has it.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// Adds to a counter, which begins at 0.
    pub fn add(&mut self, name: impl Into<String>, value: u64) {
        let counter = self.0.entry(name.into()).or_default();
        *counter = counter.saturating_add(value);
    }

    /// Takes over all counters of `other`, adding where both have one.
    pub fn merge(&mut self, other: Self) {
        for (name, value) in other.0 {
            self.add(name, value);
        }
    }

    /// Iterates over names and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// Returns by how much each counter grew since `earlier`. One that went back (a device that was
    /// made anew, a firewall rule that was reset) counts from zero.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let grown = |(name, &now): (&String, &u64)| {
            let before = earlier.get(name);
            (name.clone(), now.checked_sub(before).unwrap_or(now))
        };
        // What was not there before has an unknown past: it counts from what it showed first.
        let known = self
            .0
            .iter()
            .filter(|(name, _)| earlier.0.contains_key(*name));
        Self(known.map(grown).collect())
    }
}

impl<S: Into<String>> FromIterator<(S, u64)> for Counters {
    fn from_iter<I: IntoIterator<Item = (S, u64)>>(pairs: I) -> Self {
        let mut counters = Self::default();
        for (name, value) in pairs {
            counters.add(name, value);
        }
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_of_reset_and_of_new_counters() {
        let before = Counters::from_iter([("a", 10), ("b", 10)]);
        let after = Counters::from_iter([("a", 13), ("b", 4), ("c", 7)]);
        let grown = after.since(&before);
        assert_eq!((grown.get("a"), grown.get("b")), (3, 4));
        assert_eq!(grown.find("c"), None);
    }
}
