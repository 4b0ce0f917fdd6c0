//! Server-sent events: a text that is sent again whenever it has changed.

use core::time::Duration;
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::message::Response;

/// Maximum number of streams at a time, so that other requests are still answered.
const MAX_STREAMS: usize = 16;
/// How often the text is looked at.
const PERIOD: Duration = Duration::from_millis(500);
/// How long a stream says nothing: proxies end silent ones, and a client that has gone away is
/// only noticed by writing.
const SILENCE: Duration = Duration::from_secs(10);

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
    cache-control: no-store\r\nconnection: close\r\nx-content-type-options: nosniff\r\n\r\n";

/// The streams of a server.
#[derive(Debug, Default)]
pub(crate) struct EventStreams(AtomicUsize);

impl EventStreams {
    /// Sends `text`, which has to be one line, now and whenever it has changed, until the client
    /// has gone away.
    pub(crate) fn run(
        &self,
        output: &TcpStream,
        text: impl FnMut() -> io::Result<String>,
    ) -> Option<Response> {
        if self.0.fetch_add(1, Ordering::Relaxed) >= MAX_STREAMS {
            self.0.fetch_sub(1, Ordering::Relaxed);
            let text = "too many streams of events\n";
            return Some(Response::text("503 Service Unavailable", text));
        }
        // It ends with an error: that of the client, or of the text.
        let _ = send(output, text);
        self.0.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

fn send(mut output: &TcpStream, mut text: impl FnMut() -> io::Result<String>) -> io::Result<()> {
    output.write_all(HEAD.as_bytes())?;
    let mut sent = String::new();
    let mut last = Instant::now();
    loop {
        let now = text()?;
        if now != sent {
            output.write_all(format!("data: {now}\n\n").as_bytes())?;
            (sent, last) = (now, Instant::now());
        } else if last.elapsed() >= SILENCE {
            output.write_all(b": nothing new\n\n")?;
            last = Instant::now();
        }
        std::thread::sleep(PERIOD);
    }
}
