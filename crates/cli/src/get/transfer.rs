//! The transfer of one URL.

use core::future::Future;
use core::time::Duration;
use std::fmt::Write as _;
use std::time::Instant;

use bytes::Bytes;
use clearway::Connection;
use clearway::http::{Client, Incoming};
use http::header::{CONTENT_RANGE, RANGE};
use http::{Method, Response, StatusCode};
use http_body::Body as _;
use tokio::task::spawn_blocking;

use super::Args;
use super::answer::{
    ContentRange, allowed, continues, elsewhere, strong_tag, total, without_content,
};
use super::cause::{FailureScope, TransferError, failure, unwritable};
use super::destination::Destination;
use super::existing_file::ExistingFile;
use super::job::Job;
use super::part::Source;
use super::progress::Progress;
use super::request::{method, request};
use super::tally::WaitTimes;
use super::upload::UploadReadStatus;
use super::writer::{Mismatch, Writer};
use crate::failure::{Failure, Kind};
use crate::printable;
use crate::serve::SenderReport;

/// Maximum length of a header field that is printed, in characters: more than servers usually
/// accept.
const FIELD: usize = 16 << 10;

/// How to trust a server whose certificate no trusted root has signed.
const TRUST: &str = "; to trust this server use --cacert FILE or --fingerprint HEX, or -k to accept \
                     any certificate";

/// A running transfer.
pub(super) struct Transfer<'a> {
    pub(super) args: &'a Args,
    pub(super) client: &'a Client,
    pub(super) progress: &'a Progress,
    pub(super) job: &'a Job,
    pub(super) reading: UploadReadStatus,
    pub(super) done: TransferResult,
}

/// The result of a transfer, whether it succeeded or not.
#[derive(Debug, Default)]
pub(super) struct TransferResult {
    pub(super) received: u64,
    pub(super) kept: u64,
    pub(super) waits: WaitTimes,
    pub(super) sender: Option<SenderReport>,
    pub(super) connection: Option<Connection>,
}

/// The result of one attempt, unless it fails.
enum AttemptOutcome {
    Over,
    /// The existing data cannot be used, and why: the whole content is needed.
    Anew(&'static str),
}

impl Transfer<'_> {
    /// Runs the transfer, resuming existing data if requested.
    ///
    /// # Errors
    /// The failure, and which other transfers it affects.
    pub(super) async fn run(&mut self) -> Result<(), TransferError> {
        let outcome = self.fetch().await;
        // Whatever a server reports for half of a file.
        match self.reading.broken() {
            Some(failure) => Err(failure.clone().into()),
            None => outcome,
        }
    }

    async fn fetch(&mut self) -> Result<(), TransferError> {
        self.connect()
            .await
            .map_err(|failure| failure.reaching(FailureScope::Origin))?;
        let held = self.held().await?;
        match self.attempt(held).await? {
            AttemptOutcome::Over => Ok(()),
            AttemptOutcome::Anew(why) => {
                self.done.kept = 0;
                self.say(format_args!("{why}: starting over"));
                self.attempt(ExistingFile::Nothing).await.map(drop)
            }
        }
    }

    async fn connect(&mut self) -> Result<(), Failure> {
        let connecting = self.client.connect(&self.job.url);
        let patience = self.args.connect.connect_timeout;
        let connecting = tokio::time::timeout(patience.0, connecting);
        let connected = timed(&mut self.done.waits.connecting, connecting).await;
        let connected = connected.map_err(|_| {
            let message = format!(
                "{}: cannot connect: no answer within {patience}",
                self.job.url
            );
            Failure::new(Kind::Connection, message)
        })?;
        let connection = connected.map_err(|error| self.untrusted(self.failure(&error)))?;
        self.done.connection = Some(connection);
        Ok(())
    }

    /// Looks for existing data to resume, if requested.
    async fn held(&self) -> Result<ExistingFile, Failure> {
        let plain = method(self.args) == Method::GET;
        let (true, true, Some(path)) = (plain, self.args.resume, self.job.to.file()) else {
            return Ok(ExistingFile::Nothing);
        };
        let (path, url) = (path.to_owned(), self.job.url.to_string());
        let find = spawn_blocking(move || ExistingFile::find(&path, &url));
        let found = find.await.map_err(std::io::Error::other);
        found.and_then(|found| found).map_err(|error| {
            let what = format!("cannot resume {}", self.job.to);
            Failure::caused(Kind::Output, what, &error)
        })
    }

