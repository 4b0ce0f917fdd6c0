//! HTTP datagrams (RFC 9297 §2).

use bytes::Bytes;
use clearway_quic::datagram::SendDatagramError;
use clearway_quic::stream::StreamId;

use super::Connection;
use crate::count::Count;
use crate::datagram;
use crate::exchange::MessageState;
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

    /// Returns the next HTTP datagram of an open request, with its stream. Other datagrams are
    /// dropped and counted (RFC 9297 §2.1).
    pub fn recv_datagram<T: Transport>(&mut self, quic: &mut T) -> Option<(StreamId, Bytes)> {
        while self.is_open() {
            let raw = quic.recv_datagram()?;
            if !self.config.datagrams {
                self.counters.datagrams_dropped.count_one();
                continue;
            }
            let decoded = datagram::decode(raw).and_then(|(id, payload)| {
                self.check_request_id(quic, id)?;
                Ok((id, payload))
            });
            let (id, payload) = match decoded {
                Ok(decoded) => decoded,
                Err(error) => {
                    self.fail(error);
                    return None;
                }
            };
            let exchange = self.requests.get(&id);
            if exchange.is_some_and(|exchange| exchange.receiving.state != MessageState::Done) {
                return Some((id, payload));
            }
            self.counters.datagrams_dropped.count_one();
        }
        None
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
