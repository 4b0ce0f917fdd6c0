//! One URL.

use core::future::Future;
use core::time::Duration;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use bytes::Bytes;
use clearway::Connection;
use clearway::http::{Client, Incoming};
use http::header::{CONTENT_RANGE, ETAG};
use http::{Response, StatusCode};
use http_body::Body as _;
use tokio::task::spawn_blocking;

use super::Args;
use super::cause::failure;
use super::destination::{Destination, Sink};
use super::job::Job;
use super::part::{Beginning, Source};
use super::progress::Progress;
use super::request::request;
use super::tally::Waits;
use super::writer::{Mismatch, Writer};
use crate::failure::{Failure, Kind};
use crate::serve::SenderReport;

/// A transfer under way.
pub(super) struct Transfer<'a> {
    pub(super) args: &'a Args,
    pub(super) client: &'a Client,
    pub(super) progress: &'a Progress,
    pub(super) job: &'a Job,
    /// Counts what is read to be uploaded.
    pub(super) uploaded: Arc<AtomicU64>,
    pub(super) done: Done,
}

/// What a transfer came to, whether it succeeded or not.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) received: u64,
    pub(super) kept: u64,
    pub(super) waits: Waits,
    pub(super) sender: Option<SenderReport>,
    pub(super) connection: Option<Connection>,
}

/// Content that is not what is there already: all of it is needed.
enum Outcome {
    Whole,
    Different,
}

