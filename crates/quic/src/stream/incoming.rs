//! Received frames. Every error closes the connection with the code that RFC 9000 prescribes.
//! Frames for finished streams are ignored.

use super::event::StreamEvent;
use super::halves::Stream;
use super::recv::RecvHalf;
use super::{Directionality, MAX_STREAM_COUNT, StreamId, Streams};
use crate::error::{Code, TransportError};

/// The half of our stream that a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    Send,
    Recv,
}

impl Streams {
    /// Handles a STREAM frame (RFC 9000 §19.8). Returns whether it contained new bytes.
    ///
    /// # Errors
    /// `FLOW_CONTROL_ERROR`, `FINAL_SIZE_ERROR`, `STREAM_LIMIT_ERROR`,
    /// `STREAM_STATE_ERROR`; `INTERNAL_ERROR` if the data comes in more separate pieces
    /// than are tracked.
    pub fn on_stream(
        &mut self,
        id: StreamId,
        offset: u64,
        fin: bool,
        data: &[u8],
    ) -> Result<bool, TransportError> {
        self.locate(id, Half::Recv)?;
        let credit = self.receive.granted().saturating_sub(self.received);
        let spare = self.spare_room();
        let done = self.with_recv(id, |half| {
            let news = half.on_data(offset, fin, data, credit, spare)?;
            Ok((news, half.mark_urgent_credit(), half.state().is_terminal()))
        });
        let Some(done) = done else {
            return Ok(false);
        };
        let (news, mark_urgent_credit, is_over) = done?;
        self.check_pieces()?;
        if mark_urgent_credit {
            self.hurried_streams.push(id);
        }
        // A stopped stream stores nothing, so only its highest offset shows new bytes. A frame
        // without data may raise that offset, but contains none.
        let is_new = news.fresh > 0 || news.raised > 0 && !data.is_empty();
        self.apply_received(id, news);
        if is_over {
            self.prune(id);
        }
        self.urgent_credit |= self.receive.is_short(self.received);
        Ok(is_new)
    }

    /// Handles a RESET_STREAM frame (RFC 9000 §19.4).
    ///
    /// # Errors
    /// `FLOW_CONTROL_ERROR`, `FINAL_SIZE_ERROR`, `STREAM_LIMIT_ERROR`,
    /// `STREAM_STATE_ERROR`.
    pub fn on_reset_stream(
        &mut self,
        id: StreamId,
        code: u64,
        final_size: u64,
    ) -> Result<(), TransportError> {
        self.locate(id, Half::Recv)?;
        let credit = self.receive.granted().saturating_sub(self.received);
        if let Some(news) = self.with_recv(id, |half| half.on_reset(code, final_size, credit)) {
            self.apply_received(id, news?);
            self.prune(id);
        }
        Ok(())
    }

    /// Handles a RESET_STREAM_AT frame (draft-ietf-quic-reliable-stream-reset §4): what lies before
    /// `reliable_size` is still delivered.
    ///
    /// # Errors
    /// As [`on_reset_stream`](Self::on_reset_stream); `STREAM_STATE_ERROR` too if the code differs
    /// from that of an earlier reset.
    pub fn on_reset_stream_at(
        &mut self,
        id: StreamId,
        code: u64,
        final_size: u64,
        reliable_size: u64,
    ) -> Result<(), TransportError> {
        self.locate(id, Half::Recv)?;
        let credit = self.receive.granted().saturating_sub(self.received);
        let reset = |half: &mut RecvHalf| half.on_reset_at(code, final_size, reliable_size, credit);
        if let Some(news) = self.with_recv(id, reset) {
            self.apply_received(id, news?);
            self.prune(id);
        }
        Ok(())
    }

    /// Handles a STOP_SENDING frame (RFC 9000 §19.5), which is answered by RESET_STREAM with the same code.
    ///
    /// # Errors
    /// `STREAM_LIMIT_ERROR`, `STREAM_STATE_ERROR`.
    pub fn on_stop_sending(&mut self, id: StreamId, code: u64) -> Result<(), TransportError> {
        self.locate(id, Half::Send)?;
        if self.with_send(id, |half| half.on_stop(code)) == Some(true) {
            self.after_reset(id);
            self.events.push(StreamEvent::Stopped { id, code });
        }
        Ok(())
    }

    /// Handles a MAX_DATA frame (RFC 9000 §19.9), `limit` in bytes.
    pub fn on_max_data(&mut self, limit: u64) {
        self.sending.raise_max_data(limit);
        self.wake_writers();
    }

