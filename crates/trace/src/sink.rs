//! Destinations of events.

use std::sync::{Arc, Mutex, PoisonError};

use crate::event::Event;

/// Receives a trace's events in order.
pub trait Sink {
    /// Receives one event.
    fn event(&mut self, event: &Event);
}

impl Sink for Vec<Event> {
    fn event(&mut self, event: &Event) {
        self.push(event.clone());
    }
}

impl<S: Sink + ?Sized> Sink for Box<S> {
    fn event(&mut self, event: &Event) {
        (**self).event(event);
    }
}

impl<S: Sink + ?Sized> Sink for &mut S {
    fn event(&mut self, event: &Event) {
        (**self).event(event);
    }
}

impl<S: Sink> Sink for Option<S> {
    fn event(&mut self, event: &Event) {
        if let Some(sink) = self {
            sink.event(event);
        }
    }
}

/// Passes events to two sinks, first `A`, then `B`. Nest for more.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tee<A, B>(pub A, pub B);

impl<A: Sink, B: Sink> Sink for Tee<A, B> {
    fn event(&mut self, event: &Event) {
        self.0.event(event);
        self.1.event(event);
    }
}

/// A sink that its owner can read while a connection fills it.
#[derive(Debug, Default)]
pub struct Shared<S>(Arc<Mutex<S>>);

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> Shared<S> {
    /// Shares `sink`.
    pub fn new(sink: S) -> Self {
        Self(Arc::new(Mutex::new(sink)))
    }

    /// Accesses the sink.
    pub fn with<R>(&self, look: impl FnOnce(&mut S) -> R) -> R {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<S: Default> Shared<S> {
    /// Takes the sink's content and leaves an empty one.
    #[must_use]
    pub fn take(&self) -> S {
        self.with(core::mem::take)
    }
}

impl<S: Sink> Sink for Shared<S> {
    fn event(&mut self, event: &Event) {
        self.with(|sink| sink.event(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventData;

    #[test]
    fn tee_feeds_both_sinks_and_shared_sink_stays_readable() {
        let shared = Shared::new(Vec::new());
        let mut tee = Tee(Vec::new(), Some(shared.clone()));
        let event = Event {
            time: 7,
            data: EventData::MtuUpdated {
                old: None,
                new: 1_400,
            },
        };
        tee.event(&event);
        assert_eq!(tee.0, std::slice::from_ref(&event));
        assert_eq!(shared.with(|events| events.len()), 1);
        assert_eq!(shared.take(), [event]);
        assert!(shared.take().is_empty());
    }
}
