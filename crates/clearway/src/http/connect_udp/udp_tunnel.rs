//! UDP payloads in a tunnel (RFC 9298 §4, §5), and the client.

use bytes::{Buf, Bytes};
use clearway_http3::capsule::DATAGRAM;
use clearway_quic::wire::Reader;
use http::header::{AUTHORIZATION, HeaderValue, PROXY_AUTHORIZATION};
use http::{HeaderMap, Request, Response, Uri};

use super::{MAX_PAYLOAD, PROTOCOL, Target};
use crate::http::client::Client;
use crate::http::error::Error;
use crate::http::message::Protocol;
use crate::http::tunnel::{
    Capsule, CapsuleReader, OpenTunnelError, Tunnel, TunnelDatagramError, TunnelDatagrams,
    TunnelReceiver, TunnelSender,
};

/// The context of UDP payloads (RFC 9298 §4).
const UDP_CONTEXT: u8 = 0;

/// Room for a context ID before a payload.
const MAX_CONTEXT: usize = 8;

/// The field that says that the stream carries capsules (RFC 9297 §3.4).
const CAPSULE_PROTOCOL: &str = "capsule-protocol";

/// How UDP payloads are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UdpTunnelMode {
    /// In QUIC DATAGRAM frames if both ends support them, and otherwise in capsules.
    #[default]
    Datagrams,
    /// In capsules on the stream, which repeats what is lost and delays what follows. A proxy of
    /// this library answers in the same way.
    Capsules,
}

/// What a [`UdpTunnel`] counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpTunnelCounters {
    /// Payloads sent into the tunnel.
    pub sent: u64,
    /// Payloads received from it.
    pub received: u64,
    /// Payloads dropped because they do not fit into a datagram on this path (RFC 9298 §5).
    pub too_large: u64,
    /// Payloads dropped because the queue or the stream was full.
    pub blocked: u64,
    /// Datagrams dropped because their context is unknown or incomplete.
    pub unknown_context: u64,
}

/// A tunnel for UDP payloads, at a client or a proxy.
#[derive(Debug)]
pub struct UdpTunnel {
    sender: TunnelSender,
    capsules: CapsuleReader,
    datagrams: TunnelDatagrams,
    mode: UdpTunnelMode,
    /// Whether the mode is the one in which the peer sent last.
    follows_peer: bool,
    counters: UdpTunnelCounters,
    /// A payload with its context, while it is sent.
    scratch: Vec<u8>,
}

impl UdpTunnel {
    pub(super) fn new(
        (sender, receiver, datagrams): (TunnelSender, TunnelReceiver, TunnelDatagrams),
        mode: UdpTunnelMode,
    ) -> Self {
        Self {
            sender,
            capsules: receiver.into_capsules(MAX_PAYLOAD.saturating_add(MAX_CONTEXT)),
            datagrams,
            mode,
            follows_peer: false,
            counters: UdpTunnelCounters::default(),
            scratch: Vec::new(),
        }
    }

    /// Accepts a tunnel on a server that is no [`UdpProxy`](super::UdpProxy), such as one that relays
    /// to another process. Who may use it, and for which targets, is for the caller to check.
    /// Payloads are sent in datagrams, or in capsules if the client's last one came in a capsule.
    ///
    /// # Errors
    /// As [`Tunnel::accept`].
    pub async fn accept(tunnel: Tunnel) -> Result<Self, Error> {
        let mut response = Response::new(());
        let fields = response.headers_mut();
        fields.insert(CAPSULE_PROTOCOL, HeaderValue::from_static("?1"));
        fields.insert("proxy-status", HeaderValue::from_static("clearway"));
        let halves = tunnel.accept(response).await?;
        let mut tunnel = Self::new(halves, UdpTunnelMode::Datagrams);
        tunnel.follows_peer = true;
        Ok(tunnel)
    }

    /// Opens a tunnel to `target` through a proxy, whose URL is `https://HOST:PORT`. `token` is
    /// what the proxy has been told to accept ([`UdpProxyBuilder::token`](super::UdpProxyBuilder)).
    ///
    /// # Errors
    /// As [`Client::tunnel`], and if the URL or the token is invalid.
    pub async fn connect(
        client: &Client,
        proxy: &Uri,
        target: &Target,
        token: Option<&str>,
        mode: UdpTunnelMode,
    ) -> Result<Self, OpenTunnelError> {
        let bad = |why| Error::Url(proxy.to_string(), why);
        let mut parts = proxy.clone().into_parts();
        let path = target.path().parse();
        parts.path_and_query = Some(path.map_err(|_| bad("the target has no path"))?);
        let uri = Uri::from_parts(parts);
        let uri = uri.map_err(|_| bad("expected a proxy https://HOST:PORT"))?;
        let mut request = Request::new(());
        *request.uri_mut() = uri;
        request.extensions_mut().insert(Protocol::new(PROTOCOL));
        let headers = request.headers_mut();
        headers.insert(CAPSULE_PROTOCOL, HeaderValue::from_static("?1"));
        if let Some(token) = token {
            let value = HeaderValue::try_from(format!("Bearer {token}"));
            let mut value = value.map_err(|_| bad("the token has invalid characters"))?;
            value.set_sensitive(true);
            headers.insert(PROXY_AUTHORIZATION, value);
        }
        let tunnel = client.tunnel(request).await?;
        Ok(Self::new(tunnel.into_parts(), mode))
    }

