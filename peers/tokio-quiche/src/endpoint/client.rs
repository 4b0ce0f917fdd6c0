//! quiche as a client.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use contract::runner::{Environment, Target, any_address};
use tokio_quiche::quiche::{
    self, Config, Connection, Error, RecvInfo,
    h3::{self, Event, Header, NameValue},
};

use crate::{
    link::{Arrival, Link},
    settings::{config, is_http3, new_id, trace},
};

/// How long to wait for a session ticket.
const TICKET_PATIENCE: Duration = Duration::from_secs(5);

/// Bytes read from a stream at once.
const CHUNK: usize = 65_536;

/// Downloads everything.
pub(crate) async fn run(environment: &Environment) -> Result<()> {
    let mut targets = environment.targets()?;
    let first = targets.first().context("nothing to download")?;
    let mut config = config(environment)?;
    // The runner makes certificates for each run, for names of its own.
    config.verify_peer(false);
    let mut client = Client {
        server: first.resolve().await?,
        name: first.host.clone(),
        config,
        environment,
    };
    match environment.test_case.as_str() {
        "multiconnect" | "handshakeloss" | "handshakecorruption" => {
            for target in targets {
                client.download(vec![target], None, false).await?;
            }
        }
        "resumption" | "zerortt" => {
            let others = targets.split_off(1);
            let session = client.download(targets, None, true).await?;
            let session = session.context("the server sent no session ticket")?;
            client.download(others, Some(&session), false).await?;
        }
        _ => {
            client.download(targets, None, false).await?;
        }
    }
    Ok(())
}

/// A client of one server.
struct Client<'a> {
    environment: &'a Environment,
    server: SocketAddr,
    name: String,
    config: Config,
}

impl Client<'_> {
    /// Downloads everything at once on a connection, which resumes a session if there is one. Returns
    /// the session of this connection, for which it waits if that is `wanted`.
    async fn download(
        &mut self,
        targets: Vec<Target>,
        session: Option<&[u8]>,
        wanted: bool,
    ) -> Result<Option<Vec<u8>>> {
        let mut link = Link::bind(any_address(self.server)).await?;
        let id = new_id()?;
        let mut connection = quiche::connect(
            Some(&self.name),
            &id,
            link.local,
            self.server,
            &mut self.config,
        )?;
        trace(&mut connection, &id, self.environment)?;
        if let Some(session) = session {
            connection.set_session(session)?;
        }
        let mut requests = Requests::new(targets, is_http3(self.environment));
        let mut patience = None;
        loop {
            // The first time, this makes the ClientHello, after which early data can follow.
            link.take_from(&mut connection)?;
            requests.advance(&mut connection)?;
            link.take_from(&mut connection)?;
            if requests.are_done() {
                if !wanted || connection.session().is_some() {
                    break;
                }
                let until = *patience.get_or_insert_with(|| Instant::now() + TICKET_PATIENCE);
                if Instant::now() >= until {
                    break;
                }
            }
            ensure!(
                !connection.is_closed(),
                "the connection ended: timed out: {}, peer's error: {:?}, local error: {:?}",
                connection.is_timed_out(),
                connection.peer_error(),
                connection.local_error()
            );
            let timers = [connection.timeout_instant(), patience];
            let deadline = timers.into_iter().flatten().min();
            match link.receive(deadline).await? {
                Arrival::Datagram(length, from) => {
                    let to = link.local;
                    // What cannot be processed is dropped; if the connection ends, it says so.
                    let _ = connection.recv(&mut link.buffer[..length], RecvInfo { from, to });
                }
                Arrival::Deadline => {
                    let now = Instant::now();
                    if connection.timeout_instant().is_some_and(|at| at <= now) {
                        connection.on_timeout();
                    }
                }
            }
        }
        let session = connection.session().map(<[u8]>::to_vec);
        connection.close(true, 0, b"")?;
        link.take_from(&mut connection)?;
        link.send_all().await;
        Ok(session)
    }
}

/// A download under way.
struct Download {
    target: Target,
    /// What of the request has not been sent.
    unsent: Vec<u8>,
    content: Vec<u8>,
}

/// The requests of one connection.
struct Requests {
    is_http3: bool,
    http3: Option<h3::Connection>,
    waiting: VecDeque<Target>,
    under_way: BTreeMap<u64, Download>,
    /// The next stream of HTTP/0.9.
    next_stream: u64,
}

impl Requests {
    fn new(targets: Vec<Target>, is_http3: bool) -> Self {
        Self {
            is_http3,
            http3: None,
            waiting: targets.into(),
            under_way: BTreeMap::new(),
            next_stream: 0,
        }
    }

