//! Which connection a datagram reaches: connection IDs that clients choose, a Retry
//! names and connections issue and retire, and stateless reset tokens, at an endpoint
//! whose connections come and go.
//!
//! Clients choose the same IDs as others, present the tokens of others and begin
//! before the application has decided about others. After each event every
//! connection ID and every token is tried: each leads to its owner, the first to
//! claim it, or to nobody. Once no connection is left, nothing is, and newcomers are
//! let in as at the beginning.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use clearway_quic::Instant;
use clearway_quic::ack::ReceivedEcn;
use clearway_quic::cid::generator::CidGenerator;
use clearway_quic::cid::{ConnectionId, ResetToken};
use clearway_quic::connection::{Connection, EndpointEvent, RecvMeta};
use clearway_quic::crypto::{ReplayFilter, ResetKey, RetryToken, TokenKey};
use clearway_quic::endpoint::{
    ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, Incoming, ServerConfig,
};
use clearway_quic::rng::Rng;
use clearway_quic::wire::Version;

use crate::hostile::initials::{cid, crypto, initial};
use clearway_testing::explore::{Bounds, ExpectClean, World, explore_by_replay, fingerprint_of};
use clearway_testing::{Setup, UNIX_ORIGIN};

/// Connections that are accepted in one sequence.
const ACCEPTED: u64 = 3;

/// Clients that wait for the application's decision.
const PENDING: usize = 2;

/// Handshakes from which on a Retry is demanded, and from which on all are refused.
const RETRY_ABOVE: usize = 2;
const REFUSE_ABOVE: usize = 3;

/// Connections of one source that proved its address.
const PER_SOURCE: usize = 2;

