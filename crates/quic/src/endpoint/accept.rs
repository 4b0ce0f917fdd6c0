//! What happens to a client's first packet: token, limits, and then Retry, refusal or a
//! connection.

use core::time::Duration;
use std::sync::Arc;

use clearway_recovery::controller::SavedPath;

use super::admission::{AdmissionGuard, Denial, Refusal};
use super::handshakes::PendingHandshake;
use super::incoming::{ClientHelloPart, Incoming, OpenedInitial, Postponed, hello, open};
use super::{ConnectionHandle, DatagramEvent, Endpoint, FirstDatagram, ServerConfig, reply};
use crate::Instant;
use crate::cid::ConnectionId;
use crate::connection::{AcceptOptions, CarefulResume, Config, Connection};
use crate::count::Count;
use crate::crypto::{
    AddressToken, ReplayFilter, RetryToken, ServerCryptoByVersion, Token, TokenIssuer,
};
use crate::defects::Quirk;
use crate::error::{Code, TransportError};
use crate::event::DropReason;
use crate::wire::Version;

/// Returns what a token says of the path, if it may be used: it is not too old, and no other token of
/// the connection that measured it was used (RFC 9959 §3.2).
fn saved_path(
    resume: Option<CarefulResume>,
    token: &AddressToken,
    unix_now: u64,
    replay: &mut ReplayFilter,
) -> Option<SavedPath> {
    let (resume, path) = (resume?, token.path?);
    let age = Duration::from_secs(unix_now.saturating_sub(token.issued));
    let saved = resume.admit(path.saved, age)?;
    let measurement = AddressToken {
        id: path.connection,
        ..*token
    };
    replay.admit(&measurement).then_some(saved)
}

/// Attempts refused by the application that are remembered, to drop the rest of their
/// ClientHello, which arrives microseconds later.
const MAX_REMEMBERED_REFUSALS: usize = 32;

impl Endpoint {
    /// Handles a client's Initial packet that belongs to no connection.
    ///
    /// A ClientHello with a post-quantum key share fills two datagrams. Retry and refusal
    /// answer the attempt and not the datagram, so they are sent for the datagram with the
    /// first byte of the ClientHello. That needs no memory, and each flight of a client
    /// that received no answer has such a datagram (RFC 9000 §5.2.2, §17.2.5.1).
    pub(super) fn receive_initial(
        &mut self,
        first: &FirstDatagram<'_>,
        token: &[u8],
        response: &mut Vec<u8>,
    ) -> Result<DatagramEvent, DropReason> {
        let FirstDatagram {
            header, datagram, ..
        } = *first;
        let (Some(dcid), Some(scid)) = (header.dcid.cid(datagram), header.scid.cid(datagram))
        else {
            return Err(DropReason::Malformed);
        };
        // Every client would be refused, and the rate of refusals is reached: no need to
        // look at the packet.
        let closed = self.admission.reached_total().is_some();
        if closed && !self.admission.can_refuse(first.now) {
            return Err(self.withhold_refusal());
        }
        // RFC 9000 §7.2: the connection ID that a client chooses must be unpredictable, so at
        // least eight bytes long. State is created only for packets that are authentic.
        let long = dcid.len() >= 8 || self.answers_retry(first, &dcid, token);
        let payload = Some(&dcid).filter(|_| long);
        let Some((keys, payload)) = payload.and_then(|dcid| open(dcid, header, datagram)) else {
            // A connection ID that this server issued before it was restarted: the packet
            // is protected with other keys.
            return self
                .reply_with_reset(first.now, datagram, &dcid, response)
                .map_err(|_| DropReason::DecryptionFailed);
        };
        let hello = hello(&payload);
        if hello == ClientHelloPart::Absent {
            self.counters.without_client_hello.count_one();
            return Err(DropReason::Unexpected);
        }
        let mut initial = OpenedInitial {
            from: first.from,
            version: header.version,
            original_dcid: dcid,
            dcid,
            scid,
            retry_scid: None,
            validated: false,
            saved: None,
            hello,
            unix_now: first.unix_now,
            keys,
        };
        let token = self.read_token(&mut initial, token);
        self.decide(first.now, initial, token, response)
    }

