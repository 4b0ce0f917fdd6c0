//! Work that can wait. While the next look at the socket is urgent, each turn does one kind of it.
//!
//! Under a flood there is always some of each kind. A turn that did all of them would be long, and what
//! arrives for favored connections waits for a turn or two in each of its round trips.

use std::time::Duration;

/// A kind of work for connections that are not favored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chore {
    /// Turns of connections within their quantum.
    Prompt,
    /// Turns of connections that wait in the round.
    Round,
    /// Handshakes of new clients.
    Handshakes,
    /// Handlers of connections that use much.
    Handlers,
}

/// Time for one of them.
const TIME: Duration = Duration::from_micros(150);

/// The order in which they take turns.
const ORDER: [Chore; 4] = [
    Chore::Prompt,
    Chore::Handlers,
    Chore::Round,
    Chore::Handshakes,
];

/// What a turn may do besides serving favored connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leisure {
    /// Everything: the next look at the socket is not urgent.
    Ample,
    /// This, or nothing.
    Only(Option<Chore>),
}

impl Leisure {
    pub(super) fn allows(self, chore: Chore) -> bool {
        matches!(self, Self::Ample) || self == Self::Only(Some(chore))
    }

    /// Returns the limit for work of this kind, if there is one.
    pub(super) fn limit(self, chore: Chore) -> Option<Duration> {
        match self {
            Self::Ample => None,
            Self::Only(_) if self.allows(chore) => Some(TIME),
            Self::Only(_) => Some(Duration::ZERO),
        }
    }
}

/// Whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Chores {
    /// The place in [`ORDER`] after the last one.
    next: usize,
}

impl Chores {
    /// Returns the next kind of which there is some.
    pub(super) fn next(&mut self, is_due: impl Fn(Chore) -> bool) -> Option<Chore> {
        let cycle = ORDER.iter().copied().enumerate().cycle();
        let mut candidates = cycle.skip(self.next).take(ORDER.len());
        let (place, chore) = candidates.find(|(_, chore)| is_due(*chore))?;
        self.next = place.saturating_add(1);
        Some(chore)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_kind_of_work_has_time_while_the_next_look_at_the_socket_is_urgent() {
        let only = Leisure::Only(Some(Chore::Round));
        for chore in ORDER {
            let is_round = chore == Chore::Round;
            assert_eq!(only.allows(chore), is_round);
            let time = if is_round { TIME } else { Duration::ZERO };
            assert_eq!(only.limit(chore), Some(time));
            assert!(!Leisure::Only(None).allows(chore));
            assert!(Leisure::Ample.allows(chore));
            assert_eq!(Leisure::Ample.limit(chore), None);
        }
    }

    #[test]
    fn kinds_of_work_take_turns_and_none_is_passed_over_for_want_of_others() {
        let mut chores = Chores::default();
        let all: Vec<_> = (0..5).filter_map(|_| chores.next(|_| true)).collect();
        assert_eq!(all[..4], ORDER);
        assert_eq!(all[4], ORDER[0]);
        let due = |chore| matches!(chore, Chore::Round | Chore::Prompt);
        let some: Vec<_> = (0..3).filter_map(|_| chores.next(due)).collect();
        assert_eq!(some, [Chore::Round, Chore::Prompt, Chore::Round]);
        assert_eq!(chores.next(|_| false), None);
        assert_eq!(chores.next(|_| true), Some(Chore::Handshakes));
    }
}
