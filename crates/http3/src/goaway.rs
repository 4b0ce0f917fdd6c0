//! GOAWAY: how a connection ends without losing requests (RFC 9114 §5.2).

use clearway_quic::Role;
use clearway_quic::stream::StreamId;

use crate::error::{Code, ConnectionError};

/// The largest client-initiated bidirectional stream ID.
const LARGEST_REQUEST: u64 = (1 << 62) - 4;

/// What was said by either end. An identifier never grows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Goaway {
    sent: Option<u64>,
    received: Option<u64>,
}

impl Goaway {
    /// Takes a GOAWAY frame; `role` is ours.
    pub(crate) fn on_received(&mut self, role: Role, id: u64) -> Result<(), ConnectionError> {
        let wrong = |reason| Err(ConnectionError::new(Code::ID_ERROR, reason));
        if role == Role::Client && id & 3 != 0 {
            return wrong("GOAWAY with a stream that is no request");
        }
        if self.received.is_some_and(|earlier| id > earlier) {
            return wrong("GOAWAY with a larger identifier than before");
        }
        self.received = Some(id);
        Ok(())
    }

    /// What to say next: a server first that it will end, then where
    /// (`next` is the first request it has not seen); a client that no pushes come.
    /// `None` if there is nothing new.
    pub(crate) fn next(&mut self, role: Role, next: StreamId) -> Option<u64> {
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

    /// Whether the server said, or we as a server said, that this request is not
    /// taken.
    pub(crate) fn refuses(&self, role: Role, id: StreamId) -> bool {
        let limit = match role {
            Role::Client => self.received,
            Role::Server => self.sent,
        };
        limit.is_some_and(|limit| id.as_u64() >= limit)
    }

    /// Whether a server has said which requests it takes.
    pub(crate) fn is_final(&self) -> bool {
        self.sent.is_some_and(|sent| sent < LARGEST_REQUEST)
    }

    /// Whether either end is on its way out.
    pub(crate) fn is_going(&self) -> bool {
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
    fn identifiers_never_grow() {
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
        assert!(goaway.refuses(Role::Client, StreamId::from_wire(8)));
        assert!(!goaway.refuses(Role::Client, StreamId::from_wire(4)));
        let mut server = Goaway::default();
        assert_eq!(code(server.on_received(Role::Server, 5)), None);
        assert!(server.is_going());
        assert!(!server.refuses(Role::Server, StreamId::from_wire(8)));
    }

    #[test]
    fn a_server_ends_in_two_steps_a_client_in_one() {
        let next = StreamId::from_wire(12);
        let mut server = Goaway::default();
        assert_eq!(server.next(Role::Server, next), Some(LARGEST_REQUEST));
        assert!(!server.refuses(Role::Server, next));
        assert_eq!(server.next(Role::Server, next), Some(12));
        assert!(server.refuses(Role::Server, next));
        assert_eq!(server.next(Role::Server, StreamId::from_wire(16)), None);
        let mut client = Goaway::default();
        assert_eq!(client.next(Role::Client, next), Some(0));
        assert_eq!(client.next(Role::Client, next), None);
    }
}