    /// Requests all of the content, or what is missing after `held`.
    async fn attempt(&mut self, held: ExistingFile) -> Result<AttemptOutcome, TransferError> {
        let request = request(self.args, &self.job.url, &held, &self.reading)
            .map_err(|failure| failure.reaching(FailureScope::Everything))?;
        let answer = self.client.request(request);
        let answer = timed(&mut self.done.waits.answer, answer).await;
        let response = answer.map_err(|error| self.failure(&error))?;
        self.done.connection = response.extensions().get().cloned();
        let status = response.status();
        if status == StatusCode::RANGE_NOT_SATISFIABLE
            && let Some(outcome) = self.out_of_range(&held, total(&response))
        {
            return Ok(outcome);
        }
        if let Some(failure) = self.refused(&response) {
            if self.args.head || self.args.include {
                self.print_head(&response).await?;
            }
            return match self.args.head && status.is_redirection() {
                // Its headers are all that was asked for.
                true => Ok(AttemptOutcome::Over),
                false => Err(failure.into()),
            };
        }
        let (writer, length) = match self.writer(held, &response)? {
            Ok(writer) => writer,
            Err(why) => return Ok(AttemptOutcome::Anew(why)),
        };
        if self.args.head || self.args.include {
            self.print_head(&response).await?;
        }
        let without = without_content(&method(self.args), status);
        let outcome = self
            .receive(response.into_body(), writer, length, without)
            .await?;
        if let (Some(why), false, Some(path)) = (without, self.args.head, self.job.to.file()) {
            let what = if path.exists() { "kept" } else { "not written" };
            self.say(format_args!("{why}: {} {what}", self.job.to));
        }
        Ok(outcome)
    }

    /// The failure that a response reports by its status, which includes redirects: what they
    /// contain is not what was asked for.
    fn refused(&self, response: &Response<Incoming>) -> Option<Failure> {
        let status = response.status();
        if self.args.no_fail {
            return None;
        }
        let what = if status.is_client_error() || status.is_server_error() {
            status.to_string()
        } else {
            elsewhere(response)?
        };
        let mut message = format!("{}: {what}", self.job.url);
        if status == StatusCode::METHOD_NOT_ALLOWED {
            if let Some(methods) = allowed(response) {
                // Writing to a String cannot fail.
                let _ = write!(message, " (the server allows {methods})");
            }
            if method(self.args) == Method::PUT {
                message.push_str("; clearway serve accepts uploads with --writable");
            }
        }
        Some(Failure::new(Kind::Status, message))
    }

    /// Handles a 416 response to a request for what follows `held`, of `total` bytes.
    fn out_of_range(&mut self, held: &ExistingFile, total: Option<u64>) -> Option<AttemptOutcome> {
        let length = match held {
            ExistingFile::Nothing => return None,
            ExistingFile::ResumePoint(_) => {
                return Some(AttemptOutcome::Anew("the partial file does not match"));
            }
            ExistingFile::Whole(length) => *length,
        };
        if total != Some(length) {
            return Some(AttemptOutcome::Anew(
                "the existing file has a different length",
            ));
        }
        self.done.kept = length;
        self.say(format_args!(
            "{} is already complete (judged by its length of {length} bytes)",
            self.job.to
        ));
        Some(AttemptOutcome::Over)
    }

