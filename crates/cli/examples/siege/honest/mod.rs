//! The clients that behave well: they download, upload and arrive anew on a fixed
//! schedule, whatever becomes of the requests before, so that a stall is felt by all
//! that fall due during it. Every byte is compared.

mod client;
mod tally;
mod victim;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

pub(crate) use client::answers;
pub(crate) use tally::{Class, Tally};

use crate::attack::Victims;
use crate::site::Site;

/// What the clients know of the world.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) site: Arc<Site>,
    pub(crate) server: SocketAddr,
    /// The command whose `get` is a victim too.
    pub(crate) program: PathBuf,
    /// Relays that those pass through who are attacked themselves.
    pub(crate) relays: Vec<(Victims, SocketAddr)>,
}

/// The clients at work.
pub(crate) struct Honest {
    stop: watch::Sender<bool>,
    thread: JoinHandle<io::Result<()>>,
    tally: Ledger,
}

/// Where all clients put down what they see.
#[derive(Clone, Debug, Default)]
struct Ledger(Arc<Mutex<Tally>>);

impl Ledger {
    fn with<T>(&self, change: impl FnOnce(&mut Tally) -> T) -> T {
        let mut tally = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut tally)
    }
}

impl Honest {
    /// Starts all clients on a thread of their own.
    pub(crate) fn start(world: World) -> io::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let tally = Ledger::default();
        let ledger = tally.clone();
        let thread = std::thread::Builder::new()
            .name("honest".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                runtime.block_on(visit(world, ledger, stopped));
                Ok(())
            })?;
        Ok(Self {
            stop,
            thread,
            tally,
        })
    }

    /// No new requests; waits for those under way, whose patience is limited.
    pub(crate) fn finish(self) -> io::Result<Tally> {
        // They look at it before each request.
        let _ = self.stop.send(true);
        match self.thread.join() {
            Ok(ended) => ended?,
            Err(_) => return Err(io::Error::other("the clients that behave well panicked")),
        }
        Ok(self.tally.with(std::mem::take))
    }
}

/// All clients, until they are told to stop and their last requests are over.
async fn visit(world: World, ledger: Ledger, stopped: watch::Receiver<bool>) {
    let mut clients = JoinSet::new();
    client::spawn_all(&mut clients, &world, &ledger, &stopped);
    for (number, (victims, relay)) in world.relays.iter().enumerate() {
        victim::spawn(
            &mut clients,
            number,
            *victims,
            *relay,
            &world,
            &ledger,
            &stopped,
        );
    }
    while let Some(ended) = clients.join_next().await {
        if let Err(error) = ended {
            ledger.with(|tally| tally.break_down(error.to_string()));
        }
    }
}

/// Calls `begin` each time a request falls due, and waits for all of them once no
/// more do.
async fn on_schedule<F>(
    every: Duration,
    mut stopped: watch::Receiver<bool>,
    mut begin: impl FnMut(u64) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut under_way = JoinSet::new();
    let mut ticks = tokio::time::interval(every);
    for number in 0.. {
        tokio::select! {
            _ = ticks.tick() => {}
            // The sender lives until it has said so.
            _ = stopped.wait_for(|stopped| *stopped) => break,
        }
        under_way.spawn(begin(number));
        while under_way.try_join_next().is_some() {}
    }
    while under_way.join_next().await.is_some() {}
}
