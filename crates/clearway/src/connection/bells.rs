//! Where tasks wait for what concerns any number of them.

use std::sync::OnceLock;

use tokio::sync::Notify;

use super::Signal;

/// A bell for each signal that somebody has waited for. Few ever are, and there
/// are many connections: a chain, to which bells are only added.
#[derive(Debug, Default)]
pub(super) struct Bells(OnceLock<Box<Bell>>);

#[derive(Debug)]
struct Bell {
    signal: Signal,
    news: Notify,
    others: Bells,
}

impl Bells {
    /// Where to wait for `signal`.
    pub(super) fn of(&self, signal: Signal) -> &Notify {
        let mut bells = self;
        loop {
            let bell = bells.0.get_or_init(|| {
                Box::new(Bell {
                    signal,
                    news: Notify::new(),
                    others: Self::default(),
                })
            });
            if bell.signal == signal {
                return &bell.news;
            }
            bells = &bell.others;
        }
    }

    /// Those that there are.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Signal, &Notify)> {
        let first = self.0.get();
        let all = std::iter::successors(first, |bell| bell.others.0.get());
        all.map(|bell| (bell.signal, &bell.news))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bell_a_signal_and_none_before_somebody_waits() {
        let bells = Bells::default();
        assert_eq!(bells.iter().count(), 0);
        let [first, second] = [Signal::Requests, Signal::Closed].map(|signal| bells.of(signal));
        assert!(!std::ptr::eq(first, second));
        assert!(std::ptr::eq(first, bells.of(Signal::Requests)));
        assert!(std::ptr::eq(second, bells.of(Signal::Closed)));
        let signals: Vec<Signal> = bells.iter().map(|(signal, _)| signal).collect();
        assert_eq!(signals, [Signal::Requests, Signal::Closed]);
    }
}
