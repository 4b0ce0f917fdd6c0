//! Packet captures: the events of both ends of each connection.

use std::collections::VecDeque;
use std::io::Read;
use std::net::SocketAddr;

use clearway_quic::Role;

use super::connection::{Connection, Observation, Observed};
use super::datagram::{Datagram, datagram};
use super::delay::{DelayEstimator, Delays};
use super::demultiplex::{Demultiplexer, Destination};
use super::end::End;
use super::file::{CaptureFile, CapturedFrame, FileError, Record};
use super::key_log::KeyLog;
use super::reader::{CapturedEvent, CapturedTrace, MAX_CONNECTIONS, Problems};
use crate::event;

/// A connection and its two ends.
#[derive(Debug)]
struct Flow {
    connection: Connection,
    start: u64,
    delay: DelayEstimator,
    /// Observations before the delay is known.
    early: Vec<Observation>,
    /// The ends, once the delay is known.
    ends: Option<[End; 2]>,
    addresses: [SocketAddr; 2],
    dcid: String,
}

/// Reads a packet capture (pcapng or pcap).
#[derive(Debug)]
pub(super) struct PacketReader<R> {
    file: CaptureFile<R>,
    secrets: KeyLog,
    demultiplexer: Demultiplexer,
    flows: Vec<Flow>,
    traces: Vec<CapturedTrace>,
    problems: Problems,
    ahead: VecDeque<CapturedEvent>,
    observations: Vec<Observation>,
    ended: bool,
}

impl<R: Read> PacketReader<R> {
    /// Opens a capture.
    ///
    /// # Errors
    /// If reading fails, or the file is not a capture.
    pub(super) fn new(input: R, secrets: KeyLog) -> Result<Self, FileError> {
        Ok(Self {
            file: CaptureFile::new(input)?,
            secrets,
            demultiplexer: Demultiplexer::default(),
            flows: Vec::new(),
            traces: Vec::new(),
            problems: Problems::default(),
            ahead: VecDeque::new(),
            observations: Vec::new(),
            ended: false,
        })
    }

    /// The traces that have begun so far: two for each connection, the client's first.
    pub(super) fn traces(&self) -> &[CapturedTrace] {
        &self.traces
    }

    /// What could not be used so far.
    pub(super) fn problems(&self) -> Problems {
        let mut sum = self.problems;
        for flow in &self.flows {
            let connection = &flow.connection;
            sum.opened = sum.opened.saturating_add(connection.opened);
            sum.unopened = sum.unopened.saturating_add(connection.unopened);
            sum.duplicates = sum.duplicates.saturating_add(connection.duplicates);
            let without = connection.began() && !connection.has_secrets();
            sum.without_secrets = sum.without_secrets.saturating_add(without.into());
        }
        sum
    }

    /// Bytes read so far.
    pub(super) const fn offset(&self) -> u64 {
        self.file.offset()
    }

    /// The next event; `None` at the end.
    fn next_event(&mut self) -> Result<Option<CapturedEvent>, FileError> {
        loop {
            if let Some(event) = self.ahead.pop_front() {
                return Ok(Some(event));
            }
            if self.ended {
                return Ok(None);
            }
            match self.file.next() {
                Ok(Some(Record::Frame(frame))) => self.on_frame(&frame),
                Ok(Some(Record::Secrets(text))) => self.secrets.add(&text),
                Ok(None) => self.finish(),
                Err(error) => {
                    // What was read before is told first.
                    self.finish();
                    return Err(error);
                }
            }
        }
    }

