//! Whatever the network does, the bytes arrive, and everything ends.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::stream::{Sendability, WriteError};

/// What the application of one end does, and what happens to packets.
#[derive(Clone, Copy, Debug)]
enum Op {
    Open(Directionality),
    Write(u8, u16),
    Finish(u8),
    Reset(u8),
    Stop(u8),
    Read(u8, u16),
    Send(u16, Fate),
    Late,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives,
    ArrivesTwice,
    Lost,
    /// Declared lost, arrives all the same, later.
    Late,
    /// A probe repeats its frames though it arrives.
    Probed,
}

/// One direction of one stream, as its writer knows it.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    len: u64,
    finished: bool,
    abandoned: bool,
}

struct End {
    streams: Streams,
    written: BTreeMap<StreamId, Written>,
    read: BTreeMap<StreamId, u64>,
    ended: BTreeMap<StreamId, bool>,
    late: Vec<Packet>,
}

impl End {
    fn new(streams: Streams) -> Self {
        Self {
            streams,
            written: BTreeMap::new(),
            read: BTreeMap::new(),
            ended: BTreeMap::new(),
            late: Vec::new(),
        }
    }

    fn take_up(&mut self) {
        for dir in [BIDI, UNI] {
            while let Some(id) = self.streams.accept(dir) {
                self.adopt(id);
            }
        }
    }

    fn adopt(&mut self, id: StreamId) {
        let local = id.initiator() == self.streams.role;
        if local || id.directionality() == BIDI {
            self.written.insert(id, Written::default());
        }
        if !local || id.directionality() == BIDI {
            self.read.insert(id, 0);
        }
    }

    fn writable(&self, n: u8) -> Option<StreamId> {
        self.written
            .keys()
            .nth(usize::from(n) % self.written.len().max(1))
            .copied()
    }

    fn readable(&self, n: u8) -> Option<StreamId> {
        self.read
            .keys()
            .nth(usize::from(n) % self.read.len().max(1))
            .copied()
    }

    fn write(&mut self, id: StreamId, len: usize) {
        let written = self.written.get_mut(&id).unwrap();
        let data = pattern(id, written.len, len);
        match self.streams.write(id, &data) {
            Ok(n) => {
                assert!(n > 0 || len == 0);
                written.len += n as u64;
            }
            Err(WriteError::Blocked) => {}
            Err(WriteError::Finished) => assert!(written.finished),
            Err(WriteError::Stopped(_)) => written.abandoned = true,
            // Over since: delivered, or reset by us or at the peer's wish.
            Err(WriteError::Unknown) => written.abandoned |= !written.finished,
        }
    }

    fn read(&mut self, id: StreamId, max: usize) {
        let offset = self.read.get_mut(&id).unwrap();
        // Both ways of reading, in turns.
        let read = if max.is_multiple_of(2) {
            let chunk = self.streams.read_chunk(id, max);
            chunk.map(|chunk| (chunk.is_none(), chunk.unwrap_or_default()))
        } else {
            let chunk = self.streams.read_chunk_with_end(id, max);
            chunk.map(|(chunk, is_last)| (is_last, chunk))
        };
        match read {
            Ok((is_last, chunk)) => {
                assert_eq!(chunk, pattern(id, *offset, chunk.len()));
                *offset += chunk.len() as u64;
                if is_last {
                    assert_eq!(self.ended.insert(id, true), None);
                }
            }
            Err(ReadError::Reset(_) | ReadError::Unknown) => {
                self.ended.entry(id).or_insert(false);
            }
            Err(ReadError::Blocked) => {}
        }
    }

    fn check_bounds(&self) {
        let counts = self.streams.counts();
        let blocks = counts.open * (32 << 10);
        assert!(counts.receive_buffered <= 4 * 40_000 + blocks, "{counts:?}");
        assert!(
            counts.send_buffered <= (64 << 10) + counts.open * (80 << 10),
            "{counts:?}"
        );
    }
}

fn run(op: Op, me: &mut End, peer: &mut End) {
    me.take_up();
    match op {
        Op::Open(dir) => {
            if let Some(id) = me.streams.open(dir) {
                me.adopt(id);
            }
        }
        Op::Write(n, len) => {
            if let Some(id) = me.writable(n) {
                me.write(id, usize::from(len));
            }
        }
        Op::Finish(n) => {
            if let Some(id) = me.writable(n)
                && me.streams.finish(id).is_ok()
            {
                me.written.get_mut(&id).unwrap().finished = true;
            }
        }
        Op::Reset(n) => {
            if let Some(id) = me.writable(n) {
                let _over = me.streams.reset(id, 1);
                me.written.get_mut(&id).unwrap().abandoned = true;
            }
        }
        Op::Stop(n) => {
            if let Some(id) = me.readable(n) {
                let _over = me.streams.stop(id, 2);
                me.ended.entry(id).or_insert(false);
            }
        }
        Op::Read(n, max) => {
            if let Some(id) = me.readable(n) {
                me.read(id, usize::from(max));
            }
        }
        Op::Send(size, fate) => send(me, peer, 100 + usize::from(size) % 1_300, fate),
        Op::Late => {
            for packet in me.late.drain(..) {
                deliver(&mut peer.streams, &packet.bytes).unwrap();
                acked(&mut me.streams, &packet);
            }
        }
    }
    me.check_bounds();
    peer.check_bounds();
}

