//! Sockets and windows: s2n-quic's defaults, but for the payload size, which is everybody's, and
//! what the command line names.

use std::net::SocketAddr;

use anyhow::Result;
use contract::options::Tuning;
use s2n_quic::provider::{io::tokio::Provider, limits::Limits};

/// Largest IPv4 packet: 1,452 bytes of UDP payload, as everybody.
const MTU: u16 = 1480;

/// A socket on `local`.
pub(crate) fn io(local: SocketAddr, tuning: Tuning) -> Result<Provider> {
    let mut io = Provider::builder()
        .with_receive_address(local)?
        .with_max_mtu(MTU)?;
    if let Some(size) = tuning.socket_buffer {
        io = io
            .with_send_buffer_size(size)?
            .with_recv_buffer_size(size)?;
    }
    Ok(io.build()?)
}

/// The windows of a connection.
pub(crate) fn limits(tuning: Tuning) -> Result<Limits> {
    let limits = Limits::new();
    let Some(window) = tuning.window else {
        return Ok(limits);
    };
    Ok(limits
        .with_data_window(window.into())?
        .with_bidirectional_local_data_window(window.into())?
        .with_bidirectional_remote_data_window(window.into())?
        .with_max_send_buffer_size(window)?)
}
