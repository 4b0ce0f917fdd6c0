//! The two halves of a tunnel as one byte stream.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::tunnel::{TunnelReceiver, TunnelSender};

/// A byte stream that ends like a TCP connection: dropping it sends the end and no reset, so that
/// a Close frame that was written before it arrives.
#[derive(Debug)]
pub(in crate::http) struct TunnelIo {
    sender: TunnelSender,
    receiver: TunnelReceiver,
}

impl TunnelIo {
    pub(in crate::http) fn new(sender: TunnelSender, receiver: TunnelReceiver) -> Self {
        Self { sender, receiver }
    }
}

impl AsyncRead for TunnelIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.receiver).poll_read(cx, buffer)
    }
}

impl AsyncWrite for TunnelIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.sender).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.sender).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.sender).poll_shutdown(cx)
    }
}

impl Drop for TunnelIo {
    fn drop(&mut self) {
        // It fails if it was ended before, or the peer does not read any more.
        let _ = self.sender.finish();
    }
}
