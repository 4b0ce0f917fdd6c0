//! The server: answers DNS over QUIC by a plain DNS server.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::io;
use std::sync::Arc;

use clearway::doq::{self, Answer, Query, Resolver};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;

/// Queries at once, each with a socket. Beyond that they are answered with DOQ_EXCESSIVE_LOAD.
const MAX_QUERIES: usize = 500;

/// How often a query is sent over UDP.
const ATTEMPTS: u32 = 3;

/// The longest UDP packet.
const MAX_PACKET: usize = 65_535;

/// SERVFAIL (RFC 1035 §4.1.1).
const SERVER_FAILURE: u8 = 2;

/// A plain DNS server that is asked.
#[derive(Debug)]
pub(super) struct Upstream {
    address: SocketAddr,
    timeout: Duration,
    queries: Arc<Semaphore>,
}

impl Upstream {
    pub(super) fn new(address: SocketAddr, timeout: Duration) -> Self {
        Self {
            address,
            timeout,
            queries: Arc::new(Semaphore::new(MAX_QUERIES)),
        }
    }

    /// Asks over UDP, and over TCP if the answer does not fit.
    async fn ask(&self, query: &[u8]) -> io::Result<Vec<u8>> {
        let answer = self.ask_udp(query).await?;
        let is_truncated = answer.get(2).is_some_and(|byte| byte & 2 != 0);
        if !is_truncated {
            return Ok(answer);
        }
        tokio::time::timeout(self.timeout, self.ask_tcp(query)).await?
    }

    /// Asks from a port of its own, so that others can hardly forge the answer (RFC 5452 §9.2).
    async fn ask_udp(&self, query: &[u8]) -> io::Result<Vec<u8>> {
        let any: SocketAddr = match self.address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any).await?;
        socket.connect(self.address).await?;
        let mut buffer = vec![0; MAX_PACKET];
        let wait = self.timeout / ATTEMPTS;
        for _ in 0..ATTEMPTS {
            socket.send(query).await?;
            let answered = async {
                loop {
                    let len = socket.recv(&mut buffer).await?;
                    let answer = buffer.get(..len).unwrap_or_default();
                    if doq::is_response_to(answer, query) {
                        return Ok(answer.to_vec());
                    }
                }
            };
            if let Ok(answer) = tokio::time::timeout(wait, answered).await {
                return answer;
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    async fn ask_tcp(&self, query: &[u8]) -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(self.address).await?;
        let length = u16::try_from(query.len()).unwrap_or(u16::MAX);
        let mut framed = length.to_be_bytes().to_vec();
        framed.extend_from_slice(query);
        stream.write_all(&framed).await?;
        let mut answer = vec![0; stream.read_u16().await?.into()];
        stream.read_exact(&mut answer).await?;
        match doq::is_response_to(&answer, query) {
            true => Ok(answer),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "its message is no response to the query",
            )),
        }
    }
}

impl Resolver for Upstream {
    async fn resolve(&self, query: Query) -> Answer {
        let Ok(_permit) = self.queries.try_acquire() else {
            return Answer::Reset(doq::Code::EXCESSIVE_LOAD);
        };
        let mut message = query.message().to_vec();
        let mut id = [0; 2];
        if let Err(error) = rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())
        {
            say!("doq: no randomness for a query: {error}");
            return Answer::Reset(doq::Code::INTERNAL_ERROR);
        }
        doq::set_id(&mut message, u16::from_be_bytes(id));
        match self.ask(&message).await {
            Ok(answer) => Answer::from(answer),
            Err(error) => {
                say!("doq: {} did not answer: {error}", self.address);
                Answer::from(doq::error_response(query.message(), SERVER_FAILURE))
            }
        }
    }
}
