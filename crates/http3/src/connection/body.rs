//! What the application reads: it pulls, so that flow control is its back-pressure.

use clearway_quic::stream::StreamId;

use super::receive::truncated;
use super::{Connection, Life};
use crate::count::Count;
use crate::error::{BodyError, Code, ConnectionError};
use crate::reader::Pause;
use crate::receiving::Ending;
use crate::request::{Body, Half};
use crate::transport::Transport;

impl Connection {
    /// The next piece of the body of a request (server) or response (client), its
    /// trailers, or its end. Read until `Blocked` or `End`. Before the response has
    /// arrived, a client's is `Blocked`, and `Event::Response` follows. What had
    /// arrived when the connection closed is handed out first.
    ///
    /// # Errors
    /// See [`BodyError`]. After one the stream can't be read any more.
    pub fn read_body<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
    ) -> Result<Body, BodyError> {
        if matches!(self.life, Life::Failed(_)) {
            return Err(BodyError::Closed);
        }
        let Some(exchange) = self.requests.get_mut(&id) else {
            return Err(BodyError::Unknown);
        };
        let receiving = &mut exchange.receiving;
        receiving.wanted = false;
        if receiving.half == Half::Header {
            return self.nothing_more_now();
        }
        if receiving.reader.is_passing() && receiving.ending.is_none() {
            return self.read_content(quic, id);
        }
        if receiving.half != Half::Over
            && let Err(error) = self.look_ahead(quic, id)
        {
            return Err(self.broken(error));
        }
        self.read_found(quic, id)
    }

    /// What was found ahead.
    fn read_found<T: Transport>(&mut self, quic: &mut T, id: StreamId) -> Result<Body, BodyError> {
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
            None if receiving.half == Half::Over => Ok(Body::End),
            None if receiving.reader.is_passing() => self.read_content(quic, id),
            None => {
                receiving.wanted = true;
                self.nothing_more_now()
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
            Err(Pause::Blocked) => {
                receiving.wanted = true;
                self.nothing_more_now()
            }
            Err(Pause::Reset(code)) => {
                let code = Code(code);
                receiving.ending = Some(Ending::Reset(code));
                self.on_peer_reset(id);
                self.retire(id);
                Err(BodyError::Reset(code))
            }
            Err(Pause::Gone) => Err(BodyError::Unknown),
            Err(Pause::End | Pause::Truncated) => Err(self.broken(truncated())),
        }
    }

    /// Nothing has arrived, and nothing will if the connection has ended.
    fn nothing_more_now(&self) -> Result<Body, BodyError> {
        if self.is_open() {
            Ok(Body::Blocked)
        } else {
            Err(BodyError::Closed)
        }
    }

    fn broken(&mut self, error: ConnectionError) -> BodyError {
        self.fail(error);
        BodyError::Closed
    }
}
