//! Filling a packet: control frames, retransmissions, new data.

use core::time::Duration;

use super::halves::Stream;
use super::layout::{CONTROL_ROOM, layout_stream};
use super::ranges::Span;
use super::recv::RecvHalf;
use super::send::SendHalf;
use super::{Directionality, StreamContent, StreamId, Streams};
use crate::time::Instant;
use crate::wire::{Frame, Writer};

const BOTH: [Directionality; 2] = [
    Directionality::Bidirectional,
    Directionality::Unidirectional,
];

/// The kind of data to send, which decides on the credit it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// A retransmission or a FIN alone: needs no connection credit.
    Free,
    /// New data: uses connection credit.
    Paid,
}

/// Whether a stream's control frame was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    All,
    /// MAX_STREAM_DATA comes next.
    CreditIsDue,
}

impl Streams {
    /// Writes as many frames as fit: control frames, then STREAM frames, with retransmissions first,
    /// by [`Priority`](super::Priority). Passes each frame written to `contents`. `rtt` is the
    /// smoothed round-trip time, which sizes the receive windows.
    pub fn fill(
        &mut self,
        w: &mut Writer<'_>,
        now: Instant,
        rtt: Duration,
        contents: &mut impl FnMut(StreamContent),
    ) {
        self.now = now;
        self.fill_connection_credit(w, now, rtt, contents);
        while w.remaining() >= CONTROL_ROOM
            && let Some(&id) = self.control.first()
        {
            if self.fill_one_control(id, w, contents) == Written::CreditIsDue {
                self.write_stream_credit(id, w, now, rtt, contents);
            }
            self.sync_control(id);
        }
        self.fill_data(w, Source::Free, contents);
        self.fill_data(w, Source::Paid, contents);
        self.fill_blocked(w, contents);
    }

    /// Writes limits that the peer may soon reach into a packet that is sent anyway. They go with
    /// every acknowledgement of the data that uses them up, so that credit is lost as rarely as
    /// acknowledgements. On a path without loss there are none.
    pub fn fill_urgent_credit(
        &mut self,
        w: &mut Writer<'_>,
        now: Instant,
        rtt: Duration,
        contents: &mut impl FnMut(StreamContent),
    ) {
        if self.urgent_credit && w.remaining() >= CONTROL_ROOM {
            self.write_connection_credit(w, now, rtt, contents);
        }
        while w.remaining() >= CONTROL_ROOM
            && let Some(id) = self.hurried_streams.pop()
        {
            let recv = self.streams.get(&id).and_then(Stream::recv);
            if recv.is_some_and(|half| half.urgent_credit && half.wants_credit()) {
                self.write_stream_credit(id, w, now, rtt, contents);
                self.sync_control(id);
            }
        }
    }

    /// Writes MAX_DATA with the highest possible limit.
    fn write_connection_credit(
        &mut self,
        w: &mut Writer<'_>,
        now: Instant,
        rtt: Duration,
        contents: &mut impl FnMut(StreamContent),
    ) {
        self.credit_pending = false;
        self.urgent_credit = false;
        let limit = self.receive.grant(now, rtt);
        Frame::MaxData(limit).encode(w);
        contents(StreamContent::MaxData(limit));
    }

    fn fill_connection_credit(
        &mut self,
        w: &mut Writer<'_>,
        now: Instant,
        rtt: Duration,
        contents: &mut impl FnMut(StreamContent),
    ) {
        if self.credit_pending && w.remaining() >= CONTROL_ROOM {
            self.write_connection_credit(w, now, rtt, contents);
        }
        for dir in BOTH {
            let remote = &mut self.remote[dir];
            if remote.pending && w.remaining() >= CONTROL_ROOM {
                let limit = remote.grant();
                Frame::MaxStreams {
                    directionality: dir,
                    limit,
                }
                .encode(w);
                contents(StreamContent::MaxStreams(dir, limit));
            }
        }
    }