/// Connection IDs that clients choose; those the endpoint makes are above.
const CHOSEN: [u64; 2] = [1, 2];
const MADE: u64 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum ClientToken {
    None,
    /// A token of a Retry that gave the connection ID to this client.
    Retry,
    /// The same, to the other client.
    Stolen,
    /// A token that names another connection ID.
    Misplaced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Event {
    /// A client's Initial arrives, at a connection ID.
    Arrives(u8, u64, ClientToken),
    /// The application decides about the `n`th client that waits.
    Accept(usize),
    Refuse(usize),
    /// Of the `n`th connection: it issues a connection ID that nobody had,
    IssueFresh(u64),
    /// one that a client may have chosen too,
    IssueChosen(u64, u64),
    /// retires one of its own, or names another's,
    Retire(u64, u64),
    /// can be reset by one token, or two,
    Tokens(u64, u8),
    /// has finished its handshake,
    HandshakeDone(u64),
    /// is dropped, maybe once more.
    Drained(u64),
}

#[derive(Debug)]
struct Sequence(Arc<AtomicU64>);

impl CidGenerator for Sequence {
    fn generate(&mut self, _: &mut Rng) -> ConnectionId {
        cid(self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn cid_len(&self) -> usize {
        8
    }
}

/// What the world knows of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ConnectionRecord {
    client: u8,
    claims: BTreeSet<u64>,
    tokens: Vec<u8>,
    /// Where its client's Initials go while the handshake lasts.
    initial: Option<u64>,
    proven: bool,
}

struct Routes {
    endpoint: RefCell<Endpoint>,
    made: Arc<AtomicU64>,
    pending: Vec<(Incoming, u8, u64, bool)>,
    live: BTreeMap<u64, ConnectionRecord>,
    connections: BTreeMap<u64, Connection>,
    dead: BTreeSet<u64>,
    /// The first to claim each, of those who still do.
    owners: BTreeMap<u64, u64>,
    token_owners: BTreeMap<u8, u64>,
    refused: BTreeSet<u64>,
    broken: Option<String>,
}

fn address(client: u8) -> SocketAddr {
    ([10, 9, 0, client], 4000).into()
}

fn received(client: u8) -> RecvMeta {
    RecvMeta {
        remote: address(client),
        local_ip: None,
        ecn: ReceivedEcn::NotEct,
    }
}

fn token(n: u8) -> ResetToken {
    ResetToken([0xa0 + n; 16])
}

fn tokens(n: u8) -> Vec<u8> {
    (1..=n).collect()
}

/// Initials are made once: sealing them takes longer than routing them.
fn datagram(client: u8, chosen: u64, proof: ClientToken) -> Vec<u8> {
    type Made = Mutex<BTreeMap<(u8, u64, ClientToken), Vec<u8>>>;
    static MADE: OnceLock<Made> = OnceLock::new();
    let made = MADE.get_or_init(Made::default);
    let mut made = made.lock().expect("no panic");
    let fresh = || {
        let (owner, named) = match proof {
            ClientToken::None => return initial(cid(chosen), &[], 0, &crypto(0, b"x")),
            ClientToken::Retry => (client, chosen),
            ClientToken::Stolen => (1 - client, chosen),
            ClientToken::Misplaced => (client, chosen + 7),
        };
        let retry = RetryToken {
            version: Version::V1,
            issued: UNIX_ORIGIN,
            client: address(owner),
            original_dcid: cid(50),
            retry_scid: cid(named),
        };
        let (mut rng, mut token) = (Rng::from_seed([1; 32]), Vec::new());
        TokenKey::new(&[7; 32]).seal_retry(&retry, &mut rng, &mut token);
        initial(cid(chosen), &token, 0, &crypto(0, b"x"))
    };
    made.entry((client, chosen, proof))
        .or_insert_with(fresh)
        .clone()
}

impl Routes {
    fn new(setup: &Setup) -> Self {
        let made = Arc::new(AtomicU64::new(MADE));
        let mut limits = setup.limits.clone();
        limits.retry_above = RETRY_ABOVE;
        limits.refuse_above = REFUSE_ABOVE;
        limits.connections_per_source = PER_SOURCE;
        let generator = made.clone();
        let config = EndpointConfig {
            transport: Arc::new(setup.server.clone()),
            server: Some(ServerConfig {
                crypto: setup.server_crypto.clone(),
                token_key: Arc::new(TokenKey::new(&[7; 32])),
                replay: Arc::new(Mutex::new(ReplayFilter::new(64))),
                always_retry: false,
                limits,
                preferred_address: None,
            }),
            reset_key: Arc::new(ResetKey::new(&[9; 32])),
            generator: Arc::new(move || Box::new(Sequence(generator.clone()))),
        };
        Self {
            endpoint: RefCell::new(Endpoint::new(config, Rng::from_seed([3; 32]))),
            made,
            pending: Vec::new(),
            live: BTreeMap::new(),
            connections: BTreeMap::new(),
            dead: BTreeSet::new(),
            owners: BTreeMap::new(),
            token_owners: BTreeMap::new(),
            refused: BTreeSet::new(),
            broken: None,
        }
    }

    fn fail(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    fn receive(&self, client: u8, datagram: &[u8]) -> DatagramEvent {
        let (now, from) = (Instant::ZERO, received(client));
        let mut endpoint = self.endpoint.borrow_mut();
        endpoint.receive(now, UNIX_ORIGIN, from, datagram, &mut Vec::new())
    }

    fn tell(&mut self, handle: u64, event: EndpointEvent) {
        self.endpoint
            .get_mut()
            .on_event(ConnectionHandle(handle), event);
    }

    fn claim(&mut self, handle: u64, id: u64) {
        if let Some(life) = self.live.get_mut(&handle) {
            life.claims.insert(id);
            self.owners.entry(id).or_insert(handle);
        }
    }

    fn give_up(&mut self, handle: u64, id: u64) {
        if self.owners.get(&id) == Some(&handle) {
            self.owners.remove(&id);
        }
    }

    fn handshakes(&self) -> usize {
        let lives = self.live.values();
        lives.filter(|life| life.initial.is_some()).count()
    }

    /// Whether a client that has to be looked at is handed to the application.
    fn is_welcome(&self, client: u8, proof: ClientToken) -> bool {
        let lives = self.live.values().map(|life| (life.client, life.proven));
        // Who waits for the application has a place already.
        let waiting = self
            .pending
            .iter()
            .map(|(_, who, _, proven)| (*who, *proven));
        let of_source = lives.chain(waiting).filter(|each| *each == (client, true));
        let crowded = of_source.count() >= PER_SOURCE;
        let open = self.handshakes() + self.pending.len();
        match proof {
            _ if open >= REFUSE_ABOVE || crowded => false,
            ClientToken::None => open < RETRY_ABOVE,
            ClientToken::Retry => true,
            ClientToken::Stolen | ClientToken::Misplaced => false,
        }
    }

    fn arrive(&mut self, client: u8, chosen: u64, proof: ClientToken) {
        let datagram = datagram(client, chosen, proof);
        match (self.receive(client, &datagram), self.owners.get(&chosen)) {
            (DatagramEvent::Connection(ConnectionHandle(to)), Some(owner)) if to == *owner => {}
            (DatagramEvent::Incoming(incoming), None) if self.is_welcome(client, proof) => {
                let proven = proof == ClientToken::Retry;
                if incoming.is_validated() != proven {
                    self.fail(format!("validated: {}", incoming.is_validated()));
                }
                if self.pending.len() < PENDING {
                    self.pending.push((*incoming, client, chosen, proven));
                }
            }
            (DatagramEvent::Response | DatagramEvent::Dropped(_), None)
                if !self.is_welcome(client, proof) => {}
            (arrival, owner) => {
                let owner = owner.copied();
                self.fail(format!("{arrival:?}, the owner is {owner:?}"));
            }
        }
    }

    fn accept(&mut self, n: usize) {
        let (incoming, client, chosen, proven) = self.pending.remove(n);
        let before = self.made.load(Ordering::Relaxed);
        let accepted = self.endpoint.get_mut().accept(Instant::ZERO, incoming);
        let (ConnectionHandle(handle), connection) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => return self.fail(error.to_string()),
        };
        if self.dead.contains(&handle) || self.live.contains_key(&handle) {
            self.fail(format!("handle {handle} is given out again"));
        }
        self.connections.insert(handle, connection);
        let life = ConnectionRecord {
            client,
            claims: BTreeSet::new(),
            tokens: Vec::new(),
            initial: Some(chosen),
            proven,
        };
        self.live.insert(handle, life);
        for made in before..self.made.load(Ordering::Relaxed) {
            self.claim(handle, made);
        }
        self.owners.entry(chosen).or_insert(handle);
    }

    fn set_tokens(&mut self, handle: u64, new: Vec<u8>) {
        let event = EndpointEvent::ResetTokens(new.iter().map(|n| token(*n)).collect());
        self.tell(handle, event);
        let Some(life) = self.live.get_mut(&handle) else {
            return;
        };
        life.tokens.clone_from(&new);
        self.token_owners.retain(|_, owner| *owner != handle);
        for each in new {
            self.token_owners.entry(each).or_insert(handle);
        }
    }

    fn end_handshake(&mut self, handle: u64, complete: bool) {
        let Some(life) = self.live.get_mut(&handle) else {
            return;
        };
        life.proven |= complete;
        let (initial, issued) = (life.initial.take(), life.claims.clone());
        if let Some(initial) = initial {
            // A connection may have issued what its client chose, against all odds.
            if issued.contains(&initial) {
                return self.fail("a chosen connection ID is its own".into());
            }
            self.give_up(handle, initial);
        }
    }

    fn drain(&mut self, handle: u64) {
        self.tell(handle, EndpointEvent::Drained);
        self.end_handshake(handle, false);
        self.connections.remove(&handle);
        if let Some(life) = self.live.remove(&handle) {
            for id in life.claims {
                self.give_up(handle, id);
            }
            self.token_owners.retain(|_, owner| *owner != handle);
            self.dead.insert(handle);
        }
    }

    /// Where a short header to `id` leads that ends like a stateless reset with `end`.
    fn short(&self, id: u64, end: ResetToken) -> Option<u64> {
        let mut datagram = vec![0x40];
        datagram.extend_from_slice(&cid(id));
        datagram.extend_from_slice(&[0; 20]);
        datagram.extend_from_slice(&end.0);
        match self.receive(0, &datagram) {
            DatagramEvent::Connection(ConnectionHandle(handle)) => Some(handle),
            DatagramEvent::Incoming(_) | DatagramEvent::Response | DatagramEvent::Dropped(_) => {
                None
            }
        }
    }
}

impl World for Routes {
    type Event = Event;

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for chosen in CHOSEN {
            for client in [0, 1] {
                let proofs = [
                    ClientToken::None,
                    ClientToken::Retry,
                    ClientToken::Stolen,
                    ClientToken::Misplaced,
                ];
                events.extend(proofs.map(|proof| Event::Arrives(client, chosen, proof)));
            }
        }
        for n in 0..self.pending.len() {
            events.push(Event::Refuse(n));
            if self.live.len() + self.dead.len() < ACCEPTED as usize {
                events.push(Event::Accept(n));
            }
        }
        for (&handle, life) in &self.live {
            events.extend([
                Event::IssueFresh(handle),
                Event::Tokens(handle, 1),
                Event::Tokens(handle, 2),
                Event::HandshakeDone(handle),
                Event::Drained(handle),
            ]);
            for chosen in CHOSEN {
                // Its own is not random: no connection issues it.
                if life.initial != Some(chosen) && life.claims.len() < 3 {
                    events.push(Event::IssueChosen(handle, chosen));
                }
            }
            events.extend(self.owners.keys().map(|id| Event::Retire(handle, *id)));
        }
        for &handle in &self.dead {
            events.extend([Event::IssueChosen(handle, 1), Event::Drained(handle)]);
        }
        events
    }

    fn apply(&mut self, event: &Event) {
        match *event {
            Event::Arrives(client, chosen, proof) => self.arrive(client, chosen, proof),
            Event::Accept(n) => self.accept(n),
            Event::Refuse(n) => {
                let (incoming, _, chosen, _) = self.pending.remove(n);
                let mut response = Vec::new();
                self.endpoint.get_mut().refuse(&incoming, &mut response);
                self.refused.insert(chosen);
                if response.is_empty() {
                    self.fail("a refusal says nothing".into());
                }
            }
            Event::IssueFresh(handle) => {
                let id = self.made.fetch_add(1, Ordering::Relaxed);
                self.tell(handle, EndpointEvent::AddCid(cid(id)));
                self.claim(handle, id);
            }
            Event::IssueChosen(handle, id) => {
                self.tell(handle, EndpointEvent::AddCid(cid(id)));
                self.claim(handle, id);
            }
            Event::Retire(handle, id) => {
                let initial = self.live.get(&handle).and_then(|life| life.initial);
                // The connection knows nothing of the route to its client's choice.
                if initial != Some(id) {
                    self.tell(handle, EndpointEvent::RemoveCid(cid(id)));
                    self.give_up(handle, id);
                    if let Some(life) = self.live.get_mut(&handle) {
                        life.claims.remove(&id);
                    }
                }
            }
            Event::Tokens(handle, n) => self.set_tokens(handle, tokens(n)),
            Event::HandshakeDone(handle) => {
                self.tell(handle, EndpointEvent::HandshakeDone);
                self.end_handshake(handle, true);
            }
            Event::Drained(handle) => self.drain(handle),
        }
    }

    fn check(&self) -> Result<(), String> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        let made = MADE..self.made.load(Ordering::Relaxed);
        for id in CHOSEN.into_iter().chain(made) {
            let (reached, owner) = (self.short(id, ResetToken([0; 16])), self.owners.get(&id));
            if reached != owner.copied() {
                return Err(format!("{id} leads to {reached:?}, its owner is {owner:?}"));
            }
        }
        for n in tokens(2) {
            let (reached, owner) = (self.short(9, token(n)), self.token_owners.get(&n));
            if reached != owner.copied() {
                return Err(format!("token {n} resets {reached:?}, not {owner:?}"));
            }
        }
        let (known, open) = {
            let endpoint = self.endpoint.borrow();
            (endpoint.len(), endpoint.handshakes())
        };
        if (known, open) != (self.live.len(), self.handshakes()) {
            return Err(format!(
                "{known} connections, {open} handshakes, expected {:?}",
                self.live
            ));
        }
        // The counts behind the limits are back where they were.
        for client in [0, 1] {
            let datagram = datagram(client, 3, ClientToken::Retry);
            let let_in = matches!(self.receive(client, &datagram), DatagramEvent::Incoming(_));
            if let_in != self.is_welcome(client, ClientToken::Retry) {
                return Err(format!("client {client} is let in: {let_in}"));
            }
        }
        Ok(())
    }

    fn fingerprint(&self) -> Vec<u8> {
        let pending: Vec<_> = self
            .pending
            .iter()
            .map(|(_, client, chosen, proven)| (*client, *chosen, *proven))
            .collect();
        fingerprint_of(&(
            &self.live,
            &self.dead,
            &self.owners,
            &self.token_owners,
            &self.refused,
            pending,
            self.made.load(Ordering::Relaxed),
        ))
    }
}

#[test]
fn every_route_leads_to_its_connection_or_is_absent() {
    let setup = Setup::new();
    let depth = if cfg!(debug_assertions) { 5 } else { 6 };
    explore_by_replay("routes", || Routes::new(&setup), Bounds::to_depth(depth)).expect_clean();
}
