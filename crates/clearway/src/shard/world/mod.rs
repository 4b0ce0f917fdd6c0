//! Exhaustive exploration of a shard: the production event loop, turn by turn, with a socket
//! in memory and a manual clock, under every sequence of arriving datagrams, full buffers,
//! socket errors, timers, calls of the application, panics, evictions and closes.
//!
//! After each event the loop runs until it waits. Then every piece of work has something that
//! will wake the loop for it, no task of the application waits for what has happened, and all
//! counts agree.

mod app;
mod events;
mod fairness;
mod hurrying;
mod invariants;
mod lingering;
mod newcomers;
mod offending;
mod peer;
mod shortage;
mod silent;
mod socket;

use std::cell::RefCell;
use std::collections::HashSet;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use clearway_quic::Instant;
use clearway_quic::connection::Config;
use clearway_udp::{DatagramSocket, Events, SteeringKey};

use self::app::App;
use self::events::Event;
use self::peer::Peer;
use self::socket::{Fault, MemorySocket};
use super::async_socket::AsyncSocket;
use super::{Clock, CloseWhen, Driver, Position, ShardLink};
use crate::connection::Stage;
use crate::endpoint::{EndpointShared, shard_parts};
use crate::error::EndpointError;
use crate::{ClientConfig, DevelopmentIdentity, ServerConfig};
use clearway_testing::explore::{Bounds, ExpectClean, World, explore_by_replay, fingerprint_of};

const SERVER: SocketAddr = SocketAddr::new(
    std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)),
    443,
);

/// Turns after which the loop is considered busy for ever.
const MAX_TURNS: usize = 200;

/// A memory budget that the connections here never exceed by themselves.
const BUDGET: usize = 10 << 20;

/// Most faults in one sequence: socket errors and panics.
const FAULTS: u8 = 2;

/// Which events are explored, and with how many connections.
#[derive(Clone)]
struct Scope {
    clients: usize,
    keep: fn(&Event) -> bool,
    /// States from which the run to the end was checked.
    ends_well: Rc<RefCell<HashSet<Vec<u8>>>>,
}

impl Scope {
    fn new(clients: usize, keep: fn(&Event) -> bool) -> Self {
        Self {
            clients,
            keep,
            ends_well: Rc::default(),
        }
    }
}

struct Shard {
    scope: Scope,
    driver: Option<Driver>,
    link: Arc<ShardLink>,
    endpoint_shared: Arc<EndpointShared>,
    socket: Arc<MemorySocket>,
    now: Instant,
    peers: Vec<Peer>,
    apps: Vec<App>,
    closing: Option<CloseWhen>,
    abandoned: bool,
    faults: u8,
    /// How the loop ended.
    ended: Option<bool>,
    broken: Option<String>,
    log: Vec<Event>,
}

fn identity() -> &'static DevelopmentIdentity {
    static IDENTITY: OnceLock<DevelopmentIdentity> = OnceLock::new();
    IDENTITY.get_or_init(|| DevelopmentIdentity::generate(["localhost"]).expect("an identity"))
}

fn server_config() -> ServerConfig {
    let identity = identity();
    let config = ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem());
    let config = config.expect("server settings").memory_budget(BUDGET);
    config.transport(transport())
}

/// Returns a configuration without packets that are not caused by an event.
fn transport() -> Config {
    let mut config = Config::default();
    config.mtu_discovery = false;
    config.grease = false;
    config
}

fn client_config() -> &'static ClientConfig {
    static CONFIG: OnceLock<ClientConfig> = OnceLock::new();
    CONFIG.get_or_init(|| {
        let config = ClientConfig::with_roots(identity().certificate_pem());
        config.expect("client settings").transport(transport())
    })
}

impl Shard {
    /// Creates a shard with clients whose handshakes are complete.
    fn new(scope: &Scope) -> Self {
        let socket = Arc::new(MemorySocket::new());
        let clock = Clock::manual();
        let now = Instant::ZERO + Duration::from_secs(1);
        Clock::set(now);
        let shared: Arc<dyn DatagramSocket> = socket.clone();
        let (endpoint_shared, link) = shard_parts(server_config(), clock, &shared);
        let position = Position {
            index: 0,
            key: SteeringKey { k0: 1, k1: 2 },
        };
        let watched = AsyncSocket::new(shared).expect("flags need no runtime");
        let driver = Driver::watching(link.clone(), watched, endpoint_shared.clone(), position);
        let mut shard = Self {
            scope: scope.clone(),
            driver: Some(driver),
            link,
            endpoint_shared,
            socket,
            now,
            peers: Vec::new(),
            apps: Vec::new(),
            closing: None,
            abandoned: false,
            faults: 0,
            ended: None,
            broken: None,
            log: Vec::new(),
        };
        shard.signal_writable();
        for n in 0..scope.clients {
            shard.connect(n as u8);
        }
        shard
    }

