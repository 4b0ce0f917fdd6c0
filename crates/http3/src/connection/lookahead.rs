//! Looking ahead in a message: what has arrived before the application reads it, and how it ended.

use clearway_quic::stream::{ReadError, StreamId};

use super::Connection;
use super::receive::{StreamItem, receiving_of, truncated};
use super::section::too_large;
use crate::count::Count;
use crate::error::{Code, ConnectionError, ReceiveError, StreamError};
use crate::message_state::{MessageEvent, MessageState};
use crate::receive_half::Ending;
use crate::transport::Transport;

impl Connection {
    /// Looks at what follows the header section of a message, up to content that the application
    /// has not read. Frames that are not allowed, an end within a frame and invalid field
    /// compression close the connection even if nobody reads on (RFC 9114 §4.1). What belongs to
    /// the application is kept for it; a malformed message is reported when it reads. Returns
    /// whether there is something to read.
    ///
    /// # Errors
    /// Errors that close the connection.
    pub(super) fn look_ahead<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
    ) -> Result<bool, ConnectionError> {
        while let Some(receiving) = self.receiving(id) {
            if receiving.ending.is_some() && receiving.state == MessageState::Done {
                return Ok(true);
            }
            let found = if receiving.ending.is_some() || receiving.reader.is_streaming() {
                // A reset takes precedence over content and errors in it. If there is something to
                // read already, more is not waited for.
                let has = receiving.ending.is_some() || receiving.reader.has_buffered_content();
                let next = if has {
                    quic.read_chunk(id, 0).map(|_| true)
                } else {
                    quic.peek(id)
                };
                match next {
                    Err(ReadError::Reset(code)) => Ok(StreamItem::Reset(Code(code))),
                    Ok(true) => return Ok(true),
                    Err(ReadError::Blocked | ReadError::Unknown) if has => return Ok(true),
                    Ok(false) => {
                        self.config.forgive(truncated())?;
                        Ok(StreamItem::End)
                    }
                    Err(ReadError::Blocked) => Ok(StreamItem::Blocked),
                    Err(ReadError::Unknown) => Ok(StreamItem::UnknownStream),
                }
            } else {
                self.next_item(quic, id)
            };
            let found = match found {
                Ok(found) => found,
                Err(ReceiveError::Connection(error)) => return Err(error),
                Err(ReceiveError::Stream(error)) => return Ok(self.store_ending(id, Err(error))),
            };
            match found {
                StreamItem::Section(fields) => {
                    let maps = (&mut self.requests, &mut self.lingering);
                    if let Some(receiving) = receiving_of(maps.0, maps.1, id) {
                        let checked = receiving.on_trailers(&fields);
                        match checked.map_err(|error| self.config.forgive(error)) {
                            Ok(()) => receiving.trailers = Some(fields),
                            Err(Ok(())) => receiving.step(MessageEvent::Trailers),
                            Err(Err(error)) => return Ok(self.store_ending(id, Err(error))),
                        }
                    }
                }
                StreamItem::End => return Ok(self.store_ending(id, Ok(Ending::End))),
                StreamItem::Reset(code) => {
                    return Ok(self.store_ending(id, Ok(Ending::Reset(code))));
                }
                StreamItem::TooLarge => {
                    self.counters.too_large.count_one();
                    return Ok(self.store_ending(id, Err(too_large())));
                }
                // The next round sees whether any of it has arrived.
                StreamItem::Content => {}
                // Both are only at the beginning of a stream.
                StreamItem::SessionStream(_) | StreamItem::UnknownStream => {
                    return Ok(self.store_ending(id, Ok(Ending::Gone)));
                }
                StreamItem::Blocked => {
                    let receiving = self.receiving(id);
                    return Ok(receiving.is_some_and(|it| it.trailers.is_some()));
                }
            }
        }
        Ok(false)
    }

    /// Stores how a message ended, until the application reads it.
    fn store_ending(&mut self, id: StreamId, ending: Result<Ending, StreamError>) -> bool {
        let maps = (&mut self.requests, &mut self.lingering);
        let Some(receiving) = receiving_of(maps.0, maps.1, id) else {
            return false;
        };
        let ending = ending.and_then(|ending| match ending {
            Ending::End => receiving.on_end().map(|()| ending),
            Ending::Reset(_) | Ending::Failed(_) | Ending::Gone => Ok(ending),
        });
        let end = |error| self.config.forgive(error).map(|()| Ending::End);
        let ending = ending.or_else(end).unwrap_or_else(Ending::Failed);
        receiving.ending = Some(ending);
        match ending {
            Ending::Reset(_) => self.on_peer_reset(id),
            Ending::End | Ending::Failed(_) | Ending::Gone => {}
        }
        true
    }

    /// Returns how a message ended that is only a header section; then the application need not
    /// read the end.
    ///
    /// # Errors
    /// The message has less content than it announced. Other errors are reported when the
    /// application reads.
    pub(super) fn take_ending(&mut self, id: StreamId) -> Result<Option<Ending>, StreamError> {
        let Some(exchange) = self.requests.get_mut(&id) else {
            return Ok(None);
        };
        let receiving = &mut exchange.receiving;
        if receiving.state != MessageState::Done || receiving.trailers.is_some() {
            return Ok(None);
        }
        match receiving.ending {
            Some(Ending::Failed(error)) => Err(error),
            Some(Ending::End) => Ok(receiving.ending.take()),
            Some(Ending::Reset(_) | Ending::Gone) | None => Ok(receiving.ending),
        }
    }
}
