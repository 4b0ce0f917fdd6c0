//! A client begins: token, overload, and then Retry, refusal or a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use super::admission::{Admitted, Denial, Refusal};
use super::{Arrival, Attempt, Endpoint, First, Handle, reply};
use crate::cid::ConnectionId;
use crate::connection::{Accept, Config, Connection, Received};
use crate::count::Count;
use crate::crypto::{AddressToken, Keys, RetryToken, Token, initial_keys};
use crate::error::{Code, TransportError};
use crate::event::DropReason;
use crate::wire::header::{PartialHeader, UnprotectedHeader};
use crate::wire::{Frame, Frames};
use crate::{Instant, Role};

/// Attempts refused by the application that are remembered, to drop the rest of
/// their ClientHello, which is microseconds behind.
pub(super) const REFUSED: usize = 32;

/// What of the ClientHello a first packet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hello {
    /// Nothing.
    Absent,
    /// Some of it, but not its beginning.
    Later,
    /// Its first byte: whatever a client splits or reorders, one packet of a flight
    /// has it.
    Beginning,
}

/// A client that begins, and is within the [limits](super::Limits): it has a place until
/// this is dropped, and its connection keeps it.
#[derive(Debug)]
pub struct Incoming {
    initial: OpenedInitial,
    admitted: Admitted,
}

/// An Initial of a client that is not known yet, authenticated.
#[derive(Debug)]
struct OpenedInitial {
    from: Received,
    original_dcid: ConnectionId,
    dcid: ConnectionId,
    scid: ConnectionId,
    retry_scid: Option<ConnectionId>,
    validated: bool,
    hello: Hello,
    unix_now: u64,
    /// What it was opened with.
    keys: Box<Keys>,
}

impl Incoming {
    /// The client's address.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        self.initial.from.remote
    }

    /// Whether a token proved that address.
    #[must_use]
    pub fn is_validated(&self) -> bool {
        self.initial.validated
    }
}

impl Endpoint {
    /// A client's Initial that belongs to no connection.
    ///
    /// A ClientHello with a post-quantum key share fills two datagrams. Retry and
    /// refusal answer the attempt, not the datagram, so they are sent for the
    /// one in which the ClientHello begins: that needs no memory, and each
    /// flight of a client that heard nothing has one (RFC 9000 §5.2.2,
    /// §17.2.5.1).
    pub(super) fn receive_initial(
        &mut self,
        first: &First<'_>,
        token: &[u8],
        response: &mut Vec<u8>,
    ) -> Result<Arrival, DropReason> {
        let First {
            header, datagram, ..
        } = *first;
        let (Some(dcid), Some(scid)) = (header.dcid.cid(datagram), header.scid.cid(datagram))
        else {
            return Err(DropReason::Malformed);
        };
        // Nobody is let in and nobody is told so any more: whatever it says.
        let closed = self.admission.closed().is_some();
        if closed && !self.admission.could_refuse(first.now) {
            return Err(self.withhold_refusal());
        }
        // RFC 9000 §7.2: unpredictable, so eight bytes at least; and state is
        // only made for packets that open.
        let payload = Some(&dcid).filter(|dcid| dcid.len() >= 8);
        let Some((keys, payload)) = payload.and_then(|dcid| open(dcid, header, datagram)) else {
            // One to a connection ID that this server gave out before it was
            // restarted opens with other keys.
            return self
                .reset_stranger(first.now, datagram, &dcid, response)
                .map_err(|_| DropReason::DecryptionFailed);
        };
        let hello = hello(&payload);
        if hello == Hello::Absent {
            self.counters.without_client_hello.count_one();
            return Err(DropReason::Unexpected);
        }
        let mut initial = OpenedInitial {
            from: first.from,
            original_dcid: dcid,
            dcid,
            scid,
            retry_scid: None,
            validated: false,
            hello,
            unix_now: first.unix_now,
            keys,
        };
        let token = self.read_token(&mut initial, token);
        self.decide(first.now, initial, token, response)
    }

