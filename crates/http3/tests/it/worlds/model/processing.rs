//! Processing what has arrived: frames, field sections and the end of a stream.

use clearway_http3::Code;

use super::{AppEvent, Ending, FrameState, Instruction, Model, Phase, Token};
use crate::worlds::frames::TestFrame;

impl Model {
    /// Processes what has arrived, as far as nothing holds it back.
    pub(super) fn advance(&mut self, n: usize) {
        loop {
            let stream = &mut self.streams[n];
            if self.closed.is_some() || stream.gone || stream.phase == Phase::Done {
                return;
            }
            if stream.ending.is_some() {
                // The message is malformed: the rest is ignored.
                return;
            }
            match stream.within {
                FrameState::Nothing => {}
                FrameState::Content { here: 1.., .. } if !stream.stopped => return,
                FrameState::Content { missing: 0, .. } => stream.within = FrameState::Nothing,
                FrameState::Content { .. } | FrameState::Section(_) | FrameState::Reserved(_) => {
                    return self.on_incomplete_frame(n);
                }
                FrameState::Blocked(_) if stream.stopped && stream.has_body => {
                    return self.stop_reading(n);
                }
                FrameState::Blocked(_) => return,
            }
            let Some(token) = stream.tokens.pop_front() else {
                if stream.stopped && stream.has_body {
                    self.stop_reading(n);
                }
                return;
            };
            self.token(n, token);
        }
    }

    /// Handles an incomplete frame: an end is an error here, and an unwanted body is stopped.
    pub(super) fn on_incomplete_frame(&mut self, n: usize) {
        let stream = &self.streams[n];
        if stream.tokens.front() == Some(&Token::End) {
            return self.close(Code::FRAME_ERROR);
        }
        let content = matches!(stream.within, FrameState::Content { .. });
        if stream.stopped && (content || stream.has_body) {
            self.stop_reading(n);
        }
    }

    /// The peer is asked to stop sending.
    pub(super) fn stop_reading(&mut self, n: usize) {
        self.stop_processing(n);
        self.streams[n].settle();
    }

    pub(super) fn token(&mut self, n: usize, token: Token) {
        let stream = &mut self.streams[n];
        match token {
            Token::Whole(frame) => self.frame(n, frame, 0),
            Token::Part(frame) => self.frame(n, frame, 1),
            Token::Type(frame) => stream.within = FrameState::Reserved(frame),
            Token::End => self.end_of_stream(n),
        }
    }

    /// A frame begins, of which `missing` bytes have not arrived.
    pub(super) fn frame(&mut self, n: usize, frame: TestFrame, missing: u8) {
        let phase = self.streams[n].phase;
        match frame {
            TestFrame::Forbidden(kind) if kind == crate::hostile::hostile_peer::PUSH_PROMISE => {
                // No push ID was ever allowed (RFC 9114 §7.2.5).
                let client = Code::ID_ERROR;
                self.close(if self.client {
                    Code::FRAME_UNEXPECTED
                } else {
                    client
                });
            }
            TestFrame::Forbidden(_) => self.close(Code::FRAME_UNEXPECTED),
            TestFrame::Reserved => {
                if missing > 0 {
                    self.streams[n].within = FrameState::Reserved(frame);
                }
            }
            TestFrame::Data(len) => match phase {
                Phase::Body { left } => self.content(n, len, missing, left),
                Phase::Header | Phase::AfterTrailers | Phase::Done => {
                    self.close(Code::FRAME_UNEXPECTED);
                }
            },
            TestFrame::Head
            | TestFrame::HeadWithLength
            | TestFrame::Interim
            | TestFrame::HeadWithEntry1
            | TestFrame::HeadWithEntry2
            | TestFrame::Trailers
            | TestFrame::TrailersWithEntry1
            | TestFrame::TrailersWithEntry2
            | TestFrame::Undecodable => match phase {
                Phase::AfterTrailers | Phase::Done => self.close(Code::FRAME_UNEXPECTED),
                Phase::Header | Phase::Body { .. } if missing > 0 => {
                    self.streams[n].within = FrameState::Section(frame);
                }
                Phase::Header | Phase::Body { .. } => self.section(n, frame),
            },
        }
    }