fn send(me: &mut End, peer: &mut End, size: usize, fate: Fate) {
    let before = me.streams.sendability() == Sendability::Ready;
    let riders = ride(&mut me.streams);
    deliver(&mut peer.streams, &riders.bytes).unwrap();
    let ready = me.streams.sendability() == Sendability::Ready;
    let packet = fill_at(&mut me.streams, Instant::ZERO, size);
    assert!(
        packet.is_none() || ready,
        "sendability tells what fill does"
    );
    assert!(
        packet.is_some() || !before || !riders.contents.is_empty(),
        "sendability tells what fill does"
    );
    let Some(packet) = packet else { return };
    match fate {
        Fate::Arrives | Fate::ArrivesTwice => {
            deliver(&mut peer.streams, &packet.bytes).unwrap();
            if matches!(fate, Fate::ArrivesTwice) {
                deliver(&mut peer.streams, &packet.bytes).unwrap();
            }
            acked(&mut me.streams, &packet);
        }
        Fate::Lost => lost(&mut me.streams, &packet),
        Fate::Late => {
            lost(&mut me.streams, &packet);
            me.late.push(packet);
        }
        Fate::Probed => {
            lost(&mut me.streams, &packet);
            deliver(&mut peer.streams, &packet.bytes).unwrap();
            acked(&mut me.streams, &packet);
            lost(&mut me.streams, &packet);
        }
    }
}

/// Finishes and reads everything over a perfect network until both ends are silent.
fn wind_up(a: &mut End, b: &mut End) {
    for end in [&mut *a, &mut *b] {
        end.take_up();
    }
    for _ in 0..2_000 {
        run(Op::Late, a, b);
        run(Op::Late, b, a);
        let mut idle = true;
        idle &= exchange(a, b);
        idle &= exchange(b, a);
        if idle {
            return;
        }
    }
    panic!("never ends");
}

/// One end finishes what it writes, reads what there is and sends; `true` if idle.
fn exchange(me: &mut End, peer: &mut End) -> bool {
    me.take_up();
    for (id, written) in &mut me.written {
        if me.streams.finish(*id).is_ok() {
            written.finished = true;
        }
    }
    let before = me.read.clone();
    let ids: Vec<StreamId> = me.read.keys().copied().collect();
    for id in ids {
        while !me.ended.contains_key(&id) {
            let at = me.read[&id];
            me.read(id, 5_000);
            if me.read[&id] == at {
                break;
            }
        }
    }
    let packets = carry(&mut me.streams, &mut peer.streams);
    events(&mut me.streams);
    packets.is_empty() && before == me.read
}

fn check_end(writer: &End, reader: &End) {
    for (id, written) in &writer.written {
        let whole = reader.ended.get(id) == Some(&true);
        if whole {
            assert_eq!(reader.read[id], written.len, "{id} ended early or late");
        }
        let given_up = reader.ended.get(id) == Some(&false);
        let cut = written.abandoned || given_up;
        assert!(
            whole || cut,
            "{id}: {written:?}, read {:?}",
            reader.read.get(id)
        );
    }
    let counts = writer.streams.counts();
    assert_eq!(
        (counts.open, counts.send_buffered, counts.receive_buffered),
        (0, 0, 0)
    );
    assert_eq!(writer.streams.sending.charged(), 0);
    assert!(writer.streams.control.is_empty());
}

