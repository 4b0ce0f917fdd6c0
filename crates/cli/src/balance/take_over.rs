//! Replacing a running balancer by another process, which gets its service sockets: nothing that
//! clients send is lost, not even what waits in the sockets.

use core::time::Duration;
use std::io::{self, IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use clearway_balancer::Balancer;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::control::{PATIENCE, ask, unreachable_at, write_request};
use super::request::{Reply, Request};
use crate::failure::{Failure, Kind};

/// Most sockets: more than a balancer can have shards.
const MOST: usize = 1_024;

/// Longest reply in bytes.
const LONGEST_REPLY: usize = 4_096;

/// How often the former balancer looks whether it is still needed.
const GLANCE: Duration = Duration::from_millis(200);

/// The service sockets of a balancer that still reads them.
#[derive(Debug)]
pub(super) struct TakeOver {
    stream: UnixStream,
    path: PathBuf,
    sockets: Vec<OwnedFd>,
    draining: Vec<String>,
}

impl TakeOver {
    /// Asks the balancer that listens on `path`.
    ///
    /// # Errors
    /// If there is none, or it does not send its sockets.
    pub(super) fn begin(path: &Path) -> Result<Self, Failure> {
        let draining = match ask(path, &Request::Status)? {
            Reply::Status(report) => report.draining(),
            Reply::Sockets { .. } | Reply::Done | Reply::Error(_) => Vec::new(),
        };
        let begin = || -> io::Result<Self> {
            let mut stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            write_request(&mut stream, &Request::TakeOver)?;
            let count = match read_reply(&mut stream)? {
                Reply::Sockets { count } if count <= MOST => count,
                Reply::Sockets { .. } | Reply::Status(_) | Reply::Done | Reply::Error(_) => {
                    return Err(unexpected());
                }
            };
            let sockets = (0..count).map(|_| receive_socket(&stream));
            Ok(Self {
                sockets: sockets.collect::<io::Result<_>>()?,
                stream,
                path: path.to_owned(),
                draining,
            })
        };
        begin().map_err(|error| unreachable_at(path, &error))
    }

    /// Returns the sockets.
    pub(super) fn take_sockets(&mut self) -> Vec<OwnedFd> {
        core::mem::take(&mut self.sockets)
    }

    /// Returns the names of the backends that the other balancer drains.
    pub(super) fn draining(&self) -> impl Iterator<Item = &str> {
        self.draining.iter().map(String::as_str)
    }

    /// Has the other balancer stop reading the sockets, and remove its control socket.
    ///
    /// # Errors
    /// If it is gone.
    pub(super) fn complete(mut self) -> Result<(), Failure> {
        let done = write_request(&mut self.stream, &Request::Ready)
            .and_then(|()| read_reply(&mut self.stream));
        match done {
            Ok(Reply::Done) => Ok(()),
            Ok(Reply::Sockets { .. } | Reply::Status(_) | Reply::Error(_)) => {
                let message = "the balancer that is replaced did not let go of its sockets";
                Err(Failure::new(Kind::Connection, message))
            }
            Err(error) => Err(unreachable_at(&self.path, &error)),
        }
    }
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "unexpected reply")
}

/// Reads a line byte by byte: what follows belongs to sockets.
fn read_reply(stream: &mut UnixStream) -> io::Result<Reply> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.last() != Some(&b'\n') {
        if line.len() >= LONGEST_REPLY {
            return Err(unexpected());
        }
        stream.read_exact(&mut byte)?;
        line.extend(byte);
    }
    Reply::parse(&line)
}

/// Sends a socket with a byte, as the system requires.
///
/// # Errors
/// If the other process is gone, or would have to wait.
pub(super) fn send_socket(stream: impl std::os::fd::AsFd, socket: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [socket.as_fd()];
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let flags = SendFlags::NOSIGNAL;
    sendmsg(stream, &[IoSlice::new(b"s")], &mut ancillary, flags)?;
    Ok(())
}

fn receive_socket(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut slices = [IoSliceMut::new(&mut byte)];
    recvmsg(stream, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message
            && let Some(socket) = descriptors.next()
        {
            return Ok(socket);
        }
    }
    Err(unexpected())
}

/// Forwards the replies that backends still send to a balancer which was replaced, until the time
/// of its last flow is over. A server learns of the new port with its client's next datagram, and
/// clients that only wait for data send none.
pub(super) async fn forward_last_replies(balancer: &Balancer) {
    while !balancer.has_released() || balancer.status().flows > 0 {
        tokio::time::sleep(GLANCE).await;
    }
}