    /// Retry, refusal, or the application's decision.
    fn decide(
        &mut self,
        now: Instant,
        initial: OpenedInitial,
        token: Result<(), TransportError>,
        response: &mut Vec<u8>,
    ) -> Result<Arrival, DropReason> {
        let denied = match token {
            Ok(()) => match self.admit(&initial) {
                Ok(admitted) => return self.hand_over(initial, admitted),
                Err(denial) => Ok(denial),
            },
            Err(error) => Err(error),
        };
        if initial.hello != Hello::Beginning {
            self.counters.continued.count_one();
            return Err(DropReason::Unexpected);
        }
        match denied {
            Err(error) => reply::close(&initial.dcid, &initial.scid, &error, response),
            Ok(Denial::Refuse(refusal)) => {
                if !self.admission.may_refuse(now) {
                    return Err(self.withhold_refusal());
                }
                self.count_refusal(refusal);
                let error = TransportError::new(Code::CONNECTION_REFUSED, refusal.reason());
                reply::close(&initial.dcid, &initial.scid, &error, response);
            }
            Ok(Denial::Retry) => self.write_retry(&initial, response),
        }
        Ok(Arrival::Respond)
    }

    fn admit(&self, initial: &OpenedInitial) -> Result<Admitted, Denial> {
        let server = self.config.server.as_ref();
        let always_retry = server.is_some_and(|server| server.always_retry);
        let ip = initial.from.remote.ip();
        self.admission.admit(ip, initial.validated, always_retry)
    }

    fn count_refusal(&mut self, refusal: Refusal) {
        self.counters.refused.count_one();
        match refusal {
            Refusal::Handshakes | Refusal::HandshakesOfSource => {
                self.counters.refused_handshakes.count_one();
            }
            Refusal::Connections | Refusal::ConnectionsOfSource => {
                self.counters.refused_connections.count_one();
            }
        }
    }

    fn withhold_refusal(&mut self) -> DropReason {
        self.counters.refusals_withheld.count_one();
        DropReason::Overload
    }

    /// The application decides, once for each attempt.
    fn hand_over(
        &mut self,
        initial: OpenedInitial,
        admitted: Admitted,
    ) -> Result<Arrival, DropReason> {
        if initial.hello != Hello::Beginning && self.refused.contains(&initial.dcid) {
            self.counters.continued.count_one();
            return Err(DropReason::Unexpected);
        }
        let incoming = Incoming { initial, admitted };
        Ok(Arrival::Incoming(Box::new(incoming)))
    }

    /// What the client's token proves. A Retry token that is wrong ends the
    /// attempt (RFC 9000 §8.1.3); any other that is wrong counts as none.
    fn read_token(
        &mut self,
        initial: &mut OpenedInitial,
        token: &[u8],
    ) -> Result<(), TransportError> {
        let Some(server) = &self.config.server else {
            return Ok(());
        };
        if token.is_empty() {
            return Ok(());
        }
        match server
            .token_key
            .open(token, initial.unix_now, initial.from.remote)
        {
            Ok(Token::Retry(retry)) => {
                if retry.retry_scid != initial.dcid {
                    return Err(TransportError::new(
                        Code::INVALID_TOKEN,
                        "the Retry token was issued for another connection ID",
                    ));
                }
                initial.original_dcid = retry.original_dcid;
                initial.retry_scid = Some(retry.retry_scid);
                initial.validated = true;
            }
            Ok(Token::Address(address)) => {
                let mut replay = server
                    .replay
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                initial.validated = replay.admit(&address);
            }
            Err(error) if error.is_invalid_retry() => {
                return Err(TransportError::new(Code::INVALID_TOKEN, error.to_string()));
            }
            Err(_) => {}
        }
        Ok(())
    }

    fn write_retry(&mut self, initial: &OpenedInitial, response: &mut Vec<u8>) {
        let Some(server) = &self.config.server else {
            return;
        };
        self.counters.retries.count_one();
        let retry_scid = (self.config.generator)().generate(&mut self.rng);
        let mut token = Vec::with_capacity(128);
        server.token_key.seal_retry(
            &RetryToken {
                issued: initial.unix_now,
                client: initial.from.remote,
                original_dcid: initial.dcid,
                retry_scid,
            },
            &mut self.rng,
            &mut token,
        );
        let random = self.rng.u64() as u8;
        reply::retry(
            initial.scid,
            retry_scid,
            &initial.dcid,
            &token,
            random,
            response,
        );
    }

