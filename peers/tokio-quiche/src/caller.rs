//! A client's part in one connection: requests come in by a channel, answers go out by one each.

use std::{
    collections::{BTreeMap, VecDeque},
    future::pending,
    str,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use contract::{Ask, pattern};
use tokio::sync::{
    mpsc::{UnboundedReceiver, UnboundedSender},
    watch,
};
use tokio_quiche::{
    quic::QuicheConnection,
    quiche::{
        self, Shutdown,
        h3::{self, Header, NameValue, WireErrorCode},
    },
};

use crate::{
    outflow::Outflow,
    wire::{Role, Wire, value},
};

/// BoringSSL's `ssl_early_data_accepted`.
const ACCEPTED: u32 = 2;

/// How far a connection is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Phase {
    /// Nothing can be sent yet.
    Connecting,
    /// Early data can be sent.
    Early,
    /// The handshake is complete.
    Established {
        /// Whether it resumed a session.
        resumed: bool,
        /// Whether the server took early data.
        accepted: bool,
    },
}

/// What a client wants of a connection.
pub(crate) enum Command {
    /// One request; its answer's parts go where `parts` says.
    Ask {
        ask: Ask,
        parts: UnboundedSender<Part>,
    },
    /// The end.
    Close { well: bool },
}

/// A piece of an answer.
pub(crate) enum Part {
    Status(u16),
    Body(Bytes),
    /// The trailer `x-sum`.
    Sum(Vec<u8>),
    End,
}

/// What a connection tells its client.
pub(crate) struct Shared {
    pub(crate) phase: watch::Sender<Phase>,
    pub(crate) session: watch::Sender<Option<Vec<u8>>>,
    /// Why the connection is over.
    pub(crate) cause: Arc<OnceLock<String>>,
    pub(crate) authority: String,
}

/// One request under way.
struct Call {
    parts: UnboundedSender<Part>,
    /// The upload, until all of it is sent.
    upload: Option<Outflow>,
    answered: bool,
}

/// A client's part in one connection.
pub(crate) struct Caller {
    commands: UnboundedReceiver<Command>,
    shared: Shared,
    waiting: VecDeque<(Ask, UnboundedSender<Part>)>,
    calls: BTreeMap<u64, Call>,
    /// How the connection is to be closed.
    close: Option<bool>,
}

impl Caller {
    pub(crate) fn new(commands: UnboundedReceiver<Command>, shared: Shared) -> Self {
        Self {
            commands,
            shared,
            waiting: VecDeque::new(),
            calls: BTreeMap::new(),
            close: None,
        }
    }

    fn note(&mut self, command: Command) {
        match command {
            Command::Ask { ask, parts } => self.waiting.push_back((ask, parts)),
            Command::Close { well } => self.close = Some(well),
        }
    }

    /// Begins requests, as many as the server lets.
    fn call(&mut self, wire: &mut Wire<'_>) {
        while let Some((ask, _)) = self.waiting.front() {
            let (method, path): (&[u8], _) = match ask.upload {
                0 => (b"GET", ask.path()),
                _ => (b"POST", ask.path()),
            };
            let request = [
                Header::new(b":method", method),
                Header::new(b":scheme", b"https"),
                Header::new(b":authority", self.shared.authority.as_bytes()),
                Header::new(b":path", path.as_bytes()),
            ];
            let fin = ask.upload == 0;
            match wire.http.send_request(wire.quic, &request, fin) {
                Ok(stream) => {
                    let Some((ask, parts)) = self.waiting.pop_front() else {
                        return;
                    };
                    let sum = (!fin).then(|| pattern::sum(ask.upload));
                    let upload = (!fin).then(|| Outflow::pattern(ask.upload, sum));
                    let call = Call {
                        parts,
                        upload,
                        answered: false,
                    };
                    self.calls.insert(stream, call);
                }
                Err(
                    h3::Error::StreamBlocked
                    | h3::Error::TransportError(quiche::Error::StreamLimit),
                ) => return,
                // Dropping the sender tells the request.
                Err(_) => drop(self.waiting.pop_front()),
            }
        }
    }
}

impl Role for Caller {
    fn look(&mut self, quic: &mut QuicheConnection) {
        if let Some(session) = quic.session() {
            self.shared.session.send_if_modified(|known| {
                let new = known.as_deref() != Some(session);
                if new {
                    *known = Some(session.to_vec());
                }
                new
            });
        }
        let phase = match (quic.is_established(), quic.is_in_early_data()) {
            (true, _) => Phase::Established {
                resumed: quic.is_resumed(),
                accepted: quic.early_data_reason() == ACCEPTED,
            },
            (false, true) => Phase::Early,
            (false, false) => return,
        };
        self.shared.phase.send_if_modified(|known| {
            let new = match known {
                Phase::Connecting => true,
                Phase::Early => matches!(phase, Phase::Established { .. }),
                Phase::Established { .. } => false,
            };
            if new {
                *known = phase;
            }
            new
        });
    }

    fn headers(&mut self, _: &mut Wire<'_>, stream: u64, list: &[Header]) {
        let Some(call) = self.calls.get_mut(&stream) else {
            return;
        };
        // A request that nobody waits for any more is ended by `send`.
        if call.answered {
            if let Some(sum) = list.iter().find(|header| header.name() == b"x-sum") {
                let _ = call.parts.send(Part::Sum(sum.value().to_vec()));
            }
        } else {
            let status = str::from_utf8(value(list, b":status")).ok();
            let status = status.and_then(|status| status.parse().ok());
            let status = status.unwrap_or_default();
            call.answered = !(100..200).contains(&status);
            if call.answered {
                let _ = call.parts.send(Part::Status(status));
            }
        }
    }

    fn data(&mut self, wire: &mut Wire<'_>, stream: u64) {
        while let Some(bytes) = wire.read(stream) {
            if let Some(call) = self.calls.get(&stream) {
                let _ = call.parts.send(Part::Body(bytes));
            }
        }
    }

    fn end(&mut self, _: &mut Wire<'_>, stream: u64, well: bool) {
        if let Some(call) = self.calls.remove(&stream)
            && well
            && call.upload.is_none()
        {
            let _ = call.parts.send(Part::End);
        }
    }

    fn send(&mut self, wire: &mut Wire<'_>) -> bool {
        while let Ok(command) = self.commands.try_recv() {
            self.note(command);
        }
        self.call(wire);
        self.calls.retain(|stream, call| {
            if call.parts.is_closed() {
                let code = WireErrorCode::RequestCancelled as u64;
                for direction in [Shutdown::Read, Shutdown::Write] {
                    // It fails for a direction that is over already.
                    let _ = wire.quic.stream_shutdown(*stream, direction, code);
                }
                return false;
            }
            let Some(upload) = &mut call.upload else {
                return true;
            };
            match upload.send(wire, *stream) {
                Ok(()) => call.upload = None,
                Err(h3::Error::Done | h3::Error::StreamBlocked) => {}
                // Dropping the sender tells the request.
                Err(_) => return false,
            }
            true
        });
        if let Some(well) = self.close.take() {
            let code = match well {
                true => WireErrorCode::NoError,
                false => WireErrorCode::RequestCancelled,
            };
            // It fails for a connection that is closed already.
            let _ = wire.quic.close(true, code as u64, b"");
        }
        false
    }

    async fn wait(&mut self) {
        match self.commands.recv().await {
            Some(command) => self.note(command),
            None => pending().await,
        }
    }

    fn closed(&mut self, _: &QuicheConnection, cause: String) {
        self.shared.cause.get_or_init(|| cause);
    }
}
