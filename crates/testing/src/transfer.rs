//! Downloads over a world.

use std::time::Duration;

use clearway_quic::stream::{Directionality, ReadError, StreamId, WriteError};

use super::World;

/// Downloads `total` bytes on one stream and checks every one of them. Returns whether they arrived
/// within `limit`.
///
/// # Panics
/// If a byte is wrong or the stream fails.
pub fn download(world: &mut World, total: usize, limit: Duration) -> bool {
    download_watched(world, total, limit, |_| {})
}

/// Same as [`download`], and calls `watch` after every step.
///
/// # Panics
/// If a byte is wrong or the stream fails.
pub fn download_watched(
    world: &mut World,
    total: usize,
    limit: Duration,
    mut watch: impl FnMut(&mut World),
) -> bool {
    let id = world.ask();
    world.client.connection().finish(id).expect("finishes");
    let (mut written, mut read, mut accepted) = (0, 0, None);
    world.run_until(limit, |world| {
        watch(world);
        let server = world.server.connection();
        accepted = accepted.or_else(|| server.accept(Directionality::Bidirectional));
        if let Some(id) = accepted {
            while written < total {
                let piece: Vec<u8> = (written..total.min(written + 65_536))
                    .map(|i| i as u8)
                    .collect();
                match server.write(id, &piece) {
                    Ok(n) => written += n,
                    Err(WriteError::Blocked) => break,
                    Err(error) => panic!("write: {error:?}"),
                }
                if written == total {
                    server.finish(id).expect("finishes");
                }
            }
        }
        let client = world.client.connection();
        loop {
            match client.read_chunk(id, usize::MAX) {
                Ok(Some(chunk)) => {
                    for byte in chunk {
                        assert_eq!(byte, read as u8, "at {read}");
                        read += 1;
                    }
                }
                Ok(None) => return true,
                Err(ReadError::Blocked) => return false,
                Err(error) => panic!("read: {error:?}"),
            }
        }
    }) && read == total
}

/// A download without an end.
#[derive(Debug)]
pub struct Bulk {
    id: StreamId,
    accepted: Option<StreamId>,
    /// Bytes that the client has read.
    pub read: u64,
}

impl Bulk {
    /// Starts the download, after the handshake.
    pub fn begin(world: &mut World) -> Self {
        Self {
            id: world.ask(),
            accepted: None,
            read: 0,
        }
    }

    /// Runs until `done` returns true, for at most `limit`. Returns whether it did.
    ///
    /// # Panics
    /// If the stream fails.
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

    /// Runs for `time` and returns the number of bytes read meanwhile.
    pub fn run_for(&mut self, world: &mut World, time: Duration) -> u64 {
        let before = self.read;
        self.run_until(world, time, |_, _| false);
        self.read - before
    }
}
