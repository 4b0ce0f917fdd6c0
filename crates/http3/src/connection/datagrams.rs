//! HTTP datagrams of requests (RFC 9297 §2).

use bytes::Bytes;
use clearway_quic::datagram::SendDatagramError;
use clearway_quic::stream::StreamId;

use super::Connection;
use crate::count::Count;
use crate::datagram;
use crate::request::Half;
use crate::transport::Transport;

/// Why a datagram was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// One of the ends has not said that it takes HTTP datagrams.
    #[error("HTTP datagrams were not agreed on")]
    Unsupported,
    /// No such request, or our side of it is over.
    #[error("no such stream")]
    Unknown,
    /// The transport did not take it.
    #[error(transparent)]
    Transport(#[from] SendDatagramError),
}

impl Connection {
    /// Sends a datagram of the request `id`; it may get lost.
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
        if exchange.is_none_or(|exchange| exchange.sending == Half::Over) {
            return Err(DatagramError::Unknown);
        }
        Ok(quic.send_datagram(datagram::encode(id, payload))?)
    }

    /// The next datagram received for a request that is not over, with its stream.
    /// Others are dropped and counted (RFC 9297 §2.1).
    pub fn recv_datagram<T: Transport>(&mut self, quic: &mut T) -> Option<(StreamId, Bytes)> {
        while self.is_open() {
            let raw = quic.recv_datagram()?;
            if !self.config.datagrams {
                self.counters.datagrams_dropped.count_one();
                continue;
            }
            let (id, payload) = match datagram::decode(raw) {
                Ok(decoded) => decoded,
                Err(error) => {
                    self.fail(error);
                    return None;
                }
            };
            let exchange = self.requests.get(&id);
            if exchange.is_some_and(|exchange| exchange.receiving.half != Half::Over) {
                return Some((id, payload));
            }
            self.counters.datagrams_dropped.count_one();
        }
        None
    }

    /// Largest payload of a datagram of the request `id` now, bytes; `None` if none
    /// can be sent.
    #[must_use]
    pub fn max_datagram_size<T: Transport>(&self, quic: &T, id: StreamId) -> Option<usize> {
        if !self.config.datagrams || !self.allowed().h3_datagram {
            return None;
        }
        quic.max_datagram_size()?
            .checked_sub(datagram::overhead(id))
    }
}