impl Transfer<'_> {
    /// Does it, going on with what is there if that was asked for.
    ///
    /// # Errors
    /// In one line what went wrong.
    pub(super) async fn run(&mut self) -> Result<(), Failure> {
        let connecting = self.client.connect(&self.job.url);
        let patience = self.args.connect_timeout;
        let connecting = tokio::time::timeout(patience.0, connecting);
        let connected = timed(&mut self.done.waits.connecting, connecting).await;
        let connected = connected.map_err(|_| {
            let message = format!("{}: cannot connect: no answer in {patience}", self.job.url);
            Failure::new(Kind::Connection, message)
        })?;
        let connection = connected.map_err(|error| self.failure(&error))?;
        self.done.connection = Some(connection);
        let beginning = self.beginning().await?;
        match self.attempt(beginning).await? {
            Outcome::Whole => Ok(()),
            Outcome::Different => {
                let text = format!("{}: not what is there: from the beginning", self.job.url);
                self.progress.say(&text);
                self.attempt(None).await.map(drop)
            }
        }
    }

    async fn beginning(&self) -> Result<Option<Beginning>, Failure> {
        let (true, Some(path)) = (self.args.resume, self.job.to.file()) else {
            return Ok(None);
        };
        let (path, url) = (path.to_owned(), self.job.url.to_string());
        let find = spawn_blocking(move || Beginning::find(&path, &url));
        let found = find.await.map_err(std::io::Error::other);
        found.and_then(|found| found).map_err(|error| {
            let what = format!("cannot go on with {}", self.job.to);
            Failure::caused(Kind::Output, what, &error)
        })
    }

    /// Asks for all of it, or for what is missing after `beginning`.
    async fn attempt(&mut self, beginning: Option<Beginning>) -> Result<Outcome, Failure> {
        let request = request(self.args, &self.job.url, beginning.as_ref(), &self.uploaded)?;
        let answer = self.client.request(request);
        let answer = timed(&mut self.done.waits.answer, answer).await;
        let response = answer.map_err(|error| self.failure(&error))?;
        self.done.connection = response.extensions().get().cloned();
        let status = response.status();
        if beginning.is_some() && status == StatusCode::RANGE_NOT_SATISFIABLE {
            return Ok(Outcome::Different);
        }
        if !self.args.no_fail && (status.is_client_error() || status.is_server_error()) {
            let message = format!("{}: {status}", self.job.url);
            return Err(Failure::new(Kind::Status, message));
        }
        let writer = match beginning {
            None => Writer::new(self.job.to.clone(), self.source(&response)),
            Some(beginning) if status == StatusCode::PARTIAL_CONTENT => {
                if !continues(&response, &beginning) {
                    return Ok(Outcome::Different);
                }
                self.done.kept += beginning.offset();
                Writer::after(self.job.to.clone(), beginning)
            }
            Some(stale) => {
                drop(stale);
                let text = format!("{}: it has changed: from the beginning", self.job.url);
                self.progress.say(&text);
                Writer::new(self.job.to.clone(), self.source(&response))
            }
        };
        if self.args.head || self.args.include {
            self.print_head(&response).await?;
        }
        self.receive(response.into_body(), writer).await
    }

    /// Writes the body to its destination.
    async fn receive(
        &mut self,
        mut body: Incoming,
        mut writer: Writer,
    ) -> Result<Outcome, Failure> {
        let announced = body.size_hint().exact();
        self.progress.expect(announced.unwrap_or(0));
        let mut received = 0;
        let broken = loop {
            let chunk = timed(&mut self.done.waits.content, body.chunk()).await;
            let piece = match chunk {
                Ok(Some(piece)) => piece,
                Ok(None) => break None,
                Err(error) => break Some(self.failure(&error)),
            };
            let length = piece.len() as u64;
            received += length;
            self.done.received += length;
            self.progress.advance(length);
            match writer.push(piece) {
                Ok(()) if writer.is_full() => {
                    timed(&mut self.done.waits.output, writer.flush()).await?;
                }
                Ok(()) => {}
                Err(Mismatch) => return Ok(Outcome::Different),
            }
        };
        let short = announced.is_some_and(|announced| received < announced && !self.args.head);
        let broken = broken.or_else(|| {
            let message = format!("{}: ended early", self.job.url);
            short.then(|| Failure::new(Kind::Incomplete, message))
        });
        if let Some(mut broken) = broken {
            broken.message.push_str(&format!(" after {received} bytes"));
            if let Some((path, length)) = writer.abandon().await {
                let kept = format!("; {length} are in {}, -C goes on", path.display());
                broken.message.push_str(&kept);
            }
            return Err(broken);
        }
        self.done.sender = body.trailers().and_then(SenderReport::from_trailers);
        if !self.args.head {
            timed(&mut self.done.waits.output, writer.finish()).await?;
        }
        Ok(Outcome::Whole)
    }

    /// What a beginning of this response would be of, if one can be gone on
    /// with.
    fn source(&self, response: &Response<Incoming>) -> Option<Source> {
        let plain = self.args.data.is_none() && self.args.upload.is_none();
        let etag = response.headers().get(ETAG)?.to_str().ok()?;
        let usable = plain && response.status() == StatusCode::OK && etag.starts_with('"');
        usable.then(|| Source {
            url: self.job.url.to_string(),
            etag: etag.to_owned(),
        })
    }

    /// The header section, where the body goes; for -I alone, that is all.
    async fn print_head(&self, response: &Response<Incoming>) -> Result<(), Failure> {
        let mut head = format!("HTTP/3 {}\r\n", response.status());
        for (name, value) in response.headers() {
            // Writing to a String cannot fail.
            let _ = write!(
                head,
                "{name}: {}\r\n",
                String::from_utf8_lossy(value.as_bytes())
            );
        }
        head.push_str("\r\n");
        let to = match (&self.job.to, self.args.head) {
            (to, true) => to.clone(),
            // Files get the body alone.
            (_, false) => Destination::Stdout,
        };
        let write = {
            let to = to.clone();
            move || {
                let mut sink: Sink = to.open(None)?;
                sink.write(&[Bytes::from(head)])?;
                sink.finish()
            }
        };
        let written = spawn_blocking(write).await.map_err(std::io::Error::other);
        written
            .and_then(|written| written)
            .map_err(|error| Failure::caused(Kind::Output, format!("cannot write {to}"), &error))
    }

    fn failure(&self, error: &clearway::http::Error) -> Failure {
        failure(&self.job.url, error)
    }
}

/// Whether a 206 brings exactly what is missing, of the same content
/// (RFC 9110 §15.3.7.1).
fn continues(response: &Response<Incoming>, beginning: &Beginning) -> bool {
    let field = |name| response.headers().get(name)?.to_str().ok();
    let range = || {
        let (range, total) = field(CONTENT_RANGE)?
            .strip_prefix("bytes ")?
            .split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let [first, last, total]: [u64; 3] =
            [first.parse().ok()?, last.parse().ok()?, total.parse().ok()?];
        Some(first == beginning.offset() && last.checked_add(1) == Some(total))
    };
    // A server may leave the tag out, since If-Range names it (§13.1.5).
    let same = field(ETAG).is_none_or(|etag| etag == beginning.etag);
    same && range().unwrap_or(false)
}

/// Adds the time that `work` takes to `total`.
async fn timed<T>(total: &mut Duration, work: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let done = work.await;
    *total += begun.elapsed();
    done
}
