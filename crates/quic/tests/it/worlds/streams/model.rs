//! What RFC 9000 §2 to §4 says of the halves of a stream.

use std::collections::BTreeSet;

use clearway_quic::error::Code;
use clearway_quic::stream::{ReadError, StreamEvent, StreamId};
use clearway_quic::testing::{RecvState, SendState, StreamContent};
use clearway_quic::wire::Frame;

use super::content;

/// The sending half (§3.1).
#[derive(Clone, Debug)]
pub(super) struct Sending {
    id: StreamId,
    pub(super) state: SendState,
    pub(super) written: u64,
    pub(super) finished: bool,
    /// The highest offset sent.
    pub(super) sent: u64,
    acked: BTreeSet<u64>,
    fin_acked: bool,
    /// The code of the reset.
    pub(super) code: Option<u64>,
    /// The peer's, with which it asked to stop.
    pub(super) stopped: Option<u64>,
    /// MAX_STREAM_DATA and MAX_DATA as they have arrived.
    pub(super) limit: u64,
    pub(super) connection_limit: u64,
}

impl Sending {
    pub(super) fn new(id: StreamId, limit: u64, connection_limit: u64) -> Self {
        Self {
            id,
            state: SendState::Ready,
            written: 0,
            finished: false,
            sent: 0,
            acked: BTreeSet::new(),
            fin_acked: false,
            code: None,
            stopped: None,
            limit,
            connection_limit,
        }
    }

    /// Data can still be written, sent or repeated.
    pub(super) fn is_active(&self) -> bool {
        match self.state {
            SendState::Ready | SendState::Sending | SendState::DataSent => true,
            SendState::DataAcked | SendState::ResetSent | SendState::ResetAcked => false,
        }
    }

    /// The application, or at the peer's wish the transport, abandons the stream.
    pub(super) fn reset(&mut self, code: u64) -> bool {
        let active = self.is_active();
        if active {
            self.state = SendState::ResetSent;
            self.code = Some(code);
        }
        active
    }

    /// STOP_SENDING arrives (§3.5).
    pub(super) fn stop(&mut self, code: u64) -> Option<StreamEvent> {
        let active = self.reset(code);
        if active {
            self.stopped = Some(code);
        }
        active.then_some(StreamEvent::Stopped { id: self.id, code })
    }

