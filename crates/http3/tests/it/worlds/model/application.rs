//! What the application does: it responds, reads, stops reading and cancels.

use super::{AppEvent, Ending, FrameState, Model, Phase, ReadEnd, ReadResult, Sending};

impl Model {
    /// The application responds, up to this state.
    pub(in crate::worlds) fn send(&mut self, n: usize, sending: Sending) {
        self.streams[n].sending = sending;
        self.streams[n].settle();
    }

    /// The application cancels the request.
    pub(in crate::worlds) fn cancel(&mut self, n: usize) {
        self.abandon(n);
    }

    /// The application stops reading the message.
    pub(in crate::worlds) fn on_stop_reading(&mut self, n: usize) {
        let stream = &mut self.streams[n];
        stream.trailers = false;
        let ending = stream.ending.take();
        if ending == Some(Ending::Malformed) && self.client {
            return self.on_malformed_rest(n);
        }
        stream.stopped = true;
        if !self.client {
            // The server is asked to stop, and nothing more is processed.
            self.stop_processing(n);
        }
        self.streams[n].settle();
        self.advance(n);
    }

    /// The unread rest of a request is malformed: so is the request, unless the response is
    /// complete.
    pub(super) fn on_malformed_rest(&mut self, n: usize) {
        let stream = &mut self.streams[n];
        let answered = matches!(stream.sending, Sending::Ended | Sending::Aborted);
        if stream.open && !answered {
            self.abandon(n);
            self.events.push((n, AppEvent::Failed));
        } else {
            self.stop_processing(n);
            let stream = &mut self.streams[n];
            stream.ending = None;
            stream.stopped = true;
            stream.settle();
        }
    }

    /// The application reads as far as possible.
    pub(in crate::worlds) fn read(&mut self, n: usize) -> ReadResult {
        let mut read = ReadResult::default();
        loop {
            let stream = &mut self.streams[n];
            if !stream.open || stream.stopped {
                read.then = ReadEnd::Unknown;
                return read;
            }
            if let FrameState::Content {
                here: here @ 1.., ..
            } = &mut stream.within
            {
                read.bytes += core::mem::take(here);
                self.advance(n);
                if self.closed.is_some() {
                    read.then = ReadEnd::Closed;
                    return read;
                }
                continue;
            }
            if core::mem::take(&mut stream.trailers) {
                read.trailers = true;
                continue;
            }
            read.then = match stream.ending {
                Some(Ending::End) => ReadEnd::End,
                Some(Ending::Reset) => ReadEnd::Reset,
                Some(Ending::Malformed) => {
                    self.abandon(n);
                    ReadEnd::Malformed
                }
                None if stream.phase == Phase::Done => ReadEnd::End,
                None => ReadEnd::Blocked,
            };
            let stream = &mut self.streams[n];
            if stream.ending == Some(Ending::End) {
                stream.ending = None;
            }
            stream.settle();
            return read;
        }
    }
}
