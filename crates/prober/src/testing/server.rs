//! The server: one task, any number of connections.

use core::net::{Ipv4Addr, SocketAddr};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use super::ordinary::{Conduct, are_ordinary_parameters};
use crate::raw::{Observed, PacketOptions, RawConnection, Tls};
use crate::wire::http;
use crate::wire::packet::{self, Header, Level, VERSION_1};
use crate::wire::parameters::{Parameters, integer};

/// What is wrong with the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// It ignores every violation, and answers nothing but handshakes and requests.
    Deaf,
    /// It answers every violation with AEAD_LIMIT_REACHED, which no case expects, and what a server has to
    /// answer without a connection with something invalid.
    WrongAnswer,
    /// The first violation of anybody ends it.
    Dies,
}

/// The code that no case expects.
const WRONG_CODE: u8 = 0x0f;
/// How often lost packets are looked for.
const TICK: Duration = Duration::from_millis(50);
/// Bytes beyond the amplification limit that are sent to an address that is not validated.
const AMPLIFIED_PACKETS: usize = 4;

/// A server with a defect, on 127.0.0.1. Dropping it ends it.
#[derive(Debug)]
pub struct DefectiveServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl DefectiveServer {
    /// Starts the server.
    ///
    /// # Errors
    /// If there is no socket or no certificate.
    pub async fn start(defect: Defect) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = socket.local_addr()?;
        let config = config().map_err(|error| io::Error::other(error.to_string()))?;
        let server = Server {
            socket,
            config,
            defect,
            clients: Vec::new(),
        };
        let task = tokio::spawn(server.run());
        Ok(Self { address, task })
    }

    /// Returns the URL of the server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}/", self.address)
    }
}

impl Drop for DefectiveServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn config() -> Result<Arc<ServerConfig>, Box<dyn std::error::Error + Send + Sync>> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(made.key_pair.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], PrivateKeyDer::Pkcs8(key))?;
    config.alpn_protocols = vec![b"h3".to_vec()];
    // QUIC permits no other value (RFC 9001 §4.6.1).
    config.max_early_data_size = u32::MAX;
    Ok(Arc::new(config))
}

struct Client {
    address: SocketAddr,
    /// The connection ID of the first Initial packets, and ours.
    original: Vec<u8>,
    local: Vec<u8>,
    remote: Vec<u8>,
    raw: RawConnection,
    observed: Observed,
    conduct: Conduct,
    confirmed: bool,
    checked_parameters: bool,
    answered: Vec<u64>,
    violated: bool,
}

struct Server {
    socket: UdpSocket,
    config: Arc<ServerConfig>,
    defect: Defect,
    clients: Vec<Client>,
}

impl Server {
    async fn run(mut self) {
        let mut buffer = vec![0; 65_535];
        loop {
            let received = self.socket.recv_from(&mut buffer);
            match tokio::time::timeout(TICK, received).await {
                Ok(Ok((size, from))) => {
                    if let Some(datagram) = buffer.get_mut(..size)
                        && self.receive(datagram, from).await.is_none()
                    {
                        return;
                    }
                }
                Ok(Err(_)) => {}
                Err(_) => {
                    let now = Instant::now();
                    self.clients
                        .iter_mut()
                        .for_each(|client| client.raw.repeat_lost(now));
                }
            }
            for client in &mut self.clients {
                for datagram in client.raw.flush() {
                    let _ = self.socket.send_to(&datagram, client.address).await;
                }
            }
        }
    }

    /// Processes a datagram. Returns `None` if it ends the server.
    async fn receive(&mut self, datagram: &mut [u8], from: SocketAddr) -> Option<()> {
        let Some(Header::Protected {
            level,
            version,
            dcid,
            scid,
            ..
        }) = packet::parse(datagram, 0, 8)
        else {
            return self.answer_stray(datagram, from).await;
        };
        let known = |client: &Client| client.local == dcid || client.original == dcid;
        let at = match self.clients.iter().position(known) {
            Some(at) => at,
            None if level == Level::Initial && version == VERSION_1 => {
                self.accept(&dcid, &scid, from)?;
                self.clients.len() - 1
            }
            None => return self.answer_stray(datagram, from).await,
        };
        let defect = self.defect;
        let client = self.clients.get_mut(at)?;
        let violation = client.receive(datagram, from);
        match defect {
            Defect::Deaf => {}
            Defect::WrongAnswer if violation => client.close(),
            Defect::Dies if violation => return None,
            Defect::WrongAnswer | Defect::Dies => {}
        }
        client.serve();
        Some(())
    }

    /// Answers what belongs to no connection.
    async fn answer_stray(&mut self, datagram: &[u8], from: SocketAddr) -> Option<()> {
        match self.defect {
            Defect::Deaf => Some(()),
            Defect::Dies => None,
            Defect::WrongAnswer => {
                // Larger than its cause, so neither a stateless reset nor anything else.
                let mut answer = vec![0x40; datagram.len() + 1];
                answer[1..].fill(0x77);
                let _ = self.socket.send_to(&answer, from).await;
                Some(())
            }
        }
    }

