//! clearway-raw as quinn's servers answer it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use anyhow::Result;
use contract::pattern::{HEADER, pattern};
use quinn::{Connection, ConnectionError, RecvStream, SendStream, VarInt, WriteError};

/// Application error code of a request shorter than its header.
const MALFORMED: VarInt = VarInt::from_u32(1);

/// What one connection moved.
#[derive(Debug, Default)]
pub struct Tally {
    sent: AtomicU64,
    received: AtomicU64,
    requests: AtomicU64,
}

impl Tally {
    /// Bytes of answers.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    /// Bytes of uploads.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// Requests that came whole.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }
}

/// Answers every stream until the connection ends; returns why it did.
pub async fn answer_all(connection: &Connection, tally: &Arc<Tally>) -> ConnectionError {
    loop {
        match connection.accept_bi().await {
            Ok((send, receive)) => {
                let tally = Arc::clone(tally);
                // A stream's end concerns that stream alone; the connection's shows above.
                tokio::spawn(async move { answer(send, receive, &tally).await });
            }
            Err(cause) => return cause,
        }
    }
}

/// One request, read to its FIN, then answered.
async fn answer(mut send: SendStream, mut receive: RecvStream, tally: &Tally) -> Result<()> {
    let mut header = [0; HEADER];
    if receive.read_exact(&mut header).await.is_err() {
        send.reset(MALFORMED)?;
        return Ok(());
    }
    while let Some(chunk) = receive.read_chunk(usize::MAX, false).await? {
        tally.received.fetch_add(chunk.bytes.len() as u64, Relaxed);
    }
    tally.requests.fetch_add(1, Relaxed);
    let wanted = u64::from_be_bytes(header);
    let mut offset = 0;
    while offset < wanted {
        let piece = pattern(offset, wanted - offset);
        let length = piece.len() as u64;
        match send.write_chunk(piece).await {
            Ok(()) => offset += length,
            // The client has seen enough, as a timed run does.
            Err(WriteError::Stopped(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        tally.sent.fetch_add(length, Relaxed);
    }
    send.finish()?;
    Ok(())
}
