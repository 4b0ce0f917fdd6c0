//! tokio-quiche as a client: its worker on quiche's connections.
//!
//! `tokio_quiche::quic::connect_with_config` trusts no authority of the caller's and waits for
//! the handshake; [`wrap_quiche_conn`] is its way for whoever needs more.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use boring::rand::rand_bytes;
use contract::{
    Ask, H3, Session, Stack, Start, Unsupported, answer::Answer, options::Get, report::Facts,
};
use tokio::{
    net::UdpSocket,
    sync::{
        mpsc::{self, UnboundedSender},
        watch,
    },
    task::JoinSet,
    time::timeout,
};
use tokio_quiche::{
    metrics::DefaultMetrics,
    quic::{
        Incoming, QuicheConnection,
        raw::{ConnWrapperResult, wrap_quiche_conn},
    },
    quiche::{self, ConnectionId},
    socket::Socket,
};

use crate::{
    caller::{Caller, Command, Part, Phase, Shared},
    settings::{settings, socket},
    wire::Driver,
};

/// How long to wait for a session ticket.
const TICKET_PATIENCE: Duration = Duration::from_secs(5);

/// Length of a connection ID in bytes.
const ID: usize = 16;

/// Largest datagram that may come.
const LARGEST: usize = 65_536;

/// First byte of a Retry packet of version 1, but for its unused bits (RFC 9000 §17.2.5).
const RETRY: u8 = 0xf0;

/// A client of one server.
pub(crate) struct Client {
    options: Get,
    config: Mutex<quiche::Config>,
    /// The newest session that can be resumed, and word that there is one.
    session: watch::Sender<Option<Vec<u8>>>,
    /// One task per connection, which ends after it.
    pumps: Mutex<JoinSet<()>>,
}

impl Client {
    fn config(options: &Get) -> Result<quiche::Config> {
        let settings = settings(options.tuning);
        let ca = options
            .ca
            .to_str()
            .context("the authority's path is not UTF-8")?;
        let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION)?;
        config.load_verify_locations_from_file(ca)?;
        config.verify_peer(true);
        config.set_application_protos(&[H3])?;
        config.set_max_send_udp_payload_size(settings.max_send_udp_payload_size);
        config.set_max_recv_udp_payload_size(settings.max_recv_udp_payload_size);
        config.set_initial_max_data(settings.initial_max_data);
        config.set_initial_max_stream_data_bidi_local(settings.initial_max_stream_data_bidi_local);
        config
            .set_initial_max_stream_data_bidi_remote(settings.initial_max_stream_data_bidi_remote);
        config.set_initial_max_stream_data_uni(settings.initial_max_stream_data_uni);
        config.set_initial_max_streams_bidi(settings.initial_max_streams_bidi);
        config.set_initial_max_streams_uni(settings.initial_max_streams_uni);
        config.set_max_connection_window(settings.max_connection_window);
        config.set_max_stream_window(settings.max_stream_window);
        config.set_disable_active_migration(settings.disable_active_migration);
        config.set_cc_algorithm_name(&settings.cc_algorithm)?;
        config.enable_pacing(settings.enable_pacing);
        if let Some(idle) = settings.max_idle_timeout {
            config.set_max_idle_timeout(u64::try_from(idle.as_millis())?);
        }
        if options.zero_rtt {
            config.enable_early_data();
        }
        Ok(config)
    }

    /// A connection of quiche's, with the newest session if there is one.
    fn begin(&self, local: SocketAddr) -> Result<QuicheConnection> {
        let mut id = [0; ID];
        rand_bytes(&mut id)?;
        let mut connection = quiche::connect_with_buffer_factory(
            Some(&self.options.server_name),
            &ConnectionId::from_ref(&id),
            local,
            self.options.server,
            &mut *lock(&self.config),
        )?;
        if let Some(session) = self
            .session
            .borrow()
            .as_deref()
            .filter(|_| self.options.remembers())
        {
            connection.set_session(session)?;
        }
        Ok(connection)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stack for Client {
    const PEER: &'static str = "tokio-quiche";
    type Session = Visit;

    fn new(options: &Get) -> Result<Self> {
        if options.raw {
            return Err(Unsupported("this program speaks HTTP/3 alone").into());
        }
        Ok(Self {
            config: Mutex::new(Self::config(options)?),
            options: options.clone(),
            session: watch::Sender::default(),
            pumps: Mutex::default(),
        })
    }

    async fn connect(&self, start: Start) -> Result<Visit> {
        let any = match self.options.server.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let socket = socket(SocketAddr::new(any, 0), self.options.tuning)?;
        socket.connect(self.options.server).await?;
        let socket = Socket::<Arc<UdpSocket>, Arc<UdpSocket>>::from_udp(socket)?;
        let receive = Arc::clone(&socket.recv);
        let (local, peer) = (socket.local_addr, socket.peer_addr);
        let wrapped = wrap_quiche_conn(self.begin(local)?, socket, DefaultMetrics);
        let ConnWrapperResult {
            conn,
            incoming_tx,
            mut worker_shutdown_rx,
            ..
        } = wrapped;
        let retried = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&retried);
        lock(&self.pumps).spawn(async move {
            tokio::select! {
                _ = worker_shutdown_rx.recv() => {}
                () = pump(&receive, local, peer, &incoming_tx, &seen) => {}
            }
        });
        let (phase, mut phases) = watch::channel(Phase::Connecting);
        let (commands, queue) = mpsc::unbounded_channel();
        let cause = Arc::new(OnceLock::new());
        let shared = Shared {
            phase,
            session: self.session.clone(),
            cause: Arc::clone(&cause),
            authority: format!(
                "{}:{}",
                self.options.server_name,
                self.options.server.port()
            ),
        };
        conn.start(Driver::new(Caller::new(queue, shared)));
        let wanted = |phase: &Phase| match phase {
            Phase::Connecting => false,
            Phase::Early => start == Start::Early,
            Phase::Established { .. } => true,
        };
        let reached = phases.wait_for(wanted).await.is_ok();
        ensure!(reached, "the handshake failed");
        Ok(Visit {
            commands,
            phases,
            cause,
            retried,
            early: start == Start::Early,
        })
    }

    async fn ticket(&self) -> Result<()> {
        let mut session = self.session.subscribe();
        let arrival = session.wait_for(Option::is_some);
        timeout(TICKET_PATIENCE, arrival)
            .await
            .context("no session ticket arrived")??;
        Ok(())
    }

    async fn quiet(&self) {
        let pumps = std::mem::take(&mut *lock(&self.pumps));
        pumps.join_all().await;
    }
}