    /// The destination of a response's content, and its required length if it is a part.
    ///
    /// # Errors
    /// If the part was not requested; inside, why the existing data cannot be used.
    fn writer(
        &mut self,
        held: ExistingFile,
        response: &Response<Incoming>,
    ) -> Result<Result<(Writer, Option<u64>), &'static str>, Failure> {
        let (to, source) = (self.job.to.clone(), self.source(response));
        let partial = response.status() == StatusCode::PARTIAL_CONTENT;
        match held {
            ExistingFile::ResumePoint(beginning) if partial => {
                let Some(length) = continues(response, &beginning) else {
                    return Ok(Err("the partial file does not match"));
                };
                self.done.kept = beginning.offset();
                let writer = Writer::after(to, beginning, source);
                return Ok(Ok((writer, Some(length))));
            }
            ExistingFile::Whole(_) if partial => {
                return Ok(Err("the server's content is longer and may differ"));
            }
            ExistingFile::ResumePoint(beginning) if response.status() == StatusCode::OK => {
                self.say(format_args!("the content has changed: starting over"));
                let writer = Writer::new(to, source).instead_of(&beginning);
                return Ok(Ok((writer, None)));
            }
            ExistingFile::Nothing if partial => {
                let length = self.part_asked_for(response)?;
                return Ok(Ok((Writer::new(to, source), length)));
            }
            ExistingFile::Nothing | ExistingFile::ResumePoint(_) | ExistingFile::Whole(_) => {}
        }
        Ok(Ok((Writer::new(to, source), None)))
    }

    /// The required length of a 206 response to a `range` field on the command line, if the server
    /// gives it.
    ///
    /// # Errors
    /// If there is no such field, or the range is a different one: in a file it would look like the
    /// complete content.
    fn part_asked_for(&self, response: &Response<Incoming>) -> Result<Option<u64>, Failure> {
        let wrong = |why: &str| {
            let message = format!("{}: {}: {why}", self.job.url, response.status());
            Err(Failure::new(Kind::Content, message))
        };
        let mut asked = self.args.header.iter().filter(|(name, _)| name == RANGE);
        let Some((_, asked)) = asked.next() else {
            return wrong("the server sent partial content, but the whole was requested");
        };
        let asked = asked.to_str().unwrap_or_default();
        let Some(range) = ContentRange::of(response) else {
            let several = asked.contains(',');
            return match several && !response.headers().contains_key(CONTENT_RANGE) {
                // Each part names its own range (RFC 9110 §14.6).
                true => Ok(None),
                false => wrong("the server sent partial content without a valid content-range"),
            };
        };
        match (range.was_asked_for(asked), range.length()) {
            (Some(false), _) | (_, None) => {
                wrong("the server sent a different range than requested")
            }
            (Some(true) | None, length) => Ok(length),
        }
    }

    /// Writes the body to its destination, unless the response is `without` content.
    async fn receive(
        &mut self,
        mut body: Incoming,
        mut writer: Writer,
        length: Option<u64>,
        without: Option<&str>,
    ) -> Result<AttemptOutcome, TransferError> {
        let announced = body.size_hint().exact();
        let announced = announced.filter(|_| without.is_none());
        self.progress.expect(announced.unwrap_or(0));
        let mut received = 0;
        let broken = loop {
            let chunk = timed(&mut self.done.waits.content, body.chunk()).await;
            let piece = match chunk {
                Ok(Some(piece)) => piece,
                Ok(None) => break None,
                Err(error) => break Some(self.failure(&error)),
            };
            let more = piece.len() as u64;
            received += more;
            self.done.received += more;
            self.progress.advance(more);
            if length.is_some_and(|length| received > length) {
                let message = format!(
                    "{}: 206: body is longer than its content-range",
                    self.job.url
                );
                break Some(Failure::new(Kind::Content, message));
            }
            match writer.push(piece) {
                Ok(()) if writer.is_full() => {
                    timed(&mut self.done.waits.output, writer.flush()).await?;
                }
                Ok(()) => {}
                Err(Mismatch) => {
                    return Ok(AttemptOutcome::Anew("the partial file does not match"));
                }
            }
        };
        let broken = broken.or_else(|| {
            let short = |length| received < length;
            let why = match (announced.is_some_and(short), length.is_some_and(short)) {
                (true, _) => "the response ended early",
                (false, true) => "206: body is shorter than its content-range",
                (false, false) => return None,
            };
            let message = format!("{}: {why}", self.job.url);
            Some(Failure::new(Kind::Incomplete, message))
        });
        if let Some(broken) = broken {
            return Err(broken_off(broken, received, writer).await.into());
        }
        self.done.sender = body.trailers().and_then(SenderReport::from_trailers);
        if without.is_none() {
            timed(&mut self.done.waits.output, writer.finish()).await?;
        }
        Ok(AttemptOutcome::Over)
    }

    /// A description of the content, for resuming it later.
    fn source(&self, response: &Response<Incoming>) -> Source {
        let plain = self.args.data.is_none() && self.args.upload.is_none();
        let usable = plain && response.status() == StatusCode::OK;
        let etag = strong_tag(response).filter(|_| usable);
        Source {
            url: self.job.url.to_string(),
            etag: etag.map(str::to_owned),
        }
    }

    /// Prints the response headers to the destination of the body; with -I, nothing else follows.
    async fn print_head(&self, response: &Response<Incoming>) -> Result<(), TransferError> {
        let mut head = format!("HTTP/3 {}\r\n", response.status());
        for (name, value) in response.headers() {
            // Writing to a String cannot fail.
            let _ = write!(
                head,
                "{name}: {}\r\n",
                printable::short_bytes(value.as_bytes(), FIELD)
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
            move || to.write_new(Bytes::from(head))
        };
        let written = spawn_blocking(write).await.map_err(std::io::Error::other);
        written
            .and_then(|written| written)
            .map_err(|error| unwritable(&to, &error))
    }

    /// Prints a message about this URL.
    fn say(&self, text: std::fmt::Arguments<'_>) {
        self.progress.say(&format!("{}: {text}", self.job.url));
    }

    /// Says what to do about a certificate that is not trusted, to somebody who may not know.
    fn untrusted(&self, mut failure: Failure) -> Failure {
        if failure.kind == Kind::Certificate && !self.args.trust.names_certificates() {
            failure.message.push_str(TRUST);
        }
        failure
    }

    fn failure(&self, error: &clearway::http::Error) -> Failure {
        failure(&self.job.url, error)
    }
}

/// Completes the message of an interrupted transfer with what is kept of the content.
async fn broken_off(mut broken: Failure, received: u64, writer: Writer) -> Failure {
    broken.message.push_str(&format!(" after {received} bytes"));
    if let Some((path, length)) = writer.abandon().await {
        let kept = format!(
            "; {length} bytes are kept in {}, resume with -C",
            path.display()
        );
        broken.message.push_str(&kept);
    }
    broken
}

/// Adds the time that `work` takes to `total`.
async fn timed<T>(total: &mut Duration, work: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let done = work.await;
    *total += begun.elapsed();
    done
}
