//! An endpoint with many connections on few sockets, in one thread.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::{Duration, SystemTime};

use clearway_quic::Instant;
use clearway_quic::ack::ReceivedEcn;
use clearway_quic::connection::{Connection, Event, RecvMeta};
use clearway_quic::endpoint::{ConnectionHandle, DatagramEvent, Endpoint};
use clearway_quic::path::ecn::Mark;
use clearway_udp::{Ecn, Meta, RecvBatch, RecvError, SendError, Socket, Transmit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Messages of a receive call.
const SLOTS: usize = 32;

/// Receive calls in a row for one socket before the others have their turn.
const ROUNDS: usize = 8;

/// Datagrams that wait to be sent before they are sent.
const OUTBOX: usize = 32;

/// What runs on the connections.
pub(crate) trait Application {
    fn on_event(
        &mut self,
        now: Instant,
        handle: ConnectionHandle,
        connection: &mut Connection,
        event: Event,
    );
}

struct Entry {
    connection: Box<Connection>,
    socket: usize,
    /// Its place in the list of deadlines, which may be earlier than its deadline.
    listed: Option<Instant>,
}

/// A datagram or train in `Outbox::bytes`.
struct Parcel {
    socket: usize,
    remote: SocketAddr,
    local_ip: Option<IpAddr>,
    ecn: Option<Ecn>,
    bytes: Range<usize>,
    segment: Option<usize>,
}

/// What is sent with the next call.
#[derive(Default)]
struct Outbox {
    bytes: Vec<u8>,
    parcels: Vec<Parcel>,
}

/// Datagrams by what happened to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Accepted by the kernel.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Not received, because the socket's buffer was full.
    pub(crate) overflowed: u64,
    /// Not sent.
    pub(crate) unsent: u64,
}

pub(crate) struct Host {
    pub(crate) sockets: Vec<Socket>,
    pub(crate) endpoint: Endpoint,
    connections: HashMap<ConnectionHandle, Entry, foldhash::fast::RandomState>,
    deadlines: BTreeSet<(Instant, ConnectionHandle)>,
    outbox: Outbox,
    train: Vec<u8>,
    response: Vec<u8>,
    started: std::time::Instant,
    unsent: u64,
}

impl Host {
    pub(crate) fn new(sockets: Vec<Socket>, endpoint: Endpoint) -> Self {
        Self {
            sockets,
            endpoint,
            connections: HashMap::default(),
            deadlines: BTreeSet::new(),
            outbox: Outbox::default(),
            train: vec![0; 16_384],
            response: Vec::new(),
            started: std::time::Instant::now(),
            unsent: 0,
        }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.started.elapsed().as_nanos() as u64)
    }

    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts {
            unsent: self.unsent,
            ..Counts::default()
        };
        for socket in &self.sockets {
            let of = socket.counters();
            counts.sent += of.sent_datagrams;
            counts.received += of.received_datagrams;
            counts.overflowed += of.receive_drops;
        }
        counts
    }

    /// Adds a connection that sends from this socket.
    pub(crate) fn add(
        &mut self,
        app: &mut impl Application,
        handle: ConnectionHandle,
        connection: Connection,
        socket: usize,
    ) {
        let entry = Entry {
            connection: Box::new(connection),
            socket,
            listed: None,
        };
        self.connections.insert(handle, entry);
        self.serve(app, handle);
    }

    /// Changes a connection, if it still exists, and sends what it has to send.
    pub(crate) fn with(
        &mut self,
        app: &mut impl Application,
        handle: ConnectionHandle,
        change: impl FnOnce(&mut Connection),
    ) {
        if let Some(entry) = self.connections.get_mut(&handle) {
            change(&mut entry.connection);
            self.serve(app, handle);
        }
    }

    /// Waits for datagrams for at most `patience`, and handles them and every deadline that is due.
    pub(crate) fn turn(
        &mut self,
        app: &mut impl Application,
        batch: &mut RecvBatch,
        patience: Duration,
    ) -> io::Result<()> {
        let until_deadline = self.deadlines.first().map(|(at, _)| {
            let nanos = at.as_nanos().saturating_sub(self.now().as_nanos());
            Duration::from_nanos(nanos)
        });
        let patience = until_deadline.map_or(patience, |time| time.min(patience));
        let ready = wait(&self.sockets, patience)?;
        for socket in ready {
            for _ in 0..ROUNDS {
                match self.sockets[socket].recv(batch) {
                    Ok(_) => {}
                    Err(RecvError::WouldBlock | RecvError::Unavailable(_)) => break,
                    Err(RecvError::Broken(error)) => return Err(error),
                }
                for (meta, datagram) in batch.datagrams() {
                    self.receive(app, socket, meta, datagram);
                }
                if !batch.is_full() {
                    break;
                }
            }
        }
        self.handle_timeouts(app);
        self.flush()
    }

    fn receive(
        &mut self,
        app: &mut impl Application,
        socket: usize,
        meta: &Meta,
        datagram: &mut [u8],
    ) {
        let now = self.now();
        let from = RecvMeta {
            remote: meta.remote,
            local_ip: meta.local_ip,
            ecn: match meta.ecn {
                None => ReceivedEcn::NotEct,
                Some(Ecn::Ect0) => ReceivedEcn::Ect0,
                Some(Ecn::Ect1) => ReceivedEcn::Ect1,
                Some(Ecn::Ce) => ReceivedEcn::Ce,
            },
        };
        let unix = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let event = self
            .endpoint
            .receive(now, unix, from, datagram, &mut self.response);
        let handle = match event {
            DatagramEvent::Connection(handle) => handle,
            DatagramEvent::Incoming(incoming) => {
                let Ok((handle, connection)) = self.endpoint.accept(now, *incoming) else {
                    return;
                };
                let entry = Entry {
                    connection: Box::new(connection),
                    socket,
                    listed: None,
                };
                self.connections.insert(handle, entry);
                handle
            }
            DatagramEvent::Response => {
                let response = std::mem::take(&mut self.response);
                self.outbox
                    .push(socket, meta.remote, meta.local_ip, None, &response, None);
                self.response = response;
                return;
            }
            DatagramEvent::Dropped(_) => return,
        };
        if let Some(entry) = self.connections.get_mut(&handle) {
            entry.connection.receive(now, from, datagram);
            self.serve(app, handle);
        }
        while let Some(late) = self.endpoint.next_overdue(now) {
            self.with(app, late, |connection| connection.expire_handshake(now));
        }
    }

    fn handle_timeouts(&mut self, app: &mut impl Application) {
        let now = self.now();
        while let Some(&(at, handle)) = self.deadlines.first()
            && at <= now
        {
            self.deadlines.pop_first();
            let Some(entry) = self.connections.get_mut(&handle) else {
                continue;
            };
            entry.listed = None;
            if entry.connection.next_timeout().is_some_and(|at| at <= now) {
                entry.connection.handle_timeout(now);
            }
            self.serve(app, handle);
        }
    }

    /// Passes on a connection's events, takes what it has to send, and lists its deadline.
    fn serve(&mut self, app: &mut impl Application, handle: ConnectionHandle) {
        let now = self.now();
        let Some(entry) = self.connections.get_mut(&handle) else {
            return;
        };
        let connection = &mut entry.connection;
        while let Some(event) = connection.poll_event() {
            app.on_event(now, handle, connection, event);
        }
        while let Some(sent) = connection.transmit(now, &mut self.train, 10) {
            let ecn = match sent.ecn {
                Mark::NotEct => None,
                Mark::Ect0 => Some(Ecn::Ect0),
                Mark::Ect1 => Some(Ecn::Ect1),
            };
            let bytes = &self.train[..sent.len];
            self.outbox.push(
                entry.socket,
                sent.remote,
                sent.local_ip,
                ecn,
                bytes,
                sent.segment,
            );
        }
        while let Some(event) = connection.poll_event() {
            app.on_event(now, handle, connection, event);
        }
        while let Some(event) = connection.poll_endpoint_event() {
            self.endpoint.on_event(handle, event);
        }
        if connection.is_drained() {
            self.connections.remove(&handle);
        } else if let Some(wanted) = connection.next_timeout()
            && entry.listed.is_none_or(|listed| wanted < listed)
        {
            if let Some(listed) = entry.listed.replace(wanted) {
                self.deadlines.remove(&(listed, handle));
            }
            self.deadlines.insert((wanted, handle));
        }
        if self.outbox.parcels.len() >= OUTBOX {
            self.unsent += self.outbox.send(&self.sockets);
        }
    }

    /// Sends what waits.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.unsent += self.outbox.send(&self.sockets);
        Ok(())
    }
}