    fn are_done(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty()
    }

    /// Sends requests and reads responses, as far as that is possible.
    fn advance(&mut self, connection: &mut Connection) -> Result<()> {
        if !connection.is_established() && !connection.is_in_early_data() {
            return Ok(());
        }
        if !self.is_http3 {
            self.ask(connection)?;
            return self.read(connection);
        }
        let mut http3 = match self.http3.take() {
            Some(http3) => http3,
            None => h3::Connection::with_transport(connection, &h3::Config::new()?)?,
        };
        self.ask_http3(connection, &mut http3)?;
        self.read_http3(connection, &mut http3)?;
        self.http3 = Some(http3);
        Ok(())
    }

    fn ask(&mut self, connection: &mut Connection) -> Result<()> {
        for (stream, download) in &mut self.under_way {
            send_request(connection, *stream, download)?;
        }
        while connection.peer_streams_left_bidi() > 0 {
            let Some(target) = self.waiting.pop_front() else {
                break;
            };
            let mut download = Download {
                unsent: format!("GET {}\r\n", target.path).into_bytes(),
                target,
                content: Vec::new(),
            };
            send_request(connection, self.next_stream, &mut download)?;
            self.under_way.insert(self.next_stream, download);
            self.next_stream += 4;
        }
        Ok(())
    }

    fn read(&mut self, connection: &mut Connection) -> Result<()> {
        let mut chunk = vec![0; CHUNK];
        for stream in connection.readable() {
            loop {
                let (length, end) = match connection.stream_recv(stream, &mut chunk) {
                    Ok(read) => read,
                    Err(Error::Done) => break,
                    Err(error) => return Err(error.into()),
                };
                let download = self.under_way.get_mut(&stream);
                let download = download.with_context(|| format!("data on stream {stream}"))?;
                download.content.extend_from_slice(&chunk[..length]);
                if end {
                    self.store(stream)?;
                    break;
                }
            }
        }
        Ok(())
    }

    fn store(&mut self, stream: u64) -> Result<()> {
        match self.under_way.remove(&stream) {
            Some(download) => download.target.store(&download.content),
            None => Ok(()),
        }
    }

    fn ask_http3(&mut self, connection: &mut Connection, http3: &mut h3::Connection) -> Result<()> {
        while let Some(target) = self.waiting.pop_front() {
            let authority = match target.host.contains(':') {
                true => format!("[{}]:{}", target.host, target.port),
                false => format!("{}:{}", target.host, target.port),
            };
            let head = [
                Header::new(b":method", b"GET"),
                Header::new(b":scheme", b"https"),
                Header::new(b":authority", authority.as_bytes()),
                Header::new(b":path", target.path.as_bytes()),
            ];
            match http3.send_request(connection, &head, true) {
                Ok(stream) => {
                    let download = Download {
                        target,
                        unsent: Vec::new(),
                        content: Vec::new(),
                    };
                    self.under_way.insert(stream, download);
                }
                Err(h3::Error::StreamBlocked | h3::Error::TransportError(Error::StreamLimit)) => {
                    self.waiting.push_front(target);
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn read_http3(
        &mut self,
        connection: &mut Connection,
        http3: &mut h3::Connection,
    ) -> Result<()> {
        let mut chunk = vec![0; CHUNK];
        loop {
            let (stream, event) = match http3.poll(connection) {
                Ok(event) => event,
                Err(h3::Error::Done) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            match event {
                Event::Headers { list, .. } => {
                    let status = list.iter().find(|header| header.name() == b":status");
                    let status = status.map(NameValue::value).unwrap_or_default();
                    ensure!(status == b"200", "status {}", status.escape_ascii());
                }
                Event::Data => {
                    while let Ok(length) = http3.recv_body(connection, stream, &mut chunk) {
                        if let Some(download) = self.under_way.get_mut(&stream) {
                            download.content.extend_from_slice(&chunk[..length]);
                        }
                    }
                }
                Event::Finished => self.store(stream)?,
                Event::Reset(code) => bail!("stream {stream} was reset with code {code}"),
                Event::PriorityUpdate | Event::GoAway => {}
            }
        }
    }
}

/// Sends what the stream takes of a request, and its end with the last of it.
fn send_request(connection: &mut Connection, stream: u64, download: &mut Download) -> Result<()> {
    if download.unsent.is_empty() {
        return Ok(());
    }
    match connection.stream_send(stream, &download.unsent, true) {
        Ok(length) => {
            download.unsent.drain(..length);
            Ok(())
        }
        Err(Error::Done) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
