//! The requests that `clearway raw get` makes.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use clearway::{Connection, Endpoint, UpdateKeysError};
use tokio::task::JoinSet;

use super::args::Get;
use super::{Request, ask};
use crate::failure::{Failure, Kind};

/// How often to check whether the handshake is confirmed.
const CONFIRMATION_POLL: Duration = Duration::from_millis(1);

/// The requests to make, and their results.
#[derive(Debug)]
pub(super) struct Requests {
    endpoint: Endpoint,
    connection: Connection,
    request: Request,
    upload: u64,
    key_update: bool,
    rebind: bool,
    /// Requests not started yet.
    left: AtomicU64,
    /// Whether the key update and the rebind have been started.
    acted: AtomicBool,
    received: AtomicU64,
    answered: AtomicU64,
    uploaded: AtomicU64,
    rebinds: AtomicU64,
}

/// The results of the requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestTotals {
    /// Bytes of content received and verified.
    pub(super) received: u64,
    /// Requests answered in full.
    pub(super) answered: u64,
    /// Bytes uploaded after requests.
    pub(super) uploaded: u64,
    /// Times the endpoint moved to another port.
    pub(super) rebinds: u64,
}

impl Requests {
    pub(super) fn new(args: &Get, endpoint: Endpoint, connection: Connection) -> Arc<Self> {
        Arc::new(Self {
            endpoint,
            connection,
            request: Request {
                bytes: args.wanted(),
            },
            upload: args.upload.0,
            key_update: args.key_update,
            rebind: args.rebind,
            left: AtomicU64::new(args.streams),
            acted: AtomicBool::new(false),
            received: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            uploaded: AtomicU64::new(0),
            rebinds: AtomicU64::new(0),
        })
    }

    /// Makes all requests, `parallel` at a time.
    ///
    /// # Errors
    /// The first request's that fails.
    pub(super) async fn requests(self: Arc<Self>, parallel: u16) -> Result<RequestTotals, Failure> {
        let mut workers = JoinSet::new();
        for _ in 0..parallel {
            workers.spawn(self.clone().some_requests());
        }
        while let Some(ended) = workers.join_next().await {
            ended.map_err(|error| Failure::caused(Kind::Other, "a worker", &error))??;
        }
        Ok(self.done())
    }

    /// Downloads on one stream for this long.
    ///
    /// # Errors
    /// If the request fails.
    pub(super) async fn bulk(self: Arc<Self>, time: Duration) -> Result<RequestTotals, Failure> {
        let mut answer = ask(&self.connection, self.request, self.upload).await?;
        self.uploaded.fetch_add(self.upload, Relaxed);
        let over = tokio::time::sleep(time);
        tokio::pin!(over);
        loop {
            tokio::select! {
                biased;
                () = &mut over => break,
                next = answer.next() => match next? {
                    Some(len) => self.on_content(len).await?,
                    None => break,
                },
            }
        }
        answer.stop();
        Ok(self.done())
    }

    async fn some_requests(self: Arc<Self>) -> Result<(), Failure> {
        let take = |left: u64| left.checked_sub(1);
        while self.left.fetch_update(Relaxed, Relaxed, take).is_ok() {
            let mut answer = ask(&self.connection, self.request, self.upload).await?;
            self.uploaded.fetch_add(self.upload, Relaxed);
            while let Some(len) = answer.next().await? {
                self.on_content(len).await?;
            }
            self.answered.fetch_add(1, Relaxed);
            // Responses may have no content at all.
            self.on_content(0).await?;
        }
        Ok(())
    }

    /// Counts content; the first content triggers what was requested for the middle of the
    /// transfer.
    async fn on_content(&self, len: u64) -> Result<(), Failure> {
        self.received.fetch_add(len, Relaxed);
        if self.acted.load(Relaxed) || self.acted.swap(true, Relaxed) {
            return Ok(());
        }
        if self.rebind {
            self.move_to_another_port()?;
        }
        if self.key_update {
            self.update_keys().await?;
        }
        Ok(())
    }

    fn move_to_another_port(&self) -> Result<(), Failure> {
        let address = SocketAddr::new(self.endpoint.local_addr().ip(), 0);
        UdpSocket::bind(address)
            .and_then(|socket| self.endpoint.rebind(socket))
            .map_err(|error| {
                Failure::caused(Kind::Address, "cannot move to another port", &error)
            })?;
        self.rebinds.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Waits for the handshake's confirmation, before which keys must not
    /// change, and for an update of the peer's own to be acknowledged
    /// (RFC 9001 §6.1): the PING is what gets acknowledged if we only receive.
    async fn update_keys(&self) -> Result<(), Failure> {
        loop {
            match self.connection.update_keys() {
                Ok(()) => return Ok(()),
                Err(UpdateKeysError::HandshakeNotConfirmed | UpdateKeysError::TooSoon)
                    if self.connection.close_reason().is_none() =>
                {
                    self.connection.ping();
                    tokio::time::sleep(CONFIRMATION_POLL).await;
                }
                Err(error) => {
                    return Err(Failure::caused(Kind::Connection, "key update", &error));
                }
            }
        }
    }

    fn done(&self) -> RequestTotals {
        RequestTotals {
            received: self.received.load(Relaxed),
            answered: self.answered.load(Relaxed),
            uploaded: self.uploaded.load(Relaxed),
            rebinds: self.rebinds.load(Relaxed),
        }
    }
}
