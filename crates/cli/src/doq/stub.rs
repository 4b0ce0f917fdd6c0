//! The stub: answers plain DNS queries by a DNS-over-QUIC server.

use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::sync::Arc;

use clearway::doq::{self, Client};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;

/// Queries at once. Beyond that UDP queries are dropped and TCP is not read, as with a full socket.
const MAX_QUERIES: usize = 1_000;

/// TCP connections at once.
const MAX_TCP: usize = 100;

/// How long a TCP connection may be silent (RFC 7766 §6.2.3).
const TCP_IDLE: Duration = Duration::from_secs(10);

/// How long to wait after a TCP connection could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The longest UDP packet.
const MAX_PACKET: usize = 65_535;

/// SERVFAIL (RFC 1035 §4.1.1).
const SERVER_FAILURE: u8 = 2;

/// What all queries need.
#[derive(Clone, Debug)]
pub(super) struct Stub {
    client: Client,
    timeout: Duration,
    queries: Arc<Semaphore>,
}

impl Stub {
    pub(super) fn new(client: Client, timeout: Duration) -> Self {
        Self {
            client,
            timeout,
            queries: Arc::new(Semaphore::new(MAX_QUERIES)),
        }
    }

    /// Returns the server's answer, or SERVFAIL.
    async fn answer(&self, query: &[u8]) -> Vec<u8> {
        match tokio::time::timeout(self.timeout, self.client.query(query)).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(error)) => say!("doq: a query was not answered: {error}"),
            Err(_) => say!("doq: a query was not answered within {:?}", self.timeout),
        }
        doq::error_response(query, SERVER_FAILURE)
    }

    /// Answers queries on UDP, for ever.
    pub(super) async fn serve_udp(&self, socket: UdpSocket) -> io::Result<()> {
        let socket = Arc::new(socket);
        let mut buffer = vec![0; MAX_PACKET];
        loop {
            let (len, program) = match socket.recv_from(&mut buffer).await {
                Ok(received) => received,
                // An ICMP error about an answer to a program that has gone.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(error),
            };
            let query = buffer.get(..len).unwrap_or_default();
            if !doq::is_query(query) {
                continue;
            }
            let Ok(permit) = self.queries.clone().try_acquire_owned() else {
                continue;
            };
            let query = query.to_vec();
            let (stub, socket) = (self.clone(), socket.clone());
            tokio::spawn(async move {
                let _permit = permit;
                stub.answer_udp(&socket, program, &query).await;
            });
        }
    }

    async fn answer_udp(&self, socket: &UdpSocket, program: SocketAddr, query: &[u8]) {
        let mut answer = self.answer(query).await;
        if answer.len() > doq::max_udp_size(query) {
            answer = doq::truncated(&answer);
        }
        // The program may have gone.
        let _ = socket.send_to(&answer, program).await;
    }

    /// Answers queries on TCP, for ever.
    pub(super) async fn serve_tcp(&self, listener: TcpListener) {
        let connections = Arc::new(Semaphore::new(MAX_TCP));
        loop {
            let permit = connections.clone().acquire_owned().await;
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                // The connection has gone already, or there are no descriptors.
                Err(error) => {
                    tracing::debug!(%error, "a TCP connection was not accepted");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                    continue;
                }
            };
            let stub = self.clone();
            tokio::spawn(async move {
                let _permit = permit;
                // Errors are the program's.
                let _ = stub.answer_tcp(stream).await;
            });
        }
    }

    /// Answers the queries of a TCP connection, one after the other.
    async fn answer_tcp(&self, mut stream: TcpStream) -> io::Result<()> {
        loop {
            let length = tokio::time::timeout(TCP_IDLE, stream.read_u16()).await??;
            let mut query = vec![0; length.into()];
            tokio::time::timeout(TCP_IDLE, stream.read_exact(&mut query)).await??;
            if !doq::is_query(&query) {
                return Ok(());
            }
            let _permit = self.queries.acquire().await;
            let answer = self.answer(&query).await;
            let length = u16::try_from(answer.len()).unwrap_or(u16::MAX);
            let mut framed = length.to_be_bytes().to_vec();
            framed.extend_from_slice(&answer);
            tokio::time::timeout(TCP_IDLE, stream.write_all(&framed)).await??;
        }
    }
}