    fn connect(&mut self, n: u8) {
        let peer = Peer::new(n, self.now, SERVER, client_config());
        self.peers.push(peer);
        let n = usize::from(n);
        for _ in 0..10 {
            self.receive_all(n);
            self.wait(Duration::from_millis(30));
        }
        let accepted = self.endpoint_shared.next_accepted();
        self.apps
            .push(App::new(accepted.expect("a handshake completes")));
        self.settle();
    }

    fn fail(&mut self, what: impl Into<String>) {
        let what = what.into();
        self.broken.get_or_insert(what);
    }

    fn signal_writable(&self) {
        self.socket.readiness.set(Events::WRITABLE);
    }

    fn signal_readable(&self) {
        self.socket.readiness.set(Events::READABLE);
    }

    fn wait(&mut self, duration: Duration) {
        self.now += duration;
        Clock::set(self.now);
        self.settle();
    }

    /// Makes a client receive what waits for it, and puts what it sends into the socket.
    fn receive_all(&mut self, n: usize) {
        let (now, Some(peer)) = (self.now, self.peers.get_mut(n)) else {
            return;
        };
        peer.receive_all(now, SERVER);
        let from = peer.address;
        let datagrams = peer.flush(now);
        if !datagrams.is_empty() {
            let arrived = datagrams.into_iter().map(|datagram| (from, datagram));
            self.socket.queues().arrived.extend(arrived);
            self.signal_readable();
        }
        self.settle();
    }

    /// Runs the loop and the tasks that it wakes, until all of them wait.
    fn settle(&mut self) {
        Clock::set(self.now);
        for _ in 0..MAX_TURNS {
            let looped = self.run_loop();
            let mut woken = false;
            for app in &mut self.apps {
                match app.poll() {
                    Ok(progress) => woken |= progress,
                    Err(what) => self.broken = self.broken.take().or(Some(what)),
                }
            }
            self.sort_sent();
            // A task that gives the loop something to do also wakes it.
            if !looped && !woken {
                return;
            }
        }
        self.fail("the loop never waits");
    }

    /// Runs the loop until it waits, if something has woken it. Returns whether it ran.
    fn run_loop(&mut self) -> bool {
        let Some(driver) = &mut self.driver else {
            return false;
        };
        let flag = app::Flag::new();
        let waker = Waker::from(flag.clone());
        let mut context = Context::from_waker(&waker);
        if pin!(driver.wait()).poll(&mut context).is_pending() {
            return false;
        }
        for _ in 0..MAX_TURNS {
            let polled = pin!(driver.until_done()).poll(&mut context);
            match polled {
                Poll::Pending if flag.take() => {}
                Poll::Pending => return true,
                Poll::Ready(ended) => {
                    self.end(ended);
                    return true;
                }
            }
        }
        self.fail("the loop never waits");
        false
    }

    fn end(&mut self, ended: Result<(), EndpointError>) {
        self.ended = Some(ended.is_ok());
        if let Some(driver) = self.driver.take() {
            driver.end(ended);
        }
    }

    /// Passes what was sent to the clients.
    fn sort_sent(&mut self) {
        let sent = std::mem::take(&mut self.socket.queues().sent);
        for (to, datagram) in sent {
            match self.peers.iter_mut().find(|peer| peer.address == to) {
                Some(peer) => peer.inbox.push_back(datagram),
                None => self.broken = Some(format!("a datagram to {to}")),
            }
        }
    }

    fn alarm(&self) -> Option<Instant> {
        self.driver.as_ref()?.alarm.armed()
    }
}

impl World for Shard {
    type Event = Event;

    fn events(&self) -> Vec<Event> {
        if self.driver.is_none() {
            return Vec::new();
        }
        let mut events = vec![Event::MemoryIsShort];
        let full = self.socket.queues().full;
        if full {
            events.extend([Event::Writable, Event::WritableUnannounced]);
        } else {
            events.push(Event::Full);
        }
        if self.alarm().is_some() {
            events.push(Event::Alarm);
        }
        if self.faults < FAULTS {
            let faults = [
                Fault::Dropped,
                Fault::TooLarge,
                Fault::SendBroken,
                Fault::Unavailable,
                Fault::ReceiveBroken,
            ];
            events.extend(faults.map(Event::Fails));
        }
        let now = self.closing == Some(CloseWhen::Now);
        events.extend((!now).then_some(Event::CloseAll));
        events.extend((self.closing.is_none()).then_some(Event::CloseDelivered));
        events.extend((!self.abandoned).then_some(Event::Abandon));
        for (n, app) in self.apps.iter().enumerate() {
            events.push(Event::Arrives(n));
            if !self.peers[n].inbox.is_empty() {
                events.extend([Event::ReceivesAll(n), Event::IsLost(n)]);
            }
            if app.connection.is_none() {
                continue;
            }
            events.extend([
                Event::Writes(n),
                Event::Reads(n),
                Event::Finishes(n),
                Event::Closes(n),
                Event::Drops(n),
            ]);
            // A connection without HTTP/3 never reaches the stage `Http`.
            let stages = [Stage::Receive, Stage::Timeout, Stage::Turn, Stage::Call];
            if self.faults < FAULTS {
                events.extend(stages.map(|stage| Event::Panics(n, stage)));
            }
        }
        events.retain(self.scope.keep);
        events
    }