impl Outbox {
    fn push(
        &mut self,
        socket: usize,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        ecn: Option<Ecn>,
        contents: &[u8],
        segment: Option<usize>,
    ) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(contents);
        self.parcels.push(Parcel {
            socket,
            remote,
            local_ip,
            ecn,
            bytes: start..self.bytes.len(),
            segment,
        });
    }

    /// Sends everything, and waits where a buffer is full. Returns how many datagrams were not sent.
    fn send(&mut self, sockets: &[Socket]) -> u64 {
        self.parcels.sort_by_key(|parcel| parcel.socket);
        let mut unsent = 0;
        for run in self.parcels.chunk_by(|a, b| a.socket == b.socket) {
            let mut transmits: Vec<Transmit<'_>> = run
                .iter()
                .map(|parcel| {
                    let mut transmit =
                        Transmit::new(parcel.remote, &self.bytes[parcel.bytes.clone()]);
                    transmit.local_ip = parcel.local_ip;
                    transmit.ecn = parcel.ecn;
                    transmit.segment_size = parcel.segment;
                    transmit
                })
                .collect();
            let mut rest = transmits.as_mut_slice();
            while !rest.is_empty() {
                match sockets[run[0].socket].send_many(rest) {
                    Ok(count) => rest = &mut rest[count..],
                    Err(SendError::WouldBlock) => {
                        std::thread::sleep(Duration::from_micros(200));
                    }
                    Err(_) => {
                        unsent += 1;
                        rest = &mut rest[1..];
                    }
                }
            }
        }
        self.parcels.clear();
        self.bytes.clear();
        unsent
    }
}

/// Returns the sockets that are readable, or none after `patience`.
fn wait(sockets: &[Socket], patience: Duration) -> io::Result<Vec<usize>> {
    let mut descriptors: Vec<PollFd<'_>> = sockets
        .iter()
        .map(|socket| PollFd::new(socket, PollFlags::IN))
        .collect();
    let patience = Timespec {
        tv_sec: patience.as_secs() as i64,
        tv_nsec: patience.subsec_nanos().into(),
    };
    match poll(&mut descriptors, Some(&patience)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let ready = descriptors.iter().enumerate();
    Ok(ready
        .filter(|(_, descriptor)| !descriptor.revents().is_empty())
        .map(|(socket, _)| socket)
        .collect())
}

/// Creates a batch for [`Host::turn`].
pub(crate) fn batch(socket: &Socket) -> RecvBatch {
    RecvBatch::for_socket(socket, SLOTS)
}