fn op() -> impl Strategy<Value = Op> {
    let dir = prop_oneof![Just(BIDI), Just(UNI)];
    let fate = prop_oneof![
        6 => Just(Fate::Arrives),
        1 => Just(Fate::ArrivesTwice),
        3 => Just(Fate::Lost),
        2 => Just(Fate::Late),
        1 => Just(Fate::Probed),
    ];
    prop_oneof![
        2 => dir.prop_map(Op::Open),
        6 => (any::<u8>(), 0u16..12_000).prop_map(|(n, len)| Op::Write(n, len)),
        1 => any::<u8>().prop_map(Op::Finish),
        1 => any::<u8>().prop_map(Op::Reset),
        1 => any::<u8>().prop_map(Op::Stop),
        6 => (any::<u8>(), 1u16..9_000).prop_map(|(n, len)| Op::Read(n, len)),
        14 => (any::<u16>(), fate).prop_map(|(size, fate)| Op::Send(size, fate)),
        1 => Just(Op::Late),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Loss, duplication, reordering and spurious loss, with every operation mixed in:
    /// what is read is what was written, the peer's credit is never exceeded (the
    /// receiver would refuse), memory is bounded, and nothing is left over.
    #[test]
    fn any_history_delivers_all_bytes(
        ops in prop::collection::vec((any::<bool>(), op()), 1..300)
    ) {
        let (client, server) = pair(tight());
        let (mut a, mut b) = (End::new(client), End::new(server));
        for (swap, op) in ops {
            if swap { run(op, &mut b, &mut a) } else { run(op, &mut a, &mut b) }
        }
        wind_up(&mut a, &mut b);
        check_end(&a, &b);
        check_end(&b, &a);
        for end in [&mut a, &mut b] {
            for dir in [BIDI, UNI] {
                prop_assert!(end.streams.open(dir).is_some(), "all room is given back");
            }
        }
    }
}

#[test]
fn rejected_0rtt_data_is_resent_under_new_limits() {
    let server_limits = Streams::new(Role::Server, tight()).initial_limits();
    let mut client = Streams::new(Role::Client, Config::default());
    client.set_peer_limits(crate::stream::PeerLimits {
        streams_bidi: 6,
        ..server_limits
    });
    let mut written = Vec::new();
    for index in 0..6 {
        let id = client.open(BIDI).unwrap();
        let data = pattern(id, 0, 700 + 300 * index);
        client.write(id, &data).unwrap();
        client.finish(id).unwrap();
        written.push((id, data));
    }
    let doomed = client.open(BIDI);
    assert_eq!(doomed, None);
    client.reset(written[2].0, 9).unwrap();
    while fill(&mut client).is_some() {}
    client.on_zero_rtt_rejected();
    assert_ne!(client.sendability(), Sendability::Ready);
    client.set_peer_limits(server_limits);
    let mut server = Streams::new(Role::Server, tight());
    server.set_peer_limits(client.initial_limits());
    carry(&mut client, &mut server);
    let opened = core::iter::from_fn(|| server.accept(BIDI)).count();
    assert_eq!(opened, 4, "the others wait for the lower limit");
    for (id, data) in &written[..4] {
        let mut out = Vec::new();
        let end = read_all(&mut server, *id, &mut out);
        if id.index() == 2 {
            assert_eq!(end, Err(ReadError::Reset(9)));
        } else {
            assert_eq!((end, &out), (Ok(true), data));
        }
        server.finish(*id).unwrap();
        settle(&mut server, &mut client);
        assert_eq!(read_all(&mut client, *id, &mut Vec::new()), Ok(true));
    }
    settle(&mut server, &mut client);
    for (id, data) in &written[4..] {
        let mut out = Vec::new();
        assert_eq!(read_all(&mut server, *id, &mut out), Ok(true));
        assert_eq!(&out, data);
    }
}

#[test]
fn stop_sending_is_answered_with_reset_of_same_code() {
    let (mut client, mut server) = pair(Config::default());
    let id = client.open(UNI).unwrap();
    client.write(id, &[0; 5_000]).unwrap();
    carry(&mut client, &mut server);
    server.stop(id, 77).unwrap();
    carry(&mut server, &mut client);
    assert_eq!(events(&mut client), [StreamEvent::Stopped { id, code: 77 }]);
    assert_eq!(client.write(id, b"x"), Err(WriteError::Stopped(77)));
    let packets = carry(&mut client, &mut server);
    assert_eq!(packets[0].contents, [StreamContent::Reset(id)]);
    assert_eq!((client.counts().open, server.counts().open), (0, 0));
    assert_eq!(server.counts().consumed, 5_000);
}

#[test]
fn events_of_one_stream_from_open_to_finish() {
    let (mut client, mut server) = pair(Config::default());
    let id = client.open(BIDI).unwrap();
    client.write(id, b"hello").unwrap();
    carry(&mut client, &mut server);
    let opened = [StreamEvent::Opened(BIDI), StreamEvent::Readable(id)];
    assert_eq!(events(&mut server), opened);
    client.write(id, b"world").unwrap();
    client.finish(id).unwrap();
    carry(&mut client, &mut server);
    assert_eq!(events(&mut server), [], "not told twice");
    assert_eq!(events(&mut client), [StreamEvent::Finished(id)]);
    let mut out = Vec::new();
    assert_eq!(read_all(&mut server, id, &mut out), Ok(true));
    assert_eq!(out, b"helloworld");
}
