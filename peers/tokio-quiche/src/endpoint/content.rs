//! Requests and responses of a connection, over HTTP/0.9 or HTTP/3.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use contract::runner::{Environment, Target, page, requested_path};
use tokio_quiche::quiche::{
    Connection, Shutdown,
    h3::{self, Header, NameValue},
};

use crate::is_http3;

/// What a server sends on a stream.
struct Response {
    head: Option<Vec<Header>>,
    content: Vec<u8>,
    sent: usize,
}

/// A client's download.
struct Download {
    target: Target,
    content: Vec<u8>,
}

/// The streams of a connection.
pub(crate) struct Content {
    environment: Environment,
    http: Option<h3::Connection>,
    /// Requests of HTTP/0.9 that are not complete.
    requests: BTreeMap<u64, Vec<u8>>,
    responses: BTreeMap<u64, Response>,
    downloads: BTreeMap<u64, Download>,
    buffer: Vec<u8>,
}

impl Content {
    pub(crate) fn new(environment: &Environment) -> Self {
        Self {
            environment: environment.clone(),
            http: None,
            requests: BTreeMap::new(),
            responses: BTreeMap::new(),
            downloads: BTreeMap::new(),
            buffer: vec![0; 1 << 16],
        }
    }

    /// Asks for what there is room for; returns whether everything has been asked for.
    pub(crate) fn request(
        &mut self,
        quic: &mut Connection,
        targets: &mut Vec<Target>,
    ) -> Result<bool> {
        if is_http3(&self.environment) && self.http.is_none() {
            self.http = Some(h3::Connection::with_transport(quic, &h3::Config::new()?)?);
        }
        while let Some(target) = targets.last() {
            if quic.peer_streams_left_bidi() == 0 {
                return Ok(false);
            }
            let stream = match &mut self.http {
                Some(http) => {
                    let authority = format!("{}:{}", target.host, target.port);
                    let head = [
                        Header::new(b":method", b"GET"),
                        Header::new(b":scheme", b"https"),
                        Header::new(b":authority", authority.as_bytes()),
                        Header::new(b":path", target.path.as_bytes()),
                    ];
                    match http.send_request(quic, &head, true) {
                        Ok(stream) => stream,
                        Err(h3::Error::StreamBlocked) => return Ok(false),
                        Err(error) => return Err(error.into()),
                    }
                }
                None => {
                    let stream = 4 * self.requested();
                    let request = format!("GET {}\r\n", target.path);
                    let sent = quic.stream_send(stream, request.as_bytes(), true)?;
                    ensure!(sent == request.len(), "no credit for a request");
                    stream
                }
            };
            let Some(target) = targets.pop() else { break };
            let content = Vec::new();
            self.downloads.insert(stream, Download { target, content });
        }
        Ok(true)
    }

    /// The number of requests so far: they are never forgotten.
    fn requested(&self) -> u64 {
        self.downloads.len() as u64
    }

    /// Reads and writes what is possible. Returns the number of downloads that are now complete.
    pub(crate) fn drive(&mut self, quic: &mut Connection) -> Result<usize> {
        let complete = if is_http3(&self.environment) {
            self.read_http3(quic)?
        } else {
            self.read_hq(quic)?
        };
        self.respond(quic);
        Ok(complete)
    }

    fn read_hq(&mut self, quic: &mut Connection) -> Result<usize> {
        let mut complete = 0;
        for stream in quic.readable() {
            while let Ok((len, fin)) = quic.stream_recv(stream, &mut self.buffer) {
                let data = self.buffer.get(..len).unwrap_or_default();
                if let Some(download) = self.downloads.get_mut(&stream) {
                    download.content.extend_from_slice(data);
                    if fin {
                        download.target.store(&download.content)?;
                        complete += 1;
                    }
                } else {
                    let request = self.requests.entry(stream).or_default();
                    request.extend_from_slice(data);
                    if fin {
                        self.answer_hq(quic, stream);
                    }
                }
                if fin {
                    break;
                }
            }
        }
        Ok(complete)
    }

    fn answer_hq(&mut self, quic: &mut Connection, stream: u64) {
        let request = self.requests.remove(&stream).unwrap_or_default();
        let path = requested_path(&request);
        match path.and_then(|path| self.environment.page(path)) {
            Some(content) => {
                let (head, sent) = (None, 0);
                self.responses.insert(
                    stream,
                    Response {
                        head,
                        content,
                        sent,
                    },
                );
            }
            // It fails if the client has reset the stream.
            None => drop(quic.stream_shutdown(stream, Shutdown::Write, 1)),
        }
    }

    fn read_http3(&mut self, quic: &mut Connection) -> Result<usize> {
        if self.http.is_none() && (quic.is_established() || quic.is_in_early_data()) {
            self.http = Some(h3::Connection::with_transport(quic, &h3::Config::new()?)?);
        }
        let Some(http) = &mut self.http else {
            return Ok(0);
        };
        let mut complete = 0;
        loop {
            match http.poll(quic) {
                Ok((stream, h3::Event::Headers { list, .. })) => {
                    if let Some(path) = list.iter().find(|it| it.name() == b":path") {
                        let path = String::from_utf8_lossy(path.value()).into_owned();
                        let content = page(&self.environment.www, &path);
                        let status: &[u8] = if content.is_some() { b"200" } else { b"404" };
                        let response = Response {
                            head: Some(vec![Header::new(b":status", status)]),
                            content: content.unwrap_or_default(),
                            sent: 0,
                        };
                        self.responses.insert(stream, response);
                    }
                }
                Ok((stream, h3::Event::Data)) => {
                    while let Ok(len) = http.recv_body(quic, stream, &mut self.buffer) {
                        if let Some(download) = self.downloads.get_mut(&stream) {
                            let data = self.buffer.get(..len).unwrap_or_default();
                            download.content.extend_from_slice(data);
                        }
                    }
                }
                Ok((stream, h3::Event::Finished)) => {
                    if let Some(download) = self.downloads.get(&stream) {
                        download.target.store(&download.content)?;
                        complete += 1;
                    }
                }
                Ok((_, h3::Event::Reset(_) | h3::Event::PriorityUpdate | h3::Event::GoAway)) => {}
                Err(h3::Error::Done) => return Ok(complete),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn respond(&mut self, quic: &mut Connection) {
        let http = &mut self.http;
        self.responses.retain(|stream, response| {
            if let (Some(http), Some(head)) = (http.as_mut(), &response.head) {
                match http.send_response(quic, *stream, head, false) {
                    Ok(()) => response.head = None,
                    Err(error) => return matches!(error, h3::Error::StreamBlocked),
                }
            }
            let rest = response.content.get(response.sent..).unwrap_or_default();
            let sent = match http.as_mut() {
                Some(http) => http.send_body(quic, *stream, rest, true).ok(),
                None => quic.stream_send(*stream, rest, true).ok(),
            };
            response.sent += sent.unwrap_or_default();
            let closed = quic.stream_capacity(*stream).is_err();
            response.sent < response.content.len() && !closed
        });
    }
}
