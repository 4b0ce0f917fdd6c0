//! Groups of streams with credit of their own, beside that of streams and connection: the sessions
//! of WebTransport (draft-ietf-webtrans-http3 §5.4). Another protocol decides on the limits and
//! tells them to the peer; here the bytes are counted.

use rustc_hash::FxHashMap;

use super::event::Events;
use super::{StreamEvent, StreamId};
use crate::count::Count;
use crate::memory;

/// The account of a group, in bytes of its streams' contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupAccount {
    /// Bytes that the peer has sent at most, by the highest offsets and final sizes it told.
    pub received: u64,
    /// Bytes of these that the application has read or discarded.
    pub consumed: u64,
    /// Bytes written. What a reset discards unsent does not count.
    pub written: u64,
    /// How many bytes may be written in all.
    pub limit: u64,
    /// Whether somebody waits to write more than that.
    pub blocked: bool,
}

/// When a group is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupMarks {
    /// Once more than this was received: the limit that the peer knows.
    pub received: u64,
    /// Once at least this was consumed.
    pub consumed: u64,
}

#[derive(Debug)]
struct Group {
    account: GroupAccount,
    marks: GroupMarks,
    /// Streams whose writers wait for the limit.
    waiting: Vec<StreamId>,
    /// Whether it is among the news.
    reported: bool,
}

/// A stream of a group.
#[derive(Clone, Copy, Debug)]
struct Member {
    group: StreamId,
    /// Bytes at the front of what is written that do not count.
    exempt: u64,
    /// The offset up to which was written.
    end: u64,
}

impl Member {
    const fn counted(self) -> u64 {
        self.end.saturating_sub(self.exempt)
    }
}

/// The groups of a connection.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: FxHashMap<StreamId, Group>,
    members: FxHashMap<StreamId, Member>,
    news: Vec<StreamId>,
}

impl Groups {
    pub(super) fn open(&mut self, id: StreamId, limit: u64, marks: GroupMarks) {
        let account = GroupAccount {
            limit,
            ..GroupAccount::default()
        };
        let group = Group {
            account,
            marks,
            waiting: Vec::new(),
            reported: false,
        };
        self.groups.insert(id, group);
    }

    /// Adds a stream, of which `received`, `consumed` and `written` bytes were so far. The first
    /// `header` bytes in the direction of its initiator do not count.
    pub(super) fn join(&mut self, id: StreamId, joined: Joined) {
        let Some(group) = self.groups.get_mut(&joined.group) else {
            return;
        };
        let member = Member {
            group: joined.group,
            exempt: joined.exempt_written,
            end: joined.written,
        };
        let account = &mut group.account;
        let counted = |bytes: u64| bytes.saturating_sub(joined.exempt_received);
        account.received.count(counted(joined.received));
        account.consumed.count(counted(joined.consumed));
        account.written.count(member.counted());
        self.members.insert(id, member);
        self.report(joined.group);
    }

    /// Forgets a stream that is over.
    pub(super) fn leave(&mut self, id: StreamId) {
        let member = self.members.remove(&id);
        // It may have been finished while its writer waited.
        if let Some(group) = member.and_then(|it| self.groups.get_mut(&it.group)) {
            group.stop_waiting(id);
        }
    }

    /// Removes a group. Its streams are limited by the others' credit only.
    pub(super) fn close(&mut self, id: StreamId, events: &mut Events) {
        if let Some(group) = self.groups.remove(&id) {
            self.members.retain(|_, member| member.group != id);
            self.news.retain(|other| *other != id);
            for stream in group.waiting {
                events.push(StreamEvent::Writable(stream));
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(super) fn account(&self, id: StreamId) -> Option<GroupAccount> {
        self.groups.get(&id).map(|group| group.account)
    }

    pub(super) fn set_marks(&mut self, id: StreamId, marks: GroupMarks) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.marks = marks;
        }
    }

    /// Raises the limit on what is written, and wakes the writers that wait for it.
    pub(super) fn raise_limit(&mut self, id: StreamId, limit: u64, events: &mut Events) {
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        group.account.limit = group.account.limit.max(limit);
        group.wake(events);
    }

    /// Returns how many bytes the group's limit lets a stream write now.
    pub(super) fn writable(&self, id: StreamId) -> u64 {
        let Some(member) = self.members.get(&id) else {
            return u64::MAX;
        };
        let exempt = member.exempt.saturating_sub(member.end);
        let account = self.account(member.group).unwrap_or_default();
        account
            .limit
            .saturating_sub(account.written)
            .saturating_add(exempt)
    }

    /// A writer waits until the limit is raised.
    pub(super) fn wait(&mut self, id: StreamId) {
        let Some(member) = self.members.get(&id) else {
            return;
        };
        let group_id = member.group;
        if let Some(group) = self.groups.get_mut(&group_id) {
            if !group.waiting.contains(&id) {
                group.waiting.push(id);
            }
            group.account.blocked = true;
            self.report(group_id);
        }
    }

    pub(super) fn on_written(&mut self, id: StreamId, len: u64) {
        if let Some(member) = self.members.get_mut(&id) {
            let before = member.counted();
            member.end.count(len);
            let added = member.counted().saturating_sub(before);
            if let Some(group) = self.groups.get_mut(&member.group) {
                group.account.written.count(added);
            }
        }
    }

    /// A stream was reset: of what was written, only what lies before `final_size` counts.
    pub(super) fn on_reset(&mut self, id: StreamId, final_size: u64, events: &mut Events) {
        if let Some(member) = self.members.get_mut(&id) {
            let before = member.counted();
            member.end = member.end.min(final_size);
            let freed = before.saturating_sub(member.counted());
            if let Some(group) = self.groups.get_mut(&member.group) {
                group.stop_waiting(id);
                group.account.written = group.account.written.saturating_sub(freed);
                if freed > 0 {
                    group.wake(events);
                }
            }
        }
    }

    pub(super) fn on_received(&mut self, id: StreamId, raised: u64, discarded: u64) {
        if let Some(member) = self.members.get(&id) {
            let group_id = member.group;
            if let Some(group) = self.groups.get_mut(&group_id) {
                group.account.received.count(raised);
                group.account.consumed.count(discarded);
                self.report(group_id);
            }
        }
    }

    /// Reports a group whose marks are passed, or whose writers wait.
    fn report(&mut self, id: StreamId) {
        if let Some(group) = self.groups.get_mut(&id) {
            let account = &group.account;
            let due = account.received > group.marks.received
                || account.consumed >= group.marks.consumed
                || account.blocked;
            if due && !group.reported {
                group.reported = true;
                self.news.push(id);
            }
        }
    }

    pub(super) fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    pub(super) fn next_news(&mut self) -> Option<StreamId> {
        let id = self.news.pop()?;
        if let Some(group) = self.groups.get_mut(&id) {
            group.reported = false;
        }
        Some(id)
    }

    pub(super) fn memory(&self) -> usize {
        let waiting = self.groups.values().map(|it| memory::vec(&it.waiting));
        size_of::<Self>()
            .saturating_add(memory::hash_map(&self.groups))
            .saturating_add(memory::hash_map(&self.members))
            .saturating_add(memory::vec(&self.news))
            .saturating_add(waiting.fold(0, usize::saturating_add))
    }
}

impl Group {
    fn stop_waiting(&mut self, stream: StreamId) {
        self.waiting.retain(|waiting| *waiting != stream);
        self.account.blocked = !self.waiting.is_empty();
    }

