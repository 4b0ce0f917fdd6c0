//! The socket and the connection of one case.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use socket2::SockRef;
use tokio::net::UdpSocket;

use super::Stop;
use crate::raw::{Observed, PacketOptions, RawConnection};
use crate::script::{Mark, Need, Scope, Setup, StreamKind, Variable};
use crate::target::Target;
use crate::wire::packet::{self, Header, Level};
use crate::wire::parameters::Parameters;
use crate::wire::{hex, http};

/// Largest datagram that is received.
const MAX_DATAGRAM: usize = 65_535;
/// How many bytes of a packet's payload a log line shows.
const SHOWN_BYTES: usize = 48;
/// Most lines of the log.
const MAX_LOG: usize = 100;
/// SETTINGS_MAX_FIELD_SECTION_SIZE for who sends none: RFC 9114 knows no limit then.
const DEFAULT_FIELD_SECTION: u64 = 65_536;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// An ordinary handshake.
    pub(crate) connect: Duration,
    /// The answer to a step, or to the case.
    pub(crate) patience: Duration,
    /// A whole case.
    pub(crate) case: Duration,
}

/// What is known of a server before its cases run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) parameters: Parameters,
    pub(crate) settings: Vec<(u64, u64)>,
    pub(crate) early_data: bool,
}

impl Facts {
    fn setting(&self, id: u64) -> Option<u64> {
        let found = self.settings.iter().find(|(other, _)| *other == id);
        found.map(|(_, value)| *value)
    }

    /// Returns what is missing of what a case needs, in words.
    pub(super) fn missing(&self, needs: &[Need]) -> Option<String> {
        needs.iter().find_map(|need| match need {
            Need::EarlyData => (!self.early_data).then(|| "the server offers no 0-RTT".to_owned()),
            Need::ActiveMigration => self
                .parameters
                .get(0x0c)
                .map(|_| "the server disables migration".to_owned()),
            Need::Datagrams => (self.setting(0x33) != Some(1))
                .then(|| "the server offers no HTTP datagrams".to_owned()),
            Need::ResetToken => self
                .parameters
                .get(0x02)
                .is_none()
                .then(|| "the server sends no stateless_reset_token".to_owned()),
            Need::Less(a, b, text) => match (a.evaluate(self), b.evaluate(self)) {
                (Ok(left), Ok(right)) if left < right => None,
                (Ok(left), Ok(right)) => Some(format!("{text} does not hold: {left} and {right}")),
                (Err(error), _) | (_, Err(error)) => Some(error),
            },
        })
    }
}

impl Scope for Facts {
    fn variable(&self, variable: Variable) -> Result<u64, String> {
        let parameter = |id| Ok(self.parameters.integer(id));
        match variable {
            Variable::MaxData => parameter(0x04),
            Variable::MaxStreamData => parameter(0x06),
            Variable::MaxStreamDataUni => parameter(0x07),
            Variable::MaxStreamsBidi => parameter(0x08),
            Variable::MaxStreamsUni => parameter(0x09),
            Variable::CidLimit => Ok(self.parameters.integer(0x0e).max(2)),
            Variable::DatagramSize => parameter(0x20),
            Variable::MaxFieldSectionSize => {
                Ok(self.setting(0x06).unwrap_or(DEFAULT_FIELD_SECTION))
            }
            Variable::TableCapacity => Ok(self.setting(0x01).unwrap_or(0)),
            Variable::StreamsOverMaxData => {
                let (all, one) = (self.parameters.integer(0x04), self.parameters.integer(0x06));
                Ok(all.checked_div(one).unwrap_or(u64::MAX).saturating_add(1))
            }
            Variable::NextNumber
            | Variable::NextInitial
            | Variable::NextHandshake
            | Variable::CryptoInitial
            | Variable::CryptoHandshake
            | Variable::LargestReceived
            | Variable::Written
            | Variable::ServerControl
            | Variable::Round => Err("known only during a connection".to_owned()),
        }
    }

    fn stream(&self, _: &str) -> Option<u64> {
        None
    }

    fn remote_cid(&self) -> Vec<u8> {
        Vec::new()
    }
}

/// The streams that a script has named, and how far they are written.
#[derive(Debug, Default)]
pub(super) struct Streams {
    names: BTreeMap<String, u64>,
    written: BTreeMap<u64, u64>,
    next: [u64; 4],
    last: u64,
}

