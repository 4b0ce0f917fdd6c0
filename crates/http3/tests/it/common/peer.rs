//! An application on one end: it reads all it can and writes what it is told to.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use clearway_http3::{Body, BodyError, Code, Deadline, Event, Field, Request, Response, SendError};
use clearway_quic::stream::StreamId;

use super::Host;

/// What one end has heard of one stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Heard {
    pub request: Option<Request>,
    pub response: Option<Response>,
    pub informational: Vec<Response>,
    pub body: Vec<u8>,
    pub trailers: Option<Vec<Field>>,
    pub ended: bool,
    pub reset: Option<Code>,
    pub stopped: Option<Code>,
    pub failed: Option<Code>,
    pub rejected: bool,
    pub timed_out: Option<Deadline>,
}

/// An application that reads everything and writes what it was told to, as the
/// transport takes it.
#[derive(Debug, Default)]
pub struct Peer {
    pub heard: BTreeMap<StreamId, Heard>,
    /// Streams with something to read.
    readable: Vec<StreamId>,
    /// What is left to write: pieces of a body, then trailers and the end.
    writing: BTreeMap<StreamId, (VecDeque<Bytes>, Option<Vec<Field>>)>,
    /// Events of no stream.
    pub others: Vec<Event>,
}

impl Peer {
    pub fn heard(&mut self, id: StreamId) -> &mut Heard {
        self.heard.entry(id).or_default()
    }

    /// Writes a body in pieces, then trailers if any, then the end.
    pub fn write(&mut self, id: StreamId, pieces: Vec<Bytes>, trailers: Option<Vec<Field>>) {
        self.writing.insert(id, (pieces.into(), trailers));
    }

    pub fn is_idle(&self) -> bool {
        self.writing.is_empty()
    }

    /// Takes the events of `host`, reads and writes; answers the requests that
    /// arrived.
    pub fn turn(&mut self, host: &mut Host) -> Vec<(StreamId, Request)> {
        let mut requests = Vec::new();
        while let Some(event) = host.events.pop_front() {
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
                let heard = self.heard(stream);
                heard.request = Some(request.clone());
                heard.ended = end;
                requests.push((stream, request));
                self.readable.push(stream);
            }
            Event::Response {
                stream,
                response,
                end,
            } => {
                let heard = self.heard(stream);
                assert!(heard.response.is_none(), "two responses");
                heard.response = Some(response);
                heard.ended = end;
                self.readable.push(stream);
            }
            Event::Informational { stream, response } => {
                self.heard(stream).informational.push(response);
            }
            Event::Readable(stream) => self.readable.push(stream),
            Event::Writable(_) => {}
            Event::Reset { stream, code } => self.heard(stream).reset = Some(code),
            Event::Stopped { stream, code } => {
                self.writing.remove(&stream);
                self.heard(stream).stopped = Some(code);
            }
            Event::Failed { stream, error } => self.heard(stream).failed = Some(error.code),
            Event::Rejected(stream) => self.heard(stream).rejected = true,
            Event::TimedOut { stream, deadline } => {
                self.writing.remove(&stream);
                self.heard(stream).timed_out = Some(deadline);
            }
            other @ (Event::Settings(_)
            | Event::PriorityChanged { .. }
            | Event::RequestsAvailable
            | Event::DatagramReceived
            | Event::GoAway { .. }
            | Event::Closed(_)) => self.others.push(other),
        }
    }

    fn read(&mut self, host: &mut Host, id: StreamId) {
        let heard = self.heard.entry(id).or_default();
        let (http, quic) = host.split();
        while !heard.ended {
            match http.read_body(quic, id) {
                Ok(Body::Data(data)) => {
                    assert!(heard.trailers.is_none() && !data.is_empty());
                    heard.body.extend_from_slice(&data);
                }
                Ok(Body::Trailers(fields)) => heard.trailers = Some(fields),
                Ok(Body::End) => heard.ended = true,
                Ok(Body::Blocked) => return,
                Err(BodyError::Reset(code)) => {
                    heard.reset = Some(code);
                    return;
                }
                Err(BodyError::Failed(error)) => {
                    heard.failed = Some(error.code);
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
