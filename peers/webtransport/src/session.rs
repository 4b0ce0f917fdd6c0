//! A session, whatever the stack.

use anyhow::Result;
use bytes::Bytes;

/// What was read of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// Everything up to its end.
    Whole(Vec<u8>),
    /// It was reset with this code of the application.
    Reset(u32),
}

/// How a session ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) code: u64,
    pub(crate) reason: String,
}

/// A session of a client.
pub(crate) trait Session {
    type Send;
    type Recv;

    async fn open_bi(&self) -> Result<(Self::Send, Self::Recv)>;
    async fn accept_bi(&self) -> Result<(Self::Send, Self::Recv)>;
    async fn open_uni(&self) -> Result<Self::Send>;
    async fn accept_uni(&self) -> Result<Self::Recv>;
    async fn write(send: &mut Self::Send, data: &[u8]) -> Result<()>;
    async fn finish(send: &mut Self::Send) -> Result<()>;
    fn reset(send: &mut Self::Send, code: u32) -> Result<()>;
    async fn read(recv: &mut Self::Recv) -> Result<Read>;
    fn send_datagram(&self, data: &[u8]) -> Result<()>;
    async fn recv_datagram(&self) -> Result<Bytes>;
    async fn closed(&self) -> Result<Closed>;
    async fn close(self, code: u32, reason: &str) -> Result<()>;
}
