//! One URL.

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
use super::answer::{ContentRange, continues, elsewhere, strong_tag, total, without_content};
use super::cause::{Reach, Stop, failure, unwritable};
use super::destination::Destination;
use super::held::Held;
use super::job::Job;
use super::part::Source;
use super::progress::Progress;
use super::request::{method, request};
use super::tally::Waits;
use super::upload::Reading;
use super::writer::{Mismatch, Writer};
use crate::failure::{Failure, Kind};
use crate::printable;
use crate::serve::SenderReport;

/// How much of a header field is printed, in characters: more than servers usually
/// take themselves.
const FIELD: usize = 16 << 10;

/// A transfer under way.
pub(super) struct Transfer<'a> {
    pub(super) args: &'a Args,
    pub(super) client: &'a Client,
    pub(super) progress: &'a Progress,
    pub(super) job: &'a Job,
    pub(super) reading: Reading,
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

/// How asking once ends, if it does not fail.
enum Outcome {
    Over,
    /// What is there is of no use, and why: all of it is needed.
    Anew(&'static str),
}

impl Transfer<'_> {
    /// Does it, going on with what is there if that was asked for.
    ///
    /// # Errors
    /// In one line what went wrong, and what else fails for it.
    pub(super) async fn run(&mut self) -> Result<(), Stop> {
        let outcome = self.fetch().await;
        // Whatever a server says of half a file.
        match self.reading.broken() {
            Some(failure) => Err(failure.clone().into()),
            None => outcome,
        }
    }

    async fn fetch(&mut self) -> Result<(), Stop> {
        self.connect()
            .await
            .map_err(|failure| failure.reaching(Reach::Origin))?;
        let held = self.held().await?;
        match self.attempt(held).await? {
            Outcome::Over => Ok(()),
            Outcome::Anew(why) => {
                self.done.kept = 0;
                self.say(format_args!("{why}: from the beginning"));
                self.attempt(Held::Nothing).await.map(drop)
            }
        }
    }

    async fn connect(&mut self) -> Result<(), Failure> {
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
        Ok(())
    }

    /// What is there to go on with, if that was asked for.
    async fn held(&self) -> Result<Held, Failure> {
        let plain = method(self.args) == Method::GET;
        let (true, true, Some(path)) = (plain, self.args.resume, self.job.to.file()) else {
            return Ok(Held::Nothing);
        };
        let (path, url) = (path.to_owned(), self.job.url.to_string());
        let find = spawn_blocking(move || Held::find(&path, &url));
        let found = find.await.map_err(std::io::Error::other);
        found.and_then(|found| found).map_err(|error| {
            let what = format!("cannot go on with {}", self.job.to);
            Failure::caused(Kind::Output, what, &error)
        })
    }