    pub(super) fn content(&mut self, n: usize, len: u8, missing: u8, left: Option<u8>) {
        let left = match left.map(|left| left.checked_sub(len)) {
            Some(None) => return self.malformed(n),
            Some(Some(left)) => Some(left),
            None => None,
        };
        let stream = &mut self.streams[n];
        stream.phase = Phase::Body { left };
        if len > 0 {
            let here = len - missing;
            stream.within = FrameState::Content { here, missing };
        }
    }

    /// A complete section is decoded, if the table has what it requires.
    pub(super) fn section(&mut self, n: usize, frame: TestFrame) {
        if frame == TestFrame::Undecodable {
            return self.close(Code::QPACK_DECOMPRESSION_FAILED);
        }
        let required = frame.required();
        if required > self.inserted {
            if self.blocked_streams() >= self.may_block {
                return self.close(Code::QPACK_DECOMPRESSION_FAILED);
            }
            self.streams[n].within = FrameState::Blocked(frame);
            return;
        }
        if required > 0 {
            self.instructions.push(Instruction::Acknowledge(n));
            self.known = self.known.max(required);
        }
        let head = matches!(
            frame,
            TestFrame::Head
                | TestFrame::HeadWithLength
                | TestFrame::HeadWithEntry1
                | TestFrame::HeadWithEntry2
        );
        match (self.streams[n].phase, frame) {
            (Phase::Header, TestFrame::Interim) => self.events.push((n, AppEvent::Interim)),
            (Phase::Header, _) if head => self.head(n, frame == TestFrame::HeadWithLength),
            // Without pseudo-header fields, or with those of the other message type.
            (Phase::Header, _) => {
                self.abandon(n);
                if !self.client {
                    self.events.push((n, AppEvent::Failed));
                }
            }
            (
                Phase::Body {
                    left: None | Some(0),
                },
                TestFrame::Trailers | TestFrame::TrailersWithEntry1 | TestFrame::TrailersWithEntry2,
            ) => {
                let stream = &mut self.streams[n];
                stream.phase = Phase::AfterTrailers;
                stream.trailers = !stream.stopped;
            }
            // With pseudo-header fields, or before all content has arrived.
            _ => self.malformed(n),
        }
    }

    /// Handles the header section of a message, after what has arrived with it.
    pub(super) fn head(&mut self, n: usize, of_five: bool) {
        let stream = &mut self.streams[n];
        stream.phase = Phase::Body {
            left: of_five.then_some(5),
        };
        stream.has_body = of_five;
        stream.reported = true;
        let before = self.events.len();
        self.advance(n);
        if self.closed.is_some() {
            // The message is not reported.
            return self.events.truncate(before);
        }
        let stream = &mut self.streams[n];
        let over = stream.phase == Phase::Done && !stream.trailers;
        match stream.ending {
            Some(Ending::Malformed) if over => {
                self.abandon(n);
                if !self.client {
                    self.events.push((n, AppEvent::Failed));
                }
            }
            ending => {
                let end = over && ending == Some(Ending::End);
                if end {
                    stream.ending = None;
                }
                self.events.insert(before, (n, AppEvent::Head { end }));
                self.streams[n].settle();
            }
        }
    }

    /// The message is malformed, which is reported when it is read.
    pub(super) fn malformed(&mut self, n: usize) {
        if self.streams[n].stopped {
            return self.on_malformed_rest(n);
        }
        self.streams[n].ending = Some(Ending::Malformed);
    }

    pub(super) fn end_of_stream(&mut self, n: usize) {
        let stream = &mut self.streams[n];
        match stream.phase {
            Phase::Header => {
                // The message is incomplete, and was read to its end.
                stream.phase = Phase::Done;
                self.may_cancel.push(n);
                self.abandon(n);
                if !self.client {
                    self.events.push((n, AppEvent::Failed));
                }
            }
            Phase::Body { left: Some(1..) } => {
                stream.phase = Phase::Done;
                self.malformed(n);
            }
            Phase::Body { .. } | Phase::AfterTrailers => {
                stream.phase = Phase::Done;
                if !stream.stopped {
                    stream.ending = Some(Ending::End);
                }
                stream.settle();
            }
            Phase::Done => {}
        }
    }
}
