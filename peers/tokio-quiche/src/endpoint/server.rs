//! quiche as a server.

use std::{
    collections::HashMap,
    net::{Ipv6Addr, SocketAddr},
    time::Duration,
};

use anyhow::{Context, Result};
use contract::runner::Environment;
use tokio::{net::UdpSocket, time::timeout};
use tokio_quiche::quiche::{self, Config, Connection, ConnectionId, Header, Type};

use crate::{config, connection_id, content::Content, log_keys, receive, send};

/// Longest pause between two looks at the connections.
const PAUSE: Duration = Duration::from_millis(100);

struct Served {
    quic: Connection,
    content: Content,
}

struct Server<'a> {
    environment: &'a Environment,
    config: Config,
    socket: UdpSocket,
    local: SocketAddr,
    connections: Vec<Served>,
    /// Which connection has an ID.
    ids: HashMap<Vec<u8>, usize>,
}

/// Serves until killed.
pub(crate) async fn run(environment: &Environment) -> Result<()> {
    let mut config = config(environment)?;
    let file = |name: &str| {
        let file = environment.certs.join(name);
        file.to_str()
            .map(str::to_owned)
            .context("a path that is not UTF-8")
    };
    config.load_cert_chain_from_pem_file(&file("cert.pem")?)?;
    config.load_priv_key_from_pem_file(&file("priv.key")?)?;
    let address = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), environment.port);
    let socket = UdpSocket::bind(address).await?;
    let local = socket.local_addr()?;
    println!("listening on {local}");
    let mut server = Server {
        environment,
        config,
        socket,
        local,
        connections: Vec::new(),
        ids: HashMap::new(),
    };
    loop {
        server.turn().await?;
    }
}

impl Server<'_> {
    async fn turn(&mut self) -> Result<()> {
        let timeouts = self.connections.iter().filter_map(|it| it.quic.timeout());
        let pause = timeouts.min().unwrap_or(PAUSE).min(PAUSE);
        let mut buffer = vec![0; 1 << 16];
        if let Ok(Ok((len, from))) = timeout(pause, self.socket.recv_from(&mut buffer)).await {
            let mut datagram = buffer.get_mut(..len).unwrap_or_default().to_vec();
            self.receive(&mut datagram, from).await?;
            while let Ok((len, from)) = self.socket.try_recv_from(&mut buffer) {
                let mut datagram = buffer.get_mut(..len).unwrap_or_default().to_vec();
                self.receive(&mut datagram, from).await?;
            }
        }
        for served in &mut self.connections {
            if served.quic.is_closed() {
                continue;
            }
            if served.quic.timeout() == Some(Duration::ZERO) {
                served.quic.on_timeout();
            }
            if let Err(error) = served.content.drive(&mut served.quic) {
                eprintln!("endpoint-quiche: {error:#}");
            }
            send(&mut served.quic, &self.socket).await?;
        }
        Ok(())
    }

    async fn receive(&mut self, datagram: &mut [u8], from: SocketAddr) -> Result<()> {
        let Ok(header) = Header::from_slice(datagram, quiche::MAX_CONN_ID_LEN.min(16)) else {
            return Ok(());
        };
        if let Some(at) = self.ids.get(header.dcid.as_ref()) {
            if let Some(served) = self.connections.get_mut(*at) {
                receive(&mut served.quic, datagram, from, self.local);
            }
            return Ok(());
        }
        let mut answer = [0; 1500];
        if header.ty != Type::Initial || !quiche::version_is_supported(header.version) {
            if header.ty != Type::Short && !quiche::version_is_supported(header.version) {
                let len = quiche::negotiate_version(&header.scid, &header.dcid, &mut answer)?;
                self.answer(&answer, len, from).await;
            }
            return Ok(());
        }
        let id = connection_id()?;
        let token = header.token.as_deref().unwrap_or_default();
        let original = if self.environment.test_case != "retry" {
            None
        } else if token.is_empty() {
            let (scid, dcid) = (&header.scid, &header.dcid);
            let token = dcid.to_vec();
            let len = quiche::retry(scid, dcid, &id, &token, header.version, &mut answer)?;
            self.answer(&answer, len, from).await;
            return Ok(());
        } else {
            Some(ConnectionId::from_vec(token.to_vec()))
        };
        // After a Retry, its connection ID is the server's.
        let id = if original.is_some() {
            header.dcid.clone().into_owned()
        } else {
            id
        };
        let mut quic = quiche::accept(&id, original.as_ref(), self.local, from, &mut self.config)?;
        log_keys(&mut quic)?;
        for known in [id.to_vec(), header.dcid.to_vec()] {
            self.ids.insert(known, self.connections.len());
        }
        receive(&mut quic, datagram, from, self.local);
        let content = Content::new(self.environment);
        self.connections.push(Served { quic, content });
        Ok(())
    }

    async fn answer(&self, buffer: &[u8], len: usize, to: SocketAddr) {
        let answer = buffer.get(..len).unwrap_or_default();
        // What cannot be sent is lost.
        let _ = self.socket.send_to(answer, to).await;
    }
}
