//! The handle of a running relay.

use core::net::SocketAddr;
use std::io::{self, PipeWriter, Write};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use clearway_udp::{Options, Socket};
use tokio::sync::oneshot;

use super::worker::{Request, Worker};
use super::{Config, RelayStats};

/// A relay running on its own thread. Dropping it stops the relay.
#[derive(Debug)]
pub(crate) struct Relay {
    local_addr: SocketAddr,
    requests: mpsc::Sender<Request>,
    wake: PipeWriter,
    thread: Option<JoinHandle<io::Result<RelayStats>>>,
    /// Resolves when the thread has ended.
    ended: oneshot::Receiver<()>,
}

impl Relay {
    /// Binds and starts forwarding.
    ///
    /// # Errors
    /// If the address cannot be bound or the thread cannot be started.
    pub(crate) fn start(config: Config) -> io::Result<Self> {
        let listen = Socket::bind(config.listen, &Options::default())?;
        let local_addr = listen.local_addr()?;
        let (reader, wake) = io::pipe()?;
        let (requests, receiver) = mpsc::channel();
        let (alive, ended) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("relay".to_owned())
            .spawn(move || {
                // Dropped with the thread, which resolves `ended`.
                let _alive: oneshot::Sender<()> = alive;
                Worker::new(config, listen, receiver, reader).run()
            })?;
        Ok(Self {
            local_addr,
            requests,
            wake,
            thread: Some(thread),
            ended,
        })
    }

    /// The address it listens on.
    pub(crate) const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Totals so far.
    ///
    /// # Errors
    /// If the relay has ended; [`Relay::stop`] says why.
    pub(crate) fn stats(&mut self) -> io::Result<RelayStats> {
        let (answer, totals) = mpsc::channel();
        self.request(Request::Stats(answer))?;
        totals.recv().map_err(|_| gone())
    }

    /// Waits until the relay has ended by itself, which only an error makes it do; [`Relay::stop`]
    /// returns the error.
    pub(crate) async fn ended(&mut self) {
        // Either way the thread has ended.
        let _ = (&mut self.ended).await;
    }

    /// Stops and returns the totals. Datagrams still in the links are lost.
    ///
    /// # Errors
    /// The error that ended the relay, if it had ended before.
    pub(crate) fn stop(mut self) -> io::Result<RelayStats> {
        self.join()
    }

    fn request(&mut self, request: Request) -> io::Result<()> {
        self.requests.send(request).map_err(|_| gone())?;
        self.wake.write_all(&[0])
    }

    fn join(&mut self) -> io::Result<RelayStats> {
        // If the request cannot be sent, the thread has already ended.
        let _ = self.request(Request::Stop);
        let thread = self.thread.take().ok_or_else(gone)?;
        thread.join().unwrap_or_else(|_| Err(gone()))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // Nobody is left to receive an error.
            let _ = self.join();
        }
    }
}

fn gone() -> io::Error {
    io::Error::other("the relay's thread ended unexpectedly")
}
