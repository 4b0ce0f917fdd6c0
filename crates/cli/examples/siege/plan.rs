//! Who attacks when, and for how long.

use std::time::Duration;

use crate::attack::Kind;

/// Size of a group in a short siege.
const GROUP: usize = 5;

/// Share of the whole time in which all attack together.
const TOGETHER: f64 = 0.25;

/// Share of a step that its baseline takes.
const BASELINE: f64 = 0.33;

/// Time that a slice needs besides the attack: to start servers, to finish the last
/// requests, to check that the server lives.
const OVERHEAD: Duration = Duration::from_millis(400);

/// The shortest slice.
const SHORTEST: Duration = Duration::from_millis(1_000);

/// One step: attackers attack the sink, then the server.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) kinds: Vec<&'static Kind>,
    /// Time for which they attack the sink; `None` without a baseline.
    pub(crate) baseline: Option<Duration>,
    /// Time for which they attack the server.
    pub(crate) attack: Duration,
    /// Whether all attackers take part, and share a rate.
    pub(crate) together: bool,
}

/// How attackers are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// One kind after the other.
    Alone,
    /// One kind after the other, then all together.
    AloneThenTogether,
    /// A few kinds at a time, then all together.
    GroupsThenTogether,
    /// In groups only.
    Groups,
    /// All together only.
    Together,
}

/// Returns the steps of a siege that takes `total`.
pub(crate) fn plan(
    kinds: &[&'static Kind],
    grouping: Grouping,
    total: Duration,
    baseline: bool,
) -> Vec<Step> {
    let (group, together) = match grouping {
        Grouping::Alone => (1, 0.0),
        Grouping::AloneThenTogether => (1, TOGETHER),
        Grouping::GroupsThenTogether => (GROUP, TOGETHER),
        Grouping::Groups => (GROUP, 0.0),
        Grouping::Together => return vec![step(kinds, total, baseline, true)],
    };
    let groups: Vec<_> = kinds.chunks(group).collect();
    let each = total.mul_f64((1.0 - together) / groups.len().max(1) as f64);
    let mut steps: Vec<_> = groups
        .into_iter()
        .map(|kinds| step(kinds, each, baseline, false))
        .collect();
    if together > 0.0 {
        steps.push(step(kinds, total.mul_f64(together), baseline, true));
    }
    steps
}

fn step(kinds: &[&'static Kind], time: Duration, baseline: bool, together: bool) -> Step {
    let names: Vec<_> = kinds.iter().map(|kind| kind.name).collect();
    let part = if baseline { BASELINE } else { 0.0 };
    let slice = |part: f64| {
        let slice = time.mul_f64(part).saturating_sub(OVERHEAD);
        slice.max(SHORTEST)
    };
    Step {
        name: if together {
            "together".to_owned()
        } else {
            names.join("+")
        },
        kinds: kinds.to_vec(),
        baseline: baseline.then(|| slice(part)),
        attack: slice(1.0 - part),
        together,
    }
}
