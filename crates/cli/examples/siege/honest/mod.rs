//! Well-behaved clients. They send requests on a fixed schedule, whatever becomes of
//! earlier ones, so that every request that falls due during a stall is delayed by it.
//! Every byte that arrives is compared.

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
use crate::cores;
use crate::site::Site;

/// What clients need to know.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) site: Arc<Site>,
    pub(crate) server: SocketAddr,
    /// The command whose `get` is attacked too.
    pub(crate) program: PathBuf,
    /// Relays that attacked clients connect to.
    pub(crate) relays: Vec<(Victims, SocketAddr)>,
}

/// The running clients.
pub(crate) struct Honest {
    stop: watch::Sender<bool>,
    thread: JoinHandle<io::Result<()>>,
    tally: SharedTally,
}

/// The results of all clients.
#[derive(Clone, Debug, Default)]
struct SharedTally(Arc<Mutex<Tally>>);

impl SharedTally {
    fn with<T>(&self, change: impl FnOnce(&mut Tally) -> T) -> T {
        let mut tally = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut tally)
    }
}

impl Honest {
    /// Starts all clients on a thread of their own.
    pub(crate) fn start(world: World) -> io::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let tally = SharedTally::default();
        let shared = tally.clone();
        let thread = std::thread::Builder::new()
            .name("honest".to_owned())
            .spawn(move || {
                cores::raise_priority();
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                runtime.block_on(run_clients(world, shared, stopped));
                Ok(())
            })?;
        Ok(Self {
            stop,
            thread,
            tally,
        })
    }

    /// Stops sending requests, waits for those under way, which have timeouts, and
    /// returns the results.
    pub(crate) fn finish(self) -> io::Result<Tally> {
        // Nobody receives it if all clients have ended.
        let _ = self.stop.send(true);
        match self.thread.join() {
            Ok(ended) => ended?,
            Err(_) => {
                return Err(io::Error::other(
                    "the thread of the well-behaved clients panicked",
                ));
            }
        }
        Ok(self.tally.with(std::mem::take))
    }
}

/// Runs all clients until they are stopped and their last requests are over.
async fn run_clients(world: World, tally: SharedTally, stopped: watch::Receiver<bool>) {
    let mut clients = JoinSet::new();
    client::spawn_all(&mut clients, &world, &tally, &stopped);
    for (number, (victims, relay)) in world.relays.iter().enumerate() {
        victim::spawn(
            &mut clients,
            number,
            *victims,
            *relay,
            &world,
            &tally,
            &stopped,
        );
    }
    while let Some(ended) = clients.join_next().await {
        if let Err(error) = ended {
            tally.with(|tally| tally.add_lost_client(error.to_string()));
        }
    }
}

/// Calls `begin` at a fixed interval until stopped, then waits for the requests under
/// way.
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
            // An error means that the sender is gone: the end as well.
            _ = stopped.wait_for(|stopped| *stopped) => break,
        }
        under_way.spawn(begin(number));
        while under_way.try_join_next().is_some() {}
    }
    while under_way.join_next().await.is_some() {}
}
