//! quiche as a client.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use contract::runner::{Environment, Target, any_address};
use tokio::{net::UdpSocket, time::timeout};
use tokio_quiche::quiche::{self, Connection};

use crate::{config, connection_id, content::Content, log_keys, receive, send};

/// Longest pause between two looks at a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a session ticket may take to arrive after the first download.
const TICKET: Duration = Duration::from_secs(5);

/// Downloads everything.
pub(crate) async fn run(environment: &Environment) -> Result<()> {
    let mut targets = environment.targets()?;
    match environment.test_case.as_str() {
        "multiconnect" | "handshakeloss" | "handshakecorruption" => {
            for target in targets {
                Client::connect(environment, &target, None)
                    .await?
                    .download(vec![target], false)
                    .await?;
            }
        }
        test @ ("resumption" | "zerortt") => {
            let others = targets.split_off(1);
            let first = targets.first().context("nothing to download")?.clone();
            let client = Client::connect(environment, &first, None).await?;
            let session = client
                .download(targets, true)
                .await?
                .context("no session ticket")?;
            let mut client = Client::connect(environment, &first, Some(&session)).await?;
            client.early = test == "zerortt";
            client.download(others, false).await?;
        }
        _ => {
            let first = targets.first().context("nothing to download")?.clone();
            Client::connect(environment, &first, None)
                .await?
                .download(targets, false)
                .await?;
        }
    }
    Ok(())
}

struct Client {
    quic: Connection,
    socket: UdpSocket,
    content: Content,
    /// Whether to ask in 0-RTT.
    early: bool,
}

impl Client {
    /// Begins a connection, which resumes a session if there is one.
    async fn connect(
        environment: &Environment,
        target: &Target,
        session: Option<&[u8]>,
    ) -> Result<Self> {
        let server = target.resolve().await?;
        let socket = UdpSocket::bind(any_address(server)).await?;
        // quiche compares addresses: the wildcard would not be the one that datagrams arrive at.
        socket.connect(server).await?;
        let local = socket.local_addr()?;
        let socket = UdpSocket::bind({
            drop(socket);
            local
        })
        .await?;
        let mut config = config(environment)?;
        let name = Some(target.host.as_str());
        let mut quic = quiche::connect(name, &connection_id()?, local, server, &mut config)?;
        log_keys(&mut quic)?;
        if let Some(session) = session {
            quic.set_session(session)?;
        }
        Ok(Self {
            quic,
            socket,
            content: Content::new(environment),
            early: false,
        })
    }

    /// Downloads everything at once and closes the connection. Returns the session, for which it
    /// waits if it is wanted.
    async fn download(mut self, mut targets: Vec<Target>, wanted: bool) -> Result<Option<Vec<u8>>> {
        let all = targets.len();
        let mut complete = 0;
        let mut asked = false;
        let mut early_sent = false;
        let local = self.socket.local_addr()?;
        let mut done_since = None;
        loop {
            if !early_sent {
                // The ClientHello, without which there is no early data.
                send(&mut self.quic, &self.socket).await?;
                early_sent = true;
            }
            let ready = self.quic.is_established() || self.early && self.quic.is_in_early_data();
            if ready && !asked {
                asked = self.content.request(&mut self.quic, &mut targets)?;
            }
            complete += self.content.drive(&mut self.quic)?;
            if complete == all {
                let since = *done_since.get_or_insert_with(std::time::Instant::now);
                if !wanted || self.quic.session().is_some() || since.elapsed() > TICKET {
                    break;
                }
            }
            send(&mut self.quic, &self.socket).await?;
            ensure!(
                !self.quic.is_closed(),
                "closed: {:?}",
                self.quic.peer_error()
            );
            let mut datagram = [0; 1 << 16];
            let pause = self.quic.timeout().unwrap_or(PAUSE).min(PAUSE);
            match timeout(pause, self.socket.recv_from(&mut datagram)).await {
                Ok(Ok((len, from))) => {
                    let datagram = datagram.get_mut(..len).unwrap_or_default();
                    receive(&mut self.quic, datagram, from, local);
                }
                // ICMP about a server that is not up yet, or a pause.
                Ok(Err(_)) => {}
                Err(_) => {}
            }
            if self.quic.timeout() == Some(Duration::ZERO) {
                self.quic.on_timeout();
            }
        }
        let session = self.quic.session().map(<[u8]>::to_vec);
        // It fails if the server has closed the connection.
        let _ = self.quic.close(true, 0, b"");
        send(&mut self.quic, &self.socket).await?;
        Ok(session)
    }
}
