//! Sent frames that were acknowledged or lost.

use super::event::StreamEvent;
use super::halves::Stream;
use super::recv::RecvHalf;
use super::send::SendHalf;
use super::{StreamContent, StreamId, Streams};

impl Streams {
    /// Called when a packet with this frame is acknowledged. A repetition has no effect.
    pub fn on_acked(&mut self, content: &StreamContent) {
        match *content {
            StreamContent::Data {
                id,
                offset,
                len,
                fin,
            } => self.on_data_acked(id, offset, u64::from(len), fin),
            StreamContent::Reset(id) => {
                self.with_send(id, SendHalf::on_reset_acked);
                self.prune(id);
            }
            StreamContent::MaxData(limit) => self.receive.on_limit_acked(limit),
            StreamContent::MaxStreamData(id, limit) => {
                let recv = self.streams.get_mut(&id).and_then(Stream::recv_mut);
                if let Some(half) = recv {
                    half.window.on_limit_acked(limit);
                }
            }
            // The others need no acknowledgement: their effect can be seen.
            StreamContent::StopSending(_)
            | StreamContent::MaxStreams(..)
            | StreamContent::DataBlocked(_)
            | StreamContent::StreamDataBlocked(..)
            | StreamContent::StreamsBlocked(..) => {}
        }
    }

    /// Called when a packet with this frame is lost, or its frames are to be sent again as a
    /// probe (RFC 9000 §13.3). A repetition, or a call for a frame that was acknowledged
    /// meanwhile, has no effect.
    pub fn on_lost(&mut self, content: &StreamContent) {
        match *content {
            StreamContent::Data {
                id,
                offset,
                len,
                fin,
            } => {
                self.with_send(id, |half| half.buffer.on_lost(offset, u64::from(len), fin));
            }
            StreamContent::Reset(id) => {
                let again = self.send_half(id).is_some_and(SendHalf::wants_reset);
                self.mark(id, |control| control.reset |= again);
            }
            StreamContent::StopSending(id) => {
                let recv = self.streams.get(&id).and_then(Stream::recv);
                let again = recv.is_some_and(RecvHalf::wants_stop);
                self.mark(id, |control| control.stop |= again);
            }
            // Only the newest limit matters; it replaces older ones.
            StreamContent::MaxData(limit) => {
                self.credit_pending |= limit == self.receive.granted();
            }
            StreamContent::MaxStreamData(id, limit) => {
                let recv = self.streams.get(&id).and_then(Stream::recv);
                let again = recv.is_some_and(|r| r.wants_credit() && r.window.granted() == limit);
                self.mark(id, |control| control.credit |= again);
            }
            StreamContent::MaxStreams(dir, limit) => {
                let remote = &mut self.remote[dir];
                remote.pending |= limit == remote.granted;
            }
            StreamContent::DataBlocked(at) => self.sending.on_blocked_lost(at),
            StreamContent::StreamDataBlocked(id, at) => {
                self.with_send(id, |half| {
                    if half.blocked_at == Some(at) {
                        half.blocked_at = None;
                    }
                });
            }
            StreamContent::StreamsBlocked(dir, at) => {
                let local = &mut self.local[dir];
                if local.blocked_at == Some(at) {
                    local.blocked_at = None;
                    local.note_blocked();
                }
            }
        }
    }

    fn on_data_acked(&mut self, id: StreamId, offset: u64, len: u64, fin: bool) {
        let acked = self.with_send(id, |half| {
            let before = half.delivered();
            let complete = half.on_acked(offset, len, fin);
            let fresh = half.delivered().saturating_sub(before);
            (complete, fresh, half.state().is_terminal())
        });
        let (complete, fresh, is_over) = acked.unwrap_or_default();
        self.progress |= fresh > 0;
        if complete {
            self.events.push(StreamEvent::Finished(id));
        }
        if is_over {
            self.prune(id);
        } else {
            self.wake_writer(id);
        }
        self.wake_writers();
    }

    fn send_half(&self, id: StreamId) -> Option<&SendHalf> {
        self.streams.get(&id)?.send()
    }
}
