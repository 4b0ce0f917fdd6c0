//! Starting shards, and restarting those that failed.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clearway_quic::cid::generator::{ShardGenerator, ShardKey};
use clearway_quic::endpoint::{EndpointConfig, GeneratorFactory};
use clearway_quic::rng::Rng;
use clearway_udp::{DatagramSocket, Options, Socket, SteeringKey};

use super::shared::EndpointShared;
use crate::error::EndpointError;
use crate::shard::{Clock, Driver, Position, ShardLink};

/// Attempts to bind the address of a shard that has just failed, and the pause between two of
/// them: a fifth of a second in total.
const REBIND_ATTEMPTS: u32 = 100;
const REBIND_PAUSE: Duration = Duration::from_millis(2);

/// Makes what is used in the place of a socket.
pub(super) type WrapSocket = Arc<dyn Fn(Socket) -> Arc<dyn DatagramSocket> + Send + Sync>;

/// Everything that a shard is created from, except its socket.
pub(super) struct ShardFactory {
    pub(super) endpoint_shared: Arc<EndpointShared>,
    pub(super) config: EndpointConfig,
    pub(super) key: ShardKey,
    pub(super) clock: Clock,
    pub(super) options: Options,
    pub(super) wrap: WrapSocket,
    /// The socket was passed by the application.
    pub(super) custom_socket: bool,
    pub(super) on_caller_runtime: bool,
    pub(super) rng: Mutex<Rng>,
    pub(super) restarting: Mutex<()>,
}

impl ShardFactory {
    pub(super) fn steering(&self) -> SteeringKey {
        SteeringKey {
            k0: self.key.k0,
            k1: self.key.k1,
        }
    }

    /// Creates the link of shard `index`, which was restarted `restarts` times before.
    pub(super) fn link(
        &self,
        index: usize,
        socket: &Arc<dyn DatagramSocket>,
        restarts: u64,
    ) -> Arc<ShardLink> {
        let config = EndpointConfig {
            generator: generator(
                self.config.generator.clone(),
                self.key,
                self.endpoint_shared.shards(),
                index,
            ),
            ..self.config.clone()
        };
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        let mut endpoint = self.endpoint_shared.routing(config, rng.child("shard"));
        if !socket.report().dont_fragment {
            endpoint.disable_mtu_discovery();
        }
        let budget = self.endpoint_shared.budget.clone();
        Arc::new(ShardLink::new(
            self.clock.clone(),
            endpoint,
            socket,
            budget,
            restarts,
        ))
    }

    /// Starts shard `index`.
    ///
    /// # Errors
    /// `NotConnected` if it is to run on the caller's tokio runtime and there is none;
    /// otherwise the operating system's error.
    pub(super) fn start(
        &self,
        index: usize,
        link: Arc<ShardLink>,
        socket: Arc<dyn DatagramSocket>,
    ) -> io::Result<()> {
        let position = Position {
            index,
            key: self.steering(),
        };
        let endpoint_shared = self.endpoint_shared.clone();
        let make = move || Driver::new(link, socket, endpoint_shared, position);
        if let Some(runtime) = self.clock.runtime() {
            runtime.spawn(Box::pin(make()?.run()));
            return Ok(());
        }
        if !self.on_caller_runtime {
            return spawn_thread(index, make);
        }
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|error| io::Error::new(io::ErrorKind::NotConnected, error))?;
        let _guard = runtime.enter();
        runtime.spawn(make()?.run());
        Ok(())
    }

    /// Starts another loop for each failed shard, at the same address. Returns how many.
    ///
    /// # Errors
    /// As [`start`](Self::start). Shards that were not restarted yet stay failed.
    pub(super) fn restart_failed(&self, local: SocketAddr) -> io::Result<usize> {
        let one_at_a_time = self.restarting.lock();
        let _one_at_a_time = one_at_a_time.unwrap_or_else(PoisonError::into_inner);
        let mut restarted = 0_usize;
        for (index, old) in self.endpoint_shared.links().iter().enumerate() {
            if let Some(failure) = old.failure()
                && !self.endpoint_shared.is_closed()
            {
                self.restart(index, old, &failure, local)?;
                restarted = restarted.saturating_add(1);
            }
        }
        let links = self.endpoint_shared.links();
        let failure = links.iter().find_map(|link| link.failure());
        self.endpoint_shared.accept_queue.set_failure(failure);
        Ok(restarted)
    }

    fn restart(
        &self,
        index: usize,
        old: &ShardLink,
        failure: &EndpointError,
        local: SocketAddr,
    ) -> io::Result<()> {
        let socket = self.socket_after(old, failure, local)?;
        let link = self.link(index, &socket, old.restarts().saturating_add(1));
        if let Err(error) = self.start(index, link.clone(), socket.clone()) {
            // Kept for the next attempt.
            old.keep_socket(socket);
            return Err(error);
        }
        if let Err(unwanted) = self.endpoint_shared.replace_link(index, link) {
            // The endpoint was closed meanwhile.
            unwanted.abandon();
        }
        Ok(())
    }

    /// Returns a socket at `local` for the successor of the shard of `link`.
    fn socket_after(
        &self,
        link: &ShardLink,
        failure: &EndpointError,
        local: SocketAddr,
    ) -> io::Result<Arc<dyn DatagramSocket>> {
        let old = link.take_socket();
        match (failure, old) {
            // The socket did not fail, so it is used again.
            (EndpointError::Panicked(_) | EndpointError::RuntimeGone, Some(socket)) => Ok(socket),
            (_, old) if self.custom_socket => {
                old.into_iter().for_each(|old| link.keep_socket(old));
                Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "the endpoint's socket failed and was passed by the application: \
                     create another endpoint with another socket",
                ))
            }
            (_, old) => {
                let shares = self.endpoint_shared.shards() > 1;
                let options = Options {
                    reuse_port: shares || self.options.reuse_port,
                    ..self.options.clone()
                };
                if !shares {
                    // Without SO_REUSEPORT, two sockets cannot share the address.
                    drop(old);
                    return self.bind_soon(link, local, &options);
                }
                // Linux moves the last socket of the group to the index of one that leaves
                // (`reuseport_detach_sock` in net/core/sock_reuseport.c). So the new socket
                // gets the index of the old one, and steering stays correct, if it is bound
                // before the old one is closed.
                let socket = self.bind(local, &options);
                match &socket {
                    Ok(_) => drop(old),
                    Err(_) => old.into_iter().for_each(|old| link.keep_socket(old)),
                }
                socket
            }
        }
    }

    /// Binds the address, with several attempts: it is in use until the thread of the failed shard
    /// has closed its handle of the old socket or left it with `link`.
    fn bind_soon(
        &self,
        link: &ShardLink,
        local: SocketAddr,
        options: &Options,
    ) -> io::Result<Arc<dyn DatagramSocket>> {
        for _ in 0..REBIND_ATTEMPTS {
            match self.bind(local, options) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    drop(link.take_socket());
                    std::thread::sleep(REBIND_PAUSE);
                }
                bound => return bound,
            }
        }
        self.bind(local, options)
    }

    fn bind(&self, local: SocketAddr, options: &Options) -> io::Result<Arc<dyn DatagramSocket>> {
        Ok((self.wrap)(Socket::bind(local, options)?))
    }
}