    /// Handles a MAX_STREAM_DATA frame (RFC 9000 §19.10), `limit` in bytes.
    ///
    /// # Errors
    /// `STREAM_LIMIT_ERROR`, `STREAM_STATE_ERROR`.
    pub fn on_max_stream_data(&mut self, id: StreamId, limit: u64) -> Result<(), TransportError> {
        self.locate(id, Half::Send)?;
        if self.with_send(id, |half| half.raise_max_data(limit)) == Some(true) {
            self.wake_writer(id);
        }
        Ok(())
    }

    /// Handles a MAX_STREAMS frame (RFC 9000 §19.11).
    ///
    /// # Errors
    /// `FRAME_ENCODING_ERROR` above 2^60.
    pub fn on_max_streams(
        &mut self,
        dir: Directionality,
        limit: u64,
    ) -> Result<(), TransportError> {
        check_stream_count(limit)?;
        self.raise_stream_limit(dir, limit);
        Ok(())
    }

    /// Handles a DATA_BLOCKED frame (RFC 9000 §19.12), `at` in bytes. A peer that is
    /// blocked below the current limit does not know it: the update was lost or is in flight. The
    /// two cannot be told apart, so the limit is sent again.
    pub fn on_data_blocked(&mut self, at: u64) {
        self.credit_pending |= self.receive.should_repeat_limit(at);
    }

    /// Handles a STREAM_DATA_BLOCKED frame (RFC 9000 §19.13), `at` in bytes; answered as
    /// [DATA_BLOCKED](Self::on_data_blocked) is.
    ///
    /// # Errors
    /// `STREAM_LIMIT_ERROR`, `STREAM_STATE_ERROR`.
    pub fn on_stream_data_blocked(&mut self, id: StreamId, at: u64) -> Result<(), TransportError> {
        self.locate(id, Half::Recv)?;
        let recv = self.streams.get(&id).and_then(Stream::recv);
        if recv.is_some_and(|half| half.wants_credit() && half.window.should_repeat_limit(at)) {
            self.mark(id, |control| control.credit = true);
        }
        Ok(())
    }

    /// Handles a STREAMS_BLOCKED frame (RFC 9000 §19.14): repeats the limit if it is a higher one.
    ///
    /// # Errors
    /// `FRAME_ENCODING_ERROR` above 2^60.
    pub fn on_streams_blocked(
        &mut self,
        dir: Directionality,
        at: u64,
    ) -> Result<(), TransportError> {
        check_stream_count(at)?;
        let remote = &mut self.remote[dir];
        remote.pending |= at < remote.granted;
        Ok(())
    }

    /// Checks that the peer may send a frame for our `half` of `id`, and opens the stream if the
    /// peer initiates it (RFC 9000 §3, §4.6).
    fn locate(&mut self, id: StreamId, half: Half) -> Result<(), TransportError> {
        let local = id.initiator() == self.role;
        match (id.directionality(), local, half) {
            (Directionality::Unidirectional, true, Half::Recv) => {
                return Err(state_error(
                    "STREAM, RESET_STREAM or STREAM_DATA_BLOCKED for a send-only stream",
                ));
            }
            (Directionality::Unidirectional, false, Half::Send) => {
                return Err(state_error(
                    "MAX_STREAM_DATA or STOP_SENDING for a receive-only stream",
                ));
            }
            (Directionality::Bidirectional, _, _)
            | (Directionality::Unidirectional, true, Half::Send)
            | (Directionality::Unidirectional, false, Half::Recv) => {}
        }
        if !local {
            return self.open_remote(id);
        }
        if id.index() >= self.local[id.directionality()].opened {
            return Err(state_error(
                "frame for a locally initiated stream that was not opened",
            ));
        }
        Ok(())
    }

    /// Opens a stream of the peer, and all streams of its type before it (RFC 9000 §3).
    fn open_remote(&mut self, id: StreamId) -> Result<(), TransportError> {
        let dir = id.directionality();
        let remote = &mut self.remote[dir];
        if id.index() < remote.opened {
            return Ok(());
        }
        if id.index() >= remote.granted {
            return Err(TransportError::new(
                Code::STREAM_LIMIT_ERROR,
                "more streams than MAX_STREAMS allows",
            ));
        }
        let fresh = remote.opened..id.index().saturating_add(1);
        remote.opened = fresh.end;
        for index in fresh {
            self.insert(StreamId::new(self.role.peer(), dir, index));
        }
        self.events.push(StreamEvent::Opened(dir));
        Ok(())
    }
}

fn check_stream_count(count: u64) -> Result<(), TransportError> {
    if count > MAX_STREAM_COUNT {
        return Err(TransportError::new(
            Code::FRAME_ENCODING_ERROR,
            "stream count above 2^60",
        ));
    }
    Ok(())
}

fn state_error(reason: &'static str) -> TransportError {
    TransportError::new(Code::STREAM_STATE_ERROR, reason)
}