/// One case in execution.
pub(crate) struct Session<'a> {
    pub(super) target: &'a Target,
    pub(super) facts: &'a Facts,
    pub(super) setup: &'a Setup,
    pub(super) limits: Limits,
    pub(super) address: SocketAddr,
    socket: UdpSocket,
    mark: Mark,
    pub(super) raw: Option<RawConnection>,
    pub(crate) observed: Observed,
    pub(super) streams: Streams,
    pub(super) responsive: bool,
    /// Whether the streams that HTTP/3 needs are open.
    pub(super) http_is_open: bool,
    pub(super) round: u64,
    pub(super) bytes_sent: u64,
    /// The last unprotected datagram: its size, and both its connection IDs.
    pub(super) last_datagram: Option<(usize, Vec<u8>, Vec<u8>)>,
    log: Vec<String>,
    buffer: Vec<u8>,
}

async fn open_socket(address: SocketAddr, mark: Mark) -> io::Result<UdpSocket> {
    let local: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(local).await?;
    // Connected, so that the kernel reports a closed port.
    socket.connect(address).await?;
    set_mark(&socket, address, mark)?;
    Ok(socket)
}

fn set_mark(socket: &UdpSocket, address: SocketAddr, mark: Mark) -> io::Result<()> {
    let socket = SockRef::from(socket);
    match address {
        SocketAddr::V4(_) => socket.set_tos_v4(mark as u32),
        SocketAddr::V6(_) => socket.set_tclass_v6(mark as u32),
    }
}

impl<'a> Session<'a> {
    pub(crate) async fn new(
        target: &'a Target,
        address: SocketAddr,
        facts: &'a Facts,
        setup: &'a Setup,
        limits: Limits,
    ) -> io::Result<Self> {
        Ok(Self {
            target,
            facts,
            setup,
            limits,
            address,
            socket: open_socket(address, Mark::NotEct).await?,
            mark: Mark::NotEct,
            raw: None,
            observed: Observed::default(),
            streams: Streams::default(),
            responsive: true,
            http_is_open: false,
            round: 0,
            bytes_sent: 0,
            last_datagram: None,
            log: Vec::new(),
            buffer: vec![0; MAX_DATAGRAM],
        })
    }

    /// Everything leaves from another port from now on.
    pub(super) async fn rebind(&mut self) -> io::Result<()> {
        self.socket = open_socket(self.address, self.mark).await?;
        Ok(())
    }

    pub(super) fn set_mark(&mut self, mark: Mark) -> io::Result<()> {
        self.mark = mark;
        set_mark(&self.socket, self.address, mark)
    }