    /// Sends a UDP payload. Like UDP, it drops what does not fit or what the network has no room
    /// for, and counts it.
    ///
    /// # Errors
    /// If the tunnel has ended.
    pub fn send(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.scratch.clear();
        self.scratch.push(UDP_CONTEXT);
        self.scratch.extend_from_slice(payload);
        if self.mode == UdpTunnelMode::Datagrams {
            match self.datagrams.send(&self.scratch) {
                Ok(()) => {
                    self.counters.sent = self.counters.sent.saturating_add(1);
                    return Ok(());
                }
                Err(TunnelDatagramError::TooLarge { .. }) => {
                    self.counters.too_large = self.counters.too_large.saturating_add(1);
                    return Ok(());
                }
                Err(TunnelDatagramError::Blocked) => {
                    self.counters.blocked = self.counters.blocked.saturating_add(1);
                    return Ok(());
                }
                Err(TunnelDatagramError::Ended(error)) => return Err(error),
                Err(TunnelDatagramError::Unsupported) => self.mode = UdpTunnelMode::Capsules,
            }
        }
        self.send_capsule()
    }

    /// Sends the payload in `scratch`. A full stream is not waited for: whoever waits does not
    /// receive, and if both ends waited, they would wait for ever.
    fn send_capsule(&mut self) -> Result<(), Error> {
        let value = Bytes::copy_from_slice(&self.scratch);
        let counter = if self.sender.try_send_capsule(DATAGRAM, value)? {
            &mut self.counters.sent
        } else {
            &mut self.counters.blocked
        };
        *counter = counter.saturating_add(1);
        Ok(())
    }

    /// Returns the next UDP payload, or `None` at the end of the tunnel. Cancel-safe.
    ///
    /// # Errors
    /// If the peer has reset the tunnel or violates the capsule protocol, or the connection has
    /// ended.
    pub async fn recv(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let Self {
                capsules,
                datagrams,
                ..
            } = self;
            // After the end of the stream there may be payloads left that came either way.
            let received = tokio::select! {
                datagram = datagrams.recv() => match datagram? {
                    None => capsules.next(is_datagram).await?.map(from_capsule),
                    datagram => datagram.map(from_datagram),
                },
                capsule = capsules.next(is_datagram) => match capsule? {
                    None => datagrams.recv().await?.map(from_datagram),
                    capsule => capsule.map(from_capsule),
                },
            };
            let Some((mut datagram, mode)) = received else {
                return Ok(None);
            };
            if self.follows_peer {
                self.mode = mode;
            }
            // A context that nobody has registered is dropped (RFC 9298 §4).
            let mut reader = Reader::new(&datagram);
            if reader.varint() == Some(UDP_CONTEXT.into()) {
                datagram.advance(datagram.len().saturating_sub(reader.remaining()));
                if datagram.len() <= MAX_PAYLOAD {
                    self.counters.received = self.counters.received.saturating_add(1);
                    return Ok(Some(datagram));
                }
            }
            let unknown = &mut self.counters.unknown_context;
            *unknown = unknown.saturating_add(1);
        }
    }

    /// Ends the sending half. What was sent before arrives.
    pub fn finish(&mut self) {
        // It fails if the tunnel has ended already.
        let _ = self.sender.finish();
    }

    /// Returns the largest UDP payload that could be sent now, in bytes.
    #[must_use]
    pub fn max_payload(&self) -> usize {
        match (self.mode, self.datagrams.max_size()) {
            (UdpTunnelMode::Datagrams, Some(max)) => max.saturating_sub(1),
            (UdpTunnelMode::Datagrams, None) | (UdpTunnelMode::Capsules, _) => MAX_PAYLOAD,
        }
    }

    /// Returns what it has counted.
    #[must_use]
    pub fn counters(&self) -> UdpTunnelCounters {
        self.counters
    }
}

fn is_datagram(kind: u64) -> bool {
    kind == DATAGRAM
}

fn from_datagram(datagram: Bytes) -> (Bytes, UdpTunnelMode) {
    (datagram, UdpTunnelMode::Datagrams)
}

fn from_capsule(capsule: Capsule) -> (Bytes, UdpTunnelMode) {
    (capsule.value, UdpTunnelMode::Capsules)
}

/// Returns the bearer token of a request (RFC 6750 §2.1), in either field: to a client the proxy is
/// the origin server of its template.
pub(super) fn token(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers
        .get(PROXY_AUTHORIZATION)
        .or_else(|| headers.get(AUTHORIZATION))?;
    let (scheme, token) = value.as_bytes().split_at_checked("Bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then_some(token.trim_ascii())
}
