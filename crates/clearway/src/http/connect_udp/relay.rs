//! Packets between a tunnel and a socket that is connected to the target.

use std::io;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until};

use super::{MAX_PAYLOAD, UdpTunnel};
use crate::http::error::Error;

/// Most packets that are read from the socket before the tunnel is looked at again.
const BATCH: usize = 32;

/// Why a relay ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum RelayEnd {
    #[error("the client has finished")]
    Finished,
    #[error("no packet for the idle timeout")]
    Idle,
    #[error("the client gave up: {0}")]
    Tunnel(Error),
    #[error("the socket failed: {0}")]
    Socket(io::Error),
}

/// Passes packets on until the tunnel ends, or is idle for this long.
pub(super) async fn relay(tunnel: &mut UdpTunnel, socket: &UdpSocket, idle: Duration) -> RelayEnd {
    let mut last = Instant::now();
    loop {
        let deadline = last.checked_add(idle).unwrap_or(last);
        tokio::select! {
            payload = tunnel.recv() => match payload {
                Ok(Some(payload)) => {
                    last = Instant::now();
                    // A packet that cannot be sent is lost, as it would be in the network: the
                    // buffer is full, it is too large, or an ICMP error came for an earlier one.
                    let _ = socket.try_send(&payload);
                }
                Ok(None) => return RelayEnd::Finished,
                Err(error) => return RelayEnd::Tunnel(error),
            },
            readable = socket.readable() => {
                match readable.map(|()| receive(socket, tunnel)) {
                    Ok(Ok(Ok(true))) => last = Instant::now(),
                    Ok(Ok(Ok(false))) => {}
                    Ok(Ok(Err(error))) => return RelayEnd::Tunnel(error),
                    Ok(Err(error)) | Err(error) => return RelayEnd::Socket(error),
                }
            }
            () = sleep_until(deadline) => return RelayEnd::Idle,
        }
    }
}

/// Reads what has arrived, up to a batch. Returns whether there was anything, or why the tunnel has
/// ended.
fn receive(socket: &UdpSocket, tunnel: &mut UdpTunnel) -> io::Result<Result<bool, Error>> {
    // On the stack, and not for as long as the tunnel is open.
    let mut buffer = [0; MAX_PAYLOAD];
    let mut received = false;
    for _ in 0..BATCH {
        match socket.try_recv(&mut buffer) {
            Ok(len) => {
                received = true;
                if let Err(error) = tunnel.send(buffer.get(..len).unwrap_or_default()) {
                    return Ok(Err(error));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Ok(received))
}

/// Whether the error is about an earlier packet: ICMP errors, which anyone can forge.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::PermissionDenied
    )
}
