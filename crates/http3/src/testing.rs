//! A transport in memory, for tests and fuzzers: what a peer sends is fed in, what
//! we send is kept.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use clearway_quic::connection::Event as QuicEvent;
use clearway_quic::datagram::SendDatagramError;
use clearway_quic::stream::{
    Directionality, Priority, ReadError, SendProgress, StreamEvent, StreamId, WriteError,
};
use clearway_quic::{Instant, Role};

use crate::transport::Transport;

/// One stream, both directions.
#[derive(Debug, Default)]
struct Pipe {
    incoming: VecDeque<Bytes>,
    fin: bool,
    reset: Option<u64>,
    /// The end or a reset was told, or reading was given up.
    read: bool,
    sent: Vec<u8>,
    finished: bool,
    acked: bool,
    aborted: bool,
    stopped: Option<u64>,
    reset_with: Option<u64>,
    stop_with: Option<u64>,
}

/// Streams without a network. Whoever holds it plays the peer.
#[derive(Debug)]
pub struct Wire {
    role: Role,
    pipes: BTreeMap<StreamId, Pipe>,
    opened: [u64; 2],
    accepted: [u64; 2],
    fed: [u64; 2],
    events: VecDeque<QuicEvent>,
    datagrams: VecDeque<Bytes>,
    /// Most bytes that one write takes; 0 blocks all.
    pub take: usize,
    /// Streams of each kind we may open.
    pub streams: u64,
    /// A reset is told behind what had arrived before it, as RFC 9000 §3.2 lets a
    /// transport do; else it overtakes that, as it does in `quic`.
    pub data_before_reset: bool,
    /// The code and reason the connection was closed with.
    pub closed: Option<(u64, Vec<u8>)>,
}

impl Wire {
    /// The transport of an end with this role.
    #[must_use]
    pub fn new(role: Role) -> Self {
        Self {
            role,
            pipes: BTreeMap::new(),
            opened: [0; 2],
            accepted: [0; 2],
            fed: [0; 2],
            events: VecDeque::new(),
            datagrams: VecDeque::new(),
            take: usize::MAX,
            streams: 1 << 16,
            data_before_reset: false,
            closed: None,
        }
    }

    /// The `index`th stream the peer opens, of one kind.
    #[must_use]
    pub fn of_peer(&self, directionality: Directionality, index: u64) -> StreamId {
        StreamId::new(self.role.peer(), directionality, index)
    }

    /// The peer sends bytes, opening the stream if it is new.
    pub fn feed(&mut self, id: StreamId, bytes: &[u8]) {
        if let Some(pipe) = self.receiving(id)
            && !bytes.is_empty()
        {
            pipe.incoming.push_back(Bytes::copy_from_slice(bytes));
            self.readable(id);
        }
    }

    /// The peer ends the stream.
    pub fn feed_end(&mut self, id: StreamId) {
        if let Some(pipe) = self.receiving(id) {
            pipe.fin = true;
            self.readable(id);
        }
    }

    /// The peer resets the stream.
    pub fn feed_reset(&mut self, id: StreamId, code: u64) {
        let data_before_reset = self.data_before_reset;
        if let Some(pipe) = self.receiving(id) {
            if !data_before_reset {
                pipe.incoming.clear();
            }
            pipe.reset = Some(code);
            self.readable(id);
        }
    }

    /// The peer does not want what we send.
    pub fn feed_stop(&mut self, id: StreamId, code: u64) {
        self.admit(id);
        if let Some(pipe) = self.pipes.get_mut(&id)
            && !pipe.aborted
            && !pipe.acked
            && (id.initiator() == self.role || id.directionality() == Directionality::Bidirectional)
        {
            pipe.aborted = true;
            pipe.stopped = Some(code);
            let event = StreamEvent::Stopped { id, code };
            self.events.push_back(QuicEvent::Stream(event));
        }
    }

    /// The peer acknowledges all that was sent to its end.
    pub fn feed_ack(&mut self, id: StreamId) {
        if let Some(pipe) = self.pipes.get_mut(&id)
            && pipe.finished
            && !pipe.aborted
            && !core::mem::replace(&mut pipe.acked, true)
        {
            let event = StreamEvent::Finished(id);
            self.events.push_back(QuicEvent::Stream(event));
        }
    }

