//! What the application reads: it pulls, so that flow control is its back-pressure.

use clearway_quic::stream::StreamId;

use super::{Connection, Life};
use super::receive::{Pulled, too_large};
use crate::error::{BodyError, Fault};
use crate::request::{Body, Half, Step};
use crate::transport::Transport;
use crate::validate;

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
        match self.requests.get(&id).map(|exchange| exchange.receiving) {
            None => return Err(BodyError::Unknown),
            Some(Half::Header) if self.is_open() => return Ok(Body::Blocked),
            Some(Half::Header) => return Err(BodyError::Closed),
            Some(Half::Over) => return Ok(Body::End),
            Some(Half::Body | Half::Tunnel | Half::Trailed) => {}
        }
        match self.pull_body(quic, id) {
            // Nothing more will come.
            Ok(Ok(Body::Blocked)) if !self.is_open() => Err(BodyError::Closed),
            Ok(read) => read,
            Err(Fault::Stream(error)) => {
                self.counters.malformed += 1;
                self.abandon(quic, id, error.code);
                Err(BodyError::Failed(error))
            }
            Err(Fault::Connection(error)) => {
                self.fail(error);
                Err(BodyError::Closed)
            }
        }
    }

    fn pull_body<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
    ) -> Result<Result<Body, BodyError>, Fault> {
        let pulled = self.pull(quic, id)?;
        let Some(exchange) = self.requests.get_mut(&id) else {
            return Ok(Err(BodyError::Unknown));
        };
        Ok(match pulled {
            Pulled::Data(data) => Ok(Body::Data(data)),
            Pulled::Blocked => Ok(Body::Blocked),
            Pulled::Section(fields) => {
                exchange.on_content_end()?;
                validate::check_trailers(&fields)?;
                exchange.receive(Step::Trailers);
                Ok(Body::Trailers(fields))
            }
            Pulled::End => {
                exchange.on_content_end()?;
                exchange.receive(Step::End);
                self.retire(id);
                Ok(Body::End)
            }
            Pulled::Reset(code) => {
                self.on_peer_reset(id);
                Err(BodyError::Reset(code))
            }
            Pulled::TooLarge => {
                self.counters.too_large += 1;
                return Err(too_large().into());
            }
            Pulled::Gone => Err(BodyError::Unknown),
        })
    }
}
