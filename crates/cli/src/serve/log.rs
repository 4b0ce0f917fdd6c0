//! The access log.

use core::net::SocketAddr;
use std::time::Instant;

use http::{Request, StatusCode};
use serde::Serialize;

use crate::output::log_json;
use crate::printable;

/// How much of a request's target is logged, in characters.
const TARGET: usize = 1_024;

/// How much of its method is.
const METHOD: usize = 32;

/// One request, logged when its response has been sent or aborted.
#[derive(Debug)]
pub(super) struct AccessLogEntry {
    json: bool,
    begun: Instant,
    broken_off: bool,
    line: Line,
}

/// A line of the access log.
#[derive(Debug, Serialize)]
struct Line {
    event: &'static str,
    remote: Option<SocketAddr>,
    method: String,
    target: String,
    status: u16,
    /// Length of the request's body.
    received: u64,
    /// Length of the response's body that was handed to the transport.
    sent: u64,
    /// Whether request and response were complete.
    complete: bool,
    milliseconds: f64,
}

impl AccessLogEntry {
    /// An entry for a request that has arrived.
    pub(super) fn of<B>(request: &Request<B>, remote: Option<SocketAddr>, json: bool) -> Self {
        let line = Line {
            event: "request",
            remote,
            method: printable::short(request.method().as_str(), METHOD).into_owned(),
            target: request.uri().path_and_query().map_or_else(
                || "-".to_owned(),
                |target| printable::short(target.as_str(), TARGET).into_owned(),
            ),
            status: 0,
            received: 0,
            sent: 0,
            complete: false,
            milliseconds: 0.0,
        };
        Self {
            json,
            begun: Instant::now(),
            broken_off: false,
            line,
        }
    }

    pub(super) fn answered(&mut self, status: StatusCode) {
        self.line.status = status.as_u16();
    }

    pub(super) fn received(&mut self, bytes: u64) {
        self.line.received += bytes;
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        self.line.sent += bytes as u64;
    }

    /// Marks the request as aborted.
    pub(super) fn broken_off(&mut self) {
        self.broken_off = true;
    }

    /// Marks the response as completely sent.
    pub(super) fn complete(&mut self) {
        self.line.complete = !self.broken_off;
    }
}

impl Drop for AccessLogEntry {
    fn drop(&mut self) {
        let line = &mut self.line;
        line.milliseconds = self.begun.elapsed().as_micros() as f64 / 1e3;
        if self.json {
            return log_json(line);
        }
        let remote = line
            .remote
            .map_or_else(|| "-".to_owned(), |remote| remote.to_string());
        let received = match line.received {
            0 => String::new(),
            bytes => format!(", {bytes} bytes received"),
        };
        say!(
            "{remote} {} {} {} {} bytes{received} in {:.1} ms{}",
            line.method,
            line.target,
            line.status,
            line.sent,
            line.milliseconds,
            if line.complete { "" } else { ", aborted" }
        );
    }
}
