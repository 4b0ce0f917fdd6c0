//! What a balancer has done, for those who ask.

use std::net::SocketAddr;

use crate::backend::BackendState;
use crate::traffic::Traffic;

/// A backend's state and counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendStatus {
    /// Its name.
    pub name: String,
    /// Where its datagrams go.
    pub address: SocketAddr,
    /// What it is sent.
    pub state: BackendState,
    /// New connections assigned to it by Maglev.
    pub assigned: u64,
    /// Datagrams sent to it.
    pub sent: u64,
    /// Datagrams received from it.
    pub received: u64,
    /// Its handshake packets whose connection ID does not contain its server ID: its clients'
    /// migrations cannot be followed.
    pub unroutable: u64,
}

/// What a balancer has done so far.
#[derive(Clone, Debug)]
pub struct Status {
    /// Datagrams from clients.
    pub up: Traffic,
    /// Datagrams from backends.
    pub down: Traffic,
    /// Messages from clients that the kernel dropped because a socket's buffer was full, as far as
    /// it has said so: with the next message. They are not in `up`, because they never arrived.
    /// A train counts once.
    pub up_overflowed: u64,
    /// The same from backends.
    pub down_overflowed: u64,
    /// Flows of all shards.
    pub flows: usize,
    /// Sockets of all shards.
    pub sockets: usize,
    /// Entries in the tables of all shards.
    pub entries: usize,
    /// Packets of the balancer's own that had a backend reset a connection of one that went down.
    pub reset_requests: u64,
    /// Share of the upstream ports in use, from 0 to 1, of the shard with the greatest.
    pub port_usage: f64,
    /// The backends.
    pub backends: Vec<BackendStatus>,
}
