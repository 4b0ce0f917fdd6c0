//! Requests to a running balancer, over a Unix socket: one line each way.

use core::cell::Cell;
use core::time::Duration;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};

use clearway_balancer::{BackendState, Balancer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{UnixListener, UnixStream};

use super::report::Report;
use super::request::{Reply, Request, line};
use super::take_over::send_socket;
use crate::failure::{Failure, Kind};

/// Longest request in bytes.
const LONGEST_REQUEST: usize = 4_096;

/// Longest reply in bytes.
const LONGEST_REPLY: u64 = 16 << 20;

/// How long either end waits for the other.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The socket of a running balancer, whose file goes with it.
#[derive(Debug)]
pub(super) struct Listener {
    socket: UnixListener,
    path: PathBuf,
    removed: Cell<bool>,
}

impl Listener {
    /// Binds the socket. One that a dead balancer left behind is replaced.
    ///
    /// # Errors
    /// If the path is in use, or cannot be created.
    pub(super) fn bind(path: &Path) -> Result<Self, Failure> {
        let failure = |error: &io::Error| {
            let what = format!("--control: cannot listen on {}", path.display());
            Failure::caused(Kind::Address, what, error)
        };
        let is_socket =
            std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
        let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if is_socket && StdStream::connect(path).is_err_and(refused) {
            std::fs::remove_file(path).map_err(|error| failure(&error))?;
        }
        let socket = UnixListener::bind(path).map_err(|error| failure(&error))?;
        Ok(Self {
            socket,
            path: path.to_owned(),
            removed: Cell::new(false),
        })
    }

    /// Answers requests, one after the other, until another balancer has taken over.
    pub(super) async fn serve(&self, balancer: &Balancer) {
        loop {
            let Ok((stream, _)) = self.socket.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            // A client that goes away or says nothing is its own business.
            let answered = tokio::time::timeout(PATIENCE, self.answer(stream, balancer)).await;
            if let Ok(Ok(Answered::TakenOver)) = answered {
                return;
            }
        }
    }

    async fn answer(&self, mut stream: UnixStream, balancer: &Balancer) -> io::Result<Answered> {
        let line = read_line(&mut stream).await?;
        let reply = match Request::parse(&line) {
            Ok(Request::TakeOver) => return self.hand_over(stream, balancer).await,
            Ok(Request::Status) => Reply::Status(Report::from(&balancer.status())),
            Ok(Request::Drain { backend }) => set(balancer, &backend, BackendState::Draining),
            Ok(Request::Activate { backend }) => set(balancer, &backend, BackendState::Active),
            Ok(Request::Ready) => Reply::Error("expected take_over before ready".to_owned()),
            Err(message) => Reply::Error(message),
        };
        write_line(&mut stream, &reply).await?;
        Ok(Answered::Request)
    }

    /// Passes the service sockets on, and stops reading them once the other balancer does.
    async fn hand_over(&self, mut stream: UnixStream, balancer: &Balancer) -> io::Result<Answered> {
        let sockets = balancer.service_sockets()?;
        let count = sockets.len();
        write_line(&mut stream, &Reply::Sockets { count }).await?;
        for socket in sockets {
            stream
                .async_io(Interest::WRITABLE, || send_socket(&stream, &socket))
                .await?;
        }
        let line = read_line(&mut stream).await?;
        let Ok(Request::Ready) = Request::parse(&line) else {
            return Ok(Answered::Request);
        };
        // The other one puts its own at this path.
        self.remove();
        balancer.release();
        write_line(&mut stream, &Reply::Done).await?;
        Ok(Answered::TakenOver)
    }

    fn remove(&self) {
        if !self.removed.replace(true) {
            // Somebody may have removed it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.remove();
    }
}

/// What came of a request.
enum Answered {
    Request,
    /// Another balancer receives what clients send.
    TakenOver,
}

async fn read_line(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        if line.len() >= LONGEST_REQUEST || stream.read_buf(&mut line).await? == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(line)
}

async fn write_line(stream: &mut UnixStream, reply: &Reply) -> io::Result<()> {
    stream.write_all(line(reply)?.as_bytes()).await
}

fn set(balancer: &Balancer, backend: &str, state: BackendState) -> Reply {
    if balancer.set_state(backend, state) {
        return Reply::Done;
    }
    let status = balancer.status();
    let names = status.backends.iter().map(|backend| backend.name.as_str());
    let names = names.collect::<Vec<_>>().join(", ");
    Reply::Error(format!(
        "no backend is named {backend:?}; there are: {names}"
    ))
}

/// Asks the balancer that listens on `path`.
///
/// # Errors
/// If there is none, or it refuses.
pub(super) fn ask(path: &Path, request: &Request) -> Result<Reply, Failure> {
    let exchange = || -> io::Result<Reply> {
        let mut stream = StdStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        write_request(&mut stream, request)?;
        let mut reply = Vec::new();
        BufReader::new(stream.take(LONGEST_REPLY)).read_until(b'\n', &mut reply)?;
        Reply::parse(&reply)
    };
    match exchange() {
        Ok(Reply::Error(message)) => Err(Failure::new(Kind::Arguments, message)),
        Ok(reply @ (Reply::Status(_) | Reply::Done | Reply::Sockets { .. })) => Ok(reply),
        Err(error) => Err(unreachable_at(path, &error)),
    }
}

/// The failure of a balancer that does not answer.
pub(super) fn unreachable_at(path: &Path, error: &io::Error) -> Failure {
    let what = format!("cannot reach a balancer at {}", path.display());
    Failure::caused(Kind::Connection, what, error)
}

/// Writes a request.
///
/// # Errors
/// If the balancer is gone.
pub(super) fn write_request(stream: &mut StdStream, request: &Request) -> io::Result<()> {
    stream.write_all(line(request)?.as_bytes())
}
