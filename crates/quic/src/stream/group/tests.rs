use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::Role;
use crate::stream::Directionality;

const STREAMS: u64 = 4;
const GROUPS: u64 = 2;

fn stream(n: u64) -> StreamId {
    StreamId::new(Role::Client, Directionality::Unidirectional, n)
}

fn group(n: u64) -> StreamId {
    StreamId::new(Role::Client, Directionality::Bidirectional, n)
}

/// A call of [`Groups`].
#[derive(Clone, Debug)]
enum Call {
    Open {
        group: u64,
        limit: u64,
        marks: [u64; 2],
    },
    Join {
        stream: u64,
        group: u64,
        received: u64,
        written: u64,
        /// The header is in the direction in which we write.
        local: bool,
        header: u64,
    },
    Leave(u64),
    Close(u64),
    Raise(u64, u64),
    Mark(u64, [u64; 2]),
    /// As much of it as may be written; if that is nothing, the writer waits.
    Write(u64, u64),
    Reset(u64, u64),
    Receive(u64, u64),
    Consume(u64, u64),
    /// The news are taken.
    Look,
}

/// Small numbers, and the largest that a frame can carry.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..12_u64, 1 => Just((1 << 62) - 1)]
}

fn call() -> impl Strategy<Value = Call> {
    let (stream, group) = (0..STREAMS, 0..GROUPS);
    let marks = || [number(), number()];
    prop_oneof![
        2 => (group.clone(), number(), marks())
            .prop_map(|(group, limit, marks)| Call::Open { group, limit, marks }),
        3 => (stream.clone(), group.clone(), 0..6_u64, 0..6_u64, any::<bool>(), 0..4_u64).prop_map(
            |(stream, group, received, written, local, header)| Call::Join {
                stream, group, received, written, local, header,
            }
        ),
        1 => stream.clone().prop_map(Call::Leave),
        1 => group.clone().prop_map(Call::Close),
        2 => (group.clone(), number()).prop_map(|(group, limit)| Call::Raise(group, limit)),
        1 => (group, marks()).prop_map(|(group, marks)| Call::Mark(group, marks)),
        6 => (stream.clone(), number()).prop_map(|(stream, len)| Call::Write(stream, len)),
        2 => (stream.clone(), number()).prop_map(|(stream, size)| Call::Reset(stream, size)),
        3 => (stream.clone(), number()).prop_map(|(stream, len)| Call::Receive(stream, len)),
        3 => (stream, number()).prop_map(|(stream, len)| Call::Consume(stream, len)),
        1 => Just(Call::Look),
    ]
}

/// What a group must do, computed from all that has happened.
#[derive(Debug, Default)]
struct GroupModel {
    limit: u64,
    marks: [u64; 2],
    received: u64,
    consumed: u64,
    /// Bytes written on streams that are over.
    written_before: u64,
    waiting: BTreeSet<u64>,
    /// It passed its marks, or a writer waits, and nobody has looked since.
    due: bool,
}

#[derive(Debug)]
struct StreamModel {
    group: u64,
    exempt: u64,
    end: u64,
}

#[derive(Debug, Default)]
struct Model {
    groups: BTreeMap<u64, GroupModel>,
    streams: BTreeMap<u64, StreamModel>,
}

impl Model {
    fn written(&self, group: u64) -> u64 {
        let of_group = self.streams.values().filter(|it| it.group == group);
        of_group
            .map(|it| it.end.saturating_sub(it.exempt))
            .fold(self.groups[&group].written_before, u64::saturating_add)
    }

    fn writable(&self, stream: u64) -> u64 {
        let Some(it) = self.streams.get(&stream) else {
            return u64::MAX;
        };
        let left = self.groups[&it.group]
            .limit
            .saturating_sub(self.written(it.group));
        left.saturating_add(it.exempt.saturating_sub(it.end))
    }

    /// The streams whose writers are woken, because there is credit again.
    fn wake(&mut self, group: u64) -> BTreeSet<u64> {
        let has_credit = self.groups[&group].limit > self.written(group);
        let group = self.groups.get_mut(&group).expect("open");
        if has_credit {
            std::mem::take(&mut group.waiting)
        } else {
            BTreeSet::new()
        }
    }

    fn look_at(&mut self, group: u64) {
        let it = self.groups.get_mut(&group).expect("open");
        let [received, consumed] = it.marks;
        it.due |= it.received > received || it.consumed >= consumed || !it.waiting.is_empty();
    }
}

#[derive(Debug, Default)]
struct World {
    groups: Groups,
    events: Events,
    model: Model,
}