    /// Sends a datagram as it is. Errors of the network count as loss.
    pub(super) async fn send_datagram(&mut self, datagram: &[u8]) {
        self.bytes_sent += datagram.len() as u64;
        match self.socket.send(datagram).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.observed.refused = true;
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// Sends what waits, and receives until `until`, or until something has arrived. Returns
    /// whether something has.
    pub(super) async fn pump(&mut self, until: Instant) -> bool {
        loop {
            if let Some(raw) = &mut self.raw {
                for datagram in raw.flush() {
                    self.send_datagram(&datagram).await;
                }
            }
            let timeout = self.raw.as_ref().and_then(RawConnection::next_timeout);
            let wake = timeout.map_or(until, |timeout| timeout.min(until));
            let received = self.socket.recv(&mut self.buffer);
            match tokio::time::timeout_at(wake.into(), received).await {
                Ok(Ok(size)) => {
                    self.on_datagram(size);
                    while let Ok(size) = self.socket.try_recv(&mut self.buffer) {
                        self.on_datagram(size);
                    }
                    return true;
                }
                Ok(Err(error)) => {
                    self.observed.refused |= error.kind() == io::ErrorKind::ConnectionRefused;
                    return true;
                }
                Err(_) => {
                    let now = Instant::now();
                    if let Some(raw) = &mut self.raw {
                        raw.repeat_lost(now);
                    }
                    if now >= until {
                        return false;
                    }
                }
            }
        }
    }

    fn on_datagram(&mut self, size: usize) {
        let Some(datagram) = self.buffer.get_mut(..size) else {
            return;
        };
        self.observed.datagrams += 1;
        self.observed.bytes += size as u64;
        if let Some(raw) = &mut self.raw {
            raw.receive(datagram, &mut self.observed);
            return;
        }
        match packet::parse(datagram, 0, 8) {
            Some(Header::VersionNegotiation {
                dcid,
                scid,
                versions,
            }) => {
                let received = crate::raw::VersionNegotiation {
                    dcid,
                    scid,
                    versions,
                };
                self.observed.version_negotiation = Some(received);
            }
            Some(Header::Retry { .. }) => self.observed.retries += 1,
            Some(Header::Protected { .. }) | None => self.observed.undecryptable.push(size),
        }
    }

    /// Waits until `done`, or the connection is over, or the time is up. Returns whether `done`.
    pub(super) async fn wait_for(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let until = Instant::now() + limit;
        loop {
            if done(self) {
                return true;
            }
            if self.is_over() || !self.pump(until).await {
                return done(self);
            }
        }
    }

    /// Returns whether nothing more will come.
    pub(super) fn is_over(&self) -> bool {
        self.observed.closed.is_some()
            || self.observed.stateless_reset == Some(true)
            || self.observed.refused
    }

    /// Sends a packet of a script, and writes it into the log.
    pub(super) fn send_packet(
        &mut self,
        level: Level,
        frames: &[u8],
        options: PacketOptions,
    ) -> Result<(), Stop> {
        let Some(raw) = &mut self.raw else {
            let message = "the script sends a packet before `connect`".to_owned();
            return Err(Stop::Failed(message));
        };
        let Some(number) = raw.send(level, frames, options) else {
            let message = format!("no keys for {} packets at this point", level.name());
            return Err(Stop::Failed(message));
        };
        let mut shown = hex(frames.get(..SHOWN_BYTES).unwrap_or(frames));
        if frames.len() > SHOWN_BYTES {
            shown = format!("{shown}… ({} bytes)", frames.len());
        }
        self.note(format!("{} packet {number}: {shown}", level.name()));
        Ok(())
    }

    /// Adds a line to the log of what was sent.
    pub(super) fn note(&mut self, line: String) {
        if self.log.len() < MAX_LOG {
            self.log.push(line);
        }
    }

    pub(super) fn into_log(self) -> Vec<String> {
        self.log
    }

    /// Writes bytes to a stream that the script names, which is opened if it is new.
    pub(super) fn write(&mut self, name: &str, bytes: &[u8], fin: bool) -> Result<(), Stop> {
        let id = self.streams.id(name);
        let mut offset = self.streams.written.get(&id).copied().unwrap_or(0);
        let mut chunks: Vec<&[u8]> = bytes.chunks(1_000).collect();
        if chunks.is_empty() {
            chunks.push(&[]);
        }
        let last = chunks.len() - 1;
        for (at, chunk) in chunks.into_iter().enumerate() {
            let end = fin && at == last;
            let mut frame = vec![if end { 0x0f } else { 0x0e }];
            crate::wire::put_varint(&mut frame, id);
            crate::wire::put_varint(&mut frame, offset);
            crate::wire::put_prefixed(&mut frame, chunk);
            offset += chunk.len() as u64;
            let level = match self.setup.early_data && !self.has_one_rtt_keys() {
                true => Level::ZeroRtt,
                false => Level::OneRtt,
            };
            let options = PacketOptions {
                reliable: true,
                ..PacketOptions::default()
            };
            self.send_packet(level, &frame, options)?;
        }
        self.streams.written.insert(id, offset);
        self.streams.last = id;
        Ok(())
    }

    fn has_one_rtt_keys(&self) -> bool {
        self.raw
            .as_ref()
            .is_some_and(|raw| raw.has_keys(Level::OneRtt))
    }

    /// Returns the status of the response on a stream of the script.
    pub(super) fn status(&self, name: &str) -> Option<u16> {
        let id = self.streams.names.get(name)?;
        http::status(self.observed.streams.get(id)?.bytes())
    }

    /// Returns the named streams with the responses that arrived on them.
    pub(super) fn statuses(&self) -> Vec<(&str, u16)> {
        let names = self.streams.names.keys();
        names
            .filter_map(|name| Some((name.as_str(), self.status(name)?)))
            .collect()
    }

    pub(super) fn stream_name(&self, id: u64) -> Option<&str> {
        let found = self.streams.names.iter().find(|(_, known)| **known == id);
        found.map(|(name, _)| name.as_str())
    }

    /// Returns the server's SETTINGS, once its control stream has brought them.
    pub(crate) fn settings(&self) -> Option<Vec<(u64, u64)>> {
        let mut unidirectional = self.observed.streams.iter().filter(|(id, _)| *id & 3 == 3);
        unidirectional.find_map(|(_, stream)| match stream.bytes().split_first() {
            Some((0, control)) => http::settings(control),
            Some(_) | None => None,
        })
    }

    /// Closes the connection without an error, so that nothing of it stays with the server.
    pub(crate) async fn close(&mut self) {
        let Some(raw) = &mut self.raw else { return };
        if self.observed.closed.is_some() {
            return;
        }
        let _ = raw.flush();
        for (level, frame) in [
            (Level::OneRtt, &[0x1d, 0x41, 0x00, 0x00][..]),
            (Level::Handshake, &[0x1c, 0x0c, 0x00, 0x00]),
            (Level::Initial, &[0x1c, 0x0c, 0x00, 0x00]),
        ] {
            if raw.has_keys(level) {
                raw.send(level, frame, PacketOptions::default());
                break;
            }
        }
        for datagram in raw.flush() {
            self.send_datagram(&datagram).await;
        }
    }
}

impl Streams {
    /// Returns how many bytes were written to the stream that was written to last.
    fn last_written(&self) -> u64 {
        self.written.get(&self.last).copied().unwrap_or(0)
    }

