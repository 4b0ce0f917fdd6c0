//! A transport in memory, for tests and fuzzers: the test feeds what the peer sends, and reads what
//! was sent to the peer.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use clearway_quic::connection::Event as QuicEvent;
use clearway_quic::datagram::SendDatagramError;
use clearway_quic::stream::{
    Directionality, GroupAccount, GroupMarks, Priority, ReadError, SendProgress, StreamEvent,
    StreamId, WriteError,
};
use clearway_quic::{Instant, Role};

use crate::transport::Transport;

/// A stream, in both directions.
#[derive(Debug, Default)]
struct MemoryStream {
    incoming: VecDeque<Bytes>,
    fin: bool,
    reset: Option<u64>,
    /// The end or a reset was reported, or reading was stopped.
    read: bool,
    sent: Vec<u8>,
    finished: bool,
    acked: bool,
    aborted: bool,
    stopped: Option<u64>,
    reset_with: Option<u64>,
    stop_with: Option<u64>,
}

/// How many streams of each directionality the peer may open.
const MAX_PEER_STREAMS: u64 = (1 << 16) + 1;

/// A transport without a network. The test that owns it acts as the peer.
#[derive(Debug)]
pub struct MemoryTransport {
    role: Role,
    streams: BTreeMap<StreamId, MemoryStream>,
    opened: [u64; 2],
    accepted: [u64; 2],
    fed: [u64; 2],
    events: VecDeque<QuicEvent>,
    datagrams: VecDeque<Bytes>,
    /// Maximum bytes that one write accepts; 0 blocks all writes.
    pub max_write: usize,
    /// How many streams of each directionality may be opened.
    pub max_streams: u64,
    /// Whether a reset is reported after the data that arrived before it, as RFC 9000 §3.2 allows.
    /// Otherwise it replaces that data, as in `quic`.
    pub data_before_reset: bool,
    /// The code and the reason with which the connection was closed.
    pub closed: Option<(u64, Vec<u8>)>,
}

impl MemoryTransport {
    /// Creates the transport of an endpoint with this role.
    #[must_use]
    pub fn new(role: Role) -> Self {
        Self {
            role,
            streams: BTreeMap::new(),
            opened: [0; 2],
            accepted: [0; 2],
            fed: [0; 2],
            events: VecDeque::new(),
            datagrams: VecDeque::new(),
            max_write: usize::MAX,
            max_streams: 1 << 16,
            data_before_reset: false,
            closed: None,
        }
    }

    /// Returns the ID of the `index`th stream that the peer opens with this directionality.
    #[must_use]
    pub fn peer_stream(&self, directionality: Directionality, index: u64) -> StreamId {
        StreamId::new(self.role.peer(), directionality, index)
    }

    /// The peer sends bytes, opening the stream if it is new.
    pub fn feed(&mut self, id: StreamId, bytes: &[u8]) {
        if let Some(stream) = self.receiving(id)
            && !bytes.is_empty()
        {
            stream.incoming.push_back(Bytes::copy_from_slice(bytes));
            self.readable(id);
        }
    }

    /// The peer ends the stream.
    pub fn feed_end(&mut self, id: StreamId) {
        if let Some(stream) = self.receiving(id) {
            stream.fin = true;
            self.readable(id);
        }
    }

    /// The peer resets the stream.
    pub fn feed_reset(&mut self, id: StreamId, code: u64) {
        let data_before_reset = self.data_before_reset;
        if let Some(stream) = self.receiving(id) {
            if !data_before_reset {
                stream.incoming.clear();
            }
            stream.reset = Some(code);
            self.readable(id);
        }
    }

    /// The peer stops reading the stream.
    pub fn feed_stop(&mut self, id: StreamId, code: u64) {
        self.open_peer_stream(id);
        if let Some(stream) = self.streams.get_mut(&id)
            && !stream.aborted
            && !stream.acked
            && (id.initiator() == self.role || id.directionality() == Directionality::Bidirectional)
        {
            stream.aborted = true;
            stream.stopped = Some(code);
            let event = StreamEvent::Stopped { id, code };
            self.events.push_back(QuicEvent::Stream(event));
        }
    }

