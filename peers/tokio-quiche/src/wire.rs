//! quiche's HTTP/3 over tokio-quiche's input and output, without tokio-quiche's own HTTP/3
//! driver: that one drops trailers, and as a client sends no early data.

use std::future::Future;

use bytes::{BufMut, Bytes, BytesMut};
use tokio_quiche::{
    ApplicationOverQuic, QuicResult,
    metrics::Metrics,
    quic::{HandshakeInfo, QuicheConnection},
    quiche::h3::{self, Event, Header},
};

/// Bytes read at a time, as tokio-quiche's own driver reads them.
const READ: usize = 16 * 1024;

/// One connection, for as long as a role acts on it.
pub(crate) struct Wire<'a> {
    pub(crate) quic: &'a mut QuicheConnection,
    pub(crate) http: &'a mut h3::Connection,
}

impl Wire<'_> {
    /// The next bytes of a body; nothing if there are none now.
    pub(crate) fn read(&mut self, stream: u64) -> Option<Bytes> {
        let mut buffer = BytesMut::with_capacity(READ).limit(READ);
        match self.http.recv_body_buf(self.quic, stream, &mut buffer) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(buffer.into_inner().freeze()),
        }
    }
}

/// A server's or a client's part in a connection.
pub(crate) trait Role: Send + 'static {
    /// Looks at the connection after something has happened.
    fn look(&mut self, quic: &mut QuicheConnection);

    /// Headers or trailers have come.
    fn headers(&mut self, wire: &mut Wire<'_>, stream: u64, list: &[Header]);

    /// There are bytes to [read](Wire::read).
    fn data(&mut self, wire: &mut Wire<'_>, stream: u64);

    /// A stream's other direction has ended, well or not.
    fn end(&mut self, wire: &mut Wire<'_>, stream: u64, well: bool);

    /// Sends what can be sent; whether it has also read a body, so that more may follow.
    fn send(&mut self, wire: &mut Wire<'_>) -> bool;

    /// Waits for something to do that does not come from the network. Cancel safe.
    fn wait(&mut self) -> impl Future<Output = ()> + Send;

    /// The connection is over.
    fn closed(&mut self, quic: &QuicheConnection, cause: String);
}

/// What tokio-quiche drives.
pub(crate) struct Driver<R> {
    role: R,
    http: Option<h3::Connection>,
}

impl<R: Role> Driver<R> {
    pub(crate) fn new(role: R) -> Self {
        Self { role, http: None }
    }

    /// Takes all that has come.
    fn receive(&mut self, quic: &mut QuicheConnection) -> QuicResult<()> {
        let Some(http) = &mut self.http else {
            return Ok(());
        };
        let mut wire = Wire { quic, http };
        loop {
            match wire.http.poll(wire.quic) {
                Ok((stream, Event::Headers { list, .. })) => {
                    self.role.headers(&mut wire, stream, &list);
                }
                Ok((stream, Event::Data)) => self.role.data(&mut wire, stream),
                Ok((stream, Event::Finished)) => self.role.end(&mut wire, stream, true),
                Ok((stream, Event::Reset(_))) => self.role.end(&mut wire, stream, false),
                Ok((_, Event::PriorityUpdate | Event::GoAway)) => {}
                Err(h3::Error::Done) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends all that can be sent.
    fn send(&mut self, quic: &mut QuicheConnection) -> QuicResult<()> {
        while let Some(http) = &mut self.http {
            if !self.role.send(&mut Wire { quic, http }) {
                break;
            }
            self.receive(quic)?;
        }
        self.role.look(quic);
        Ok(())
    }
}

impl<R: Role> ApplicationOverQuic for Driver<R> {
    fn on_conn_established(
        &mut self,
        quic: &mut QuicheConnection,
        _: &HandshakeInfo,
    ) -> QuicResult<()> {
        let config = h3::Config::new()?;
        self.http = Some(h3::Connection::with_transport(quic, &config)?);
        self.role.look(quic);
        Ok(())
    }

    fn should_act(&self) -> bool {
        self.http.is_some()
    }

    async fn wait_for_data(&mut self, quic: &mut QuicheConnection) -> QuicResult<()> {
        self.role.wait().await;
        // Not `process_writes` alone does this: it is not called for early data.
        self.send(quic)
    }

    fn process_reads(&mut self, quic: &mut QuicheConnection) -> QuicResult<()> {
        self.receive(quic)?;
        self.send(quic)
    }

    fn process_writes(&mut self, quic: &mut QuicheConnection) -> QuicResult<()> {
        self.send(quic)
    }

    fn on_conn_close<M: Metrics>(
        &mut self,
        quic: &mut QuicheConnection,
        _: &M,
        outcome: &QuicResult<()>,
    ) {
        self.role.look(quic);
        let cause = cause(quic, outcome);
        self.role.closed(quic, cause);
    }
}

/// Why a connection is over, for a person.
fn cause(quic: &QuicheConnection, outcome: &QuicResult<()>) -> String {
    for (who, error) in [("peer", quic.peer_error()), ("local", quic.local_error())] {
        if let Some(error) = error {
            let layer = if error.is_app {
                "application"
            } else {
                "transport"
            };
            let reason = String::from_utf8_lossy(&error.reason);
            return format!("{who}: {layer} error {:#x} {reason}", error.error_code);
        }
    }
    match outcome {
        _ if quic.is_timed_out() => "idle for too long".to_owned(),
        Ok(()) => "closed".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// The value of a header; nothing without one.
pub(crate) fn value<'a>(list: &'a [Header], name: &[u8]) -> &'a [u8] {
    use h3::NameValue;
    let found = list.iter().find(|header| header.name() == name);
    found.map_or(&[], NameValue::value)
}