    /// Returns the ID of a stream, which is opened if it is new. The name says what it is: those
    /// that begin with `request` or `new` are bidirectional, and `new` is always another one.
    fn id(&mut self, name: &str) -> u64 {
        if let Some(id) = self.names.get(name).filter(|_| name != "new") {
            return *id;
        }
        let kind = match name.starts_with("request") || name == "new" {
            true => StreamKind::Bidi,
            false => StreamKind::Uni,
        };
        let nth = &mut self.next[kind as usize];
        let id = *nth * 4 + kind as u64;
        *nth += 1;
        self.names.insert(name.to_owned(), id);
        id
    }
}

impl Scope for Session<'_> {
    fn variable(&self, variable: Variable) -> Result<u64, String> {
        let number = |level| match &self.raw {
            Some(raw) => Ok(raw.next_number(level)),
            None => Err("packet numbers are known only behind `connect`".to_owned()),
        };
        let crypto = |level| self.raw.as_ref().map_or(0, |raw| raw.crypto_sent(level));
        let grown = |current: Option<u64>| {
            let first = self.facts.variable(variable)?;
            Ok(current.unwrap_or(0).max(first))
        };
        match variable {
            Variable::NextNumber => number(Level::OneRtt),
            Variable::NextInitial => number(Level::Initial),
            Variable::NextHandshake => number(Level::Handshake),
            Variable::CryptoInitial => Ok(crypto(Level::Initial)),
            Variable::CryptoHandshake => Ok(crypto(Level::Handshake)),
            Variable::Round => Ok(self.round),
            Variable::LargestReceived => {
                let raw = self.raw.as_ref();
                let largest = raw.and_then(|raw| raw.largest_received(Level::OneRtt));
                largest.ok_or_else(|| "no 1-RTT packet has arrived yet".to_owned())
            }
            Variable::Written => Ok(self.streams.last_written()),
            Variable::ServerControl => {
                let mut streams = self.observed.streams.iter();
                let control =
                    streams.find(|(id, stream)| *id & 3 == 3 && stream.bytes().first() == Some(&0));
                let id = control.map(|(id, _)| *id);
                id.ok_or_else(|| "the server has opened no control stream yet".to_owned())
            }
            Variable::MaxData => grown(self.raw.as_ref().map(|raw| raw.max_data)),
            Variable::MaxStreamsBidi => grown(self.raw.as_ref().map(|raw| raw.max_streams[0])),
            Variable::MaxStreamsUni => grown(self.raw.as_ref().map(|raw| raw.max_streams[1])),
            Variable::MaxStreamData
            | Variable::MaxStreamDataUni
            | Variable::CidLimit
            | Variable::DatagramSize
            | Variable::MaxFieldSectionSize
            | Variable::TableCapacity
            | Variable::StreamsOverMaxData => self.facts.variable(variable),
        }
    }

    fn stream(&self, name: &str) -> Option<u64> {
        self.streams.names.get(name).copied()
    }

    fn remote_cid(&self) -> Vec<u8> {
        let cid = self.raw.as_ref().map(|raw| raw.remote_cid().to_vec());
        cid.unwrap_or_default()
    }
}
