//! One stack of the lab for every engine that is driven as quinn-proto is.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use bytes::Bytes;
use clearway_lab::stack::{ConnId, ConnectionState, Read, SenderStats, Stack, StackSetup, Stream};
use clearway_links::{Ecn, Packet, Time};

use crate::clock;
use crate::settings::Settings;

/// Datagrams of one GSO transmit at most, as the rivals' own drivers allow.
pub(crate) const MAX_SEGMENTS: usize = 10;

/// Bytes that an engine wrote to the buffer, and where they go.
pub(crate) struct Sent {
    pub(crate) remote: SocketAddr,
    pub(crate) source: Option<IpAddr>,
    pub(crate) ecn: Ecn,
    pub(crate) len: usize,
    /// Size of all datagrams but the last, if there are several.
    pub(crate) segment: Option<usize>,
}

/// What a datagram led to.
pub(crate) enum Arrival<E: Engine> {
    /// It belongs to this connection.
    Known(usize, E::Event),
    /// It began this one.
    New(usize, E::Connection),
    /// It is answered without a connection.
    Answer(Sent),
    /// It is dropped.
    Nothing,
}

/// An endpoint with the operations of its connections.
///
/// Handles are numbers, times are the engine's `Instant`s, buffers come empty.
pub(crate) trait Engine: Sized {
    /// One connection.
    type Connection;
    /// A datagram on its way to one.
    type Event;

    fn new(settings: &Settings, birth: &StackSetup) -> Self;
    fn receive(&mut self, now: Instant, packet: &Packet, buf: &mut Vec<u8>) -> Arrival<Self>;
    fn connect(
        &mut self,
        now: Instant,
        remote: SocketAddr,
    ) -> Result<(usize, Self::Connection), String>;
    /// Exchanges what endpoint and connection have for each other.
    fn settle(&mut self, handle: usize, conn: &mut Self::Connection);

    fn on_event(conn: &mut Self::Connection, event: Self::Event);
    fn transmit(conn: &mut Self::Connection, now: Instant, buf: &mut Vec<u8>) -> Option<Sent>;
    fn timeout(conn: &mut Self::Connection) -> Option<Instant>;
    fn on_timeout(conn: &mut Self::Connection, now: Instant);
    /// Takes all events; the reason, if one says that the connection is lost.
    fn lost(conn: &mut Self::Connection) -> Option<String>;
    fn is_handshaking(conn: &Self::Connection) -> bool;
    fn open(conn: &mut Self::Connection) -> Option<u64>;
    fn accept(conn: &mut Self::Connection) -> Option<u64>;
    /// How many bytes it took; zero while blocked.
    fn write(conn: &mut Self::Connection, stream: u64, data: &mut Bytes) -> Result<usize, String>;
    fn finish(conn: &mut Self::Connection, stream: u64) -> Result<(), String>;
    fn read(conn: &mut Self::Connection, stream: u64) -> Result<Read, String>;
    fn close(conn: &mut Self::Connection, now: Instant);
    fn moved(conn: &mut Self::Connection, now: Instant);
    fn figures(&self, handle: usize, conn: &mut Self::Connection) -> SenderStats;
}

struct ConnectionSlot<C> {
    // Asking an engine for its timeout or statistics takes it mutably.
    conn: RefCell<C>,
    lost: Option<String>,
}

/// An engine in the lab.
pub(crate) struct Rival<E: Engine> {
    engine: E,
    address: SocketAddr,
    connections: BTreeMap<usize, ConnectionSlot<E::Connection>>,
    accepted: VecDeque<ConnId>,
    answers: VecDeque<Packet>,
    buf: Vec<u8>,
}

impl<E: Engine> Rival<E> {
    pub(crate) fn new(settings: &Settings, birth: &StackSetup) -> Self {
        Self {
            engine: E::new(settings, birth),
            address: birth.address,
            connections: BTreeMap::new(),
            accepted: VecDeque::new(),
            answers: VecDeque::new(),
            buf: Vec::new(),
        }
    }

    fn adopt(&mut self, handle: usize, conn: E::Connection) -> ConnId {
        let held = ConnectionSlot {
            conn: RefCell::new(conn),
            lost: None,
        };
        self.connections.insert(handle, held);
        ConnId(handle as u64)
    }

    fn held(&mut self, conn: ConnId) -> Result<&mut E::Connection, String> {
        let handle = usize::try_from(conn.0).unwrap_or(usize::MAX);
        self.connections
            .get_mut(&handle)
            .map(|held| held.conn.get_mut())
            .ok_or_else(|| "no such connection".to_owned())
    }

    fn get(&self, conn: ConnId) -> Option<&ConnectionSlot<E::Connection>> {
        self.connections.get(&usize::try_from(conn.0).ok()?)
    }
}

/// Cuts what an engine wrote into datagrams.
fn cut(sent: &Sent, own: SocketAddr, bytes: &[u8], emit: &mut dyn FnMut(Packet)) {
    let from = SocketAddr::new(sent.source.unwrap_or(own.ip()), own.port());
    let segment = sent.segment.unwrap_or(sent.len).max(1);
    for datagram in bytes[..sent.len].chunks(segment) {
        emit(Packet::new(from, sent.remote, datagram.to_vec()).with_ecn(sent.ecn));
    }
}

