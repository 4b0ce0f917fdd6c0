//! msquic as a client.

use std::{
    sync::mpsc::{self, Receiver, Sender},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result};
use contract::runner::{Environment, Target};
use msquic::{
    AllowedCipherSuiteFlags, Configuration, Connection, ConnectionEvent, ConnectionShutdownFlags,
    CredentialConfig, CredentialFlags, Registration, RegistrationConfig, SendFlags, Status, Stream,
    StreamEvent, StreamOpenFlags, StreamStartFlags,
};

use crate::{PATIENCE, alpn, ffi, settings};

/// How long to wait for a session ticket, and for a connection to close.
const TICKET_PATIENCE: Duration = Duration::from_secs(5);
const CLOSING_PATIENCE: Duration = Duration::from_secs(1);

/// How long the handshake may take to be confirmed, which a key update needs.
const CONFIRMATION: Duration = Duration::from_millis(100);

/// Downloads everything.
pub(crate) fn run(environment: &Environment) -> Result<()> {
    let mut targets = environment.targets()?;
    let client = Client::new(environment)?;
    match environment.test_case.as_str() {
        "multiconnect" | "handshakeloss" | "handshakecorruption" => {
            for target in targets {
                client
                    .connect(&target, None)?
                    .download(&[target], SendFlags::NONE)?;
            }
        }
        test @ ("resumption" | "zerortt") => {
            let others = targets.split_off(1);
            let first = targets.first().context("nothing to download")?.clone();
            let visit = client.connect(&first, None)?;
            visit.download_from(&visit.connection, &targets, SendFlags::NONE)?;
            let ticket = visit.tickets.recv_timeout(TICKET_PATIENCE);
            let ticket = ticket.context("the server sent no session ticket")?;
            visit.close();
            if test == "resumption" {
                let visit = client.connect(&first, Some(&ticket))?;
                visit.download(&others, SendFlags::NONE)?;
            } else {
                let visit = client.open(Some(&ticket))?;
                visit.ask(&visit.connection, &others, SendFlags::ALLOW_0_RTT)?;
                visit.start(&client, &first)?;
                visit.wait(others.len())?;
                visit.close();
            }
        }
        test => {
            let first = targets.first().context("nothing to download")?;
            let visit = client.connect(first, None)?;
            let count = targets.len();
            visit.ask(&visit.connection, &targets, SendFlags::NONE)?;
            if test == "keyupdate" {
                sleep(CONFIRMATION);
                ffi::update_keys(&visit.connection)?;
            }
            visit.wait(count)?;
            visit.close();
        }
    }
    Ok(())
}

/// The smallest MTU that msquic takes, in bytes of IP.
const SMALLEST_MTU: u16 = 1248;

struct Client {
    // The connections' configuration goes before the registration.
    configuration: Configuration,
    registration: Registration,
}

impl Client {
    fn new(environment: &Environment) -> Result<Self> {
        let registration = Registration::new(&RegistrationConfig::default())?;
        let mut settings = settings();
        if environment.test_case == "zerortt" {
            // The runner counts what is sent in 1-RTT packets: probes of the path's MTU would look like
            // requests that were not sent as early data.
            settings = settings
                .set_MinimumMtu(SMALLEST_MTU)
                .set_MaximumMtu(SMALLEST_MTU);
        }
        let configuration = Configuration::open(&registration, &alpn(), Some(&settings))?;
        // The runner makes certificates for each run, for names of its own.
        let mut credential = CredentialConfig::new_client()
            .set_credential_flags(CredentialFlags::NO_CERTIFICATE_VALIDATION);
        if environment.test_case == "chacha20" {
            let chacha20 = AllowedCipherSuiteFlags::CHACHA20_POLY1305_SHA256;
            credential = credential.set_allowed_cipher_suites(chacha20);
        }
        configuration.load_credential(&credential)?;
        Ok(Self {
            configuration,
            registration,
        })
    }

