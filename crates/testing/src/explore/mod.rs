//! Exhaustive exploration of small worlds.
//!
//! A [`World`] is a production type with cheap stand-ins for what surrounds it,
//! and a small alphabet of events. [`explore`] walks every sequence of events,
//! breadth first, up to a depth. Two sequences that lead to the same state (the
//! same [`World::fingerprint`]) are continued once. After each event the
//! [`World::check`] must hold and nothing may have panicked; the first violation
//! ends the walk as a [`Finding`] with the shortest sequence that leads to it.
//!
//! ```text
//! struct Turnstile { locked: bool, .. }
//!
//! impl World for Turnstile {
//!     type Event = Event;                                     // a small enum
//!     fn events(&self) -> Vec<Event> { vec![Event::Coin, Event::Push] }
//!     fn apply(&mut self, event: &Event) { .. }               // production code runs here
//!     fn check(&self) -> Result<(), String> { .. }            // what always holds
//!     fn fingerprint(&self) -> Vec<u8> { fingerprint_of(&(self.locked, ..)) }
//! }
//!
//! #[test]
//! fn turnstile_never_opens_unpaid() {
//!     explore("turnstile", Turnstile::new(), Bounds::to_depth(8)).expect_clean();
//! }
//! ```
//!
//! | function | for worlds that | costs |
//! |---|---|---|
//! | [`explore`] | are `Clone` | one clone for each transition, one world kept for each state of a level |
//! | [`explore_by_replay`] | are not | one replay of the sequence for each transition |
//!
//! Both bound their work by [`Bounds`]: a depth, which the environment's
//! `CLEARWAY_DEPTH` replaces, and a number of states. The [`Report`] says how far
//! they came; it prints as one line.
//!
//! **The fingerprint decides what is explored.** State that is left out merges
//! what is different and hides defects; state that never repeats (clocks, packet
//! numbers, random bytes) makes every sequence a state of its own. So leave out
//! what cannot matter, and canonicalise the rest: times relative to now, numbers
//! relative to the newest, random bytes as "matches" or "does not".
//!
//! **Replays must be deterministic.** [`explore_by_replay`] compares fingerprints
//! when it comes back to a state and panics if they differ.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What is explored: a state machine, everything around it that it needs, and
/// the events that may happen to it.
pub trait World {
    /// One thing that may happen.
    type Event: Clone + fmt::Debug + Eq + Hash;

    /// What may happen now. Illegal calls that must be refused belong here too.
    fn events(&self) -> Vec<Self::Event>;

    /// Makes `event` happen, and everything that must follow from it at once. A
    /// panic is a finding.
    fn apply(&mut self, event: &Self::Event);

    /// What must hold in every state.
    ///
    /// # Errors
    /// What does not hold.
    fn check(&self) -> Result<(), String>;

    /// The state in canonical form: equal for states that behave the same from
    /// here on. See [`fingerprint_of`].
    fn fingerprint(&self) -> Vec<u8>;
}

/// A fingerprint of 16 bytes from anything that can be hashed.
pub fn fingerprint_of(state: &impl Hash) -> Vec<u8> {
    digest(state).to_be_bytes().to_vec()
}

/// 128 bits, so that a collision, which would hide a state, does not happen.
fn digest(state: &impl Hash) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(salt);
        state.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    (half(1) << 64) | half(2)
}

/// How far to go.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Events in the longest sequence.
    pub depth: usize,
    /// States after which no new level is begun. Bounds memory.
    pub states: usize,
}

impl Bounds {
    /// `depth` events, or as many as the environment's `CLEARWAY_DEPTH` says, and
    /// ten million states.
    pub fn to_depth(depth: usize) -> Self {
        let chosen = std::env::var("CLEARWAY_DEPTH").ok();
        Self {
            depth: chosen.and_then(|n| n.parse().ok()).unwrap_or(depth),
            states: 10_000_000,
        }
    }

    /// Another bound on states.
    pub fn with_states(self, states: usize) -> Self {
        Self { states, ..self }
    }
}

/// What a walk without a finding covered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The machine's name.
    pub name: String,
    /// Different events seen.
    pub alphabet: usize,
    /// Length of the longest sequences walked.
    pub depth: usize,
    /// Different states reached, the first included.
    pub states: usize,
    /// Events applied.
    pub transitions: usize,
    /// States in which nothing can happen any more.
    pub terminal: usize,
    /// Every sequence of any length leads to one of these states.
    pub exhausted: bool,
    /// The bound on states ended the walk before the bound on depth.
    pub cut: bool,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "explored {}: {} events, depth {}, {} states ({} terminal), {} transitions{}",
            self.name,
            self.alphabet,
            self.depth,
            self.states,
            self.terminal,
            self.transitions,
            match (self.exhausted, self.cut) {
                (true, _) => ", exhausted",
                (false, true) => ", cut at the bound on states",
                (false, false) => "",
            }
        )
    }
}

/// A sequence of events after which something does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding<E> {
    /// The machine's name.
    pub name: String,
    /// The shortest sequence that shows it.
    pub events: Vec<E>,
    /// What does not hold, or what the panic said.
    pub what: String,
}

impl<E: fmt::Debug> fmt::Display for Finding<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.what)?;
        writeln!(f, "after {} events:", self.events.len())?;
        for (n, event) in self.events.iter().enumerate() {
            writeln!(f, "{:4}. {event:?}", n + 1)?;
        }
        Ok(())
    }
}

/// How a walk ended.
pub type Outcome<E> = Result<Report, Box<Finding<E>>>;

/// What a test does with an [`Outcome`].
pub trait ExpectClean {
    /// The report, which is also printed (`--nocapture` shows it).
    ///
    /// # Panics
    /// With the sequence of events, if there is a finding.
    fn expect_clean(self) -> Report;
}