    /// The code with which a stream was reset, and the one with which the peer was
    /// asked to stop.
    #[must_use]
    pub fn refusal(&self, id: StreamId) -> (Option<u64>, Option<u64>) {
        let pipe = self.pipes.get(&id);
        pipe.map_or((None, None), |pipe| (pipe.reset_with, pipe.stop_with))
    }

    /// Where each stream stands, without what was sent on it: the same for states from
    /// which the same follows.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let pipes = self.pipes.iter().map(|(id, pipe)| {
            let Pipe {
                incoming,
                fin,
                reset,
                read,
                sent: _,
                finished,
                acked,
                aborted,
                stopped,
                reset_with,
                stop_with,
            } = pipe;
            let incoming: Vec<u8> = incoming.iter().flatten().copied().collect();
            let ours = (finished, acked, aborted, stopped, reset_with, stop_with);
            (id, incoming, (fin, reset, read), ours)
        });
        format!("{:?}", pipes.collect::<Vec<_>>())
    }

    /// The peer sends a datagram.
    pub fn feed_datagram(&mut self, datagram: &[u8]) {
        self.datagrams.push_back(Bytes::copy_from_slice(datagram));
        self.events.push_back(QuicEvent::DatagramReceived);
    }

    /// There is room again on every stream.
    pub fn unblock(&mut self) {
        self.take = usize::MAX;
        let ids: Vec<StreamId> = self.pipes.keys().copied().collect();
        for id in ids {
            let event = StreamEvent::Writable(id);
            self.events.push_back(QuicEvent::Stream(event));
        }
    }

    /// The next event for the end above.
    pub fn poll_event(&mut self) -> Option<QuicEvent> {
        self.events.pop_front()
    }

    /// What was sent on a stream, and whether it ended.
    #[must_use]
    pub fn sent(&self, id: StreamId) -> (&[u8], bool) {
        match self.pipes.get(&id) {
            Some(pipe) => (&pipe.sent, pipe.finished),
            None => (&[], false),
        }
    }

    /// Makes the stream exist if the peer may open it.
    fn admit(&mut self, id: StreamId) {
        if id.initiator() == self.role || id.index() > 1 << 16 {
            return;
        }
        let slot = slot(id.directionality());
        while self.fed[slot] <= id.index() {
            let new = self.of_peer(id.directionality(), self.fed[slot]);
            self.pipes.insert(new, Pipe::default());
            self.fed[slot] += 1;
            let event = StreamEvent::Opened(id.directionality());
            self.events.push_back(QuicEvent::Stream(event));
        }
    }

    /// The stream, if the peer may still send on it.
    fn receiving(&mut self, id: StreamId) -> Option<&mut Pipe> {
        self.admit(id);
        let one_way = id.directionality() == Directionality::Unidirectional;
        if one_way && id.initiator() == self.role {
            return None;
        }
        let pipe = self.pipes.get_mut(&id)?;
        (!pipe.fin && pipe.reset.is_none() && !pipe.read).then_some(pipe)
    }

    fn readable(&mut self, id: StreamId) {
        let event = StreamEvent::Readable(id);
        self.events.push_back(QuicEvent::Stream(event));
    }

    fn sending(&mut self, id: StreamId) -> Result<&mut Pipe, WriteError> {
        let pipe = self.pipes.get_mut(&id).ok_or(WriteError::Unknown)?;
        match pipe.stopped {
            Some(code) => Err(WriteError::Stopped(code)),
            None if pipe.aborted => Err(WriteError::Unknown),
            None if pipe.finished => Err(WriteError::Finished),
            None => Ok(pipe),
        }
    }
}

impl Transport for Wire {
    fn open(&mut self, directionality: Directionality) -> Option<StreamId> {
        let opened = &mut self.opened[slot(directionality)];
        if *opened == self.streams {
            return None;
        }
        *opened += 1;
        let id = StreamId::new(self.role, directionality, *opened - 1);
        self.pipes.insert(id, Pipe::default());
        Some(id)
    }

    fn accept(&mut self, directionality: Directionality) -> Option<StreamId> {
        let slot = slot(directionality);
        if self.accepted[slot] == self.fed[slot] {
            return None;
        }
        self.accepted[slot] += 1;
        Some(self.of_peer(directionality, self.accepted[slot] - 1))
    }

