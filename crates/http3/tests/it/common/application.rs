//! An application on an endpoint: it reads everything, and writes what the test tells it to.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use clearway_http3::{Body, BodyError, Code, Deadline, Event, Field, Request, Response, SendError};
use clearway_quic::stream::StreamId;

use super::Host;

/// What an application has received on a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamLog {
    pub(crate) request: Option<Request>,
    pub(crate) response: Option<Response>,
    pub(crate) informational: Vec<Response>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<Vec<Field>>,
    pub(crate) ended: bool,
    pub(crate) reset: Option<Code>,
    pub(crate) stopped: Option<Code>,
    pub(crate) failed: Option<Code>,
    pub(crate) rejected: bool,
    pub(crate) timed_out: Option<Deadline>,
}

/// An application that reads everything and writes what the test tells it to, as the transport
/// accepts it.
#[derive(Debug, Default)]
pub(crate) struct TestApplication {
    pub(crate) logs: BTreeMap<StreamId, StreamLog>,
    /// Streams that are readable.
    readable: Vec<StreamId>,
    /// What is still to be written: pieces of a body, then trailers and the end.
    writing: BTreeMap<StreamId, (VecDeque<Bytes>, Option<Vec<Field>>)>,
    /// Events that do not concern a stream.
    pub(crate) others: Vec<Event>,
}

impl TestApplication {
    pub(crate) fn log(&mut self, id: StreamId) -> &mut StreamLog {
        self.logs.entry(id).or_default()
    }

    /// Writes a body in pieces, then trailers if any, then the end.
    pub(crate) fn write(&mut self, id: StreamId, pieces: Vec<Bytes>, trailers: Option<Vec<Field>>) {
        self.writing.insert(id, (pieces.into(), trailers));
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.writing.is_empty()
    }

    /// Processes the events of `host`, reads and writes. Returns the requests that arrived.
    pub(crate) fn process(&mut self, host: &mut Host) -> Vec<(StreamId, Request)> {
        let mut requests = Vec::new();
        while let Some(event) = host.app.events.pop_front() {
            self.on_event(event, &mut requests);
        }
        for id in core::mem::take(&mut self.readable) {
            self.read(host, id);
        }
        let writing: Vec<StreamId> = self.writing.keys().copied().collect();
        for id in writing {
            self.write_on(host, id);
        }
        requests
    }

    fn on_event(&mut self, event: Event, requests: &mut Vec<(StreamId, Request)>) {
        match event {
            Event::Request {
                stream,
                request,
                end,
            } => {
                let log = self.log(stream);
                log.request = Some(request.clone());
                log.ended = end;
                requests.push((stream, request));
                self.readable.push(stream);
            }
            Event::Response {
                stream,
                response,
                end,
            } => {
                let log = self.log(stream);
                assert!(log.response.is_none(), "two responses");
                log.response = Some(response);
                log.ended = end;
                self.readable.push(stream);
            }
            Event::Informational { stream, response } => {
                self.log(stream).informational.push(response);
            }
            Event::Readable(stream) => self.readable.push(stream),
            Event::Writable(_) => {}
            Event::Reset { stream, code } => self.log(stream).reset = Some(code),
            Event::Stopped { stream, code } => {
                self.writing.remove(&stream);
                self.log(stream).stopped = Some(code);
            }
            Event::Failed { stream, error } => self.log(stream).failed = Some(error.code),
            Event::Rejected(stream) => self.log(stream).rejected = true,
            Event::TimedOut { stream, deadline } => {
                self.writing.remove(&stream);
                self.log(stream).timed_out = Some(deadline);
            }
            other @ (Event::Settings(_)
            | Event::PriorityChanged { .. }
            | Event::RequestsAvailable
            | Event::DatagramReceived
            | Event::GoAway { .. }
            | Event::SessionStream { .. }
            | Event::SessionDraining(_)
            | Event::SessionStreamsAvailable(_)
            | Event::SessionEnded { .. }
            | Event::Closed(_)) => self.others.push(other),
        }
    }

    fn read(&mut self, host: &mut Host, id: StreamId) {
        let log = self.logs.entry(id).or_default();
        let (http, quic) = host.split();
        while !log.ended {
            match http.read_body(quic, id) {
                Ok(Body::Data(data)) => {
                    assert!(log.trailers.is_none() && !data.is_empty());
                    log.body.extend_from_slice(&data);
                }
                Ok(Body::Trailers(fields)) => log.trailers = Some(fields),
                Ok(Body::End) => log.ended = true,
                Ok(Body::Blocked) => return,
                Err(BodyError::Reset(code)) => {
                    log.reset = Some(code);
                    return;
                }
                Err(BodyError::Failed(error)) => {
                    log.failed = Some(error.code);
                    return;
                }
                Err(BodyError::Unknown | BodyError::Closed) => return,
            }
        }
    }

    fn write_on(&mut self, host: &mut Host, id: StreamId) {
        let (http, quic) = host.split();
        let Some((pieces, trailers)) = self.writing.get_mut(&id) else {
            return;
        };
        while let Some(piece) = pieces.front_mut() {
            match http.write_body(quic, id, piece) {
                Ok(()) => drop(pieces.pop_front()),
                Err(SendError::Blocked) => return,
                Err(error) => panic!("write: {error}"),
            }
        }
        let end = match trailers {
            Some(fields) => http.send_trailers(quic, id, fields),
            None => http.finish(quic, id),
        };
        end.expect("ends");
        self.writing.remove(&id);
    }
}
