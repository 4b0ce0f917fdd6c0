//! The attackers.
//!
//! ```text
//! kinds                                the list
//! runner attackers                     a thread for each attacker; all of a slice
//! swarm sockets wire initial http3     connections, sockets and bytes
//! handshakes handshake_holders connection_holders     handshakes, connections
//! readers uploads resets requests qpack               HTTP/3
//! fragments frames acks                               the transport
//! addresses icmp garbage                              no connection, or two addresses
//! relay                                               on the path of clients
//! ```

mod acks;
mod addresses;
mod attackers;
mod connection_holders;
mod fragments;
mod frames;
mod garbage;
mod handshake_holders;
mod handshakes;
mod http3;
mod icmp;
mod initial;
mod kinds;
mod qpack;
mod readers;
mod relay;
mod requests;
mod resets;
mod runner;
mod sockets;
mod swarm;
mod uploads;
mod wire;

use std::io;
use std::net::{SocketAddr, UdpSocket};

pub(crate) use attackers::Attackers;
pub(crate) use kinds::{KINDS, find};
pub(crate) use runner::{Attack, Outcome};
pub(crate) use sockets::Traffic;

/// An attacker; each runs on a thread of its own.
pub(crate) trait Attacker {
    /// Processes what has arrived and attacks with at most `packets` packets.
    fn turn(&mut self, packets: u64);

    /// What it has sent so far.
    fn traffic(&self) -> Traffic;

    /// Connections or handshakes that it keeps open now.
    fn held(&self) -> usize {
        0
    }

    /// Whether it keeps as many open as it wants to.
    fn has_gathered(&self) -> bool {
        true
    }

    /// What it has achieved, for the report.
    fn note(&self) -> String {
        String::new()
    }
}

/// What an attacker needs to know.
#[derive(Debug)]
pub(crate) struct Context {
    /// The server to attack.
    pub(crate) server: SocketAddr,
    /// Its number: its source addresses are 127.(16 + number).x.y.
    pub(crate) number: u8,
    /// A number that no other attacker has, in this run or an earlier one.
    pub(crate) unique: u64,
    /// The socket that attacked clients connect to, if there are any.
    pub(crate) front: Option<UdpSocket>,
}

/// Clients that are attacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victims {
    /// None: only the server is attacked.
    None,
    /// Clients whose transfers must succeed.
    Transfers,
    /// Clients whose handshakes may fail, but which must survive that.
    Handshakes,
}

/// A kind of attacker.
#[derive(Debug)]
pub(crate) struct Kind {
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// A line of description.
    pub(crate) about: &'static str,
    /// The clients that it attacks.
    pub(crate) victims: Victims,
    /// Before all attack together it gets time to open its connections, and it keeps the
    /// rate that it has alone.
    pub(crate) gathers: bool,
    make: fn(&mut Context) -> io::Result<Box<dyn Attacker>>,
}