    /// A frame leaves.
    ///
    /// # Errors
    /// Why it may not.
    pub(super) fn on_sent(&mut self, frame: &Frame<'_>) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("{frame:?} leaves {what}: {self:?}"));
        match *frame {
            Frame::Stream {
                offset, fin, data, ..
            } => {
                let end = offset + data.len() as u64;
                if !self.is_active() {
                    return wrong("after the stream was over");
                }
                if end > self.written || data != content(offset, end) {
                    return wrong("with bytes that nobody wrote");
                }
                if end > self.limit || end > self.connection_limit {
                    return wrong("beyond the credit");
                }
                if fin && (!self.finished || end != self.written) {
                    return wrong("with an end that is none");
                }
                self.sent = self.sent.max(end);
                if fin {
                    self.state = SendState::DataSent;
                } else if self.state == SendState::Ready {
                    self.state = SendState::Sending;
                }
            }
            Frame::ResetStream {
                code, final_size, ..
            } => {
                if self.state != SendState::ResetSent {
                    return wrong("without a reset to deliver");
                }
                if Some(code) != self.code || final_size != self.sent {
                    return wrong("with the wrong code or final size");
                }
            }
            Frame::StreamDataBlocked { limit, .. } => {
                let waits = self.is_active() && self.written > limit;
                if !waits || limit != self.limit {
                    return wrong("though the limit holds nothing up");
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A packet with this frame is acknowledged; what the application hears then.
    pub(super) fn on_acked(&mut self, content: &StreamContent) -> Option<StreamEvent> {
        match *content {
            StreamContent::Data {
                offset, len, fin, ..
            } => {
                self.acked.extend(offset..offset + u64::from(len));
                self.fin_acked |= fin;
                let all = self.acked.len() as u64 == self.written && self.fin_acked;
                if self.state == SendState::DataSent && all {
                    self.state = SendState::DataAcked;
                    return Some(StreamEvent::Finished(self.id));
                }
            }
            StreamContent::Reset(_) if self.state == SendState::ResetSent => {
                self.state = SendState::ResetAcked;
            }
            _ => {}
        }
        None
    }
}

/// What a read answers.
pub(super) type Read = Result<Option<Vec<u8>>, ReadError>;

/// The receiving half (§3.2).
#[derive(Clone, Debug)]
pub(super) struct Receiving {
    id: StreamId,
    pub(super) state: RecvState,
    arrived: BTreeSet<u64>,
    pub(super) highest: u64,
    pub(super) final_size: Option<u64>,
    reset: Option<u64>,
    pub(super) stopped: bool,
    pub(super) read: u64,
    /// A read met nothing, or there was none: the next thing to read is told.
    waits: bool,
    /// The limits as they were announced.
    pub(super) granted: u64,
    pub(super) connection_granted: u64,
}

impl Receiving {
    pub(super) fn new(id: StreamId, granted: u64, connection_granted: u64) -> Self {
        Self {
            id,
            state: RecvState::Recv,
            arrived: BTreeSet::new(),
            highest: 0,
            final_size: None,
            reset: None,
            stopped: false,
            read: 0,
            waits: true,
            granted,
            connection_granted,
        }
    }

    fn is_receiving(&self) -> bool {
        match self.state {
            RecvState::Recv | RecvState::SizeKnown => true,
            RecvState::DataRecvd
            | RecvState::DataRead
            | RecvState::ResetRecvd
            | RecvState::ResetRead => false,
        }
    }

    /// Where the bytes end that arrived without a gap.
    fn front(&self) -> u64 {
        (0..).find(|at| !self.arrived.contains(at)).unwrap_or(0)
    }

    /// Errors that a frame up to `end` may be answered with (§4.1, §4.5); none if it has
    /// to be taken.
    fn faults(&self, end: u64, is_final: bool) -> Vec<Code> {
        let mut faults = Vec::new();
        let beyond = self.final_size.is_some_and(|size| end > size);
        let changed = is_final && self.final_size.is_some_and(|size| end != size);
        if beyond || changed || is_final && end < self.highest {
            faults.push(Code::FINAL_SIZE_ERROR);
        }
        if end > self.granted || end > self.highest.max(self.connection_granted) {
            faults.push(Code::FLOW_CONTROL_ERROR);
        }
        faults
    }

    /// STREAM arrives: the errors it may be answered with, and else whether the
    /// application hears of something to read.
    pub(super) fn on_stream(
        &mut self,
        offset: u64,
        len: u64,
        fin: bool,
    ) -> Result<bool, Vec<Code>> {
        let end = offset + len;
        let faults = self.faults(end, fin);
        if !faults.is_empty() {
            return Err(faults);
        }
        if !self.is_receiving() {
            return Ok(false);
        }
        self.highest = self.highest.max(end);
        if fin {
            self.final_size = Some(end);
            self.state = RecvState::SizeKnown;
        }
        if self.stopped {
            // Whatever is still missing, nobody will read it.
            if self.final_size.is_some() {
                self.state = RecvState::DataRead;
            }
            return Ok(false);
        }
        let before = self.front();
        self.arrived.extend(offset..end);
        let complete = self.final_size == Some(self.front());
        if complete {
            self.state = RecvState::DataRecvd;
        }
        let news = self.front() > before || complete;
        Ok(news && std::mem::take(&mut self.waits))
    }

    /// RESET_STREAM arrives; answers as [`on_stream`](Self::on_stream).
    pub(super) fn on_reset(&mut self, code: u64, final_size: u64) -> Result<bool, Vec<Code>> {
        let faults = self.faults(final_size, true);
        if !faults.is_empty() {
            return Err(faults);
        }
        if !self.is_receiving() {
            return Ok(false);
        }
        self.highest = final_size;
        self.final_size = Some(final_size);
        self.reset = Some(code);
        self.waits = false;
        self.state = if self.stopped {
            RecvState::ResetRead
        } else {
            RecvState::ResetRecvd
        };
        Ok(!self.stopped)
    }

    /// The application reads at most `max` bytes.
    pub(super) fn read(&mut self, max: u64) -> Read {
        if self.stopped {
            return Err(ReadError::Unknown);
        }
        match self.state {
            RecvState::ResetRecvd | RecvState::ResetRead => {
                self.state = RecvState::ResetRead;
                return Err(ReadError::Reset(self.reset.expect("a code")));
            }
            RecvState::DataRead => return Err(ReadError::Unknown),
            RecvState::Recv | RecvState::SizeKnown | RecvState::DataRecvd => {}
        }
        let end = self.front().min(self.read.saturating_add(max));
        if end > self.read {
            let from = std::mem::replace(&mut self.read, end);
            return Ok(Some(content(from, end)));
        }
        if self.state == RecvState::DataRecvd {
            self.state = RecvState::DataRead;
            return Ok(None);
        }
        self.waits = true;
        Err(ReadError::Blocked)
    }

    /// The application stopped reading (§3.5).
    pub(super) fn stop(&mut self) {
        if self.stopped || self.is_terminal() {
            return;
        }
        self.stopped = true;
        self.state = match self.state {
            RecvState::DataRecvd => RecvState::DataRead,
            RecvState::ResetRecvd => RecvState::ResetRead,
            state @ (RecvState::Recv
            | RecvState::SizeKnown
            | RecvState::DataRead
            | RecvState::ResetRead) => state,
        };
    }

    fn is_terminal(&self) -> bool {
        matches!(self.state, RecvState::DataRead | RecvState::ResetRead)
    }

    /// A frame about this half leaves.
    ///
    /// # Errors
    /// Why it may not.
    pub(super) fn on_sent(&mut self, frame: &Frame<'_>) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("{frame:?} leaves {what}: {self:?}"));
        match *frame {
            Frame::MaxStreamData { limit, .. } => {
                if self.state != RecvState::Recv || self.stopped {
                    return wrong("though more credit is of no use");
                }
                if limit < self.granted || limit > self.read + WINDOW {
                    return wrong("with more or less than there is to grant");
                }
                self.granted = limit;
            }
            Frame::MaxData(limit) => {
                let consumed = if self.stopped || self.reset.is_some() {
                    self.highest
                } else {
                    self.read
                };
                if limit < self.connection_granted || limit > consumed + WINDOW {
                    return wrong("with more or less than there is to grant");
                }
                self.connection_granted = limit;
            }
            Frame::StopSending { .. } if !self.stopped || !self.is_receiving() => {
                return wrong("though there is nothing to stop");
            }
            _ => {}
        }
        Ok(())
    }

    /// The event that tells of something to read.
    pub(super) fn readable(&self) -> StreamEvent {
        StreamEvent::Readable(self.id)
    }
}

/// The largest receive window, of the stream and of the connection.
pub(super) const WINDOW: u64 = 6;