    /// Makes the connection; the caller then feeds it the same datagram.
    ///
    /// # Errors
    /// If TLS refuses its own settings.
    pub fn accept(
        &mut self,
        now: Instant,
        incoming: Incoming,
    ) -> Result<(Handle, Connection), TransportError> {
        let transport = self.config.transport.clone();
        self.accept_with(now, incoming, transport)
    }

    /// Like [`accept`](Self::accept), with transport settings of its own. Where
    /// clients may send 0-RTT data, these must grant no less than those under which
    /// they got their tickets (RFC 9000 §7.4.1).
    ///
    /// # Errors
    /// If TLS refuses its own settings.
    pub fn accept_with(
        &mut self,
        now: Instant,
        incoming: Incoming,
        transport: Arc<Config>,
    ) -> Result<(Handle, Connection), TransportError> {
        let Incoming { initial, admitted } = incoming;
        let Some(server) = &self.config.server else {
            return Err(TransportError::new(
                Code::CONNECTION_REFUSED,
                "this endpoint has no server settings",
            ));
        };
        let mut new_token = Vec::with_capacity(64);
        server.token_key.seal_address(
            &AddressToken {
                issued: initial.unix_now,
                ip: initial.from.remote.ip(),
                id: self.rng.array(),
            },
            &mut self.rng,
            &mut new_token,
        );
        let accept = Accept {
            remote: initial.from.remote,
            local_ip: initial.from.local_ip,
            original_dcid: initial.original_dcid,
            initial_keys: initial.keys,
            retry_scid: initial.retry_scid,
            scid: initial.scid,
            validated: initial.validated,
            new_token: Some(new_token),
            preferred_address: server.preferred_address,
            crypto: server.crypto.clone(),
        };
        let initial_dcid = initial.dcid;
        let mut common = self.common(now);
        common.config = transport;
        let mut connection = Connection::accept_from(common, accept)?;
        let handle = self.register(&mut connection, Some(admitted));
        // After a Retry the client uses the connection ID that it gave. The one
        // before may belong to a connection of another client, if the Retry was
        // not ours (a server that shares our secret sent it).
        self.routes.add(initial_dcid, handle);
        let attempt = Attempt {
            initial_dcid,
            began: now,
        };
        self.handshakes.begin(handle, attempt);
        self.counters.accepted.count_one();
        Ok((handle, connection))
    }

    /// Refuses a client; send the bytes written to `response`. The rest of the
    /// same ClientHello is then dropped.
    pub fn refuse(&mut self, incoming: &Incoming, response: &mut Vec<u8>) {
        response.clear();
        self.counters.refused.count_one();
        if self.refused.len() == REFUSED {
            self.refused.pop_front();
        }
        self.refused.push_back(incoming.initial.dcid);
        let error = TransportError::new(Code::CONNECTION_REFUSED, "refused by the application");
        let OpenedInitial { dcid, scid, .. } = &incoming.initial;
        reply::close(dcid, scid, &error, response);
    }
}

/// The payload of the first packet, if it opens with the keys that its
/// connection ID gives, and those keys.
fn open(
    dcid: &ConnectionId,
    header: &PartialHeader,
    datagram: &[u8],
) -> Option<(Box<Keys>, Vec<u8>)> {
    let keys = Box::new(initial_keys(dcid, Role::Server));
    let remote = &keys.remote;
    let mut packet = datagram.get(..header.packet_len)?.to_vec();
    remote.unprotect_header(&mut packet, header.number_at)?;
    let open = UnprotectedHeader::read(&packet, header.number_at)?;
    let number = open.number.recover(None);
    let len = remote.open(number, &mut packet, open.header_len)?;
    let payload = packet.get(open.header_len..)?.get(..len)?.to_vec();
    Some((keys, payload))
}

/// What of the ClientHello is in a packet's frames. What follows a frame that can't
/// be read counts for nothing: the connection would fail for it.
fn hello(payload: &[u8]) -> Hello {
    let mut hello = Hello::Absent;
    for frame in Frames::new(payload) {
        match frame {
            Ok(Frame::Crypto { offset: 0, data }) if !data.is_empty() => return Hello::Beginning,
            Ok(Frame::Crypto { data, .. }) if !data.is_empty() => hello = Hello::Later,
            Ok(_) => {}
            Err(_) => break,
        }
    }
    hello
}