    fn wake(&mut self, events: &mut Events) {
        if self.account.limit > self.account.written {
            self.account.blocked = false;
            for stream in self.waiting.drain(..) {
                events.push(StreamEvent::Writable(stream));
            }
        }
    }
}

/// A stream that joins a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joined {
    pub(super) group: StreamId,
    pub(super) received: u64,
    pub(super) consumed: u64,
    pub(super) written: u64,
    /// Bytes at the front that do not count.
    pub(super) exempt_received: u64,
    pub(super) exempt_written: u64,
}

impl super::Streams {
    /// Begins a group of streams that share a limit on what is written, in bytes. `marks` say when
    /// it is [reported](Self::next_group_news).
    pub fn open_group(&mut self, group: StreamId, limit: u64, marks: GroupMarks) {
        self.groups
            .get_or_insert_default()
            .open(group, limit, marks);
    }

    /// Adds a stream to a group. Its first `header` bytes, written by who opened it, do not count.
    pub fn join_group(&mut self, id: StreamId, group: StreamId, header: u64) {
        let (Some(groups), Some(stream)) = (&mut self.groups, self.streams.get(&id)) else {
            return;
        };
        let local = id.initiator() == self.role;
        let (received, consumed) =
            (stream.recv()).map_or((0, 0), |half| (half.highest(), half.window.consumed()));
        let joined = Joined {
            group,
            received,
            consumed,
            written: stream.send().map_or(0, |half| half.progress().written),
            exempt_received: if local { 0 } else { header },
            exempt_written: if local { header } else { 0 },
        };
        groups.join(id, joined);
    }

    /// Ends a group: its streams are limited no more.
    pub fn close_group(&mut self, group: StreamId) {
        if let Some(groups) = &mut self.groups {
            groups.close(group, &mut self.events);
        }
        self.groups.take_if(|groups| groups.is_empty());
    }

    /// Returns the account of a group.
    #[must_use]
    pub fn group_account(&self, group: StreamId) -> Option<GroupAccount> {
        self.groups.as_ref()?.account(group)
    }

    /// Raises the limit on what is written on the streams of a group, in bytes. A limit is never
    /// reduced.
    pub fn raise_group_limit(&mut self, group: StreamId, limit: u64) {
        if let Some(groups) = &mut self.groups {
            groups.raise_limit(group, limit, &mut self.events);
        }
    }

    /// Sets when a group is reported.
    pub fn set_group_marks(&mut self, group: StreamId, marks: GroupMarks) {
        if let Some(groups) = &mut self.groups {
            groups.set_marks(group, marks);
        }
    }

    /// Returns a group that has passed its marks, or whose writers wait for its limit.
    pub fn next_group_news(&mut self) -> Option<StreamId> {
        self.groups.as_mut()?.next_news()
    }

    /// Returns whether [`next_group_news`](Self::next_group_news) has one to return.
    pub(crate) fn has_group_news(&self) -> bool {
        self.groups.as_ref().is_some_and(|it| it.has_news())
    }

    /// Returns the receive window of the connection, in bytes, which grows with the reader's rate.
    #[must_use]
    pub fn receive_window(&self) -> u64 {
        self.receive.size()
    }

    /// Takes a reset into the account of the stream's group.
    pub(super) fn after_group_reset(&mut self, id: StreamId) {
        let half = self.streams.get(&id).and_then(super::halves::Stream::send);
        if let (Some(groups), Some(half)) = (&mut self.groups, half) {
            let final_size = half.final_size().max(half.reliable_size());
            groups.on_reset(id, final_size, &mut self.events);
        }
    }
}

#[cfg(test)]
mod tests;
