//! Endpoints on sockets that the caller implements.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clearway::udp::{
    Counters, DatagramSocket, IcmpError, Meta, Options, ReadinessSource, RecvBatch, RecvError,
    Report, SendError, Socket, Transmit,
};
use clearway::{Connection, Endpoint, EndpointBuilder};

use crate::common::{LOOPBACK, Pair, client, client_config, pattern, server_config};

const SIZE: usize = 300_000;

fn server(socket: impl DatagramSocket + 'static) -> Endpoint {
    EndpointBuilder::on_datagram_socket(Arc::new(socket))
        .server(server_config())
        .build()
        .unwrap()
}

async fn echo(connection: Connection) {
    while let Ok((mut send, mut recv)) = connection.accept_bi().await {
        tokio::io::copy(&mut recv, &mut send).await.unwrap();
        send.finish().unwrap();
    }
}

async fn transfer(pair: &Pair) {
    tokio::spawn(echo(pair.far.clone()));
    let (mut send, mut recv) = pair.near.open_bi().await.unwrap();
    let content = pattern(1, SIZE);
    let sent = content.clone();
    let sending = tokio::spawn(async move {
        send.write_all(&sent).await.unwrap();
        send.finish().unwrap();
    });
    assert!(recv.read_to_end(SIZE).await.unwrap() == content);
    sending.await.unwrap();
}

/// One end of a pair of Unix sockets, which carry datagrams within a process.
#[derive(Debug)]
struct Local {
    socket: UnixDatagram,
    here: SocketAddr,
    there: SocketAddr,
    report: Report,
}

impl Local {
    fn pair() -> (Self, Self) {
        let (a, b) = UnixDatagram::pair().unwrap();
        let address = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let end = |socket: UnixDatagram, here, there| {
            socket.set_nonblocking(true).unwrap();
            let (here, there) = (address(here), address(there));
            let report = Report::default();
            Self {
                socket,
                here,
                there,
                report,
            }
        };
        (end(a, 1, 2), end(b, 2, 1))
    }
}

impl DatagramSocket for Local {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.here)
    }

    fn report(&self) -> &Report {
        &self.report
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn gso_segments(&self) -> usize {
        1
    }

    fn recv(&self, batch: &mut RecvBatch) -> Result<usize, RecvError> {
        batch.clear();
        let mut buffer = [0; 2_000];
        while !batch.is_full() {
            match self.socket.recv(&mut buffer) {
                Ok(len) => assert!(batch.push(Meta::new(self.there), &buffer[..len])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(RecvError::Broken(error)),
            }
        }
        if batch.is_empty() {
            Err(RecvError::WouldBlock)
        } else {
            Ok(batch.len())
        }
    }

    fn send(&self, transmit: &mut Transmit<'_>) -> Result<(), SendError> {
        assert!(
            transmit
                .segment_size
                .is_none_or(|size| size >= transmit.contents.len())
        );
        match self.socket.send(transmit.contents) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(SendError::WouldBlock),
            Err(error) => Err(SendError::Broken(error)),
        }
    }

    fn expect_errors(&self) {}

    fn poll_errors(&self) -> io::Result<Option<IcmpError>> {
        Ok(None)
    }

    fn readiness(&self) -> ReadinessSource<'_> {
        ReadinessSource::Descriptor(self.socket.as_fd())
    }
}

#[tokio::test]
async fn endpoints_communicate_over_unix_sockets() {
    let (near, far) = Local::pair();
    let server = server(far);
    let client = EndpointBuilder::on_datagram_socket(Arc::new(near))
        .client(client_config())
        .build()
        .unwrap();
    assert_eq!(server.local_addr().port(), 2);
    transfer(&Pair::of(server, client).await).await;
}

/// A UDP socket that always has another ICMP error, and receives nothing in its first call.
#[derive(Debug)]
struct Pestered {
    socket: Socket,
    error: IcmpError,
    receives: AtomicUsize,
}

impl Pestered {
    fn new() -> Self {
        let socket = Socket::bind(LOOPBACK, &Options::default()).unwrap();
        let closed = UdpSocket::bind(LOOPBACK).unwrap().local_addr().unwrap();
        socket.send(&mut Transmit::new(closed, b"x")).unwrap();
        let mut batch = RecvBatch::for_socket(&socket, 1);
        let error = loop {
            socket.recv(&mut batch).ok();
            if let Some(error) = socket.poll_errors().unwrap() {
                break error;
            }
        };
        Self {
            socket,
            error,
            receives: AtomicUsize::new(0),
        }
    }
}

impl DatagramSocket for Pestered {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn report(&self) -> &Report {
        self.socket.report()
    }

    fn counters(&self) -> Counters {
        self.socket.counters()
    }

    fn gso_segments(&self) -> usize {
        self.socket.gso_segments()
    }

    fn recv(&self, batch: &mut RecvBatch) -> Result<usize, RecvError> {
        if self
            .receives
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(2)
        {
            batch.clear();
            return Ok(0);
        }
        self.socket.recv(batch)
    }

    fn send(&self, transmit: &mut Transmit<'_>) -> Result<(), SendError> {
        self.socket.send(transmit)
    }

    fn expect_errors(&self) {
        self.socket.expect_errors();
    }

    fn poll_errors(&self) -> io::Result<Option<IcmpError>> {
        Ok(Some(self.error))
    }

    fn readiness(&self) -> ReadinessSource<'_> {
        self.socket.readiness()
    }
}

#[tokio::test]
async fn endless_icmp_errors_do_not_stall_a_transfer() {
    let pair = Pair::of(server(Pestered::new()), client()).await;
    transfer(&pair).await;
    assert!(pair.server.counters()[0].icmp_errors > 0);
}
