//! A server that sends without end.

use std::time::Duration;

use clearway_quic::stream::{Directionality, ReadError, StreamId, WriteError};

use super::World;

/// A download that never ends.
pub struct Bulk {
    id: StreamId,
    accepted: Option<StreamId>,
    /// Bytes the client has read.
    pub read: u64,
}

impl Bulk {
    /// Asks for it; the handshake is done.
    pub fn begin(world: &mut World) -> Self {
        Self {
            id: world.ask(),
            accepted: None,
            read: 0,
        }
    }

    /// Steps until `done`; false: not within `limit`.
    pub fn run_until(
        &mut self,
        world: &mut World,
        limit: Duration,
        mut done: impl FnMut(&mut World, u64) -> bool,
    ) -> bool {
        static CONTENT: [u8; 65_536] = [7; 65_536];
        world.run_until(limit, |world| {
            let server = world.server.connection();
            let accepted = self.accepted;
            self.accepted = accepted.or_else(|| server.accept(Directionality::Bidirectional));
            if let Some(id) = self.accepted {
                loop {
                    match server.write(id, &CONTENT) {
                        Ok(_) => {}
                        Err(WriteError::Blocked) => break,
                        Err(error) => panic!("write: {error:?}"),
                    }
                }
            }
            loop {
                match world.client.connection().read_chunk(self.id, usize::MAX) {
                    Ok(Some(chunk)) => self.read += chunk.len() as u64,
                    Ok(None) => panic!("the stream has no end"),
                    Err(ReadError::Blocked) => break,
                    Err(error) => panic!("read: {error:?}"),
                }
            }
            done(world, self.read)
        })
    }

    /// Runs for so long; the bytes read meanwhile.
    pub fn run_for(&mut self, world: &mut World, time: Duration) -> u64 {
        let before = self.read;
        self.run_until(world, time, |_, _| false);
        self.read - before
    }
}
