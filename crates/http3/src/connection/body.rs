//! Reading bodies. The application pulls data, so flow control provides the back-pressure.

use clearway_quic::stream::StreamId;

use super::receive::truncated;
use super::{Connection, ConnectionState};
use crate::count::Count;
use crate::error::{BodyError, Code, ConnectionError};
use crate::exchange::Body;
use crate::frame_reader::FrameReadError;
use crate::message_state::MessageState;
use crate::receive_half::Ending;
use crate::transport::Transport;

impl Connection {
    /// Returns the next piece of the body of a request (server) or response (client), its trailers,
    /// or its end. Read until `Blocked` or `End`. Before the response has arrived, a client gets
    /// `Blocked`, and `Event::Response` follows. What had arrived when the connection closed is
    /// returned first.
    ///
    /// # Errors
    /// See [`BodyError`]. After an error, the stream cannot be read any more.
    pub fn read_body<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
    ) -> Result<Body, BodyError> {
        if matches!(self.state, ConnectionState::Failed(_)) {
            return Err(BodyError::Closed);
        }
        let Some(exchange) = self.requests.get_mut(&id) else {
            return Err(BodyError::Unknown);
        };
        let receiving = &mut exchange.receiving;
        receiving.wanted = false;
        if receiving.state == MessageState::Header {
            return self.blocked_or_closed();
        }
        if receiving.reader.is_streaming() && receiving.ending.is_none() {
            return self.read_content(quic, id);
        }
        if receiving.state != MessageState::Done
            && let Err(error) = self.look_ahead(quic, id)
        {
            return Err(self.close_with(error));
        }
        self.read_next(quic, id)
    }

    /// Returns whether the message ended with the piece that was just read, so that it need not be
    /// read again. `false` means that it may go on. Only a message that announces its length is
    /// looked at: of others it would have to read ahead.
    pub fn take_end<T: Transport>(&mut self, quic: &mut T, id: StreamId) -> bool {
        let exchange = self.requests.get(&id);
        let is_due = exchange.is_some_and(|exchange| {
            let receiving = &exchange.receiving;
            receiving.is_content_complete() && receiving.state != MessageState::Done
        });
        if !is_due || !self.is_open() {
            return false;
        }
        if let Err(error) = self.look_ahead(quic, id) {
            // The next read says so.
            self.fail(error);
            return false;
        }
        let Some(exchange) = self.requests.get_mut(&id) else {
            return false;
        };
        let receiving = &mut exchange.receiving;
        if receiving.ending != Some(Ending::End) || receiving.trailers.is_some() {
            return false;
        }
        receiving.ending = None;
        self.retire(id);
        true
    }

    /// Returns what the lookahead found, or content.
    fn read_next<T: Transport>(&mut self, quic: &mut T, id: StreamId) -> Result<Body, BodyError> {
        let Some(exchange) = self.requests.get_mut(&id) else {
            return Err(BodyError::Unknown);
        };
        let receiving = &mut exchange.receiving;
        if let Some(fields) = receiving.trailers.take() {
            return Ok(Body::Trailers(fields));
        }
        match receiving.ending {
            Some(Ending::End) => {
                receiving.ending = None;
                self.retire(id);
                Ok(Body::End)
            }
            Some(Ending::Reset(code)) => {
                self.retire(id);
                Err(BodyError::Reset(code))
            }
            Some(Ending::Failed(error)) => {
                self.counters.malformed.count_one();
                self.abandon(quic, id, error.code);
                self.charge();
                Err(BodyError::Failed(error))
            }
            Some(Ending::Gone) => Err(BodyError::Unknown),
            None if receiving.state == MessageState::Done => Ok(Body::End),
            None if receiving.reader.is_streaming() => self.read_content(quic, id),
            None => {
                receiving.wanted = true;
                self.blocked_or_closed()
            }
        }
    }

    fn read_content<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
    ) -> Result<Body, BodyError> {
        let Some(exchange) = self.requests.get_mut(&id) else {
            return Err(BodyError::Unknown);
        };
        let receiving = &mut exchange.receiving;
        match receiving.reader.content(|max| quic.read_chunk(id, max)) {
            Ok(data) => Ok(Body::Data(data)),
            Err(FrameReadError::Blocked) => {
                receiving.wanted = true;
                self.blocked_or_closed()
            }
            Err(FrameReadError::Reset(code)) => {
                let code = Code(code);
                receiving.ending = Some(Ending::Reset(code));
                self.on_peer_reset(id);
                self.retire(id);
                Err(BodyError::Reset(code))
            }
            Err(FrameReadError::UnknownStream) => Err(BodyError::Unknown),
            Err(FrameReadError::End | FrameReadError::Truncated) => {
                Err(self.close_with(truncated()))
            }
        }
    }

    /// The result if nothing more has arrived: nothing will arrive if the connection has ended.
    fn blocked_or_closed(&self) -> Result<Body, BodyError> {
        if self.is_open() {
            Ok(Body::Blocked)
        } else {
            Err(BodyError::Closed)
        }
    }

    fn close_with(&mut self, error: ConnectionError) -> BodyError {
        self.fail(error);
        BodyError::Closed
    }
}
