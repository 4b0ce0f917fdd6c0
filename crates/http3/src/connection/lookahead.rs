//! What has arrived of a message ahead of the application, and how it ended.

use clearway_quic::stream::{ReadError, StreamId};

use super::Connection;
use super::receive::{Found, truncated};
use super::section::too_large;
use crate::count::Count;
use crate::error::{Code, ConnectionError, Fault, StreamError};
use crate::receiving::Ending;
use crate::request::Half;
use crate::transport::Transport;

impl Connection {
    /// Looks at what comes next of a message whose header section the application has,
    /// up to content that it has not read: frames that have no place there, an end
    /// within a frame and wrong compression end the connection whether or not anybody
    /// reads on (RFC 9114 §4.1). What belongs to the application is kept for it; what
    /// is malformed is told when it reads. Answers whether there is something for it.
    ///
    /// # Errors
    /// What ends the connection.
    pub(super) fn look_ahead<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
    ) -> Result<bool, ConnectionError> {
        while let Some(receiving) = self.receiving(id) {
            if receiving.ending.is_some() && receiving.half == Half::Over {
                return Ok(true);
            }
            let found = if receiving.ending.is_some() || receiving.reader.is_passing() {
                // A reset overtakes content, and what is wrong with it.
                // Who has something to read first does not wait for more.
                let has = receiving.ending.is_some() || receiving.reader.holds_content();
                let next = if has {
                    quic.read_chunk(id, 0).map(|_| true)
                } else {
                    quic.peek(id)
                };
                match next {
                    Err(ReadError::Reset(code)) => Ok(Found::Reset(Code(code))),
                    Ok(true) => return Ok(true),
                    Err(ReadError::Blocked | ReadError::Unknown) if has => return Ok(true),
                    Ok(false) => Err(truncated().into()),
                    Err(ReadError::Blocked) => Ok(Found::Blocked),
                    Err(ReadError::Unknown) => Ok(Found::Gone),
                }
            } else {
                self.find(quic, id)
            };
            let found = match found {
                Ok(found) => found,
                Err(Fault::Connection(error)) => return Err(error),
                Err(Fault::Stream(error)) => return Ok(self.keep(id, Err(error))),
            };
            match found {
                Found::Section(fields) => {
                    if let Some(receiving) = self.receiving(id) {
                        match receiving.on_trailers(&fields) {
                            Ok(()) => receiving.trailers = Some(fields),
                            Err(error) => return Ok(self.keep(id, Err(error))),
                        }
                    }
                }
                Found::End => return Ok(self.keep(id, Ok(Ending::End))),
                Found::Reset(code) => return Ok(self.keep(id, Ok(Ending::Reset(code)))),
                Found::TooLarge => {
                    self.counters.too_large.count_one();
                    return Ok(self.keep(id, Err(too_large())));
                }
                // Whether any of it is there is seen next.
                Found::Content => {}
                Found::Gone => return Ok(self.keep(id, Ok(Ending::Gone))),
                Found::Blocked => {
                    let receiving = self.receiving(id);
                    return Ok(receiving.is_some_and(|it| it.trailers.is_some()));
                }
            }
        }
        Ok(false)
    }

    /// Keeps for the application how a message ended.
    fn keep(&mut self, id: StreamId, ending: Result<Ending, StreamError>) -> bool {
        let Some(receiving) = self.receiving(id) else {
            return false;
        };
        let ending = ending.and_then(|ending| match ending {
            Ending::End => receiving.on_end().map(|()| ending),
            Ending::Reset(_) | Ending::Failed(_) | Ending::Gone => Ok(ending),
        });
        let ending = ending.unwrap_or_else(Ending::Failed);
        receiving.ending = Some(ending);
        match ending {
            Ending::Reset(_) => self.on_peer_reset(id),
            Ending::End | Ending::Failed(_) | Ending::Gone => {}
        }
        true
    }

    /// How a message ended that was a header section and no more; the application need
    /// not ask for the end then.
    ///
    /// # Errors
    /// If it lacks the content it announced. What else is wrong with it is told when
    /// the application reads.
    pub(super) fn take_ending(&mut self, id: StreamId) -> Result<Option<Ending>, StreamError> {
        let Some(exchange) = self.requests.get_mut(&id) else {
            return Ok(None);
        };
        let receiving = &mut exchange.receiving;
        if receiving.half != Half::Over || receiving.trailers.is_some() {
            return Ok(None);
        }
        match receiving.ending {
            Some(Ending::Failed(error)) => Err(error),
            Some(Ending::End) => Ok(receiving.ending.take()),
            Some(Ending::Reset(_) | Ending::Gone) | None => Ok(receiving.ending),
        }
    }
}