    /// The peer acknowledges everything on a finished stream.
    pub fn feed_ack(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.finished
            && !stream.aborted
            && !core::mem::replace(&mut stream.acked, true)
        {
            let event = StreamEvent::Finished(id);
            self.events.push_back(QuicEvent::Stream(event));
        }
    }

    /// Returns the codes with which a stream was reset, and with which the peer was asked to stop
    /// sending.
    #[must_use]
    pub fn reset_and_stop_codes(&self, id: StreamId) -> (Option<u64>, Option<u64>) {
        let stream = self.streams.get(&id);
        stream.map_or((None, None), |stream| (stream.reset_with, stream.stop_with))
    }

    /// Describes the state of each stream, without the data sent on it: states that behave the same
    /// have the same fingerprint.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let streams = self.streams.iter().map(|(id, stream)| {
            let MemoryStream {
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
            } = stream;
            let incoming: Vec<u8> = incoming.iter().flatten().copied().collect();
            let ours = (finished, acked, aborted, stopped, reset_with, stop_with);
            (id, incoming, (fin, reset, read), ours)
        });
        format!("{:?}", streams.collect::<Vec<_>>())
    }

    /// The peer sends a datagram.
    pub fn feed_datagram(&mut self, datagram: &[u8]) {
        self.datagrams.push_back(Bytes::copy_from_slice(datagram));
        self.events.push_back(QuicEvent::DatagramReceived);
    }

    /// Every stream has flow control credit again.
    pub fn unblock(&mut self) {
        self.max_write = usize::MAX;
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        for id in ids {
            let event = StreamEvent::Writable(id);
            self.events.push_back(QuicEvent::Stream(event));
        }
    }

    /// Returns the next event for HTTP/3.
    pub fn poll_event(&mut self) -> Option<QuicEvent> {
        self.events.pop_front()
    }

    /// Returns the data that was sent on a stream, and whether it was finished.
    #[must_use]
    pub fn sent(&self, id: StreamId) -> (&[u8], bool) {
        match self.streams.get(&id) {
            Some(stream) => (&stream.sent, stream.finished),
            None => (&[], false),
        }
    }

    /// Opens the stream, and those before it, if the peer may.
    fn open_peer_stream(&mut self, id: StreamId) {
        if id.initiator() == self.role || id.index() >= MAX_PEER_STREAMS {
            return;
        }
        let slot = slot(id.directionality());
        while self.fed[slot] <= id.index() {
            let new = self.peer_stream(id.directionality(), self.fed[slot]);
            self.streams.insert(new, MemoryStream::default());
            self.fed[slot] += 1;
            let event = StreamEvent::Opened(id.directionality());
            self.events.push_back(QuicEvent::Stream(event));
        }
    }

    /// Returns the stream if the peer may still send on it.
    fn receiving(&mut self, id: StreamId) -> Option<&mut MemoryStream> {
        self.open_peer_stream(id);
        let one_way = id.directionality() == Directionality::Unidirectional;
        if one_way && id.initiator() == self.role {
            return None;
        }
        let stream = self.streams.get_mut(&id)?;
        (!stream.fin && stream.reset.is_none() && !stream.read).then_some(stream)
    }

    fn readable(&mut self, id: StreamId) {
        let event = StreamEvent::Readable(id);
        self.events.push_back(QuicEvent::Stream(event));
    }

    fn sending(&mut self, id: StreamId) -> Result<&mut MemoryStream, WriteError> {
        let stream = self.streams.get_mut(&id).ok_or(WriteError::Unknown)?;
        match stream.stopped {
            Some(code) => Err(WriteError::Stopped(code)),
            None if stream.aborted => Err(WriteError::Unknown),
            None if stream.finished => Err(WriteError::Finished),
            None => Ok(stream),
        }
    }
}

impl Transport for MemoryTransport {
    fn open(&mut self, directionality: Directionality) -> Option<StreamId> {
        let opened = &mut self.opened[slot(directionality)];
        if *opened == self.max_streams {
            return None;
        }
        *opened += 1;
        let id = StreamId::new(self.role, directionality, *opened - 1);
        self.streams.insert(id, MemoryStream::default());
        Some(id)
    }

