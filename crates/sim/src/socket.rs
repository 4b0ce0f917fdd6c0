//! A socket in memory.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clearway::runtime::Runtime;
use clearway::udp::{
    Counters, DatagramSocket, DropKind, Ecn, Events, IcmpError, Meta, ReadinessSource, RecvBatch,
    RecvError, Report, SendError, Transmit,
};
use clearway_links::{Dice, Packet, Time};

use crate::cores::charge;
use crate::costs::Costs;
use crate::network::{Attached, Network, SimError};

/// Bytes that a receive buffer holds: Linux's default.
const RECEIVE_BUFFER: usize = 212_992;

/// Segments in each train, as with UDP_SEGMENT.
const SEGMENTS: usize = 64;

/// Bytes of a train that is received whole.
const MAX_RECEIVED: usize = 65_535;

/// Linux's `ENOMEM`, for errors of the system that pass.
const OUT_OF_MEMORY: i32 = 12;

/// Failures of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The send buffer is full at the beginning of each period: how long, and the period.
    pub full: Option<(Duration, Duration)>,
    /// Of a thousand send calls, how many drop their train.
    pub drops_per_mille: u16,
    /// Of a thousand receive calls, how many fail for now.
    pub unavailable_per_mille: u16,
    /// Trains cannot be sent or received in one call.
    pub no_offload: bool,
}

/// A datagram socket on a modelled [`Network`].
#[derive(Debug)]
pub struct SimSocket {
    network: Network,
    local: SocketAddr,
    attached: Arc<Attached>,
    runtime: Arc<dyn Runtime>,
    costs: Costs,
    faults: Faults,
    report: Report,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    dice: Dice,
    counters: Counters,
}

/// Datagrams that have arrived.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    packets: VecDeque<Packet>,
    bytes: usize,
}

impl Inbox {
    /// Adds a datagram. Returns whether there was room.
    pub(crate) fn push(&mut self, packet: Packet) -> bool {
        let room = RECEIVE_BUFFER.saturating_sub(self.bytes);
        if packet.data.len() > room {
            return false;
        }
        self.bytes += packet.data.len();
        self.packets.push_back(packet);
        true
    }

    fn pop(&mut self) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        self.bytes -= packet.data.len();
        Some(packet)
    }

    /// Takes the next datagram, and those behind it that form a train with it. Returns the first,
    /// with the data of all, and the length of each but the last.
    fn pop_train(&mut self, offload: bool) -> Option<(Packet, usize)> {
        let mut train = self.pop()?;
        let stride = train.data.len();
        let mut last = stride;
        while offload && last == stride && stride > 0 {
            let joins = |next: &Packet| {
                next.src == train.src
                    && next.ecn == train.ecn
                    && next.data.len() <= stride
                    && train.data.len() + next.data.len() <= MAX_RECEIVED
            };
            if !self.packets.front().is_some_and(joins) {
                break;
            }
            let Some(next) = self.pop() else { break };
            last = next.data.len();
            train.data.extend_from_slice(&next.data);
        }
        Some((train, stride))
    }
}

