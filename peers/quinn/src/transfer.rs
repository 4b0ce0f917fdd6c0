//! The requests of one connection: how many, how many at once, and what happens halfway.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use clap::Args;
use quinn::{Connection, Endpoint, SendStream};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use contract::pattern::{pattern, verify};
use peer_quinn::{transport::Transport, witness::Witness};

/// Bytes of a request when the command line names none.
const DEFAULT_BYTES: u64 = 1 << 20;

/// Longest timed run in seconds: a day.
const LONGEST: f64 = 86_400.0;

/// How long a key update may be put off; three PTO on a slow path are less.
const KEY_UPDATE_PATIENCE: Duration = Duration::from_secs(10);

/// Chunks taken from a stream at once.
const BATCH: usize = 32;

/// Which requests to make, as the command line says it.
#[derive(Debug, Clone, Args)]
pub(crate) struct Plan {
    /// Bytes to download per request [default: 1 MiB; in a timed run, without end]
    #[arg(long)]
    bytes: Option<u64>,
    /// Requests to make, each on a stream of its own
    #[arg(long, default_value_t = 1, conflicts_with = "seconds")]
    streams: u64,
    /// Requests open at once [default: all of --streams; in a timed run, 1]
    #[arg(long)]
    parallel: Option<u64>,
    /// Bytes to upload per request
    #[arg(long, default_value_t = 0)]
    upload: u64,
    /// Start a key update halfway through
    #[arg(long, conflicts_with = "seconds")]
    key_update: bool,
    /// Move to another local port halfway through
    #[arg(long, conflicts_with = "seconds")]
    rebind: bool,
    /// Repeat requests until so many seconds are over
    #[arg(long)]
    seconds: Option<f64>,
}

impl Plan {
    /// Refuses what cannot be done as asked.
    pub(crate) fn check(&self) -> Result<()> {
        let interrupts = self.key_update || self.rebind;
        ensure!(
            !interrupts || self.total() > 0,
            "--key-update and --rebind need a download: --bytes must be greater than zero"
        );
        if let Some(seconds) = self.seconds {
            ensure!(
                (0.0..=LONGEST).contains(&seconds),
                "invalid value '{seconds}' for --seconds: must be between 0 and {LONGEST}"
            );
        }
        Ok(())
    }

    /// Bytes to download per request.
    fn wanted(&self) -> u64 {
        let default = match self.seconds {
            Some(_) => u64::MAX,
            None => DEFAULT_BYTES,
        };
        self.bytes.unwrap_or(default)
    }

    /// Requests to make at most.
    fn requests(&self) -> u64 {
        self.seconds.map_or(self.streams, |_| u64::MAX)
    }

    /// Requests open at once.
    fn parallel(&self) -> u64 {
        let default = if self.seconds.is_some() {
            1
        } else {
            self.streams
        };
        self.parallel
            .unwrap_or(default)
            .clamp(1, self.requests().max(1))
    }

    /// Bytes to download in all; without meaning for a timed run.
    fn total(&self) -> u64 {
        self.wanted().saturating_mul(self.requests())
    }
}

/// What a transfer came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moved {
    /// Bytes downloaded and verified.
    pub(crate) bytes: u64,
    /// Bytes uploaded.
    pub(crate) uploaded: u64,
    /// Requests answered, or cut short by the clock.
    pub(crate) requests: u64,
    /// From the first request to the last answer.
    pub(crate) time: Duration,
}

impl Moved {
    /// Both transfers, one after the other.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            uploaded: self.uploaded + other.uploaded,
            requests: self.requests + other.requests,
            time: self.time + other.time,
        }
    }
}

/// One connection's requests under way.
pub(crate) struct Transfer {
    plan: Plan,
    connection: Connection,
    witness: Arc<Witness>,
    endpoint: Endpoint,
    transport: Transport,
    deadline: Option<Instant>,
    started: AtomicU64,
    received: AtomicU64,
    uploaded: AtomicU64,
}

