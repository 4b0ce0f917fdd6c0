//! What arrives from the peer: frames, resets, acknowledgements, insertions into the dynamic table.

use super::{AppEvent, Ending, FrameState, Model, Phase, Sending, Token};
use crate::worlds::frames::TestFrame;

impl Model {
    /// A complete frame arrives.
    pub(in crate::worlds) fn on_frame(&mut self, n: usize, frame: TestFrame) {
        self.take(n, Token::Whole(frame));
    }

    /// A frame without its last byte arrives.
    pub(in crate::worlds) fn on_partial_frame(&mut self, n: usize, frame: TestFrame) {
        self.take(n, Token::Part(frame));
    }

    /// The first byte of a frame's type arrives.
    pub(in crate::worlds) fn on_partial_type(&mut self, n: usize, frame: TestFrame) {
        self.take(n, Token::Type(frame));
    }

    /// The rest of an incomplete frame arrives.
    pub(in crate::worlds) fn on_rest(&mut self, n: usize) {
        let stream = &mut self.streams[n];
        match stream.tokens.back_mut() {
            Some(last) => {
                if let Token::Part(frame) | Token::Type(frame) = *last {
                    *last = Token::Whole(frame);
                }
            }
            None => match &mut stream.within {
                FrameState::Content { here, missing } => {
                    *here += core::mem::take(missing);
                }
                FrameState::Section(frame) => {
                    let frame = *frame;
                    stream.within = FrameState::Nothing;
                    stream.tokens.push_front(Token::Whole(frame));
                }
                FrameState::Reserved(_) => stream.within = FrameState::Nothing,
                FrameState::Nothing | FrameState::Blocked(_) => {}
            },
        }
        self.advance(n);
    }

    pub(in crate::worlds) fn end(&mut self, n: usize) {
        self.take(n, Token::End);
    }

    pub(super) fn take(&mut self, n: usize, token: Token) {
        self.open(n);
        let stream = &mut self.streams[n];
        if !stream.gone && stream.phase != Phase::Done {
            stream.tokens.push_back(token);
            self.advance(n);
        }
    }

    /// The peer resets the stream, which overtakes what it has sent.
    pub(in crate::worlds) fn reset(&mut self, n: usize) {
        self.open(n);
        let stream = &mut self.streams[n];
        if stream.gone || stream.phase == Phase::Done {
            return;
        }
        let (fresh, left) = (!stream.reported, stream.stopped);
        self.stop_processing(n);
        let stream = &mut self.streams[n];
        stream.trailers = false;
        if fresh && self.client {
            // The application has not seen the request.
            stream.abandon();
        } else if left {
            // Reported only while no response has begun.
            if stream.open && stream.sending == Sending::Nothing {
                self.events.push((n, AppEvent::Reset));
            }
        } else {
            stream.ending = Some(Ending::Reset);
            self.events.push((n, AppEvent::Reset));
        }
        self.streams[n].settle();
    }

    /// The peer stopped reading.
    pub(in crate::worlds) fn stop_sending(&mut self, n: usize) {
        self.open(n);
        let stream = &mut self.streams[n];
        if stream.gone || stream.acked || stream.sending == Sending::Aborted {
            return;
        }
        stream.sending = Sending::Aborted;
        if stream.open {
            self.events.push((n, AppEvent::Stopped));
        }
        self.streams[n].settle();
    }

    /// The peer acknowledges everything that we sent.
    pub(in crate::worlds) fn ack(&mut self, n: usize) {
        self.streams[n].acked = true;
    }

    /// An insertion arrives.
    pub(in crate::worlds) fn insert(&mut self) {
        self.inserted += 1;
        for n in 0..self.streams.len() {
            if let FrameState::Blocked(frame) = self.streams[n].within
                && frame.required() <= self.inserted
            {
                self.streams[n].within = FrameState::Nothing;
                self.section(n, frame);
                self.advance(n);
            }
        }
    }
}
