//! What the clients saw.

use std::collections::BTreeMap;
use std::time::Duration;

/// Different failures whose words are kept.
const REMEMBERED: usize = 3;

/// What kind of request it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// 4 KiB over a connection that is kept.
    Small,
    /// 1 to 8 MiB over a connection that is kept.
    Large,
    /// A PUT of 256 KiB over a connection that is kept.
    Upload,
    /// 4 KiB over a new connection from a new address.
    Newcomer,
}

impl Class {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Small, Self::Large, Self::Upload, Self::Newcomer];

    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
            Self::Upload => "upload",
            Self::Newcomer => "newcomer",
        }
    }
}

/// Requests of one class, or of victims.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    /// How long each took, whether it failed or not; sorted by [`Tally::seal`].
    times: Vec<Duration>,
    pub(crate) failed: u64,
}

impl Requests {
    pub(crate) fn done(&self) -> u64 {
        self.times.len() as u64 - self.failed
    }

    /// The time that this part of the requests stayed below, in thousandths.
    pub(crate) fn quantile(&self, thousandths: usize) -> Option<Duration> {
        let last = self.times.len().checked_sub(1)?;
        self.times.get(last * thousandths / 1000).copied()
    }

    pub(crate) fn median(&self) -> Option<Duration> {
        self.quantile(500)
    }
}

/// All requests of a slice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    classes: BTreeMap<Class, Requests>,
    /// Of those who are attacked themselves: transfers that have to arrive, or
    /// lives that have to go on.
    pub(crate) victims: Requests,
    /// Attempts to connect of victims that a forgery made fail, as it may.
    pub(crate) foiled: u64,
    /// The first failures in words.
    pub(crate) failures: Vec<String>,
}

impl Tally {
    /// Puts down how a request ended.
    pub(crate) fn add(&mut self, class: Class, took: Duration, outcome: Result<(), String>) {
        let requests = self.classes.entry(class).or_default();
        requests.times.push(took);
        if let Err(why) = outcome {
            requests.failed += 1;
            self.remember(format!("{}: {why}", class.name()));
        }
    }

    /// Puts down how a victim fared.
    pub(crate) fn add_victim(&mut self, took: Duration, outcome: Result<(), String>) {
        self.victims.times.push(took);
        if let Err(why) = outcome {
            self.victims.failed += 1;
            self.remember(format!("victim: {why}"));
        }
    }

    /// A client is no more.
    pub(crate) fn break_down(&mut self, why: String) {
        self.victims.failed += 1;
        self.victims.times.push(Duration::ZERO);
        self.remember(why);
    }

    fn remember(&mut self, failure: String) {
        if self.failures.len() < REMEMBERED && !self.failures.contains(&failure) {
            self.failures.push(failure);
        }
    }

    /// To be called once all is put down.
    pub(crate) fn seal(&mut self) {
        for requests in self.classes.values_mut().chain([&mut self.victims]) {
            requests.times.sort_unstable();
        }
    }

    /// The requests of a class.
    pub(crate) fn class(&self, class: Class) -> Option<&Requests> {
        self.classes.get(&class)
    }

    /// All requests together.
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
