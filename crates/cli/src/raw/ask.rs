//! The client's side of a raw request.

use clearway::{Connection, RecvStream, SendStream};

use super::pattern;
use super::request::Request;
use crate::failure::{Failure, Kind};

/// Maximum number of bytes read from a stream at once.
const MOST: usize = 1 << 20;

/// The error code for a response that is no longer needed.
const ENOUGH: u64 = 0;

/// A response that is being received.
#[derive(Debug)]
pub(crate) struct Answer {
    recv: RecvStream,
    received: u64,
    wanted: u64,
}

/// Opens a stream and sends a request, followed by `upload` bytes.
///
/// # Errors
/// If the connection ends first.
pub(crate) async fn ask(
    connection: &Connection,
    request: Request,
    upload: u64,
) -> Result<Answer, Failure> {
    let (mut send, recv) = connection
        .open_bi()
        .await
        .map_err(|error| Failure::caused(Kind::Connection, "cannot open a stream", &error))?;
    write(&mut send, request, upload)
        .await
        .map_err(|error| Failure::caused(Kind::Connection, "cannot send the request", &error))?;
    Ok(Answer {
        recv,
        received: 0,
        wanted: request.bytes,
    })
}

async fn write(
    send: &mut SendStream,
    request: Request,
    upload: u64,
) -> Result<(), clearway::WriteError> {
    send.write_all(&request.encode()).await?;
    let mut offset = 0;
    while offset < upload {
        let chunk = pattern::chunk(offset, upload - offset);
        offset += chunk.len() as u64;
        send.write_chunk(chunk).await?;
    }
    send.finish()
}

impl Answer {
    /// Receives and checks the next chunk: returns its length, or `None` at the end, which must
    /// come after exactly the requested number of bytes.
    ///
    /// # Errors
    /// If the content is wrong, too short or too long, or the connection ends.
    pub(crate) async fn next(&mut self) -> Result<Option<u64>, Failure> {
        let chunk = self.recv.read_chunk(MOST).await.map_err(|error| {
            let what = format!(
                "connection lost after {} of {} bytes",
                self.received, self.wanted
            );
            Failure::caused(Kind::Connection, what, &error)
        })?;
        let Some(chunk) = chunk else {
            return match self.received == self.wanted {
                true => Ok(None),
                false => Err(self.wrong_length("only")),
            };
        };
        pattern::check(self.received, &chunk).map_err(|offset| {
            Failure::new(
                Kind::Content,
                format!("wrong content: byte {offset} differs from what was sent"),
            )
        })?;
        self.received += chunk.len() as u64;
        if self.received > self.wanted {
            return Err(self.wrong_length("more than"));
        }
        Ok(Some(chunk.len() as u64))
    }

    fn wrong_length(&self, how: &str) -> Failure {
        let got = self.received.min(self.wanted);
        Failure::new(
            Kind::Content,
            format!(
                "wrong length: the response has {how} {got} bytes, expected {}",
                self.wanted
            ),
        )
    }

    /// Abandons the rest.
    pub(crate) fn stop(mut self) {
        self.recv.stop(ENOUGH);
    }
}