    /// Decides about a client that was [postponed](Incoming::postpone), by the limits as they are now. If its
    /// connection has begun meanwhile, that one is returned, and if it is to be answered, the answer is written to
    /// `response`, both as by [`receive`](Self::receive).
    pub fn reconsider(
        &mut self,
        now: Instant,
        postponed: Postponed,
        response: &mut Vec<u8>,
    ) -> DatagramEvent {
        response.clear();
        let Postponed { initial } = postponed;
        if let Some(handle) = self.routes.get(&initial.dcid) {
            return DatagramEvent::Connection(handle);
        }
        let decided = self.decide(now, initial, Ok(()), response);
        decided.unwrap_or_else(|reason| self.drop_for(reason))
    }

    /// Answers with Retry or a refusal, or leaves the decision to the application.
    fn decide(
        &mut self,
        now: Instant,
        initial: OpenedInitial,
        token: Result<(), TransportError>,
        response: &mut Vec<u8>,
    ) -> Result<DatagramEvent, DropReason> {
        let denied = match token {
            Ok(()) => match self.admit(&initial) {
                Ok(admitted) => return self.offer_to_application(initial, admitted),
                Err(denial) => Ok(denial),
            },
            Err(error) => Err(error),
        };
        if initial.hello != ClientHelloPart::Beginning {
            self.counters.continued.count_one();
            return Err(DropReason::Unexpected);
        }
        match denied {
            Err(error) => reply::close(
                initial.version,
                &initial.dcid,
                &initial.scid,
                &error,
                response,
            ),
            Ok(Denial::Refuse(refusal)) => {
                if !self.admission.may_refuse(now) {
                    return Err(self.withhold_refusal());
                }
                self.count_refusal(refusal);
                let error = TransportError::new(Code::CONNECTION_REFUSED, refusal.reason());
                let OpenedInitial {
                    version,
                    dcid,
                    scid,
                    ..
                } = &initial;
                reply::close(*version, dcid, scid, &error, response);
            }
            Ok(Denial::Retry) => self.write_retry(&initial, response),
        }
        Ok(DatagramEvent::Response)
    }

