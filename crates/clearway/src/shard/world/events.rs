//! The events of the world, and their effects.

use super::socket::Fault;
use super::{BUDGET, Shard};
use crate::connection::Stage;
use crate::shard::{CloseAll, CloseWhen};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Event {
    /// A client writes, and its datagrams arrive.
    Arrives(usize),
    /// A client receives what was sent to it, and its answers arrive.
    ReceivesAll(usize),
    /// What was sent to a client is lost.
    IsLost(usize),
    /// The socket accepts no more datagrams.
    Full,
    /// The socket accepts datagrams again, with or without a writable event.
    Writable,
    WritableUnannounced,
    /// The next call fails.
    Fails(Fault),
    /// The loop's alarm expires.
    Alarm,
    /// The application of a connection calls a handle.
    Writes(usize),
    Reads(usize),
    Finishes(usize),
    Closes(usize),
    Drops(usize),
    /// The connection panics when it next reaches the stage.
    Panics(usize, Stage),
    /// Other shards use up the endpoint's memory.
    MemoryIsShort,
    /// The endpoint is closed, now or once everything is delivered, or its last handle is dropped.
    CloseAll,
    CloseDelivered,
    Abandon,
}

impl Shard {
    pub(super) fn apply_to_network(&mut self, event: Event) {
        match event {
            Event::Arrives(n) => {
                if let Some(peer) = self.peers.get_mut(n) {
                    peer.write();
                }
                self.receive_all(n);
            }
            Event::ReceivesAll(n) => self.receive_all(n),
            Event::IsLost(n) => {
                if let Some(peer) = self.peers.get_mut(n) {
                    peer.inbox.clear();
                }
            }
            Event::Full => self.socket.queues().full = true,
            Event::Writable => {
                self.socket.queues().full = false;
                self.signal_writable();
            }
            Event::WritableUnannounced => self.socket.queues().full = false,
            Event::Fails(fault) => {
                self.faults += 1;
                self.socket.queues().fault = Some(fault);
                if matches!(fault, Fault::Unavailable | Fault::ReceiveBroken) {
                    self.signal_readable();
                }
            }
            Event::Alarm => {
                if let Some(at) = self.alarm() {
                    self.now = self.now.max(at);
                }
            }
            Event::Writes(_)
            | Event::Reads(_)
            | Event::Finishes(_)
            | Event::Closes(_)
            | Event::Drops(_)
            | Event::Panics(..)
            | Event::MemoryIsShort
            | Event::CloseAll
            | Event::CloseDelivered
            | Event::Abandon => {}
        }
    }

    pub(super) fn apply_to_app(&mut self, event: Event) {
        match event {
            Event::Writes(n) => self.apps[n].write(),
            Event::Reads(n) => self.apps[n].read(),
            Event::Finishes(n) => self.apps[n].finish(),
            Event::Closes(n) => {
                if let Some(connection) = &self.apps[n].connection {
                    connection.close(7, b"bye");
                }
            }
            Event::Drops(n) => self.apps[n].drop_all(),
            Event::Panics(n, stage) => {
                self.faults += 1;
                if let Some(connection) = &self.apps[n].connection {
                    connection.inject(stage);
                    if stage == Stage::Call {
                        connection.ping();
                    }
                }
            }
            Event::MemoryIsShort => {
                self.link.budget.change(0, BUDGET);
                self.link.wake();
                self.settle();
                self.link.budget.change(BUDGET, 0);
            }
            Event::CloseAll => self.close(CloseWhen::Now),
            Event::CloseDelivered => self.close(CloseWhen::Delivered),
            Event::Abandon => {
                self.abandoned = true;
                self.link.abandon();
            }
            Event::Arrives(_)
            | Event::ReceivesAll(_)
            | Event::IsLost(_)
            | Event::Full
            | Event::Writable
            | Event::WritableUnannounced
            | Event::Fails(_)
            | Event::Alarm => {}
        }
    }

    pub(super) fn close(&mut self, when: CloseWhen) {
        self.closing = Some(when);
        self.link.close(CloseAll {
            code: 9,
            reason: b"done".to_vec(),
            when,
        });
    }
}
