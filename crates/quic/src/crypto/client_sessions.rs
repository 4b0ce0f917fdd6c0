//! What a client remembers of servers: TLS tickets (with the transport
//! parameters that 0-RTT must keep to, RFC 9000 §7.4.1), what the application
//! protocol has to keep to beside them, and address-validation tokens from
//! NEW_TOKEN frames. Tickets and tokens are used once, and only with the QUIC version
//! of the connection that they came from (RFC 9369 §5).

use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rustc_hash::FxHashMap;
use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

use crate::wire::{Version, VersionPreference};

/// Servers remembered by default.
const DEFAULT_SERVERS: usize = 256;
/// Tickets kept per server: as many connections may be opened at once with
/// 0-RTT.
const TICKETS: usize = 8;
/// NEW_TOKEN tokens kept per server.
const TOKENS: usize = 8;
/// Longest NEW_TOKEN token that is kept, in bytes. Using it is optional, and it
/// goes into every Initial: it may take less than half of the first datagram,
/// so that an X25519 ClientHello fits beside it.
pub const MAX_TOKEN_LEN: usize = 512;

/// A server, as a client remembers it: each port of a host may be another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerId {
    /// The name that its certificate is valid for.
    pub name: ServerName<'static>,
    /// Its UDP port.
    pub port: u16,
}

/// A bounded store of session tickets and address tokens by server. When it is full, the server
/// that was added first is evicted.
///
/// rustls keeps the server's transport parameters inside each ticket's
/// session; a resumed session hands them out again
/// (`Session::remembered_transport_parameters`).
pub struct ClientSessions {
    inner: Mutex<Inner>,
    max_servers: usize,
}

#[derive(Default)]
struct Inner {
    /// Names come from the application, so that an unkeyed hash is safe.
    servers: FxHashMap<ServerId, ServerEntry>,
    order: VecDeque<ServerId>,
    /// Tasks that wait for something to be stored.
    watchers: Vec<Waker>,
}

#[derive(Default)]
struct ServerEntry {
    group: Option<NamedGroup>,
    tickets: VecDeque<(Version, Tls13ClientSessionValue)>,
    tokens: VecDeque<(Version, Vec<u8>)>,
    application: Option<Bytes>,
}

/// What a [`ClientSessions`] holds for one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredState {
    /// Number of tickets; each lets one connection resume a session.
    pub tickets: usize,
    /// Number of address-validation tokens.
    pub tokens: usize,
    /// The state last given to [`ClientSessions::put_application_state`].
    pub application: Option<Bytes>,
}

impl Default for ClientSessions {
    fn default() -> Self {
        Self::new(DEFAULT_SERVERS)
    }
}

impl ClientSessions {
    /// Creates a store for at most `max_servers` servers, with 8 tickets and 8 tokens
    /// each.
    #[must_use]
    pub fn new(max_servers: usize) -> Self {
        Self {
            inner: Mutex::default(),
            max_servers,
        }
    }

    /// Keeps a token from a NEW_TOKEN frame for the next connection to `server` with the same
    /// version (RFC 9000 §8.1.3, RFC 9369 §5). Returns whether the token is usable: an empty one and
    /// one over 512 bytes are not kept.
    pub fn put_token(&self, server: &ServerId, version: Version, token: Vec<u8>) -> bool {
        if token.is_empty() || token.len() > MAX_TOKEN_LEN {
            return false;
        }
        self.remember(server.clone(), |memory| {
            push_bounded(&mut memory.tokens, (version, token), TOKENS);
        });
        true
    }

    /// Takes the newest token for `server` and `version` out of the store: a token is used once, so that connections cannot be linked by it (RFC 9000 §8.1.3).
    #[must_use]
    pub fn take_token(&self, server: &ServerId, version: Version) -> Option<Vec<u8>> {
        take_newest(&mut self.lock().servers.get_mut(server)?.tokens, version)
    }

    /// Returns the version that a connection to `server` should begin with: that of the newest
    /// ticket, because it can be used with no other (RFC 9369 §5), or else that of
    /// [`VersionPreference::first_flight`].
    pub(crate) fn first_version(&self, server: &ServerId, versions: VersionPreference) -> Version {
        let newest = |memory: &ServerEntry| memory.tickets.back().map(|(version, _)| *version);
        let of_ticket = self.lock().servers.get(server).and_then(newest);
        of_ticket
            .filter(|version| versions.contains(*version))
            .unwrap_or(versions.first_flight())
    }

    /// Keeps what the application protocol needs for early data to `server`, such
    /// as the server's HTTP/3 SETTINGS (RFC 9114 §7.2.4.2). It belongs to the
    /// connections that tickets come from: where it differs from what was kept,
    /// the tickets in the store were issued under other terms and are dropped.
    pub fn put_application_state(&self, server: &ServerId, state: Bytes) {
        self.remember(server.clone(), |memory| {
            let changed = memory.application.as_ref().is_some_and(|old| *old != state);
            if changed {
                memory.tickets.clear();
            }
            memory.application = Some(state);
        });
    }