    fn admit(&self, initial: &OpenedInitial) -> Result<AdmissionGuard, Denial> {
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

    /// Leaves the decision to the application, once for each attempt.
    fn offer_to_application(
        &mut self,
        initial: OpenedInitial,
        admitted: AdmissionGuard,
    ) -> Result<DatagramEvent, DropReason> {
        if initial.hello != ClientHelloPart::Beginning && self.refused.contains(&initial.dcid) {
            self.counters.continued.count_one();
            return Err(DropReason::Unexpected);
        }
        let incoming = Incoming { initial, admitted };
        Ok(DatagramEvent::Incoming(Box::new(incoming)))
    }

    /// Returns whether `token` is from a Retry with the connection ID `dcid`, which this
    /// server chose.
    fn answers_retry(&self, first: &FirstDatagram<'_>, dcid: &ConnectionId, token: &[u8]) -> bool {
        let server = self.config.server.as_ref();
        let opened = server.map(|server| {
            server.token_key.open(
                token,
                first.unix_now,
                first.from.remote,
                first.header.version,
            )
        });
        matches!(opened, Some(Ok(Token::Retry(retry))) if retry.retry_scid == *dcid)
    }

    /// Checks the client's token. An invalid Retry token ends the attempt (RFC 9000
    /// §8.1.3); any other invalid token is ignored.
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
        match server.token_key.open(
            token,
            initial.unix_now,
            initial.from.remote,
            initial.version,
        ) {
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
            // A load balancer's address says nothing about the client behind it, who may have
            // forged the address that the balancer answers to.
            Ok(Token::Address(_))
                if self.admission.source_of(initial.from.remote.ip()).is_none() => {}
            Ok(Token::Address(address)) => {
                let mut replay = server
                    .replay
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                initial.validated = replay.admit(&address);
                if initial.validated {
                    let resume = self.config.transport.careful_resume;
                    initial.saved = saved_path(resume, &address, initial.unix_now, &mut replay);
                }
            }
            Err(error) if error.is_invalid_retry() => {
                return Err(TransportError::new(Code::INVALID_TOKEN, error.to_string()));
            }
            Err(_) => self
                .config
                .transport
                .refuse_if(Quirk::RefusesUnknownTokens)?,
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
                version: initial.version,
                client: initial.from.remote,
                original_dcid: initial.dcid,
                retry_scid,
            },
            &mut self.rng,
            &mut token,
        );
        let random = self.rng.u64() as u8;
        reply::retry(
            initial.version,
            initial.scid,
            retry_scid,
            &initial.dcid,
            &token,
            random,
            response,
        );
    }

    /// Creates the connection. The caller then passes the same datagram to
    /// [`Connection::receive`].
    ///
    /// # Errors
    /// If TLS rejects its settings.
    pub fn accept(
        &mut self,
        now: Instant,
        incoming: Incoming,
    ) -> Result<(ConnectionHandle, Connection), TransportError> {
        let transport = self.config.transport.clone();
        self.accept_with(now, incoming, transport)
    }

    /// Like [`accept`](Self::accept), but with transport settings for this connection.
    /// Where clients may send 0-RTT data, they must not grant less than the settings under
    /// which the clients got their tickets (RFC 9000 §7.4.1).
    ///
    /// # Errors
    /// If TLS rejects its settings.
    pub fn accept_with(
        &mut self,
        now: Instant,
        incoming: Incoming,
        transport: Arc<Config>,
    ) -> Result<(ConnectionHandle, Connection), TransportError> {
        let Incoming { initial, admitted } = incoming;
        let Some(server) = &self.config.server else {
            return Err(TransportError::new(
                Code::CONNECTION_REFUSED,
                "this endpoint has no server settings",
            ));
        };
        let crypto = self
            .crypto
            .get_or_insert_with(|| {
                ServerCryptoByVersion::new(server.crypto.clone(), self.config.transport.versions)
            })
            .clone();
        let ip = initial.from.remote.ip();
        let tokens = token_issuer(&mut self.tokens, server, initial.unix_now, now)
            .for_version(initial.version);
        let accept = AcceptOptions {
            remote: initial.from.remote,
            local_ip: initial.from.local_ip,
            version: initial.version,
            original_dcid: initial.original_dcid,
            initial_keys: initial.keys,
            retry_scid: initial.retry_scid,
            scid: initial.scid,
            validated: initial.validated || transport.has(Quirk::Amplifies),
            saved: initial.saved,
            trusted: self.admission.source_of(ip).is_none(),
            tokens,
            preferred_address: server.preferred_address,
            crypto,
        };
        let initial_dcid = initial.dcid;
        let mut common = self.common(now);
        common.config = transport;
        let mut connection = Connection::accept_from(common, accept)?;
        let handle = self.register(&mut connection, Some(admitted));
        // After a Retry, the client uses the connection ID from it. If another server sent
        // the Retry with our secret, that ID may belong to a connection of another client.
        self.routes.add(initial_dcid, handle);
        let attempt = PendingHandshake {
            initial_dcid,
            began: now,
        };
        self.handshakes.begin(handle, attempt);
        self.counters.accepted.count_one();
        Ok((handle, connection))
    }

    /// Refuses a client. Send it the bytes written to `response`. The rest of the same
    /// ClientHello is then dropped.
    pub fn refuse(&mut self, incoming: &Incoming, response: &mut Vec<u8>) {
        response.clear();
        self.counters.refused.count_one();
        if self.refused.len() == MAX_REMEMBERED_REFUSALS {
            self.refused.pop_front();
        }
        self.refused.push_back(incoming.initial.dcid);
        let error = TransportError::new(Code::CONNECTION_REFUSED, "refused by the application");
        let OpenedInitial {
            version,
            dcid,
            scid,
            ..
        } = &incoming.initial;
        reply::close(*version, dcid, scid, &error, response);
    }
}

/// Returns the issuer of tokens of `server`, made anew if the time of day was changed since.
fn token_issuer(
    issuer: &mut Option<Arc<TokenIssuer>>,
    server: &ServerConfig,
    unix_now: u64,
    now: Instant,
) -> Arc<TokenIssuer> {
    let right = |issuer: &&Arc<TokenIssuer>| issuer.unix(now).abs_diff(unix_now) <= 1;
    if let Some(issuer) = issuer.as_ref().filter(right) {
        return issuer.clone();
    }
    let key = server.token_key.clone();
    let made = Arc::new(TokenIssuer::new(key, Version::V1, unix_now, now));
    issuer.insert(made).clone()
}