impl World {
    /// Makes a call, and checks what has to hold after it.
    fn apply(&mut self, call: &Call) {
        let woken = self.call(call);
        let mut told = BTreeSet::new();
        while let Some(event) = self.events.poll() {
            let StreamEvent::Writable(id) = event else {
                panic!("{event:?}");
            };
            assert!(told.insert(id.index()), "{id:?} is woken twice");
        }
        assert_eq!(told, woken, "the writers that are woken");
        for (&n, it) in &self.model.groups {
            let account = self.groups.account(group(n)).expect("open");
            let expected = GroupAccount {
                received: it.received,
                consumed: it.consumed,
                written: self.model.written(n),
                limit: it.limit,
                blocked: !it.waiting.is_empty(),
            };
            assert_eq!(account, expected, "the account of group {n}");
        }
        for n in 0..STREAMS {
            assert_eq!(self.groups.writable(stream(n)), self.model.writable(n));
        }
        let due = self.model.groups.values().any(|it| it.due);
        assert_eq!(self.groups.has_news(), due);
        assert_eq!(self.groups.is_empty(), self.model.groups.is_empty());
    }

    /// Makes a call in both, if the callers of the production code could make it. Returns the
    /// streams whose writers have to be woken.
    fn call(&mut self, call: &Call) -> BTreeSet<u64> {
        let none = BTreeSet::new();
        let Self {
            groups,
            events,
            model,
        } = self;
        match *call {
            Call::Open {
                group: n,
                limit,
                marks,
            } => {
                if model.groups.contains_key(&n) {
                    return none;
                }
                groups.open(group(n), limit, self::marks(marks));
                let opened = GroupModel {
                    limit,
                    marks,
                    ..GroupModel::default()
                };
                model.groups.insert(n, opened);
            }
            Call::Join {
                stream: id,
                group: n,
                received,
                written,
                local,
                header,
            } => {
                if model.streams.contains_key(&id) {
                    return none;
                }
                let [exempt_written, exempt_received] = match local {
                    true => [header, 0],
                    false => [0, header],
                };
                // The header of a peer's stream was read.
                let consumed = exempt_received.min(received);
                groups.join(
                    stream(id),
                    Joined {
                        group: group(n),
                        received,
                        consumed,
                        written,
                        exempt_received,
                        exempt_written,
                    },
                );
                let Some(it) = model.groups.get_mut(&n) else {
                    return none;
                };
                it.received = (it.received).saturating_add(received - consumed);
                let joined = StreamModel {
                    group: n,
                    exempt: exempt_written,
                    end: written,
                };
                model.streams.insert(id, joined);
                model.look_at(n);
            }
            Call::Leave(id) => {
                groups.leave(stream(id));
                let Some(it) = model.streams.remove(&id) else {
                    return none;
                };
                let group = model.groups.get_mut(&it.group).expect("open");
                let written = it.end.saturating_sub(it.exempt);
                group.written_before = group.written_before.saturating_add(written);
                group.waiting.remove(&id);
            }
            Call::Close(n) => {
                groups.close(group(n), events);
                model.streams.retain(|_, it| it.group != n);
                return (model.groups.remove(&n)).map_or(none, |it| it.waiting);
            }
            Call::Raise(n, limit) => {
                groups.raise_limit(group(n), limit, events);
                let Some(it) = model.groups.get_mut(&n) else {
                    return none;
                };
                it.limit = it.limit.max(limit);
                return model.wake(n);
            }
            Call::Mark(n, marks) => {
                groups.set_marks(group(n), self::marks(marks));
                if let Some(it) = model.groups.get_mut(&n) {
                    it.marks = marks;
                }
            }
            Call::Write(id, len) => {
                let len = len.min(groups.writable(stream(id)));
                if len > 0 {
                    groups.on_written(stream(id), len);
                } else {
                    groups.wait(stream(id));
                }
                let Some(it) = model.streams.get_mut(&id) else {
                    return none;
                };
                it.end = it.end.saturating_add(len);
                let n = it.group;
                if len == 0 {
                    let group = model.groups.get_mut(&n).expect("open");
                    group.waiting.insert(id);
                    model.look_at(n);
                }
            }
            Call::Reset(id, size) => {
                groups.on_reset(stream(id), size, events);
                let Some(it) = model.streams.get_mut(&id) else {
                    return none;
                };
                let before = it.end.saturating_sub(it.exempt);
                it.end = it.end.min(size);
                let freed = before > it.end.saturating_sub(it.exempt);
                let n = it.group;
                let group = model.groups.get_mut(&n).expect("open");
                group.waiting.remove(&id);
                return if freed { model.wake(n) } else { none };
            }
            Call::Receive(id, len) | Call::Consume(id, len) => {
                let n = model.streams.get(&id).map(|it| it.group);
                let Some(it) = n.and_then(|n| model.groups.get_mut(&n)) else {
                    groups.on_received(stream(id), len, len);
                    return none;
                };
                let [raised, discarded] = match call {
                    Call::Consume(..) => [0, len.min(it.received - it.consumed)],
                    _ => [len, 0],
                };
                groups.on_received(stream(id), raised, discarded);
                it.received = it.received.saturating_add(raised);
                it.consumed += discarded;
                n.into_iter().for_each(|n| model.look_at(n));
            }
            Call::Look => {
                let mut news = BTreeSet::new();
                while let Some(id) = groups.next_news() {
                    assert!(news.insert(id.index()), "{id:?} is reported twice");
                }
                let due = model.groups.iter_mut().filter(|(_, it)| it.due);
                let due: BTreeSet<u64> = due
                    .map(|(&n, it)| {
                        it.due = false;
                        n
                    })
                    .collect();
                assert_eq!(news, due, "the groups that are reported");
            }
        }
        none
    }
}

