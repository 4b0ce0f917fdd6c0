//! Closing an endpoint once what its application has ended is delivered.

use std::time::Duration;

use clearway_quic::Instant;
use clearway_quic::connection::{Connection, ConnectionError};

use super::events::Event;
use super::socket::Fault;
use super::{Scope, Shard, explore};
use crate::connection::Stage;
use crate::shard::CloseWhen;
use clearway_testing::explore::World as _;

/// Bytes that [`Event::Writes`] writes: more than the first flight.
const WRITTEN: usize = 20_000;

/// Most events until an end.
const MANY: usize = 1_000;

impl Shard {
    /// A shard of one connection, on which these events have happened.
    fn after(events: &[Event]) -> Self {
        let mut shard = Self::new(&Scope::new(1, |_| true));
        events.iter().for_each(|event| shard.apply(event));
        shard
    }

    fn close_reason(&self) -> Option<ConnectionError> {
        self.apps[0].connection.as_ref()?.close_reason()
    }

    /// Applies these events over and over until the connection is closed, and returns how long
    /// that took.
    fn repeat_until_closed(&mut self, events: &[Event]) -> Duration {
        let began = self.now;
        for _ in 0..MANY {
            if self.close_reason().is_some() {
                return self.now.saturating_since(began);
            }
            events.iter().for_each(|event| self.apply(event));
        }
        panic!("the connection was not closed");
    }

    /// Returns what the first client has received of the server's stream, and whether it ended.
    fn delivered(&mut self) -> (usize, bool) {
        self.receive_all(0);
        self.peers[0].read_all()
    }

    fn period(&self) -> Duration {
        self.look(Connection::drain_period)
    }

    /// Reads from the connection as the shard has it.
    fn look<T>(&self, read: impl FnOnce(&Connection) -> T) -> T {
        let driver = self.driver.as_ref().expect("runs");
        let entry = driver.shard.table.values().next().expect("one");
        let value = entry
            .shared
            .with_state(Stage::Call, |state| read(&state.quic));
        value.expect("alive")
    }
}

fn done() -> Option<ConnectionError> {
    Some(ConnectionError::LocalApplication { code: 9 })
}

#[test]
fn ended_connection_keeps_data_only_as_long_as_somebody_can_read_it() {
    let mut shard = Shard::after(&[Event::Arrives(0), Event::Closes(0)]);
    assert!(shard.close_reason().is_some());
    assert!(shard.look(Connection::buffered) > 0);
    shard.apply(&Event::Drops(0));
    assert_eq!(shard.look(Connection::buffered), 0);
    assert_eq!(shard.connections(), 1, "it is closing");

    // Without a handle the end itself frees it.
    let mut shard = Shard::after(&[Event::Writes(0), Event::Finishes(0), Event::Drops(0)]);
    assert!(shard.look(Connection::buffered) > 0);
    shard.apply(&Event::CloseAll);
    assert_eq!(shard.look(Connection::buffered), 0);
}

#[test]
fn finished_stream_is_delivered_before_the_connection_is_closed() {
    // The control: it is lost if the endpoint is closed at once.
    let mut shard = Shard::after(&[Event::Writes(0), Event::Finishes(0), Event::CloseAll]);
    assert_eq!(shard.close_reason(), done());
    assert!(!shard.delivered().1);

    let mut shard = Shard::after(&[Event::Writes(0), Event::Finishes(0), Event::CloseDelivered]);
    assert_eq!(shard.close_reason(), None);
    shard.repeat_until_closed(&[Event::ReceivesAll(0), Event::Alarm]);
    assert_eq!(shard.close_reason(), done());
    assert_eq!(shard.delivered(), (WRITTEN, true));
}

#[test]
fn lost_packets_are_repaired_before_the_connection_is_closed() {
    let mut shard = Shard::after(&[Event::Writes(0), Event::Finishes(0), Event::CloseDelivered]);
    shard.apply(&Event::IsLost(0));
    shard.repeat_until_closed(&[Event::Alarm, Event::ReceivesAll(0)]);
    assert_eq!(shard.delivered(), (WRITTEN, true));
}

#[test]
fn stream_without_an_end_is_not_waited_for() {
    let mut shard = Shard::after(&[Event::Writes(0), Event::CloseDelivered]);
    assert_eq!(shard.close_reason(), done());
    assert!(!shard.delivered().1);
}

#[test]
fn connection_to_a_silent_peer_is_closed_after_three_ptos() {
    let mut shard = Shard::after(&[Event::Writes(0), Event::Finishes(0)]);
    let period = shard.period();
    shard.apply(&Event::CloseDelivered);
    let took = shard.repeat_until_closed(&[Event::IsLost(0), Event::Alarm]);
    assert_eq!(took, period);
}

/// A peer that keeps the connection busy without acknowledging the end. What it sends is limited by
/// its own congestion window, as it gets no acknowledgements either.
#[test]
fn lingering_goes_on_while_the_peer_does_and_ends_within_ten_seconds() {
    let mut shard = Shard::after(&[Event::Arrives(0), Event::Writes(0), Event::Finishes(0)]);
    let period = shard.period();
    shard.apply(&Event::CloseDelivered);
    let events = [
        Event::IsLost(0),
        Event::Arrives(0),
        Event::Reads(0),
        Event::Alarm,
    ];
    let took = shard.repeat_until_closed(&events);
    assert!(took > period, "{took:?}");
    assert!(took <= Duration::from_secs(10), "{took:?}");
}

#[test]
fn close_at_once_ends_lingering() {
    let mut shard = Shard::after(&[Event::Writes(0), Event::Finishes(0), Event::CloseDelivered]);
    assert_eq!(shard.close_reason(), None);
    shard.close(CloseWhen::Now);
    shard.settle();
    assert_eq!(shard.close_reason(), done());
}

#[test]
fn second_close_does_not_extend_the_first() {
    let mut shard = Shard::after(&[Event::Writes(0), Event::Finishes(0), Event::CloseDelivered]);
    let left = |shard: &Shard, now: Instant| {
        let driver = shard.driver.as_ref().expect("runs");
        driver.shard.lingering.as_ref().expect("lingers").left(now)
    };
    let before = left(&shard, shard.now);
    let began = shard.now;
    shard.now += Duration::from_millis(5);
    shard.close(CloseWhen::Delivered);
    shard.settle();
    assert_eq!(left(&shard, began), before);
}

#[test]
fn no_order_of_events_keeps_a_lingering_connection_for_ever() {
    let keep = |event: &Event| match event {
        Event::Full
        | Event::Writable
        | Event::Alarm
        | Event::ReceivesAll(_)
        | Event::IsLost(_)
        | Event::Writes(_)
        | Event::Finishes(_)
        | Event::Drops(_)
        | Event::Panics(_, Stage::Turn)
        | Event::CloseAll
        | Event::CloseDelivered
        | Event::Abandon
        | Event::Fails(Fault::Dropped) => true,
        Event::Fails(_)
        | Event::WritableUnannounced
        | Event::Arrives(_)
        | Event::Reads(_)
        | Event::Closes(_)
        | Event::MemoryIsShort
        | Event::Panics(..) => false,
    };
    explore("a shard that lingers", &Scope::new(1, keep), 4, 5);
}