    fn accept(&mut self, dcid: &[u8], scid: &[u8], from: SocketAddr) -> Option<()> {
        let mut local = vec![0; 8];
        aws_lc_rs::rand::fill(&mut local).ok()?;
        let mut parameters = Parameters::ordinary(&local);
        parameters.set(0x00, dcid.to_vec());
        parameters.set(0x02, vec![0x5a; 16]);
        parameters.set(0x08, integer(100));
        // Less than a few streams may fill, and no DATAGRAM frames, so that every case applies.
        parameters.set(0x04, integer(3 << 20));
        parameters.set(0x20, integer(0));
        let tls = Tls::server(self.config.clone(), parameters.encode()).ok()?;
        let mut raw = RawConnection::server(tls, dcid, local.clone(), scid.to_vec());
        raw.ignore_key_updates();
        self.clients.push(Client {
            address: from,
            original: dcid.to_vec(),
            local,
            remote: scid.to_vec(),
            raw,
            observed: Observed::keeping_packets(),
            conduct: Conduct::default(),
            confirmed: false,
            checked_parameters: false,
            answered: Vec::new(),
            violated: false,
        });
        Some(())
    }
}

impl Client {
    /// Processes a datagram. Returns whether an ordinary client would not have sent it.
    fn receive(&mut self, datagram: &mut [u8], from: SocketAddr) -> bool {
        let moved = self.address != from;
        self.address = from;
        let size = datagram.len();
        let first = datagram.first().copied().unwrap_or(0);
        let early = matches!(
            packet::parse(datagram, 0, 8),
            Some(Header::Protected {
                level: Level::ZeroRtt,
                ..
            })
        );
        // An Initial packet with a token has it behind both connection IDs.
        let token_at = 7 + self.local.len() + self.remote.len();
        let initial = first & 0xf0 == 0xc0;
        let with_token = initial && datagram.get(token_at).is_some_and(|byte| *byte != 0);
        self.raw.receive(datagram, &mut self.observed);
        let undecryptable = !self.observed.undecryptable.is_empty();
        self.observed.undecryptable.clear();
        let kept = self.observed.kept.replace(Vec::new()).unwrap_or_default();
        let sent = self.raw.next_number(Level::OneRtt).max(50);
        let strange = kept.iter().any(|packet| !self.conduct.allows(packet, sent));
        let short =
            kept.iter().any(|packet| packet.level == Level::Initial) && size < packet::MIN_INITIAL;
        let parameters = self.has_strange_parameters();
        let tls = self.raw.tls().failure().is_some();
        moved
            || early
            || with_token
            || undecryptable
            || strange
            || short
            || parameters
            || tls
            || self.raw.has_session_id()
    }

    fn has_strange_parameters(&mut self) -> bool {
        let Some(bytes) = self.raw.tls().peer_parameters() else {
            return false;
        };
        if self.checked_parameters {
            return false;
        }
        self.checked_parameters = true;
        !are_ordinary_parameters(bytes, &self.remote)
    }

    /// Closes with the wrong code.
    fn close(&mut self) {
        self.violated = true;
        let frame = [0x1c, WRONG_CODE, 0x00, 0x00];
        for level in [Level::OneRtt, Level::Handshake, Level::Initial] {
            if self.raw.has_keys(level) {
                self.raw.send(level, &frame, PacketOptions::default());
            }
        }
    }

    /// Goes on with the handshake, and answers requests.
    fn serve(&mut self) {
        if self.violated {
            return;
        }
        if !self.confirmed && self.answered.is_empty() && self.raw.has_keys(Level::Handshake) {
            // More than an address that is not validated may get.
            self.answered.push(u64::MAX);
            let padding = [[0x01].as_slice(), &[0; 1_150]].concat();
            for _ in 0..AMPLIFIED_PACKETS {
                self.raw
                    .send(Level::Handshake, &padding, PacketOptions::default());
            }
        }
        if !self.confirmed && self.raw.tls().is_complete() {
            self.confirmed = true;
            self.raw.forget_handshake();
            // SETTINGS with a dynamic table, a limit for field sections, and HTTP datagrams.
            let mut control = vec![0x00];
            http::put_frame(
                &mut control,
                http::kind::SETTINGS,
                &[0x01, 0x41, 0x00, 0x06, 0x60, 0x00, 0x33, 0x01],
            );
            self.write(3, &control, false);
            self.send(&[0x1e]);
        }
        let requests: Vec<u64> = self.observed.streams.keys().copied().collect();
        for id in requests {
            if id & 3 == 0 && !self.answered.contains(&id) && self.has_request(id) {
                self.answered.push(id);
                // HEADERS with the static entry `:status: 200`, and DATA.
                self.write(
                    id,
                    &[0x01, 0x03, 0x00, 0x00, 0xd9, 0x00, 0x02, b'o', b'k'],
                    true,
                );
            }
        }
    }

    fn has_request(&self, id: u64) -> bool {
        let stream = self.observed.streams.get(&id);
        stream.is_some_and(|stream| !stream.bytes().is_empty() || stream.is_complete())
    }

    fn write(&mut self, id: u64, bytes: &[u8], fin: bool) {
        let mut frame = vec![if fin { 0x0f } else { 0x0e }];
        crate::wire::put_varint(&mut frame, id);
        crate::wire::put_varint(&mut frame, 0);
        crate::wire::put_prefixed(&mut frame, bytes);
        self.send(&frame);
    }

    fn send(&mut self, frame: &[u8]) {
        let reliable = PacketOptions {
            reliable: true,
            ..PacketOptions::default()
        };
        self.raw.send(Level::OneRtt, frame, reliable);
    }
}