/// Hands what arrives to a connection's worker.
async fn pump(
    socket: &UdpSocket,
    local: SocketAddr,
    peer: SocketAddr,
    worker: &mpsc::Sender<Incoming>,
    retried: &AtomicBool,
) {
    let mut buffer = vec![0; LARGEST];
    loop {
        let length = match socket.recv(&mut buffer).await {
            Ok(length) => length,
            // Some earlier datagram found nobody: time will tell.
            Err(_) => continue,
        };
        let buf = buffer[..length].to_vec();
        if buf.first().is_some_and(|first| first & RETRY == RETRY) {
            retried.store(true, Relaxed);
        }
        let incoming = Incoming {
            peer_addr: peer,
            local_addr: local,
            rx_time: None,
            buf,
            gro: None,
            so_mark_data: None,
        };
        if worker.send(incoming).await.is_err() {
            return;
        }
    }
}

/// One connection.
#[derive(Clone)]
pub(crate) struct Visit {
    commands: UnboundedSender<Command>,
    phases: watch::Receiver<Phase>,
    cause: Arc<OnceLock<String>>,
    retried: Arc<AtomicBool>,
    early: bool,
}

impl Visit {
    /// Why nothing more comes.
    fn cause(&self) -> anyhow::Error {
        match self.cause.get() {
            Some(cause) => anyhow!("the connection is over: {cause}"),
            None => anyhow!("the stream was reset"),
        }
    }
}

impl Session for Visit {
    async fn exchange(&self, ask: Ask, answer: &mut Answer) -> Result<()> {
        let (parts, mut arriving) = mpsc::unbounded_channel();
        let asked = self.commands.send(Command::Ask { ask, parts });
        asked.map_err(|_| self.cause())?;
        while let Some(part) = arriving.recv().await {
            match part {
                Part::Status(status) => answer.status(status)?,
                Part::Body(bytes) => answer.take(&bytes)?,
                Part::Sum(sum) => answer.trailer(&sum)?,
                Part::End => return Ok(()),
            }
        }
        Err(self.cause())
    }

    async fn update_keys(&self) -> Result<()> {
        Err(Unsupported("quiche lets no caller begin a key update").into())
    }

    async fn facts(&self) -> Facts {
        let (resumed, accepted) = match *self.phases.borrow() {
            Phase::Established { resumed, accepted } => (Some(resumed), Some(accepted)),
            Phase::Connecting | Phase::Early => (None, None),
        };
        Facts {
            resumed,
            zero_rtt_accepted: accepted.filter(|_| self.early),
            retried: Some(self.retried.load(Relaxed)),
            key_updates: None,
        }
    }

    fn close(&self, well: bool) {
        // A connection that is over needs no closing.
        let _ = self.commands.send(Command::Close { well });
    }
}