    /// Returns what is stored for `server`.
    #[must_use]
    pub fn stored(&self, server: &ServerId) -> StoredState {
        self.lock().stored(server)
    }

    /// Returns what is stored for `server` as soon as `enough` returns true, for example once
    /// there is a ticket, which a server may send at any time after the handshake. A store for
    /// zero servers is never ready.
    pub fn poll_stored(
        &self,
        server: &ServerId,
        cx: &Context<'_>,
        enough: impl FnOnce(&StoredState) -> bool,
    ) -> Poll<StoredState> {
        let mut inner = self.lock();
        let known = inner.stored(server);
        if enough(&known) {
            return Poll::Ready(known);
        }
        if !inner.watchers.iter().any(|w| w.will_wake(cx.waker())) {
            inner.watchers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Forgets one server.
    pub fn forget(&self, server: &ServerId) {
        let server = server.clone();
        let mut inner = self.lock();
        inner.servers.remove(&server);
        inner.order.retain(|name| *name != server);
    }

    /// Returns the number of servers in the store.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().servers.len()
    }

    /// Returns whether the store is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets everything.
    pub fn clear(&self) {
        let mut inner = self.lock();
        inner.servers.clear();
        inner.order.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code panics while holding the lock, and a half-made change could
        // at worst lose a ticket.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, server: ServerId, change: impl FnOnce(&mut ServerEntry)) {
        if self.max_servers == 0 {
            return;
        }
        let mut inner = self.lock();
        inner.remember(server, self.max_servers, change);
        let watchers = core::mem::take(&mut inner.watchers);
        drop(inner);
        watchers.into_iter().for_each(Waker::wake);
    }
}

impl Inner {
    fn remember(
        &mut self,
        server: ServerId,
        max_servers: usize,
        change: impl FnOnce(&mut ServerEntry),
    ) {
        if let Some(memory) = self.servers.get_mut(&server) {
            return change(memory);
        }
        if self.servers.len() == max_servers
            && let Some(oldest) = self.order.pop_front()
        {
            self.servers.remove(&oldest);
        }
        self.order.push_back(server.clone());
        change(self.servers.entry(server).or_default());
    }

    fn stored(&self, server: &ServerId) -> StoredState {
        let memory = self.servers.get(server);
        memory.map_or_else(StoredState::default, |memory| StoredState {
            tickets: memory.tickets.len(),
            tokens: memory.tokens.len(),
            application: memory.application.clone(),
        })
    }
}

fn push_bounded<T>(list: &mut VecDeque<T>, item: T, bound: usize) {
    if list.len() == bound {
        list.pop_front();
    }
    list.push_back(item);
}

/// Takes the newest item of `version` out of a list.
fn take_newest<T>(list: &mut VecDeque<(Version, T)>, version: Version) -> Option<T> {
    let at = list.iter().rposition(|(of, _)| *of == version)?;
    list.remove(at).map(|(_, item)| item)
}

/// The part of a store that belongs to servers on one port and to one version, since rustls asks
/// by name alone.
#[derive(Debug)]
pub(crate) struct VersionSessions {
    sessions: Arc<ClientSessions>,
    port: u16,
    /// The version of the connection.
    version: AtomicU32,
}

impl VersionSessions {
    pub(crate) fn new(sessions: Arc<ClientSessions>, port: u16, version: Version) -> Self {
        Self {
            sessions,
            port,
            version: version.0.into(),
        }
    }

    /// Stores tickets from now on under `version`, which the server has chosen.
    pub(crate) fn set_version(&self, version: Version) {
        self.version.store(version.0, Ordering::Relaxed);
    }

    fn version(&self) -> Version {
        Version(self.version.load(Ordering::Relaxed))
    }

    fn server(&self, name: &ServerName<'_>) -> ServerId {
        ServerId {
            name: name.to_owned(),
            port: self.port,
        }
    }
}

impl ClientSessionStore for VersionSessions {
    fn set_kx_hint(&self, server_name: ServerName<'static>, group: NamedGroup) {
        let server = self.server(&server_name);
        self.sessions
            .remember(server, |memory| memory.group = Some(group));
    }

    fn kx_hint(&self, server_name: &ServerName<'_>) -> Option<NamedGroup> {
        let server = self.server(server_name);
        self.sessions.lock().servers.get(&server)?.group
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(
        &self,
        server_name: ServerName<'static>,
        value: Tls13ClientSessionValue,
    ) {
        self.sessions.remember(self.server(&server_name), |memory| {
            push_bounded(&mut memory.tickets, (self.version(), value), TICKETS);
        });
    }

    fn take_tls13_ticket(
        &self,
        server_name: &ServerName<'static>,
    ) -> Option<Tls13ClientSessionValue> {
        let server = self.server(server_name);
        let mut inner = self.sessions.lock();
        take_newest(&mut inner.servers.get_mut(&server)?.tickets, self.version())
    }
}

impl core::fmt::Debug for ClientSessions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "ClientSessions({} of {} servers)",
            self.len(),
            self.max_servers
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(n: usize) -> ServerId {
        ServerId {
            name: ServerName::try_from(format!("server{n}.example")).unwrap(),
            port: 443,
        }
    }

