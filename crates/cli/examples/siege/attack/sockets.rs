//! An attacker's sockets, each with a source address of its own.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Most datagrams read from a socket in one turn.
const READS: usize = 64;

/// Attackers use addresses 127.(16 + number).x.y.
const FIRST_NET: u8 = 16;

/// Packets and bytes sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Traffic {
    pub(crate) fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

/// Non-blocking sockets, one for each source address.
pub(crate) struct Sockets {
    sockets: Vec<UdpSocket>,
    pub(crate) traffic: Traffic,
    buffer: Vec<u8>,
}

impl Sockets {
    /// Binds sockets to `count` source addresses of an attacker, from the `first` on.
    pub(crate) fn bind(attacker: u8, first: usize, count: usize) -> io::Result<Self> {
        let sockets = (first..first + count)
            .map(|n| bind(source(attacker, n)))
            .collect::<io::Result<_>>()?;
        Ok(Self {
            sockets,
            traffic: Traffic::default(),
            buffer: vec![0; 1 << 16],
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Sends a datagram; it is lost if the socket has no room.
    pub(crate) fn send(&mut self, socket: usize, to: SocketAddr, datagram: &[u8]) {
        if self.sockets[socket].send_to(datagram, to).is_ok() {
            self.traffic.add(datagram.len());
        }
    }

    /// Sends a datagram from a socket that is not one of these.
    pub(crate) fn send_with(&mut self, socket: &UdpSocket, to: SocketAddr, datagram: &[u8]) {
        if socket.send_to(datagram, to).is_ok() {
            self.traffic.add(datagram.len());
        }
    }

    /// Calls `each` with every datagram received: the socket's index, the sender, the
    /// datagram.
    pub(crate) fn receive(&mut self, mut each: impl FnMut(usize, SocketAddr, &mut [u8])) {
        let Self {
            sockets, buffer, ..
        } = self;
        let mut waiting: Vec<PollFd<'_>> = sockets
            .iter()
            .map(|socket| PollFd::new(socket, PollFlags::IN))
            .collect();
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        if !matches!(poll(&mut waiting, Some(&at_once)), Ok(1..)) {
            return;
        }
        let readable = waiting
            .iter()
            .map(|fd| !fd.revents().is_empty())
            .collect::<Vec<_>>();
        for (index, socket) in sockets.iter().enumerate() {
            if !readable[index] {
                continue;
            }
            for _ in 0..READS {
                match socket.recv_from(buffer) {
                    Ok((length, from)) => each(index, from, &mut buffer[..length]),
                    Err(_) => break,
                }
            }
        }
    }
}

/// The `n`th source address of an attacker.
pub(crate) fn source(attacker: u8, n: usize) -> IpAddr {
    // Neither .0 nor .255, which could be taken for a network's address.
    let [high, low] = [n / 250, n % 250 + 1].map(|part| part as u8);
    Ipv4Addr::new(127, FIRST_NET + attacker, high, low).into()
}

/// Binds a non-blocking socket to this address.
pub(crate) fn bind(address: IpAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((address, 0))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
