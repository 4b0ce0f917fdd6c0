//! Who attacks when.

use std::time::Duration;

use crate::attack::Kind;

/// Kinds that attack together in a short siege, instead of one by one.
const GROUP: usize = 4;

/// The part of all time in which everybody attacks at once.
const TOGETHER: f64 = 0.25;

/// The part of a step that is its baseline.
const BASELINE: f64 = 0.33;

/// What a slice takes besides: servers start, the last requests end, a newcomer asks
/// whether the server is alive.
const OVERHEAD: Duration = Duration::from_millis(400);

/// The shortest slice.
const SHORTEST: Duration = Duration::from_millis(1_000);

/// One step: the same kinds at the sink, then at the server.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) kinds: Vec<&'static Kind>,
    /// How long they attack the sink; not at all without a baseline.
    pub(crate) baseline: Option<Duration>,
    /// How long they attack the server.
    pub(crate) attack: Duration,
    /// Whether everybody takes part.
    pub(crate) together: bool,
}

/// Who attacks with whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// One kind after the other.
    Alone,
    /// The same, and then all at once.
    AloneThenTogether,
    /// A few at a time, and then all at once.
    GroupsThenTogether,
    /// All at once and no more.
    Together,
}

/// The steps of a siege.
pub(crate) fn plan(
    kinds: &[&'static Kind],
    company: Company,
    total: Duration,
    baseline: bool,
) -> Vec<Step> {
    let (group, together) = match company {
        Company::Alone => (1, 0.0),
        Company::AloneThenTogether => (1, TOGETHER),
        Company::GroupsThenTogether => (GROUP, TOGETHER),
        Company::Together => return vec![step(kinds, total, baseline, true)],
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