    /// Asks for all of it, or for what is missing after what is held.
    async fn attempt(&mut self, held: Held) -> Result<Outcome, Stop> {
        let request = request(self.args, &self.job.url, &held, &self.reading)
            .map_err(|failure| failure.reaching(Reach::Everything))?;
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
        if !self.args.no_fail && (status.is_client_error() || status.is_server_error()) {
            let message = format!("{}: {status}", self.job.url);
            return Err(Failure::new(Kind::Status, message).into());
        }
        let (writer, length) = match self.writer(held, &response)? {
            Ok(writer) => writer,
            Err(why) => return Ok(Outcome::Anew(why)),
        };
        if self.args.head || self.args.include {
            self.print_head(&response).await?;
        } else if let Some(place) = elsewhere(&response) {
            self.say(format_args!("{place}"));
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

    /// What it means that the server has nothing after what is held, of `total`
    /// bytes.
    fn out_of_range(&mut self, held: &Held, total: Option<u64>) -> Option<Outcome> {
        let length = match held {
            Held::Nothing => return None,
            Held::Beginning(_) => return Some(Outcome::Anew("not what is there")),
            Held::Whole(length) => *length,
        };
        if total != Some(length) {
            return Some(Outcome::Anew("what is there is of another length"));
        }
        self.done.kept = length;
        self.say(format_args!(
            "{} is already complete, going by its length, {length} bytes, alone",
            self.job.to
        ));
        Some(Outcome::Over)
    }

    /// Where the content of a response goes, and how long it has to be if it is a
    /// part of something.
    ///
    /// # Errors
    /// If it is a part that nobody asked for; inside, why what is there is of no use.
    fn writer(
        &mut self,
        held: Held,
        response: &Response<Incoming>,
    ) -> Result<Result<(Writer, Option<u64>), &'static str>, Failure> {
        let (to, source) = (self.job.to.clone(), self.source(response));
        let partial = response.status() == StatusCode::PARTIAL_CONTENT;
        match held {
            Held::Beginning(beginning) if partial => {
                let Some(length) = continues(response, &beginning) else {
                    return Ok(Err("not what is there"));
                };
                self.done.kept = beginning.offset();
                let writer = Writer::after(to, beginning, source);
                return Ok(Ok((writer, Some(length))));
            }
            Held::Whole(_) if partial => {
                return Ok(Err("there is more than is here, perhaps of something else"));
            }
            Held::Beginning(beginning) if response.status() == StatusCode::OK => {
                self.say(format_args!("it has changed: from the beginning"));
                let writer = Writer::new(to, source).instead_of(&beginning);
                return Ok(Ok((writer, None)));
            }
            Held::Nothing if partial => {
                let length = self.part_asked_for(response)?;
                return Ok(Ok((Writer::new(to, source), length)));
            }
            Held::Nothing | Held::Beginning(_) | Held::Whole(_) => {}
        }
        Ok(Ok((Writer::new(to, source), None)))
    }

    /// How long the content of a 206 has to be that a `range` field of the command
    /// line asked for, if it says.
    ///
    /// # Errors
    /// If there is no such field, or the part is another one: written to a file it
    /// would look like all there is.
    fn part_asked_for(&self, response: &Response<Incoming>) -> Result<Option<u64>, Failure> {
        let wrong = |why: &str| {
            let message = format!("{}: {}: {why}", self.job.url, response.status());
            Err(Failure::new(Kind::Content, message))
        };
        let mut asked = self.args.header.iter().filter(|(name, _)| name == RANGE);
        let Some((_, asked)) = asked.next() else {
            return wrong("the server sends a part, but all of it was asked for");
        };
        let asked = asked.to_str().unwrap_or_default();
        let Some(range) = ContentRange::of(response) else {
            let several = asked.contains(',');
            return match several && !response.headers().contains_key(CONTENT_RANGE) {
                // Its parts say what they are (RFC 9110 §14.6).
                true => Ok(None),
                false => wrong("the server does not say which part it sends (content-range)"),
            };
        };
        match (range.was_asked_for(asked), range.length()) {
            (Some(false), _) | (_, None) => wrong("the server sends another part than asked for"),
            (Some(true) | None, length) => Ok(length),
        }
    }

    /// Writes the body to its destination, unless it is `without` content.
    async fn receive(
        &mut self,
        mut body: Incoming,
        mut writer: Writer,
        length: Option<u64>,
        without: Option<&str>,
    ) -> Result<Outcome, Stop> {
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
                let message = format!("{}: 206: more than the part it is", self.job.url);
                break Some(Failure::new(Kind::Content, message));
            }
            match writer.push(piece) {
                Ok(()) if writer.is_full() => {
                    timed(&mut self.done.waits.output, writer.flush()).await?;
                }
                Ok(()) => {}
                Err(Mismatch) => return Ok(Outcome::Anew("not what is there")),
            }
        };
        let broken = broken.or_else(|| {
            let short = |length| received < length;
            let why = match (announced.is_some_and(short), length.is_some_and(short)) {
                (true, _) => "ended early",
                (false, true) => "206: less than the part it is",
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
        Ok(Outcome::Over)
    }

    /// What a beginning of this response would be of.
    fn source(&self, response: &Response<Incoming>) -> Source {
        let plain = self.args.data.is_none() && self.args.upload.is_none();
        let usable = plain && response.status() == StatusCode::OK;
        let etag = strong_tag(response).filter(|_| usable);
        Source {
            url: self.job.url.to_string(),
            etag: etag.map(str::to_owned),
        }
    }

    /// The header section, where the body goes; for -I alone, that is all.
    async fn print_head(&self, response: &Response<Incoming>) -> Result<(), Stop> {
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

    /// Says something about this URL.
    fn say(&self, text: std::fmt::Arguments<'_>) {
        self.progress.say(&format!("{}: {text}", self.job.url));
    }

    fn failure(&self, error: &clearway::http::Error) -> Failure {
        failure(&self.job.url, error)
    }
}

/// A failure half way, with what is left of the content.
async fn broken_off(mut broken: Failure, received: u64, writer: Writer) -> Failure {
    broken.message.push_str(&format!(" after {received} bytes"));
    if let Some((path, length)) = writer.abandon().await {
        let kept = format!("; {length} are in {}, -C goes on", path.display());
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