    #[test]
    fn token_is_used_once_and_only_for_its_server() {
        let store = ClientSessions::default();
        store.put_token(&name(1), Version::V1, vec![1]);
        store.put_token(&name(1), Version::V1, vec![2]);
        assert_eq!(store.take_token(&name(2), Version::V1), None);
        assert_eq!(store.take_token(&name(1), Version::V1), Some(vec![2]));
        assert_eq!(store.take_token(&name(1), Version::V1), Some(vec![1]));
        assert_eq!(store.take_token(&name(1), Version::V1), None);
    }

    /// RFC 9369 §5.
    #[test]
    fn token_of_other_version_is_not_taken() {
        let store = ClientSessions::default();
        store.put_token(&name(1), Version::V2, vec![2]);
        store.put_token(&name(1), Version::V1, vec![1]);
        assert_eq!(store.take_token(&name(1), Version::V2), Some(vec![2]));
        assert_eq!(store.take_token(&name(1), Version::V2), None);
        assert_eq!(store.stored(&name(1)).tokens, 1);
    }

    #[test]
    fn tokens_and_servers_are_bounded() {
        let store = ClientSessions::new(2);
        for n in 0..20 {
            store.put_token(&name(0), Version::V1, vec![n]);
        }
        assert_eq!(store.lock().servers[&name(0)].tokens.len(), TOKENS);
        store.put_token(&name(1), Version::V1, vec![1]);
        store.put_token(&name(2), Version::V1, vec![2]);
        assert_eq!(store.len(), 2);
        assert_eq!(store.take_token(&name(0), Version::V1), None);
        assert_eq!(store.take_token(&name(2), Version::V1), Some(vec![2]));
        store.put_token(&name(1), Version::V1, vec![0; MAX_TOKEN_LEN + 1]);
        assert_eq!(store.take_token(&name(1), Version::V1), Some(vec![1]));
        store.clear();
        assert!(store.is_empty());
    }

    #[test]
    fn waiting_task_is_woken_when_session_state_is_stored() {
        struct CountWakes(std::sync::atomic::AtomicUsize);
        impl std::task::Wake for CountWakes {
            fn wake(self: std::sync::Arc<Self>) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let wakes = std::sync::Arc::new(CountWakes(0.into()));
        let count = || wakes.0.load(std::sync::atomic::Ordering::Relaxed);
        let waker = Waker::from(wakes.clone());
        let cx = Context::from_waker(&waker);
        let store = ClientSessions::default();
        let token = |store: &ClientSessions| {
            let known = store.poll_stored(&name(1), &cx, |known| known.tokens > 0);
            known.map(|known| known.tokens)
        };
        assert_eq!(token(&store), Poll::Pending);
        assert_eq!(token(&store), Poll::Pending);
        store.put_application_state(&name(1), Bytes::from_static(b"terms"));
        assert_eq!((count(), token(&store)), (1, Poll::Pending));
        store.put_token(&name(1), Version::V1, vec![1]);
        assert_eq!((count(), token(&store)), (2, Poll::Ready(1)));
        store.put_token(&name(1), Version::V1, vec![2]);
        assert_eq!(count(), 2, "no task is waiting");
        store.forget(&name(1));
        assert_eq!(store.stored(&name(1)), StoredState::default());
        assert!(store.is_empty());
    }

    #[test]
    fn key_exchange_group_of_server_is_remembered() {
        let sessions = Arc::new(ClientSessions::default());
        let store = |port| VersionSessions::new(sessions.clone(), port, Version::V1);
        let ServerId { name, port } = name(1);
        assert_eq!(store(port).kx_hint(&name), None);
        store(port).set_kx_hint(name.clone(), NamedGroup::X25519);
        assert_eq!(store(port).kx_hint(&name), Some(NamedGroup::X25519));
        assert_eq!(store(port + 1).kx_hint(&name), None);
    }

    /// A host may run another server on each of its ports.
    #[test]
    fn servers_on_two_ports_of_a_host_are_remembered_apart() {
        let store = ClientSessions::default();
        let on = |port| ServerId { port, ..name(1) };
        for (port, state) in [(443, "one"), (8443, "two")] {
            store.put_token(&on(port), Version::V1, vec![port as u8]);
            store.put_application_state(&on(port), Bytes::from_static(state.as_bytes()));
        }
        assert_eq!(store.stored(&on(443)).application, Some("one".into()));
        assert_eq!(
            store.take_token(&on(443), Version::V1),
            Some(vec![443_u16 as u8])
        );
        assert_eq!(store.take_token(&on(443), Version::V1), None);
        store.forget(&on(443));
        assert_eq!(store.stored(&on(8443)).tokens, 1);
    }
}
