//! This host: files under `/proc`, and netlink.
//!
//! Everything is read by the calling thread, in the network namespace it is in: `/proc/net` would be
//! that of the process's first thread, so the paths go through `/proc/thread-self`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt,
};

use super::netlink::{End, messages};
use super::{Place, Source, device, firewall, qdisc, sock_diag};

/// How long the kernel may take for an answer, which it makes while it is asked.
const TIMEOUT: core::time::Duration = core::time::Duration::from_secs(2);
/// Largest datagram of an answer: the kernel fills at most 32 KiB (`NLMSG_GOODSIZE`, and what
/// `netlink_dump` allocates for readers with large buffers).
const DATAGRAM: usize = 64 * 1024;
/// Bound on a whole answer or file: some 300,000 sockets.
const LONGEST: usize = 64 * 1024 * 1024;

/// This host, in the network namespace that the calling thread is in when it reads for the first time.
#[derive(Debug, Default)]
pub struct Live {
    files: BTreeMap<Place, File>,
    sockets: Option<OwnedFd>,
    buffer: Vec<u8>,
}

impl Source for Live {
    fn read(&mut self, place: Place) -> io::Result<Vec<u8>> {
        match place {
            Place::Snmp
            | Place::Snmp6
            | Place::Netstat
            | Place::Udp
            | Place::Udp6
            | Place::Softnet
            | Place::Sockstat
            | Place::Conntrack => self.file(place, "/proc/thread-self"),
            Place::ConntrackCount | Place::ConntrackMax | Place::UdpMem => {
                self.file(place, "/proc")
            }
            Place::SocketsV4 => self.sockets(false),
            Place::SocketsV6 => self.sockets(true),
            Place::Links => self.ask(&open(None)?, &device::request()),
            Place::Qdiscs => self.ask(&open(None)?, &qdisc::request()),
            Place::FirewallChains => self.ask(
                &open(Some(netlink::NETFILTER))?,
                &firewall::chains_request(),
            ),
            Place::FirewallRules => {
                self.ask(&open(Some(netlink::NETFILTER))?, &firewall::rules_request())
            }
        }
    }
}

impl Live {
    /// Reads a file, which is kept open: it is read many times, and opening costs as much as reading.
    fn file(&mut self, place: Place, folder: &str) -> io::Result<Vec<u8>> {
        let file = match self.files.remove(&place) {
            Some(file) => file,
            None => File::open(format!("{folder}/{}", place.path()))?,
        };
        let mut bytes = Vec::new();
        self.buffer.resize(DATAGRAM, 0);
        loop {
            // The kernel writes the file anew when it is read from its beginning.
            let length = file.read_at(&mut self.buffer, bytes.len() as u64)?;
            if length == 0 {
                break;
            }
            bytes.extend_from_slice(self.buffer.get(..length).unwrap_or_default());
            if bytes.len() > LONGEST {
                return Err(io::Error::other("the file is longer than 64 MiB"));
            }
        }
        self.files.insert(place, file);
        Ok(bytes)
    }

    fn sockets(&mut self, v6: bool) -> io::Result<Vec<u8>> {
        // Asked many times a second: its netlink socket is kept.
        let socket = match self.sockets.take() {
            Some(socket) => socket,
            None => open(Some(netlink::SOCK_DIAG))?,
        };
        let answer = self.ask(&socket, &sock_diag::request(v6))?;
        self.sockets = Some(socket);
        Ok(answer)
    }

    /// Sends a request and collects the answer, which may come in several datagrams.
    fn ask(&mut self, socket: &OwnedFd, request: &[u8]) -> io::Result<Vec<u8>> {
        self.buffer.resize(DATAGRAM, 0);
        let kernel = SocketAddrNetlink::new(0, 0);
        rustix::net::sendto(socket, request, SendFlags::empty(), &kernel)?;
        let mut answer = Vec::new();
        loop {
            let (length, _) =
                rustix::net::recv(socket, self.buffer.as_mut_slice(), RecvFlags::empty())?;
            let datagram = self.buffer.get(..length).unwrap_or_default();
            answer.extend_from_slice(datagram);
            let (_, end) = messages(datagram).map_err(io::Error::other)?;
            match end {
                End::Done => return Ok(answer),
                End::Refused(errno) => return Err(io::Error::from_raw_os_error(errno)),
                End::More if answer.len() > LONGEST => {
                    return Err(io::Error::other("the answer is longer than 64 MiB"));
                }
                End::More => {}
            }
        }
    }
}

/// Opens a socket to the kernel. `None` is `NETLINK_ROUTE`.
fn open(protocol: Option<Protocol>) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        protocol,
    )?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(TIMEOUT))?;
    Ok(socket)
}