    /// Writes MAX_STREAM_DATA with the highest possible limit.
    fn write_stream_credit(
        &mut self,
        id: StreamId,
        w: &mut Writer<'_>,
        now: Instant,
        rtt: Duration,
        contents: &mut impl FnMut(StreamContent),
    ) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.control.credit = false;
        let Some(half) = stream.recv_mut() else {
            return;
        };
        half.urgent_credit = false;
        let limit = half.window.grant(now, rtt);
        // A single stream must be able to use its whole window.
        self.receive
            .raise_to(half.window.size().saturating_mul(3) / 2);
        self.credit_pending |= self.receive.is_due();
        Frame::MaxStreamData { id, limit }.encode(w);
        contents(StreamContent::MaxStreamData(id, limit));
    }

    /// Writes one control frame of the stream and clears its flag. The caller writes
    /// MAX_STREAM_DATA.
    fn fill_one_control(
        &mut self,
        id: StreamId,
        w: &mut Writer<'_>,
        contents: &mut impl FnMut(StreamContent),
    ) -> Written {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Written::All;
        };
        let control = &mut stream.control;
        if control.reset {
            control.reset = false;
            if let Some(frame) = stream.send().and_then(|half| reset_frame(id, half)) {
                frame.encode(w);
                contents(StreamContent::Reset(id));
            }
        } else if control.stop {
            control.stop = false;
            if let Some(code) = stream.recv().and_then(RecvHalf::stop_code) {
                Frame::StopSending { id, code }.encode(w);
                contents(StreamContent::StopSending(id));
            }
        } else if control.credit {
            return Written::CreditIsDue;
        } else if control.blocked {
            control.blocked = false;
            if let Some(half) = stream.send_mut() {
                let at = half.max_data();
                half.blocked_at = Some(at);
                Frame::StreamDataBlocked { id, limit: at }.encode(w);
                contents(StreamContent::StreamDataBlocked(id, at));
            }
        }
        Written::All
    }

    fn fill_data(
        &mut self,
        w: &mut Writer<'_>,
        source: Source,
        contents: &mut impl FnMut(StreamContent),
    ) {
        loop {
            let schedule = match source {
                Source::Free => &self.sending.free,
                Source::Paid if self.sending.credit() > 0 => &self.sending.paid,
                Source::Paid => return,
            };
            let Some(id) = schedule.next() else {
                return;
            };
            let Some(content) = self.fill_stream(id, w, source) else {
                return;
            };
            contents(content);
        }
    }

    /// Writes one STREAM frame of `id`, if one fits.
    fn fill_stream(
        &mut self,
        id: StreamId,
        w: &mut Writer<'_>,
        source: Source,
    ) -> Option<StreamContent> {
        let credit = self.sending.credit();
        let half = self.streams.get(&id)?.send()?;
        let span = match source {
            Source::Free => half.buffer.next_free()?,
            Source::Paid => {
                let next = half.next_paid();
                Span::new(next.start, next.end.min(next.start.saturating_add(credit)))
            }
        };
        let priority = half.priority;
        let layout = layout_stream(id, span.start, span.len(), w.remaining())?;
        let len = layout.len as u64;
        let (fin, reset) = self.with_send(id, |half| {
            let waited = half.is_resetting() && !half.may_send_reset();
            let fin = half.on_sent(span.start, len);
            if let Some(out) = layout.write_header(w, id, span.start, fin) {
                half.buffer.copy_to(span.start, out);
            }
            (fin, waited && half.may_send_reset())
        })?;
        if reset {
            self.mark(id, |control| control.reset = true);
        }
        match source {
            Source::Free => self.sending.free.served(id, priority),
            Source::Paid => {
                self.sending.paid.served(id, priority);
                self.sending.spend(len);
                let sent = span.start.saturating_add(len);
                if priority.after(sent) != priority {
                    self.set_priority(id, priority);
                }
            }
        }
        Some(StreamContent::Data {
            id,
            offset: span.start,
            len: u16::try_from(layout.len).unwrap_or(u16::MAX),
            fin,
        })
    }

    /// Writes DATA_BLOCKED and STREAMS_BLOCKED for limits that block us (RFC 9000 §4.1, §4.6).
    fn fill_blocked(&mut self, w: &mut Writer<'_>, contents: &mut impl FnMut(StreamContent)) {
        if self.sending.blocked_pending && w.remaining() >= CONTROL_ROOM {
            let at = self.sending.take_blocked();
            Frame::DataBlocked { limit: at }.encode(w);
            contents(StreamContent::DataBlocked(at));
        }
        for dir in BOTH {
            let local = &mut self.local[dir];
            if local.blocked_pending && w.remaining() >= CONTROL_ROOM {
                local.blocked_pending = false;
                local.blocked_at = Some(local.limit);
                Frame::StreamsBlocked {
                    directionality: dir,
                    limit: local.limit,
                }
                .encode(w);
                contents(StreamContent::StreamsBlocked(dir, local.limit));
            }
        }
    }
}

/// Returns the frame that resets a stream.
fn reset_frame(id: StreamId, half: &SendHalf) -> Option<Frame<'static>> {
    let code = half.reset_code()?;
    let (final_size, reliable_size) = (half.final_size(), half.reliable_size());
    Some(match reliable_size {
        0 => Frame::ResetStream {
            id,
            code,
            final_size,
        },
        _ => Frame::ResetStreamAt {
            id,
            code,
            final_size,
            reliable_size,
        },
    })
}
