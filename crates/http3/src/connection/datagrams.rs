//! HTTP datagrams (RFC 9297 §2).

use bytes::Bytes;
use clearway_quic::Role;
use clearway_quic::datagram::SendDatagramError;
use clearway_quic::stream::StreamId;

use super::Connection;
use crate::count::Count;
use crate::datagram;
use crate::error::{Code, StreamError};
use crate::event::Event;
use crate::exchange::RequestKind;
use crate::message_state::MessageState;
use crate::transport::Transport;

/// The error of sending an HTTP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// HTTP datagrams are not enabled at both endpoints.
    #[error("HTTP datagrams are not enabled at both endpoints (SETTINGS_H3_DATAGRAM)")]
    Unsupported,
    /// The request does not exist, or its sending side is already closed.
    #[error("the stream does not exist or is already closed")]
    Unknown,
    /// The transport did not accept the datagram.
    #[error(transparent)]
    Transport(#[from] SendDatagramError),
}

/// What becomes of a datagram that was received.
enum DatagramDestination {
    /// The application gets it.
    Open,
    /// Its request has not arrived completely.
    Early,
    /// Its stream is closed.
    Closed,
    /// Its request is no extended CONNECT.
    Meaningless,
}

impl Connection {
    /// Sends an HTTP datagram for the request `id`. Delivery is not guaranteed.
    ///
    /// # Errors
    /// See [`DatagramError`].
    pub fn send_datagram<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        payload: &[u8],
    ) -> Result<(), DatagramError> {
        if !self.config.datagrams || !self.allowed().h3_datagram {
            return Err(DatagramError::Unsupported);
        }
        let exchange = self.requests.get(&id);
        if exchange.is_none_or(|exchange| exchange.sending == MessageState::Done) {
            return Err(DatagramError::Unknown);
        }
        Ok(quic.send_datagram(datagram::encode(id, payload))?)
    }

    /// Returns the next HTTP datagram of an open request, with its stream. On a server, those that
    /// come before the header section of their request are kept for it (RFC 9297 §2.1), within
    /// [`Limits::max_early_datagrams`](crate::Limits); [`Event::DatagramReceived`] follows the
    /// request. Datagrams of streams that are closed are dropped and counted. A request that is no
    /// extended CONNECT gives datagrams no meaning, and is reset (RFC 9297 §2).
    pub fn recv_datagram<T: Transport>(&mut self, quic: &mut T) -> Option<(StreamId, Bytes)> {
        while self.is_open() {
            let lingering = self.lingering.as_mut();
            let ready = lingering.and_then(|it| it.early_datagrams.next_ready());
            let (id, payload) = match ready {
                Some(ready) => ready,
                None => self.next_of_transport(quic)?,
            };
            match self.destination(id) {
                DatagramDestination::Open => return Some((id, payload)),
                DatagramDestination::Early => {
                    let lingering = self.lingering.get_or_insert_default();
                    let early = &mut lingering.early_datagrams;
                    let dropped = early.push(id, payload, &self.config.limits);
                    self.counters.datagrams_dropped.count(dropped);
                }
                DatagramDestination::Closed => self.counters.datagrams_dropped.count_one(),
                DatagramDestination::Meaningless => self.reset_for_datagram(quic, id),
            }
        }
        None
    }

    /// Returns the next datagram that the transport has received.
    fn next_of_transport<T: Transport>(&mut self, quic: &mut T) -> Option<(StreamId, Bytes)> {
        loop {
            let raw = quic.recv_datagram()?;
            if !self.config.datagrams {
                self.counters.datagrams_dropped.count_one();
                continue;
            }
            let decoded = datagram::decode(raw).and_then(|(id, payload)| {
                self.check_request_id(quic, id)?;
                Ok((id, payload))
            });
            return match decoded {
                Ok(decoded) => Some(decoded),
                Err(error) => {
                    self.fail(error);
                    None
                }
            };
        }
    }

    /// Returns whether datagrams of the request `id` can still arrive: the peer has neither ended
    /// nor reset its side of the stream.
    #[must_use]
    pub fn is_receiving(&self, id: StreamId) -> bool {
        let exchange = self.requests.get(&id);
        self.is_open() && exchange.is_some_and(|it| it.receiving.state != MessageState::Done)
    }

    fn destination(&self, id: StreamId) -> DatagramDestination {
        let Some(exchange) = self.requests.get(&id) else {
            let arrives_later = self.role == Role::Server && id.index() >= self.next_request;
            return if arrives_later {
                DatagramDestination::Early
            } else {
                DatagramDestination::Closed
            };
        };
        match exchange.receiving.state {
            MessageState::Done => DatagramDestination::Closed,
            MessageState::Header if self.role == Role::Server => DatagramDestination::Early,
            // The application does not know of it.
            MessageState::Tunnel if self.is_held_session(id) => DatagramDestination::Early,
            MessageState::Header
            | MessageState::Body
            | MessageState::Tunnel
            | MessageState::AfterTrailers => match exchange.request_kind {
                RequestKind::ExtendedConnect => DatagramDestination::Open,
                RequestKind::Connect | RequestKind::Head | RequestKind::Other => {
                    DatagramDestination::Meaningless
                }
            },
        }
    }

    fn reset_for_datagram<T: Transport>(&mut self, quic: &mut T, stream: StreamId) {
        self.counters.malformed.count_one();
        let reason = "HTTP datagram for a request whose method gives it no meaning";
        let error = StreamError::new(Code::DATAGRAM_ERROR, reason);
        self.abandon(quic, stream, error.code);
        self.charge();
        self.events.push_back(Event::Failed { stream, error });
    }

    /// Releases the datagrams that came before this request, which has arrived.
    pub(super) fn release_early_datagrams(&mut self, id: StreamId) {
        if let Some(lingering) = &mut self.lingering
            && lingering.early_datagrams.mark_ready(id)
        {
            self.events.push_back(Event::DatagramReceived);
        }
    }

    /// Returns the maximum payload of an HTTP datagram for the request `id` now, in bytes, or
    /// `None` if none can be sent.
    #[must_use]
    pub fn max_datagram_size<T: Transport>(&self, quic: &T, id: StreamId) -> Option<usize> {
        if !self.config.datagrams || !self.allowed().h3_datagram {
            return None;
        }
        quic.max_datagram_size()?
            .checked_sub(datagram::overhead(id))
    }
}