    fn accept(&mut self, directionality: Directionality) -> Option<StreamId> {
        let slot = slot(directionality);
        if self.accepted[slot] == self.fed[slot] {
            return None;
        }
        self.accepted[slot] += 1;
        Some(self.peer_stream(directionality, self.accepted[slot] - 1))
    }

    fn peer_stream_limit(&self, _: Directionality) -> u64 {
        MAX_PEER_STREAMS
    }

    fn write(&mut self, id: StreamId, data: &[u8]) -> Result<usize, WriteError> {
        let take = self.max_write.min(data.len());
        let stream = self.sending(id)?;
        if take == 0 && !data.is_empty() {
            return Err(WriteError::Blocked);
        }
        stream.sent.extend_from_slice(&data[..take]);
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
        let stream = self.streams.get_mut(&id).ok_or(WriteError::Unknown)?;
        if !stream.acked && !stream.aborted {
            stream.reset_with = Some(code);
        }
        stream.aborted = true;
        Ok(())
    }

    fn stop(&mut self, id: StreamId, code: u64) -> Result<(), ReadError> {
        let stream = self.streams.get_mut(&id).ok_or(ReadError::Unknown)?;
        if !stream.read && !stream.fin && stream.reset.is_none() {
            stream.stop_with = Some(code);
        }
        stream.read = true;
        stream.incoming.clear();
        Ok(())
    }

    fn read_chunk(&mut self, id: StreamId, max: usize) -> Result<Option<Bytes>, ReadError> {
        let stream = self.streams.get_mut(&id).ok_or(ReadError::Unknown)?;
        if stream.read {
            return Err(ReadError::Unknown);
        }
        if max == 0 && stream.reset.is_none() {
            return Ok(Some(Bytes::new()));
        }
        if let Some(front) = stream.incoming.front_mut() {
            let piece = front.split_to(max.min(front.len()));
            if front.is_empty() {
                stream.incoming.pop_front();
            }
            return Ok(Some(piece));
        }
        stream.read = stream.fin || stream.reset.is_some();
        match stream.reset {
            Some(code) => Err(ReadError::Reset(code)),
            None if stream.fin => Ok(None),
            None => Err(ReadError::Blocked),
        }
    }

    fn peek(&mut self, id: StreamId) -> Result<bool, ReadError> {
        let stream = self.streams.get(&id).ok_or(ReadError::Unknown)?;
        match stream.reset {
            _ if stream.read => Err(ReadError::Unknown),
            _ if !stream.incoming.is_empty() => Ok(true),
            Some(code) => Err(ReadError::Reset(code)),
            None if stream.fin => Ok(false),
            None => Err(ReadError::Blocked),
        }
    }

    /// Everything that is written is acknowledged at once.
    fn send_progress(&self, id: StreamId) -> Option<SendProgress> {
        let stream = self.streams.get(&id)?;
        let bytes = stream.sent.len() as u64;
        (!stream.aborted).then_some(SendProgress {
            acked: bytes,
            sent: bytes,
            written: bytes,
            limit: u64::MAX,
        })
    }

    fn stream_bytes_sent(&self) -> u64 {
        self.streams
            .values()
            .map(|stream| stream.sent.len() as u64)
            .sum()
    }

    /// Groups are not limited.
    fn open_group(&mut self, _: StreamId, _: u64, _: GroupMarks) {}

    fn join_group(&mut self, _: StreamId, _: StreamId, _: u64) {}

    fn close_group(&mut self, _: StreamId) {}

    fn group_account(&self, _: StreamId) -> Option<GroupAccount> {
        None
    }

    fn raise_group_limit(&mut self, _: StreamId, _: u64) {}

    fn set_group_marks(&mut self, _: StreamId, _: GroupMarks) {}

    fn next_group_news(&mut self) -> Option<StreamId> {
        None
    }

    fn receive_window(&self) -> u64 {
        1 << 20
    }

    fn set_priority(&mut self, _id: StreamId, priority: Priority) {
        debug_assert!(priority.urgency <= 7, "urgency above 7");
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
