//! GOAWAY: graceful shutdown, without losing requests (RFC 9114 §5.2).

use clearway_quic::Role;
use clearway_quic::stream::StreamId;

use crate::error::{Code, ConnectionError};

/// The largest client-initiated bidirectional stream ID.
const LARGEST_REQUEST: u64 = (1 << 62) - 4;

/// The identifiers in the GOAWAY frames of both endpoints. They never increase.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Goaway {
    sent: Option<u64>,
    received: Option<u64>,
}

impl Goaway {
    /// Processes a received GOAWAY frame. `role` is the local role.
    pub(crate) fn on_received(&mut self, role: Role, id: u64) -> Result<(), ConnectionError> {
        let wrong = |reason| Err(ConnectionError::new(Code::ID_ERROR, reason));
        if role == Role::Client && id & 3 != 0 {
            return wrong("GOAWAY identifies a stream that is not a request stream");
        }
        if self.received.is_some_and(|earlier| id > earlier) {
            return wrong("GOAWAY identifier is larger than in an earlier GOAWAY");
        }
        self.received = Some(id);
        Ok(())
    }

    /// Returns the identifier of the next GOAWAY to send, or `None` if there is nothing new to say.
    /// A server first announces the shutdown, and then the first request that it does not process
    /// (`next`). A client accepts no pushes from the start.
    pub(crate) fn next_to_send(&mut self, role: Role, next: StreamId) -> Option<u64> {
        let id = match (role, self.sent) {
            (Role::Client, _) => 0,
            (Role::Server, None) => LARGEST_REQUEST,
            (Role::Server, Some(_)) => next.as_u64(),
        };
        if self.sent.is_some_and(|earlier| id >= earlier) {
            return None;
        }
        self.sent = Some(id);
        Some(id)
    }

    /// Returns whether a GOAWAY rejects this request: one that we received as a client, or sent as
    /// a server.
    pub(crate) fn rejects(&self, role: Role, id: StreamId) -> bool {
        let limit = match role {
            Role::Client => self.received,
            Role::Server => self.sent,
        };
        limit.is_some_and(|limit| id.as_u64() >= limit)
    }

    /// Returns whether, as a server, we have announced the last request that we process.
    pub(crate) fn is_final(&self) -> bool {
        self.sent.is_some_and(|sent| sent < LARGEST_REQUEST)
    }

    /// Returns whether either endpoint is shutting the connection down.
    pub(crate) fn is_active(&self) -> bool {
        self.sent.is_some() || self.received.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(result: Result<(), ConnectionError>) -> Option<Code> {
        result.err().map(|e| e.code)
    }

    #[test]
    fn increased_identifier_is_an_id_error() {
        let mut goaway = Goaway::default();
        assert_eq!(
            code(goaway.on_received(Role::Client, LARGEST_REQUEST)),
            None
        );
        assert_eq!(code(goaway.on_received(Role::Client, 8)), None);
        assert_eq!(code(goaway.on_received(Role::Client, 8)), None);
        let wrong = Some(Code::ID_ERROR);
        assert_eq!(code(goaway.on_received(Role::Client, 12)), wrong);
        assert_eq!(code(goaway.on_received(Role::Client, 5)), wrong);
        assert!(goaway.rejects(Role::Client, StreamId::from_wire(8)));
        assert!(!goaway.rejects(Role::Client, StreamId::from_wire(4)));
        let mut server = Goaway::default();
        assert_eq!(code(server.on_received(Role::Server, 5)), None);
        assert!(server.is_active());
        assert!(!server.rejects(Role::Server, StreamId::from_wire(8)));
    }

    #[test]
    fn server_sends_two_goaways_and_client_one() {
        let next = StreamId::from_wire(12);
        let mut server = Goaway::default();
        assert_eq!(
            server.next_to_send(Role::Server, next),
            Some(LARGEST_REQUEST)
        );
        assert!(!server.rejects(Role::Server, next));
        assert_eq!(server.next_to_send(Role::Server, next), Some(12));
        assert!(server.rejects(Role::Server, next));
        assert_eq!(
            server.next_to_send(Role::Server, StreamId::from_wire(16)),
            None
        );
        let mut client = Goaway::default();
        assert_eq!(client.next_to_send(Role::Client, next), Some(0));
        assert_eq!(client.next_to_send(Role::Client, next), None);
    }
}