    /// Makes a connection without its handshake.
    fn open(&self, ticket: Option<&[u8]>) -> Result<Visit> {
        let (connected, established) = mpsc::channel();
        let (stored, tickets) = mpsc::channel();
        let (ended, end) = mpsc::channel();
        let connection = Connection::open(&self.registration, move |_, event| {
            // A receiver that is gone does not want to know.
            match event {
                ConnectionEvent::Connected { .. } => _ = connected.send(Ok(())),
                ConnectionEvent::ShutdownInitiatedByTransport { status, error_code } => {
                    let error = format!("the connection ended: {status}, error {error_code}");
                    _ = connected.send(Err(error));
                }
                ConnectionEvent::ShutdownInitiatedByPeer { error_code } => {
                    _ = connected.send(Err(format!("the peer closed with error {error_code}")));
                }
                ConnectionEvent::ResumptionTicketReceived { resumption_ticket } => {
                    _ = stored.send(resumption_ticket.to_vec());
                }
                ConnectionEvent::ShutdownComplete { .. } => _ = ended.send(()),
                _ => {}
            }
            Ok(())
        })?;
        if let Some(ticket) = ticket {
            ffi::resume(&connection, ticket)?;
        }
        let (finish, finished) = mpsc::channel();
        Ok(Visit {
            connection,
            established,
            tickets,
            end,
            finish,
            finished,
        })
    }

    /// Makes a connection.
    fn connect(&self, to: &Target, ticket: Option<&[u8]>) -> Result<Visit> {
        let visit = self.open(ticket)?;
        visit.start(self, to)?;
        Ok(visit)
    }
}

/// One connection.
struct Visit {
    connection: Connection,
    established: Receiver<Result<(), String>>,
    tickets: Receiver<Vec<u8>>,
    end: Receiver<()>,
    /// How downloads end.
    finish: Sender<Result<()>>,
    finished: Receiver<Result<()>>,
}

impl Visit {
    /// Waits for the handshake.
    fn start(&self, client: &Client, to: &Target) -> Result<()> {
        self.connection
            .start(&client.configuration, &to.host, to.port)?;
        let patience = Duration::from_millis(PATIENCE);
        let established = self.established.recv_timeout(patience);
        established
            .context("the handshake timed out")?
            .map_err(anyhow::Error::msg)
    }

    /// Downloads everything at once, and closes the connection.
    fn download(self, targets: &[Target], flags: SendFlags) -> Result<()> {
        self.download_from(&self.connection, targets, flags)?;
        self.close();
        Ok(())
    }

    fn download_from(
        &self,
        connection: &Connection,
        targets: &[Target],
        flags: SendFlags,
    ) -> Result<()> {
        self.ask(connection, targets, flags)?;
        self.wait(targets.len())
    }

    /// Sends all requests.
    fn ask(&self, connection: &Connection, targets: &[Target], flags: SendFlags) -> Result<()> {
        for target in targets {
            ask(connection, target.clone(), flags, self.finish.clone())?;
        }
        Ok(())
    }

    /// Waits until this many downloads have ended.
    fn wait(&self, downloads: usize) -> Result<()> {
        for _ in 0..downloads {
            self.finished.recv()??;
        }
        Ok(())
    }

    fn close(self) {
        self.connection.shutdown(ConnectionShutdownFlags::NONE, 0);
        // It is closed one way or the other.
        let _ = self.end.recv_timeout(CLOSING_PATIENCE);
    }
}

/// Requests a file on a new stream, and stores it when it has arrived.
fn ask(
    connection: &Connection,
    target: Target,
    flags: SendFlags,
    finish: Sender<Result<()>>,
) -> Result<(), Status> {
    let request = format!("GET {}\r\n", target.path).into_bytes();
    let mut content = Vec::new();
    let mut complete = false;
    let stream = Stream::open(connection, StreamOpenFlags::NONE, move |stream, event| {
        match event {
            StreamEvent::Receive { buffers, .. } => {
                for buffer in buffers {
                    content.extend_from_slice(buffer.as_bytes());
                }
            }
            StreamEvent::PeerSendShutdown => {
                complete = true;
                let _ = finish.send(target.store(&content));
            }
            StreamEvent::SendComplete { client_context, .. } => ffi::sent(client_context),
            StreamEvent::ShutdownComplete { .. } => {
                if !complete {
                    let ended = format!("{} ended before it was complete", target.path);
                    let _ = finish.send(Err(anyhow::Error::msg(ended)));
                }
                ffi::close_stream(&stream);
            }
            _ => {}
        }
        Ok(())
    })?;
    // It waits if the server allows no more streams for now.
    stream.start(StreamStartFlags::NONE)?;
    ffi::send(&stream, request, flags)?;
    ffi::detach(stream);
    Ok(())
}