/// Returns a factory of generators whose connection IDs steer to shard `index` of `shards`.
fn generator(
    inner: GeneratorFactory,
    key: ShardKey,
    shards: usize,
    index: usize,
) -> GeneratorFactory {
    if shards == 1 {
        return inner;
    }
    let (shards, index) = (shards as u32, index as u32);
    Arc::new(
        move || match ShardGenerator::new(inner(), key, shards, index) {
            Some(generator) => Box::new(generator),
            // The builder has checked the length.
            None => inner(),
        },
    )
}

/// Tasks that a shard's thread polls before one that another thread has woken: a connection just accepted, or a
/// handler whose file is read. Tokio's default of 31 may be several turns of the event loop.
const REMOTE_TASK_INTERVAL: u32 = 2;

/// Creates the runtime of a shard's thread.
fn shard_runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .global_queue_interval(REMOTE_TASK_INTERVAL)
        .build()
}

/// Starts a thread with a runtime for one shard. Returns when its event loop is created.
fn spawn_thread(
    index: usize,
    make: impl FnOnce() -> io::Result<Driver> + Send + 'static,
) -> io::Result<()> {
    let (report, started) = std::sync::mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name(format!("clearway-{index}"))
        .spawn(move || {
            let result = shard_runtime().and_then(|runtime| {
                let driver = runtime.block_on(async { make() })?;
                Ok((runtime, driver))
            });
            match result {
                Ok((runtime, driver)) => {
                    // The builder may have failed meanwhile; then the loop ends soon.
                    let _ = report.send(Ok(()));
                    run_among_tasks(&runtime, driver.run());
                }
                Err(error) => {
                    let _ = report.send(Err(error));
                }
            }
        })?;
    started.recv().unwrap_or_else(|_| {
        Err(io::Error::other(
            "the shard's thread ended before its event loop started",
        ))
    })
}

/// Runs an event loop until it ends, or panics: dropping it tells whoever waits.
///
/// It takes turns with the handlers: each that is ready is polled before its next turn. The future
/// that a runtime blocks on is polled after every 61 tasks, so that with more of them some would wait
/// for many of its turns.
fn run_among_tasks(
    runtime: &tokio::runtime::Runtime,
    event_loop: impl Future<Output = ()> + Send + 'static,
) {
    let _ = runtime.block_on(runtime.spawn(event_loop));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::slice::requeue;

    #[test]
    fn each_handler_that_is_ready_is_polled_between_two_turns_however_many_there_are() {
        const HANDLERS: usize = 500;
        const TURNS: usize = 20;
        let runtime = shard_runtime().unwrap();
        let (polled, seen) = std::sync::mpsc::channel();
        run_among_tasks(&runtime, async move {
            let polls = Arc::new(AtomicUsize::new(0));
            for _ in 0..HANDLERS {
                let polls = polls.clone();
                tokio::spawn(async move {
                    for _ in 0..TURNS {
                        polls.fetch_add(1, Ordering::Relaxed);
                        requeue().await;
                    }
                });
            }
            for _ in 0..TURNS {
                let _ = polled.send(polls.load(Ordering::Relaxed));
                requeue().await;
            }
        });
        let expected = (0..TURNS).map(|turn| turn * HANDLERS);
        assert!(seen.iter().eq(expected));
    }

    #[test]
    fn task_that_another_thread_has_woken_is_polled_after_one_turn() {
        let runtime = shard_runtime().unwrap();
        let handle = runtime.handle().clone();
        let (polled, seen) = std::sync::mpsc::channel();
        run_among_tasks(&runtime, async move {
            let polls = Arc::new(AtomicUsize::new(0));
            let counted = polls.clone();
            let spawning = std::thread::spawn(move || {
                handle.spawn(async move { counted.fetch_add(1, Ordering::Relaxed) });
            });
            spawning.join().unwrap();
            for _ in 0..2 {
                requeue().await;
            }
            let _ = polled.send(polls.load(Ordering::Relaxed));
        });
        assert_eq!(seen.recv(), Ok(1));
    }
}