impl<E: Engine> Stack for Rival<E> {
    fn receive(&mut self, now: Time, packet: Packet) {
        self.buf.clear();
        let now = clock::instant(now);
        match self.engine.receive(now, &packet, &mut self.buf) {
            Arrival::Known(handle, event) => {
                if let Some(held) = self.connections.get_mut(&handle) {
                    E::on_event(held.conn.get_mut(), event);
                }
            }
            Arrival::New(handle, conn) => {
                let conn = self.adopt(handle, conn);
                self.accepted.push_back(conn);
            }
            Arrival::Answer(sent) => {
                let answers = &mut self.answers;
                cut(&sent, self.address, &self.buf, &mut |p| {
                    answers.push_back(p);
                });
            }
            Arrival::Nothing => {}
        }
    }

    fn transmit(&mut self, now: Time, emit: &mut dyn FnMut(Packet)) {
        while let Some(answer) = self.answers.pop_front() {
            emit(answer);
        }
        let now = clock::instant(now);
        for (handle, held) in &mut self.connections {
            let conn = held.conn.get_mut();
            self.engine.settle(*handle, conn);
            loop {
                self.buf.clear();
                let Some(sent) = E::transmit(conn, now, &mut self.buf) else {
                    break;
                };
                cut(&sent, self.address, &self.buf, emit);
            }
            self.engine.settle(*handle, conn);
            let lost = E::lost(conn);
            held.lost = held.lost.take().or(lost);
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.connections
            .values()
            .filter_map(|held| E::timeout(&mut held.conn.borrow_mut()))
            .min()
            .map(clock::time)
    }

    fn handle_timeout(&mut self, now: Time) {
        let now = clock::instant(now);
        for held in self.connections.values_mut() {
            let conn = held.conn.get_mut();
            if E::timeout(conn).is_some_and(|at| at <= now) {
                E::on_timeout(conn, now);
            }
        }
    }

    fn connect(&mut self, now: Time, remote: SocketAddr) -> Result<ConnId, String> {
        let (handle, conn) = self.engine.connect(clock::instant(now), remote)?;
        Ok(self.adopt(handle, conn))
    }

    fn accept(&mut self) -> Option<ConnId> {
        self.accepted.pop_front()
    }

    fn life(&self, conn: ConnId) -> ConnectionState {
        let Some(held) = self.get(conn) else {
            return ConnectionState::Closed("it is forgotten".to_owned());
        };
        match &held.lost {
            Some(why) => ConnectionState::Closed(why.clone()),
            None if E::is_handshaking(&held.conn.borrow()) => ConnectionState::Handshaking,
            None => ConnectionState::Connected,
        }
    }

    fn open(&mut self, conn: ConnId) -> Option<Stream> {
        E::open(self.held(conn).ok()?).map(Stream)
    }

    fn accept_stream(&mut self, conn: ConnId) -> Option<Stream> {
        E::accept(self.held(conn).ok()?).map(Stream)
    }

    fn write(&mut self, conn: ConnId, stream: Stream, data: &mut Bytes) -> Result<(), String> {
        let conn = self.held(conn)?;
        while !data.is_empty() {
            if E::write(conn, stream.0, data)? == 0 {
                break;
            }
        }
        Ok(())
    }

    fn finish(&mut self, conn: ConnId, stream: Stream) -> Result<(), String> {
        E::finish(self.held(conn)?, stream.0)
    }

    fn read(&mut self, conn: ConnId, stream: Stream) -> Result<Read, String> {
        E::read(self.held(conn)?, stream.0)
    }

    fn close(&mut self, now: Time, conn: ConnId) {
        if let Ok(conn) = self.held(conn) {
            E::close(conn, clock::instant(now));
        }
    }

    fn migrate(&mut self, now: Time, conn: ConnId, to: SocketAddr) -> Result<(), String> {
        let conn = self.held(conn)?;
        if E::is_handshaking(conn) {
            return Err("the handshake is under way".to_owned());
        }
        E::moved(conn, clock::instant(now));
        self.address = to;
        Ok(())
    }

    fn figures(&self, _now: Time, conn: ConnId) -> SenderStats {
        let handle = usize::try_from(conn.0).unwrap_or(usize::MAX);
        self.connections
            .get(&handle)
            .map_or_else(SenderStats::default, |held| {
                self.engine.figures(handle, &mut held.conn.borrow_mut())
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_is_cut_into_datagrams_of_its_segment() {
        let own: SocketAddr = ([10, 0, 0, 1], 4433).into();
        let sent = Sent {
            remote: ([10, 0, 0, 2], 50_000).into(),
            source: Some([10, 0, 0, 9].into()),
            ecn: Ecn::Ect0,
            len: 25,
            segment: Some(10),
        };
        let mut packets = Vec::new();
        cut(&sent, own, &[7; 64], &mut |packet| packets.push(packet));
        let sizes: Vec<usize> = packets.iter().map(|packet| packet.data.len()).collect();
        assert_eq!(sizes, [10, 10, 5]);
        assert!(packets.iter().all(|packet| packet.ecn == Ecn::Ect0));
        assert_eq!(packets[0].src, ([10, 0, 0, 9], 4433).into());
    }
}