impl Transfer {
    pub(crate) fn new(
        plan: Plan,
        connection: Connection,
        witness: Arc<Witness>,
        endpoint: Endpoint,
        transport: Transport,
    ) -> Self {
        let deadline = plan.seconds.map(Duration::from_secs_f64);
        Self {
            plan,
            connection,
            witness,
            endpoint,
            transport,
            deadline: deadline.map(|time| Instant::now() + time),
            started: AtomicU64::new(0),
            received: AtomicU64::new(0),
            uploaded: AtomicU64::new(0),
        }
    }

    /// Makes all requests and verifies all answers.
    pub(crate) async fn run(self) -> Result<Moved> {
        let begun = Instant::now();
        let transfer = Arc::new(self);
        let mut lanes = JoinSet::new();
        for _ in 0..transfer.plan.parallel() {
            let transfer = Arc::clone(&transfer);
            lanes.spawn(async move { transfer.lane().await });
        }
        while let Some(lane) = lanes.join_next().await {
            lane??;
        }
        Ok(Moved {
            bytes: transfer.received.load(Relaxed),
            uploaded: transfer.uploaded.load(Relaxed),
            requests: transfer.started.load(Relaxed).min(transfer.plan.requests()),
            time: begun.elapsed(),
        })
    }

    /// One request after another, until there are none left or the time is up.
    async fn lane(&self) -> Result<()> {
        while self.started.fetch_add(1, Relaxed) < self.plan.requests() {
            match self.deadline {
                None => self.request().await?,
                // Dropping the stream asks the server to stop.
                Some(deadline) => match timeout_at(deadline, self.request()).await {
                    Ok(outcome) => outcome?,
                    Err(_) => break,
                },
            }
        }
        Ok(())
    }

    /// One request on a stream of its own.
    async fn request(&self) -> Result<()> {
        let (mut send, mut receive) = self
            .connection
            .open_bi()
            .await
            .context("opening a stream")?;
        let wanted = self.plan.wanted();
        send.write_all(&wanted.to_be_bytes())
            .await
            .context("sending a request")?;
        self.upload(&mut send).await.context("uploading")?;
        send.finish()?;
        let mut batch = [const { Bytes::new() }; BATCH];
        let mut offset = 0;
        while let Some(count) = receive
            .read_chunks(&mut batch)
            .await
            .context("downloading")?
        {
            for chunk in &mut batch[..count] {
                let chunk = std::mem::take(chunk);
                let length = chunk.len() as u64;
                ensure!(
                    length <= wanted - offset,
                    "received more than the expected {wanted} bytes"
                );
                if let Err(at) = verify(offset, &chunk) {
                    bail!("wrong byte at offset {at}");
                }
                offset += length;
                if self.credit(length) {
                    self.interrupt().await?;
                }
            }
        }
        ensure!(
            offset == wanted,
            "received {offset} bytes, expected {wanted}"
        );
        Ok(())
    }

    /// The request's upload bytes; their content means nothing to the server.
    async fn upload(&self, send: &mut SendStream) -> Result<()> {
        let mut offset = 0;
        while offset < self.plan.upload {
            let piece = pattern(offset, self.plan.upload - offset);
            let length = piece.len() as u64;
            send.write_chunk(piece).await?;
            offset += length;
            self.uploaded.fetch_add(length, Relaxed);
        }
        Ok(())
    }

    /// Counts verified bytes; true for whoever brings the byte in the middle.
    fn credit(&self, length: u64) -> bool {
        let before = self.received.fetch_add(length, Relaxed);
        let middle = self.plan.total().div_ceil(2);
        before < middle && middle <= before + length
    }

    async fn interrupt(&self) -> Result<()> {
        if self.plan.key_update {
            timeout(
                KEY_UPDATE_PATIENCE,
                self.witness.update_keys(&self.connection),
            )
            .await
            .context("waiting for a key update to be possible")?
            .context("updating keys")?;
        }
        if self.plan.rebind {
            let mut local = self.endpoint.local_addr()?;
            local.set_port(0);
            self.endpoint.rebind(self.transport.socket(local)?)?;
        }
        Ok(())
    }
}
