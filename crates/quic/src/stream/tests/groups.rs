//! Groups of streams at both ends of a connection.

use proptest::prelude::*;

use super::*;
use crate::stream::{GroupAccount, GroupMarks, WriteError};

/// What the bytes of a header are, which count on neither side.
const HEADER: usize = 3;

/// What happens on a stream of the client's, or on the way.
#[derive(Clone, Copy, Debug)]
enum Step {
    Open,
    Write(usize, usize),
    Finish(usize),
    Reset(usize),
    /// The server takes a stream, or reads from one, or does not want it.
    Accept,
    Read(usize, usize),
    Stop(usize),
    /// A packet arrives, with its acknowledgement, or is lost.
    Packet,
    Loss,
    /// The server grants so much more than was consumed.
    Grant(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0..4_usize;
    prop_oneof![
        2 => Just(Step::Open),
        6 => (which.clone(), 1..3_000_usize).prop_map(|(n, len)| Step::Write(n, len)),
        1 => which.clone().prop_map(Step::Finish),
        1 => which.clone().prop_map(Step::Reset),
        2 => Just(Step::Accept),
        4 => (which.clone(), 1..3_000_usize).prop_map(|(n, len)| Step::Read(n, len)),
        1 => which.prop_map(Step::Stop),
        6 => Just(Step::Packet),
        1 => Just(Step::Loss),
        2 => (0..4_000_u64).prop_map(Step::Grant),
    ]
}

struct World {
    client: Streams,
    server: Streams,
    group: StreamId,
    sent: Vec<StreamId>,
    /// Streams whose header is incomplete, with the bytes of it that were read.
    headers: Vec<(StreamId, usize)>,
    taken: Vec<StreamId>,
    limit: u64,
}

impl World {
    fn new(limit: u64) -> Self {
        let (mut client, mut server) = pair(Config::default());
        let group = client.open(BIDI).unwrap();
        let never = GroupMarks {
            received: u64::MAX,
            consumed: u64::MAX,
        };
        client.open_group(group, limit, never);
        server.open_group(group, 0, never);
        // A reset still delivers the header.
        client.set_reliable_resets(true);
        Self {
            client,
            server,
            group,
            sent: Vec::new(),
            headers: Vec::new(),
            taken: Vec::new(),
            limit,
        }
    }

    fn accounts(&self) -> [GroupAccount; 2] {
        [&self.client, &self.server].map(|it| it.group_account(self.group).unwrap())
    }

    /// Takes the streams whose header has arrived.
    fn take(&mut self) {
        while let Some(id) = self.server.accept(UNI) {
            self.headers.push((id, 0));
        }
        for (id, mut read) in core::mem::take(&mut self.headers) {
            let mut header = [0; HEADER];
            // Not beyond it, where a reset would be reported and the stream be over.
            while read < HEADER
                && let Ok(Some(more @ 1..)) = self.server.read(id, &mut header[read..])
            {
                read += more;
            }
            if read < HEADER {
                self.headers.push((id, read));
            } else {
                self.server.join_group(id, self.group, HEADER as u64);
                self.taken.push(id);
            }
        }
    }

    fn apply(&mut self, step: Step) {
        let nth = |ids: &[StreamId], n: usize| ids.get(n % ids.len().max(1)).copied();
        match step {
            Step::Open => {
                if let Some(id) = self.client.open(UNI) {
                    self.client.join_group(id, self.group, HEADER as u64);
                    let written = self.client.write(id, &[0; HEADER]);
                    assert_eq!(written, Ok(HEADER), "a header needs no credit");
                    self.sent.push(id);
                }
            }
            Step::Write(n, len) => {
                if let Some(id) = nth(&self.sent, n) {
                    let [before, _] = self.accounts();
                    let written = self.client.write(id, &vec![7; len]);
                    if written == Err(WriteError::Blocked) && before.written >= before.limit {
                        assert!(self.accounts()[0].blocked);
                    }
                }
            }
            Step::Finish(n) => {
                let _ = nth(&self.sent, n).map(|id| self.client.finish(id));
            }
            Step::Reset(n) => {
                let reset = |id| self.client.reset_at(id, 5, HEADER as u64);
                let _ = nth(&self.sent, n).map(reset);
            }
            Step::Accept => self.take(),
            Step::Read(n, len) => {
                if let Some(id) = nth(&self.taken, n) {
                    let _ = self.server.read_chunk(id, len);
                }
            }
            Step::Stop(n) => {
                let _ = nth(&self.taken, n).map(|id| self.server.stop(id, 6));
            }
            Step::Packet => {
                if let Some(packet) = fill(&mut self.client) {
                    deliver(&mut self.server, &packet.bytes).unwrap();
                    acked(&mut self.client, &packet);
                }
                carry(&mut self.server, &mut self.client);
            }
            Step::Loss => {
                if let Some(packet) = fill(&mut self.client) {
                    lost(&mut self.client, &packet);
                }
            }
            Step::Grant(more) => {
                self.limit = self.limit.max(self.accounts()[1].consumed + more);
                self.client.raise_group_limit(self.group, self.limit);
            }
        }
        let [client, server] = self.accounts();
        assert!(client.written <= self.limit, "{client:?}");
        assert!(server.received <= self.limit, "{server:?}");
        assert!(server.consumed <= server.received, "{server:?}");
    }

    /// Ends every stream, and lets everything arrive and be read.
    fn finish(&mut self) {
        for id in self.sent.clone() {
            let _ = self.client.finish(id);
        }
        for _ in 0..100 {
            settle(&mut self.client, &mut self.server);
            self.take();
            for id in self.taken.clone() {
                let _ = read_all(&mut self.server, id, &mut Vec::new());
            }
        }
    }
}

proptest! {
    /// Whatever is written, reset, stopped, lost and granted in whatever order: the sender never
    /// exceeds the limit, and in the end both ends agree on what was sent and consumed.
    #[test]
    fn both_ends_agree_on_the_account_of_a_group(
        limit in 0..5_000_u64,
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let mut world = World::new(limit);
        for &step in &steps {
            world.apply(step);
        }
        world.finish();
        let [client, server] = world.accounts();
        prop_assert_eq!(client.written, server.received);
        prop_assert_eq!(server.received, server.consumed);
    }
}
