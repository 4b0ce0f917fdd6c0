//! What both roles give quiche instead of its defaults.

use std::net::SocketAddr;

use anyhow::Result;
use contract::options::Tuning;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio_quiche::settings::QuicSettings;

/// UDP payload in bytes that every peer sends and takes at most.
const PAYLOAD: usize = 1452;

/// tokio-quiche's defaults, but for the payload and what the command line says.
pub(crate) fn settings(tuning: Tuning) -> QuicSettings {
    let mut settings = QuicSettings::default();
    settings.max_send_udp_payload_size = PAYLOAD;
    settings.max_recv_udp_payload_size = PAYLOAD;
    if let Some(window) = tuning.window.map(u64::from) {
        settings.initial_max_data = window;
        settings.initial_max_stream_data_bidi_local = window;
        settings.initial_max_stream_data_bidi_remote = window;
        settings.initial_max_stream_data_uni = window;
        settings.max_connection_window = window;
        settings.max_stream_window = window;
    }
    settings
}

/// A socket with the buffers that the command line says.
pub(crate) fn socket(address: SocketAddr, tuning: Tuning) -> Result<UdpSocket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    if let Some(bytes) = tuning.socket_buffer {
        socket.set_recv_buffer_size(bytes)?;
        socket.set_send_buffer_size(bytes)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(UdpSocket::from_std(socket.into())?)
}