    fn write(&mut self, id: StreamId, data: &[u8]) -> Result<usize, WriteError> {
        let take = self.take.min(data.len());
        let pipe = self.sending(id)?;
        if take == 0 && !data.is_empty() {
            return Err(WriteError::Blocked);
        }
        pipe.sent.extend_from_slice(&data[..take]);
        Ok(take)
    }

    fn write_chunk(&mut self, id: StreamId, data: &mut Bytes) -> Result<usize, WriteError> {
        let taken = self.write(id, data)?;
        let _ = data.split_to(taken);
        Ok(taken)
    }

    fn finish(&mut self, id: StreamId) -> Result<(), WriteError> {
        self.sending(id)?.finished = true;
        Ok(())
    }

    fn reset(&mut self, id: StreamId, code: u64) -> Result<(), WriteError> {
        let pipe = self.pipes.get_mut(&id).ok_or(WriteError::Unknown)?;
        if !pipe.acked && !pipe.aborted {
            pipe.reset_with = Some(code);
        }
        pipe.aborted = true;
        Ok(())
    }

    fn stop(&mut self, id: StreamId, code: u64) -> Result<(), ReadError> {
        let pipe = self.pipes.get_mut(&id).ok_or(ReadError::Unknown)?;
        if !pipe.read && !pipe.fin && pipe.reset.is_none() {
            pipe.stop_with = Some(code);
        }
        pipe.read = true;
        pipe.incoming.clear();
        Ok(())
    }

    fn read_chunk(&mut self, id: StreamId, max: usize) -> Result<Option<Bytes>, ReadError> {
        let pipe = self.pipes.get_mut(&id).ok_or(ReadError::Unknown)?;
        if pipe.read {
            return Err(ReadError::Unknown);
        }
        if max == 0 && pipe.reset.is_none() {
            return Ok(Some(Bytes::new()));
        }
        if let Some(front) = pipe.incoming.front_mut() {
            let piece = front.split_to(max.min(front.len()));
            if front.is_empty() {
                pipe.incoming.pop_front();
            }
            return Ok(Some(piece));
        }
        pipe.read = pipe.fin || pipe.reset.is_some();
        match pipe.reset {
            Some(code) => Err(ReadError::Reset(code)),
            None if pipe.fin => Ok(None),
            None => Err(ReadError::Blocked),
        }
    }

    fn peek(&mut self, id: StreamId) -> Result<bool, ReadError> {
        let pipe = self.pipes.get(&id).ok_or(ReadError::Unknown)?;
        match pipe.reset {
            _ if pipe.read => Err(ReadError::Unknown),
            _ if !pipe.incoming.is_empty() => Ok(true),
            Some(code) => Err(ReadError::Reset(code)),
            None if pipe.fin => Ok(false),
            None => Err(ReadError::Blocked),
        }
    }

    /// The peer acknowledges at once all that is written.
    fn send_progress(&self, id: StreamId) -> Option<SendProgress> {
        let pipe = self.pipes.get(&id)?;
        let bytes = pipe.sent.len() as u64;
        (!pipe.aborted).then_some(SendProgress {
            acked: bytes,
            sent: bytes,
            written: bytes,
            limit: u64::MAX,
        })
    }

    fn stream_bytes_sent(&self) -> u64 {
        self.pipes.values().map(|pipe| pipe.sent.len() as u64).sum()
    }

    fn set_priority(&mut self, _id: StreamId, priority: Priority) {
        debug_assert!(priority.urgency <= 7, "an urgency beyond 7");
    }

    fn send_datagram(&mut self, _data: Bytes) -> Result<(), SendDatagramError> {
        Ok(())
    }

    fn recv_datagram(&mut self) -> Option<Bytes> {
        self.datagrams.pop_front()
    }

    fn max_datagram_size(&self) -> Option<usize> {
        Some(1200)
    }

    fn zero_rtt_accepted(&self) -> Option<bool> {
        None
    }

    fn close(&mut self, _now: Instant, code: u64, reason: &[u8]) {
        self.closed.get_or_insert((code, reason.to_vec()));
    }
}

const fn slot(directionality: Directionality) -> usize {
    match directionality {
        Directionality::Bidirectional => 0,
        Directionality::Unidirectional => 1,
    }
}