fn marks([received, consumed]: [u64; 2]) -> GroupMarks {
    GroupMarks { received, consumed }
}

proptest! {
    /// After any calls: the accounts are the sums of their streams, what may be written is what the
    /// limit leaves, waiting writers are woken exactly when there is credit, and a group is reported
    /// exactly once after it has passed its marks or somebody waits.
    #[test]
    fn accounts_credit_wakeups_and_news_agree_with_the_sum_of_all_calls(
        calls in proptest::collection::vec(call(), 1..60),
    ) {
        let mut world = World::default();
        for call in &calls {
            world.apply(call);
        }
        world.apply(&Call::Look);
    }
}

/// Every order of up to six calls on one group with two streams and a limit of two bytes.
#[test]
fn no_short_order_of_calls_breaks_the_account() {
    let calls = [
        Call::Write(0, 1),
        Call::Write(0, 5),
        Call::Write(1, 2),
        Call::Reset(0, 0),
        Call::Raise(0, 3),
        Call::Leave(0),
        Call::Receive(1, 2),
        Call::Consume(1, 1),
        Call::Look,
    ];
    let begin = || {
        let mut world = World::default();
        world.apply(&Call::Open {
            group: 0,
            limit: 2,
            marks: [1, 1],
        });
        for (stream, local) in [(0, true), (1, false)] {
            world.apply(&Call::Join {
                stream,
                group: 0,
                received: 0,
                written: 0,
                local,
                header: 1,
            });
        }
        world
    };
    let depth = if cfg!(debug_assertions) { 5 } else { 6 };
    let mut order = vec![0; depth];
    loop {
        let mut world = begin();
        order.iter().for_each(|&at: &usize| world.apply(&calls[at]));
        let Some(last) = order.iter().rposition(|&at| at + 1 < calls.len()) else {
            return;
        };
        order[last] += 1;
        order[last + 1..].fill(0);
    }
}

#[test]
fn header_costs_no_credit_and_can_be_written_at_the_limit() {
    let mut world = World::default();
    let open = Call::Open {
        group: 0,
        limit: 0,
        marks: [0, 1],
    };
    world.apply(&open);
    world.apply(&Call::Join {
        stream: 0,
        group: 0,
        received: 0,
        written: 0,
        local: true,
        header: 3,
    });
    assert_eq!(world.groups.writable(stream(0)), 3);
    world.apply(&Call::Write(0, 10));
    assert_eq!(world.groups.account(group(0)).map(|it| it.written), Some(0));
    assert_eq!(world.groups.writable(stream(0)), 0);
}

#[test]
fn writer_of_a_stream_that_is_over_does_not_leave_its_group_blocked() {
    let mut world = World::default();
    let open = Call::Open {
        group: 0,
        limit: 0,
        marks: [0, 1],
    };
    world.apply(&open);
    for stream in [0, 1] {
        world.apply(&Call::Join {
            stream,
            group: 0,
            received: 0,
            written: 0,
            local: false,
            header: 0,
        });
        world.apply(&Call::Write(stream, 1));
    }
    // It was finished while its writer waited.
    world.apply(&Call::Leave(0));
    assert!(world.groups.account(group(0)).is_some_and(|it| it.blocked));
    world.apply(&Call::Leave(1));
    assert!(!world.groups.account(group(0)).is_some_and(|it| it.blocked));
}
