//! Where tasks wait for a [`Signal`].

use std::sync::OnceLock;

use tokio::sync::Notify;

use super::wakeups::Signal;

/// A notifier for each signal that a task has waited for. Those are few, and connections are
/// many, so this is a linked list to which notifiers are only added.
#[derive(Debug, Default)]
pub(super) struct Notifiers(OnceLock<Box<Notifier>>);

#[derive(Debug)]
struct Notifier {
    signal: Signal,
    notify: Notify,
    next: Notifiers,
}

impl Notifiers {
    /// Returns the notifier of `signal`, and adds it if there is none.
    pub(super) fn get(&self, signal: Signal) -> &Notify {
        let mut notifiers = self;
        loop {
            let notifier = notifiers.0.get_or_init(|| {
                Box::new(Notifier {
                    signal,
                    notify: Notify::new(),
                    next: Self::default(),
                })
            });
            if notifier.signal == signal {
                return &notifier.notify;
            }
            notifiers = &notifier.next;
        }
    }

    /// Iterates over the notifiers that have been added.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Signal, &Notify)> {
        let first = self.0.get();
        let all = std::iter::successors(first, |notifier| notifier.next.0.get());
        all.map(|notifier| (notifier.signal, &notifier.notify))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifier_is_created_once_for_each_signal_that_is_waited_for() {
        let notifiers = Notifiers::default();
        assert_eq!(notifiers.iter().count(), 0);
        let [first, second] =
            [Signal::Requests, Signal::Closed].map(|signal| notifiers.get(signal));
        assert!(!std::ptr::eq(first, second));
        assert!(std::ptr::eq(first, notifiers.get(Signal::Requests)));
        assert!(std::ptr::eq(second, notifiers.get(Signal::Closed)));
        let signals: Vec<Signal> = notifiers.iter().map(|(signal, _)| signal).collect();
        assert_eq!(signals, [Signal::Requests, Signal::Closed]);
    }
}
