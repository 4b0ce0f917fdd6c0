//! HTTP/3 between an application of the lab and our transport: a stream that the application opens
//! becomes a request, and what it writes a body.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use clearway_http3::{Body, Config, Event, Request, Response, SendError};
use clearway_quic::connection::Connection;
use clearway_quic::stream::StreamId;
use clearway_quic::{Instant, Role};

use super::{Read, SERVER_NAME};

/// The HTTP side of one connection.
#[derive(Debug)]
pub(super) struct Http3 {
    http: clearway_http3::Connection,
    /// Requests that the application has not accepted yet.
    arrived: VecDeque<StreamId>,
    /// Requests whose response has not started.
    unanswered: BTreeSet<StreamId>,
}

impl Http3 {
    pub(super) fn new(role: Role, seed: u64) -> Self {
        Self {
            http: clearway_http3::Connection::new(role, Arc::new(Config::default()), seed),
            arrived: VecDeque::new(),
            unanswered: BTreeSet::new(),
        }
    }

    /// Processes the events of the transport.
    pub(super) fn hear(&mut self, quic: &mut Connection) {
        while let Some(event) = quic.poll_event() {
            self.http.on_quic_event(quic, &event);
        }
        // Applications of the lab check the state of a stream themselves.
        while let Some(event) = self.http.poll_event() {
            if let Event::Request { stream, .. } = event {
                self.arrived.push_back(stream);
                self.unanswered.insert(stream);
            }
        }
    }

    /// Passes what recent calls produced to the transport.
    pub(super) fn flush(&mut self, now: Instant, quic: &mut Connection) {
        self.hear(quic);
        self.http.flush(now, quic);
    }

    /// Starts a request whose body follows.
    pub(super) fn open(&mut self, quic: &mut Connection) -> Option<StreamId> {
        let request = Request::new("POST", SERVER_NAME, "/");
        self.http.request(quic, &request, false).ok()
    }

    pub(super) fn accept(&mut self) -> Option<StreamId> {
        self.arrived.pop_front()
    }

    /// Accepts all of `data` or, while earlier data is waiting, nothing.
    pub(super) fn write(
        &mut self,
        quic: &mut Connection,
        id: StreamId,
        data: &mut Bytes,
    ) -> Result<(), String> {
        self.answer(quic, id)?;
        match self.http.write_body(quic, id, data) {
            Ok(()) | Err(SendError::Blocked) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    pub(super) fn finish(&mut self, quic: &mut Connection, id: StreamId) -> Result<(), String> {
        self.answer(quic, id)?;
        let finished = self.http.finish(quic, id);
        finished.map_err(|error| error.to_string())
    }

    pub(super) fn read(&mut self, quic: &mut Connection, id: StreamId) -> Result<Read, String> {
        loop {
            match self.http.read_body(quic, id) {
                Ok(Body::Data(data)) => return Ok(Read::Data(data)),
                Ok(Body::Trailers(_)) => {}
                Ok(Body::End) => return Ok(Read::End),
                Ok(Body::Blocked) => return Ok(Read::Blocked),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// The header section of a response is sent with the first part of its body.
    fn answer(&mut self, quic: &mut Connection, id: StreamId) -> Result<(), String> {
        if !self.unanswered.remove(&id) {
            return Ok(());
        }
        let response = Response::new(200);
        let sent = self.http.respond(quic, id, &response, false);
        sent.map_err(|error| error.to_string())
    }
}