impl<E: fmt::Debug> ExpectClean for Outcome<E> {
    #[track_caller]
    fn expect_clean(self) -> Report {
        match self {
            Ok(report) => {
                println!("{report}");
                report
            }
            Err(finding) => panic!("{finding}"),
        }
    }
}

/// Walks all sequences of events from `start`, keeping a clone for each state of
/// the level it is at.
///
/// # Errors
/// The first finding.
pub fn explore<W: World + Clone>(name: &str, start: W, bounds: Bounds) -> Outcome<W::Event> {
    let mut search = Search::begin(name, &start)?;
    let mut level = vec![(0, start)];
    while search.may_continue(level.len(), bounds) {
        let mut next = Vec::new();
        for (node, world) in level {
            for event in search.events_of(&world) {
                let mut after = world.clone();
                if let Some(reached) = search.step(node, &mut after, event)? {
                    next.push((reached, after));
                }
            }
        }
        level = next;
    }
    Ok(search.report)
}

/// Walks all sequences of events from what `start` makes, which must be the same
/// each time, repeating a sequence whenever it is to be continued.
///
/// # Errors
/// The first finding.
///
/// # Panics
/// If a repeated sequence leads to another state than before.
pub fn explore_by_replay<W: World>(
    name: &str,
    start: impl Fn() -> W,
    bounds: Bounds,
) -> Outcome<W::Event> {
    let first = start();
    let mut search = Search::begin(name, &first)?;
    let mut level = vec![0];
    while search.may_continue(level.len(), bounds) {
        let mut next = Vec::new();
        for node in level {
            let mut spare = Some(search.replay(node, start()));
            let events = spare.as_ref().map(|world| search.events_of(world));
            for event in events.into_iter().flatten() {
                let mut world = match spare.take() {
                    Some(world) => world,
                    None => search.replay(node, start()),
                };
                next.extend(search.step(node, &mut world, event)?);
            }
        }
        level = next;
    }
    Ok(search.report)
}

/// How a state was first reached.
struct Node<E> {
    digest: u128,
    /// The state before it and the event between; `None` for the first.
    from: Option<(usize, E)>,
}

struct Search<E> {
    nodes: Vec<Node<E>>,
    seen: HashSet<u128>,
    alphabet: HashSet<E>,
    report: Report,
}

impl<E: Clone + fmt::Debug + Eq + Hash> Search<E> {
    fn begin<W: World<Event = E>>(name: &str, start: &W) -> Result<Self, Box<Finding<E>>> {
        let digest = digest(&start.fingerprint());
        let search = Self {
            nodes: vec![Node { digest, from: None }],
            seen: HashSet::from([digest]),
            alphabet: HashSet::new(),
            report: Report {
                name: name.into(),
                alphabet: 0,
                depth: 0,
                states: 1,
                transitions: 0,
                terminal: 0,
                exhausted: false,
                cut: false,
            },
        };
        match guarded(|| start.check()) {
            Ok(()) => Ok(search),
            Err(what) => Err(search.finding(0, None, what)),
        }
    }

    /// Whether another level is to be walked; counts it.
    fn may_continue(&mut self, level: usize, bounds: Bounds) -> bool {
        self.report.exhausted = level == 0;
        self.report.cut =
            level > 0 && self.report.depth < bounds.depth && self.report.states >= bounds.states;
        let goes_on = level > 0 && !self.report.cut && self.report.depth < bounds.depth;
        self.report.depth += usize::from(goes_on);
        goes_on
    }

    fn events_of<W: World<Event = E>>(&mut self, world: &W) -> Vec<E> {
        let events = world.events();
        self.report.terminal += usize::from(events.is_empty());
        events
    }

    /// Applies `event` in the state `node`, in which `world` is. The state that it
    /// leads to, if it is new.
    fn step<W: World<Event = E>>(
        &mut self,
        node: usize,
        world: &mut W,
        event: E,
    ) -> Result<Option<usize>, Box<Finding<E>>> {
        self.report.transitions += 1;
        if !self.alphabet.contains(&event) {
            self.alphabet.insert(event.clone());
            self.report.alphabet = self.alphabet.len();
        }
        let held = guarded(|| {
            world.apply(&event);
            world.check()
        });
        if let Err(what) = held {
            return Err(self.finding(node, Some(event), what));
        }
        let digest = digest(&world.fingerprint());
        if !self.seen.insert(digest) {
            return Ok(None);
        }
        self.nodes.push(Node {
            digest,
            from: Some((node, event)),
        });
        self.report.states = self.nodes.len();
        Ok(Some(self.nodes.len() - 1))
    }

    fn replay<W: World<Event = E>>(&self, node: usize, mut world: W) -> W {
        for event in self.path_to(node) {
            world.apply(&event);
        }
        assert_eq!(
            digest(&world.fingerprint()),
            self.nodes[node].digest,
            "{} is not deterministic: another state after {:?}",
            self.report.name,
            self.path_to(node),
        );
        world
    }

    /// The shortest sequence of events to the state `node`.
    fn path_to(&self, mut node: usize) -> Vec<E> {
        let mut events = Vec::new();
        while let Some((before, event)) = &self.nodes[node].from {
            events.push(event.clone());
            node = *before;
        }
        events.reverse();
        events
    }

    fn finding(&self, node: usize, last: Option<E>, what: String) -> Box<Finding<E>> {
        let mut events = self.path_to(node);
        events.extend(last);
        Box::new(Finding {
            name: self.report.name.clone(),
            events,
            what,
        })
    }
}

/// What `check` says, with a panic as one more thing it can say.
fn guarded(check: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(check)).unwrap_or_else(|panic| {
        let words = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panicked: {}", words.unwrap_or("without words")))
    })
}
