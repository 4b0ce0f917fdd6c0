//! What can happen, and what it does.

use super::socket::Fault;
use super::{BUDGET, Shard};
use crate::connection::Stage;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Event {
    /// A client writes, and its datagrams arrive.
    Arrives(usize),
    /// A client receives what was sent to it, and its answers arrive.
    Hears(usize),
    /// What was sent to a client is lost.
    IsLost(usize),
    /// The socket takes no more.
    Full,
    /// It does again, and says so; or does not say so.
    Writable,
    WritableUnsaid,
    /// The next call fails.
    Fails(Fault),
    /// The loop's alarm goes off.
    Alarm,
    /// The application of a connection.
    Writes(usize),
    Reads(usize),
    Closes(usize),
    Drops(usize),
    /// The connection panics when it next comes there.
    Panics(usize, Stage),
    /// Other shards use up the endpoint's memory.
    MemoryIsShort,
    /// The endpoint is closed, or nobody holds it any more.
    CloseAll,
    Abandon,
}

impl Shard {
    pub(super) fn apply_to_network(&mut self, event: Event) {
        match event {
            Event::Arrives(n) => {
                if let Some(peer) = self.peers.get_mut(n) {
                    peer.write();
                }
                self.hear(n);
            }
            Event::Hears(n) => self.hear(n),
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
            Event::WritableUnsaid => self.socket.queues().full = false,
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
            | Event::Closes(_)
            | Event::Drops(_)
            | Event::Panics(..)
            | Event::MemoryIsShort
            | Event::CloseAll
            | Event::Abandon => {}
        }
    }

    pub(super) fn apply_to_app(&mut self, event: Event) {
        match event {
            Event::Writes(n) => self.apps[n].write(),
            Event::Reads(n) => self.apps[n].read(),
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
            Event::CloseAll => {
                self.closing = true;
                self.link.close(9, b"done");
            }
            Event::Abandon => {
                self.abandoned = true;
                self.link.abandon();
            }
            Event::Arrives(_)
            | Event::Hears(_)
            | Event::IsLost(_)
            | Event::Full
            | Event::Writable
            | Event::WritableUnsaid
            | Event::Fails(_)
            | Event::Alarm => {}
        }
    }
}