impl SimSocket {
    /// Binds a socket; port 0 is the next free one.
    ///
    /// # Errors
    /// If the address is in use.
    pub fn bind(
        network: &Network,
        address: SocketAddr,
        runtime: Arc<dyn Runtime>,
        costs: Costs,
        faults: Faults,
    ) -> Result<Self, SimError> {
        let (local, attached) = network.attach(address)?;
        let report = Report {
            gso_segments: if faults.no_offload { 1 } else { SEGMENTS },
            gro: !faults.no_offload,
            ecn: true,
            packet_info: true,
            dont_fragment: true,
            ..Report::default()
        };
        Ok(Self {
            network: network.clone(),
            attached,
            runtime,
            costs,
            faults,
            report,
            state: Mutex::new(State {
                dice: Dice::new(u64::from(local.port()), 1),
                counters: Counters::default(),
            }),
            local,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        Time(self.runtime.now().as_nanos() as u64)
    }

    /// Returns when the send buffer has room again, if it is full now.
    fn full_until(&self, now: Time) -> Option<Time> {
        let (full, period) = self.faults.full?;
        let period = (period.as_nanos() as u64).max(1);
        let phase = now.as_nanos() % period;
        let full = full.as_nanos() as u64;
        (phase < full).then(|| Time(now.as_nanos() - phase + full))
    }
}

impl Drop for SimSocket {
    fn drop(&mut self) {
        self.network.detach(self.local);
    }
}

impl DatagramSocket for SimSocket {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    fn report(&self) -> &Report {
        &self.report
    }

    fn counters(&self) -> Counters {
        self.state().counters
    }

    fn gso_segments(&self) -> usize {
        self.report.gso_segments
    }

    fn recv(&self, batch: &mut RecvBatch) -> Result<usize, RecvError> {
        charge(self.costs.receive_call);
        batch.clear();
        let mut state = self.state();
        if state.dice.below(1000) < u64::from(self.faults.unavailable_per_mille) {
            let error = io::Error::from_raw_os_error(OUT_OF_MEMORY);
            return Err(RecvError::Unavailable(error));
        }
        // What arrives while this core is busy is there too.
        self.network.advance(self.now());
        let inbox = self.attached.inbox.lock();
        let mut inbox = inbox.unwrap_or_else(PoisonError::into_inner);
        while !batch.is_full()
            && let Some((packet, stride)) = inbox.pop_train(self.report.gro)
        {
            let datagrams = packet.data.len().div_ceil(stride.max(1)).max(1);
            charge(self.costs.received.saturating_mul(datagrams as u32));
            state.counters.received_datagrams += datagrams as u64;
            state.counters.received_bytes += packet.data.len() as u64;
            let meta = Meta {
                local_ip: Some(self.local.ip()),
                ecn: received(packet.ecn),
                stride,
                ..Meta::new(packet.src)
            };
            batch.push(meta, &packet.data);
        }
        if batch.is_empty() {
            Err(RecvError::WouldBlock)
        } else {
            Ok(batch.len())
        }
    }

    fn send(&self, transmit: &mut Transmit<'_>) -> Result<(), SendError> {
        charge(self.costs.send_call);
        self.send_message(transmit)
    }

    fn send_many(&self, transmits: &mut [Transmit<'_>]) -> Result<usize, SendError> {
        charge(self.costs.send_call);
        let mut sent = 0;
        for transmit in transmits {
            match self.send_message(transmit) {
                Ok(()) => sent += 1,
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(sent)
    }

    fn expect_errors(&self) {}

    fn poll_errors(&self) -> io::Result<Option<IcmpError>> {
        Ok(None)
    }

    fn readiness(&self) -> ReadinessSource<'_> {
        ReadinessSource::flags(self.attached.readiness.clone())
    }
}

impl SimSocket {
    fn send_message(&self, transmit: &mut Transmit<'_>) -> Result<(), SendError> {
        let mut state = self.state();
        state.counters.send_calls += 1;
        if let Some(until) = self.full_until(self.now()) {
            let readiness = self.attached.readiness.clone();
            self.network
                .set_ready_at(until, readiness, Events::WRITABLE);
            return Err(SendError::WouldBlock);
        }
        if state.dice.below(1000) < u64::from(self.faults.drops_per_mille) {
            return Err(SendError::Dropped(DropKind::NoBuffers));
        }
        let segment = transmit.segment_size.unwrap_or(transmit.contents.len());
        for datagram in transmit.contents.chunks(segment.max(1)) {
            charge(self.costs.sent);
            state.counters.sent_datagrams += 1;
            state.counters.sent_bytes += datagram.len() as u64;
            let packet = Packet::new(self.local, transmit.remote, datagram.to_vec());
            let packet = packet.with_ecn(sent(transmit.ecn));
            self.network.send(self.now(), packet);
        }
        transmit.contents = &[];
        Ok(())
    }
}

fn sent(ecn: Option<Ecn>) -> clearway_links::Ecn {
    match ecn {
        None => clearway_links::Ecn::NotEct,
        Some(Ecn::Ect0) => clearway_links::Ecn::Ect0,
        Some(Ecn::Ect1) => clearway_links::Ecn::Ect1,
        Some(Ecn::Ce) => clearway_links::Ecn::Ce,
    }
}

fn received(ecn: clearway_links::Ecn) -> Option<Ecn> {
    match ecn {
        clearway_links::Ecn::NotEct => None,
        clearway_links::Ecn::Ect0 => Some(Ecn::Ect0),
        clearway_links::Ecn::Ect1 => Some(Ecn::Ect1),
        clearway_links::Ecn::Ce => Some(Ecn::Ce),
    }
}
