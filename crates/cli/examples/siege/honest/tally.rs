//! The results of requests.

use std::collections::BTreeMap;
use std::time::Duration;

/// Different failure messages that are kept.
const REMEMBERED: usize = 3;

/// A class of requests, judged by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// GET of 4 KiB on a persistent connection.
    Small,
    /// GET of 1 to 8 MiB on a persistent connection.
    Large,
    /// PUT of 256 KiB on a persistent connection.
    Upload,
    /// GET of 4 KiB on a new connection from a new address.
    Newcomer,
}

impl Class {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Small, Self::Large, Self::Upload, Self::Newcomer];

    /// The name for reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
            Self::Upload => "upload",
            Self::Newcomer => "newcomer",
        }
    }
}

/// The requests of one class, or of attacked clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    /// How long each took, failed ones included; sorted by [`Tally::seal`].
    times: Vec<Duration>,
    pub(crate) failed: u64,
}

impl Requests {
    pub(crate) fn done(&self) -> u64 {
        self.times.len() as u64 - self.failed
    }

    /// The quantile of the times for a number of thousandths; `None` without requests.
    pub(crate) fn quantile(&self, thousandths: usize) -> Option<Duration> {
        let last = self.times.len().checked_sub(1)?;
        self.times.get(last * thousandths / 1000).copied()
    }

    fn merge(&mut self, other: Self) {
        self.times.extend(other.times);
        self.failed += other.failed;
    }

    pub(crate) fn median(&self) -> Option<Duration> {
        self.quantile(500)
    }
}

/// The results of all requests of a slice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    classes: BTreeMap<Class, Requests>,
    /// Requests of clients that are attacked themselves and that must succeed.
    pub(crate) victims: Requests,
    /// Handshakes of attacked clients that failed, which a forgery may achieve.
    pub(crate) handshakes_failed: u64,
    /// The first different failure messages.
    pub(crate) failures: Vec<String>,
}

impl Tally {
    /// Adds a request.
    pub(crate) fn add(&mut self, class: Class, took: Duration, outcome: Result<(), String>) {
        let requests = self.classes.entry(class).or_default();
        requests.times.push(took);
        if let Err(why) = outcome {
            requests.failed += 1;
            self.remember(format!("{}: {why}", class.name()));
        }
    }

    /// Adds a request of an attacked client.
    pub(crate) fn add_victim(&mut self, took: Duration, outcome: Result<(), String>) {
        self.victims.times.push(took);
        if let Err(why) = outcome {
            self.victims.failed += 1;
            self.remember(format!("victim: {why}"));
        }
    }

    /// Adds a client that could not start or broke down.
    pub(crate) fn add_lost_client(&mut self, why: String) {
        self.victims.failed += 1;
        self.victims.times.push(Duration::ZERO);
        self.remember(why);
    }

    fn remember(&mut self, failure: String) {
        if self.failures.len() < REMEMBERED && !self.failures.contains(&failure) {
            self.failures.push(failure);
        }
    }

    /// Adds the results of another slice.
    pub(crate) fn merge(&mut self, other: Self) {
        for (class, requests) in other.classes {
            self.classes.entry(class).or_default().merge(requests);
        }
        self.victims.merge(other.victims);
        self.handshakes_failed += other.handshakes_failed;
        for failure in other.failures {
            self.remember(failure);
        }
        self.seal();
    }

    /// Sorts the times; call it after the last request.
    pub(crate) fn seal(&mut self) {
        for requests in self.classes.values_mut().chain([&mut self.victims]) {
            requests.times.sort_unstable();
        }
    }

    /// The requests of a class.
    pub(crate) fn class(&self, class: Class) -> Option<&Requests> {
        self.classes.get(&class)
    }

    /// The requests of all classes.
    pub(crate) fn all(&self) -> Requests {
        let mut all = Requests::default();
        for requests in self.classes.values() {
            all.times.extend_from_slice(&requests.times);
            all.failed += requests.failed;
        }
        all.times.sort_unstable();
        all
    }
}
