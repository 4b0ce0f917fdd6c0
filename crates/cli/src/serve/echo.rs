//! WebTransport sessions that send back what they receive (`--webtransport`), for web pages to try
//! out streams, datagrams and error codes. They give nothing of the server away, so that pages of
//! all origins may use them.

use bytes::Bytes;
use clearway::http::webtransport::{
    RecvStream, SendStream, SessionError, SessionRequest, StreamError, WebTransportSession,
};
use http::StatusCode;

/// Sessions at once on a connection.
pub(super) const MAX_SESSIONS: u16 = 16;

/// Maximum length of a command, in bytes.
const MAX_COMMAND: usize = 1 << 10;

/// Bytes read at once.
const CHUNK: usize = 64 << 10;

/// Accepts a session and serves it to its end. Returns the status for the log.
pub(super) async fn serve(asked: SessionRequest) -> StatusCode {
    match asked.accept().await {
        Ok(session) => {
            let ended = run(&session).await;
            tracing::debug!(%ended, "a WebTransport session has ended");
            StatusCode::OK
        }
        Err(error) => {
            tracing::debug!(%error, "a WebTransport session was not accepted");
            StatusCode::BAD_REQUEST
        }
    }
}

async fn run(session: &WebTransportSession) -> SessionError {
    loop {
        let served = tokio::select! {
            stream = session.accept_bi() => stream.map(|(send, recv)| {
                let session = session.clone();
                tokio::spawn(async move { log(echo(session, send, recv).await) });
            }),
            stream = session.accept_uni() => stream.map(|recv| {
                let session = session.clone();
                tokio::spawn(async move { log(send_back(session, recv).await) });
            }),
            datagram = session.recv_datagram() => datagram.map(|datagram| {
                // Datagrams may be lost anyway, and one that came fits.
                let _ = session.send_datagram(&datagram);
            }),
            () = session.shutdown_begins() => {
                session.close(0, "the server is shutting down");
                Ok(())
            }
        };
        if let Err(ended) = served {
            return ended;
        }
    }
}

fn log(result: Result<(), StreamError>) {
    if let Err(error) = result {
        tracing::debug!(%error, "a stream of a WebTransport session was not served to its end");
    }
}

/// Sends a stream back on itself, or does what it says.
async fn echo(
    session: WebTransportSession,
    mut send: SendStream,
    mut recv: RecvStream,
) -> Result<(), StreamError> {
    let first = match recv.read_chunk(CHUNK).await {
        Ok(first) => first,
        Err(error) => return Err(pass_on(error, &mut send, &mut recv)),
    };
    match first.as_deref().and_then(Command::parse) {
        Some(Command::Close(code, reason)) => {
            session.close(code, &reason);
            return Ok(());
        }
        Some(Command::Reset(code)) => {
            send.reset(code);
            return Ok(());
        }
        Some(Command::Open) => {
            let Ok((send, recv)) = session.open_bi().await else {
                return Err(StreamError::SessionEnded);
            };
            return copy(Some(Bytes::new()), send, recv).await;
        }
        None => {}
    }
    copy(first, send, recv).await
}

/// Sends a unidirectional stream back on one of the server's.
async fn send_back(session: WebTransportSession, mut recv: RecvStream) -> Result<(), StreamError> {
    let Ok(mut send) = session.open_uni().await else {
        return Err(StreamError::SessionEnded);
    };
    match recv.read_chunk(CHUNK).await {
        Ok(first) => copy(first, send, recv).await,
        Err(error) => Err(pass_on(error, &mut send, &mut recv)),
    }
}

/// Sends what arrives, as fast as the client takes it.
async fn copy(
    mut next: Option<Bytes>,
    mut send: SendStream,
    mut recv: RecvStream,
) -> Result<(), StreamError> {
    while let Some(chunk) = next {
        let step = match send.write_chunk(chunk).await {
            Ok(()) => recv.read_chunk(CHUNK).await,
            Err(error) => Err(error),
        };
        next = match step {
            Ok(next) => next,
            Err(error) => return Err(pass_on(error, &mut send, &mut recv)),
        };
    }
    send.finish()?;
    send.finished().await
}

/// Ends the other half as the client has ended one, with the same code.
fn pass_on(error: StreamError, send: &mut SendStream, recv: &mut RecvStream) -> StreamError {
    match error {
        StreamError::Reset(code) => send.reset(code),
        StreamError::Stopped(code) => recv.stop(code),
        _ => {}
    }
    error
}

/// What a client asks for with the beginning of a stream.
#[derive(Debug, PartialEq, Eq)]
enum Command {
    /// `close CODE REASON`
    Close(u32, String),
    /// `reset CODE`
    Reset(u32),
    /// `open`: a bidirectional stream, on which the server sends back what comes.
    Open,
}

impl Command {
    fn parse(text: &[u8]) -> Option<Self> {
        let text = core::str::from_utf8(text.get(..text.len().min(MAX_COMMAND))?).ok()?;
        let Some((verb, rest)) = text.split_once(' ') else {
            return (text.trim_end() == "open").then_some(Self::Open);
        };
        let (code, reason) = rest.split_once(' ').unwrap_or((rest, ""));
        let code = code.trim_end().parse().ok()?;
        match verb {
            "close" => Some(Self::Close(code, reason.trim_end().to_owned())),
            "reset" => Some(Self::Reset(code)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_a_command_only_if_it_begins_with_one() {
        let close = Command::Close(42, "bye now".into());
        assert_eq!(Command::parse(b"close 42 bye now\n"), Some(close));
        let close = Command::Close(0, String::new());
        assert_eq!(Command::parse(b"close 0"), Some(close));
        assert_eq!(Command::parse(b"reset 7\n"), Some(Command::Reset(7)));
        assert_eq!(Command::parse(b"open"), Some(Command::Open));
        for other in [
            "", "close", "close x", "reset -1", "closed 1", "hello 1", "opened",
        ] {
            assert_eq!(Command::parse(other.as_bytes()), None, "{other}");
        }
    }
}
