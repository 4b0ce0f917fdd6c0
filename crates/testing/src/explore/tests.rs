//! The explorer finds what is there, by the shortest way, and counts right.

use super::{Bounds, ExpectClean, Finding, World, explore, explore_by_replay, fingerprint_of};

/// A number that may not become three, in either of two ways of complaining.
#[derive(Clone)]
struct Counter {
    value: u8,
    most: u8,
    panics: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Up,
    Down,
    Stay,
}

impl Counter {
    fn up_to(most: u8) -> Self {
        Self {
            value: 0,
            most,
            panics: false,
        }
    }
}

impl World for Counter {
    type Event = Step;

    fn events(&self) -> Vec<Step> {
        vec![Step::Stay, Step::Down, Step::Up]
    }

    fn apply(&mut self, event: &Step) {
        match event {
            Step::Up => self.value += 1,
            Step::Down => self.value = self.value.saturating_sub(1),
            Step::Stay => {}
        }
        assert!(
            !self.panics || self.value <= self.most,
            "{} is too much",
            self.value
        );
    }

    fn check(&self) -> Result<(), String> {
        if self.value <= self.most {
            Ok(())
        } else {
            Err(format!("{} is too much", self.value))
        }
    }

    fn fingerprint(&self) -> Vec<u8> {
        fingerprint_of(&self.value)
    }
}

fn to_depth(depth: usize) -> Bounds {
    Bounds {
        depth,
        states: usize::MAX,
    }
}

fn shortest(what: &str) -> Box<Finding<Step>> {
    Box::new(Finding {
        name: "counter".into(),
        events: vec![Step::Up; 3],
        what: what.into(),
    })
}

#[test]
fn violation_is_found_by_shortest_sequence() {
    let found = explore("counter", Counter::up_to(2), Bounds::to_depth(9));
    assert_eq!(found, Err(shortest("3 is too much")));
    let found = explore_by_replay("counter", || Counter::up_to(2), to_depth(9));
    assert_eq!(found, Err(shortest("3 is too much")));
    let text = shortest("3 is too much").to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "counter: 3 is too much");
    assert_eq!(lines.len(), 5, "a line for each event: {text}");
}

#[test]
fn panic_is_reported_as_finding() {
    let start = Counter {
        panics: true,
        ..Counter::up_to(2)
    };
    let found = explore("counter", start, to_depth(9));
    assert_eq!(found, Err(shortest("panicked: 3 is too much")));
}

#[test]
fn violation_beyond_depth_is_not_reached() {
    let report = explore("counter", Counter::up_to(2), to_depth(2)).expect_clean();
    assert_eq!((report.depth, report.states, report.alphabet), (2, 3, 3));
    assert_eq!(report.transitions, 6, "two states with three events each");
    assert!(!report.exhausted && !report.cut);
}

#[test]
fn replaying_and_cloning_cover_same_states() {
    let cloned = explore("counter", Counter::up_to(200), to_depth(50)).expect_clean();
    let start = || Counter::up_to(200);
    let replayed = explore_by_replay("counter", start, to_depth(50)).expect_clean();
    assert_eq!(cloned, replayed);
    assert_eq!(cloned.states, 51);
}

#[test]
fn state_limit_ends_exploration() {
    let bounds = to_depth(50).with_states(10);
    let report = explore("counter", Counter::up_to(200), bounds).expect_clean();
    assert!(report.cut && report.states == 10, "{report}");
}

/// A ring of numbers: no sequence leads out of it.
#[derive(Clone)]
struct Ring(u8);

impl World for Ring {
    type Event = ();

    fn events(&self) -> Vec<()> {
        vec![()]
    }

    fn apply(&mut self, (): &()) {
        self.0 = (self.0 + 1) % 5;
    }

    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    fn fingerprint(&self) -> Vec<u8> {
        vec![self.0]
    }
}

#[test]
fn repeating_world_is_explored_completely() {
    let report = explore("ring", Ring(0), to_depth(100)).expect_clean();
    assert!(report.exhausted, "{report}");
    assert_eq!((report.states, report.transitions), (5, 5));
}