    fn on_frame(&mut self, frame: &CapturedFrame) {
        let count = |counter: &mut u64| *counter = counter.saturating_add(1);
        if frame.cut {
            count(&mut self.problems.cut_frames);
        }
        let Some(datagram) = datagram(frame.link_type, &frame.data) else {
            count(&mut self.problems.other_frames);
            return;
        };
        match self.demultiplexer.route(&datagram) {
            Destination::Known(number, sender) => {
                self.on_datagram(number, sender, frame.time, &datagram);
            }
            Destination::New { version, dcid } if self.flows.len() < MAX_CONNECTIONS => {
                let number = self.flows.len();
                self.demultiplexer.add(number, &datagram, &dcid);
                let connection = Connection::new(version, &dcid);
                self.begin(connection, frame.time, &datagram, &dcid);
                self.on_datagram(number, Role::Client, frame.time, &datagram);
            }
            Destination::New { .. } => count(&mut self.problems.ignored_connections),
            Destination::Unknown => count(&mut self.problems.other_datagrams),
        }
    }

    fn begin(&mut self, connection: Connection, start: u64, first: &Datagram<'_>, dcid: &[u8]) {
        let dcid = crate::recorder::hex(dcid);
        for role in [event::Role::Client, event::Role::Server] {
            self.traces.push(CapturedTrace {
                connection: self.flows.len(),
                role,
                client: Some(first.source),
                server: Some(first.destination),
                original_dcid: dcid.clone(),
            });
        }
        self.flows.push(Flow {
            connection,
            start,
            delay: DelayEstimator::default(),
            early: Vec::new(),
            ends: None,
            addresses: [first.source, first.destination],
            dcid,
        });
    }

    fn on_datagram(&mut self, number: usize, from: Role, time: u64, datagram: &Datagram<'_>) {
        let Some(flow) = self.flows.get_mut(number) else {
            return;
        };
        let time = time.saturating_sub(flow.start);
        let about = (time, from, datagram.ecn);
        let mut observations = core::mem::take(&mut self.observations);
        let connection = &mut flow.connection;
        connection.on_datagram(about, datagram.payload, &self.secrets, &mut observations);
        for (cid, owner) in connection.new_cids.drain(..) {
            self.demultiplexer.add_cid(&cid, number, owner);
        }
        for observation in observations.drain(..) {
            flow.observe(observation);
        }
        flow.take_events(number, &mut self.ahead);
        self.observations = observations;
    }

    fn finish(&mut self) {
        self.ended = true;
        for (number, flow) in self.flows.iter_mut().enumerate() {
            flow.finish();
            flow.take_events(number, &mut self.ahead);
        }
    }
}

impl<R: Read> Iterator for PacketReader<R> {
    type Item = Result<CapturedEvent, FileError>;

    /// The next event. After an error follow the events that were still held back.
    fn next(&mut self) -> Option<Self::Item> {
        self.next_event().transpose()
    }
}

impl Flow {
    fn observe(&mut self, observation: Observation) {
        if self.ends.is_none() {
            let delays = match &observation.data {
                Observed::Packet(packet) => {
                    let (time, from) = (observation.time, observation.from);
                    self.delay.on_packet(time, from, packet)
                }
                _ => None,
            };
            self.early.push(observation);
            if let Some(delays) = delays {
                self.start_ends(delays);
            }
            return;
        }
        for end in self.ends.iter_mut().flatten() {
            end.observe(&observation);
        }
    }

    fn start_ends(&mut self, delays: Delays) {
        let [client, server] = self.addresses;
        let mut ends = [
            End::new(Role::Client, delays.client, (client, server), &self.dcid),
            End::new(Role::Server, delays.server, (server, client), &self.dcid),
        ];
        for observation in core::mem::take(&mut self.early) {
            for end in &mut ends {
                end.observe(&observation);
            }
        }
        self.ends = Some(ends);
    }

    fn finish(&mut self) {
        if self.ends.is_none() {
            self.start_ends(self.delay.delays());
        }
        for end in self.ends.iter_mut().flatten() {
            end.finish();
        }
    }

    fn take_events(&mut self, number: usize, ahead: &mut VecDeque<CapturedEvent>) {
        for (at, end) in self.ends.iter_mut().flatten().enumerate() {
            let trace = number.saturating_mul(2).saturating_add(at);
            let told = end.take_events();
            ahead.extend(told.map(|event| CapturedEvent { trace, event }));
        }
    }
}