    fn apply(&mut self, event: &Event) {
        self.log.push(*event);
        Clock::set(self.now);
        self.apply_to_network(*event);
        self.apply_to_app(*event);
        self.settle();
    }

    fn check(&self) -> Result<(), String> {
        Clock::set(self.now);
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        if let Some(driver) = &self.driver {
            self.check_wakes(driver)?;
        }
        self.check_counts()?;
        self.apps.iter().try_for_each(App::check_end)?;
        let state = self.fingerprint();
        if self.scope.ends_well.borrow().contains(&state) {
            return Ok(());
        }
        let mut again = Self::new(&self.scope);
        self.log.iter().for_each(|event| again.apply(event));
        let end = again.run_to_end();
        Clock::set(self.now);
        self.scope.ends_well.borrow_mut().insert(state);
        end.map_err(|what| format!("if all goes well from here: {what}"))
    }

    fn fingerprint(&self) -> Vec<u8> {
        Clock::set(self.now);
        let until = |at: Instant| at.saturating_since(self.now).as_millis();
        let driver = self.driver.as_ref().map(|driver| {
            let mut entries: Vec<_> = driver.shard.table.iter().collect();
            entries.sort_by_key(|(handle, _)| **handle);
            let entries: Vec<_> = entries
                .into_iter()
                .map(|(handle, entry)| {
                    let inside = entry.shared.with_state(Stage::Http, |state| {
                        let stats = state.quic.stats(self.now);
                        let streams = (state.quic.open_streams(), state.quic.buffered());
                        let timeout = state.next_wakeup().map(until);
                        let fault = state.fault.map(|stage| stage.to_string());
                        (stats.in_flight, streams, timeout, fault)
                    });
                    (
                        *handle,
                        entry.account.is_queued(),
                        entry.unannounced,
                        inside.ok(),
                    )
                })
                .collect();
            let blocked = driver.shard.transmitter.is_blocked();
            let lingering = driver.shard.lingering.as_ref().map(|it| it.left(self.now));
            (entries, blocked, driver.alarm.armed().map(until), lingering)
        });
        let apps: Vec<_> = self.apps.iter().map(App::summary).collect();
        let peers: Vec<_> = self
            .peers
            .iter()
            .map(|peer| {
                let stats = peer.connection.stats(self.now);
                let error = peer.connection.error().map(ToString::to_string);
                (peer.inbox.len(), stats.in_flight, error)
            })
            .collect();
        let queues = self.socket.queues();
        let flags = (self.closing, self.abandoned, self.faults, self.ended);
        fingerprint_of(&(
            driver,
            apps,
            peers,
            (queues.full, queues.fault, queues.arrived.len()),
            flags,
        ))
    }
}

fn explore(name: &str, scope: &Scope, debug: usize, release: usize) {
    let depth = if cfg!(debug_assertions) {
        debug
    } else {
        release
    };
    explore_by_replay(name, || Shard::new(scope), Bounds::to_depth(depth)).expect_clean();
}

#[test]
fn no_event_order_leaves_a_connection_with_work_and_no_wakeup() {
    explore("a shard", &Scope::new(1, |_| true), 3, 4);
}

#[test]
fn no_event_order_of_two_connections_leaves_one_with_work_and_no_wakeup() {
    explore("a shard of two connections", &Scope::new(2, |_| true), 2, 3);
}

#[test]
fn no_order_of_full_buffers_and_lost_readiness_events_stops_a_shard() {
    let keep = |event: &Event| match event {
        Event::Full
        | Event::Writable
        | Event::WritableUnannounced
        | Event::Alarm
        | Event::Arrives(_)
        | Event::ReceivesAll(_)
        | Event::Writes(_)
        | Event::Reads(_)
        | Event::Fails(Fault::Unavailable | Fault::Dropped) => true,
        Event::Fails(_)
        | Event::IsLost(_)
        | Event::Finishes(_)
        | Event::Closes(_)
        | Event::Drops(_)
        | Event::Panics(..)
        | Event::MemoryIsShort
        | Event::CloseAll
        | Event::CloseDelivered
        | Event::Abandon => false,
    };
    explore("a shard whose socket is full", &Scope::new(1, keep), 4, 5);
}

#[test]
fn no_order_of_closes_leaks_a_connection_count_or_a_waiting_task() {
    let keep = |event: &Event| match event {
        Event::Full
        | Event::Alarm
        | Event::ReceivesAll(_)
        | Event::Writes(_)
        | Event::Closes(_)
        | Event::Drops(_)
        | Event::Panics(_, Stage::Turn)
        | Event::MemoryIsShort
        | Event::CloseAll
        | Event::Abandon => true,
        Event::Fails(_)
        | Event::Finishes(_)
        | Event::CloseDelivered
        | Event::Writable
        | Event::WritableUnannounced
        | Event::Arrives(_)
        | Event::Reads(_)
        | Event::IsLost(_)
        | Event::Panics(..) => false,
    };
    explore("a shard whose connections end", &Scope::new(1, keep), 4, 5);
}
