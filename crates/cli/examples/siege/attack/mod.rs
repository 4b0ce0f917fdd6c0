//! The attackers: what there is, and one thread for each that runs.
//!
//! ```text
//! swarm sockets wire initial http3     what attackers are made of
//! addresses icmp garbage               who needs no connection, or has two addresses
//! handshake_holders connection_holders handshakes
//! readers uploads resets requests qpack    HTTP/3
//! fragments frames acks                    the transport
//! relay                                    those between clients and the server
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

/// One attacker, on a thread of its own.
pub(crate) trait Attacker {
    /// Takes what has arrived and sends what is due, of its own accord at most
    /// `packets`.
    fn turn(&mut self, packets: u64);

    /// What it has sent so far.
    fn traffic(&self) -> Traffic;

    /// Connections or handshakes that the server keeps for it now.
    fn held(&self) -> usize {
        0
    }

    /// Whether it holds as much as it wants to.
    fn has_gathered(&self) -> bool {
        true
    }

    /// What it has achieved, for the report.
    fn note(&self) -> String {
        String::new()
    }
}

/// What an attacker is given.
#[derive(Debug)]
pub(crate) struct Field {
    /// Whom it attacks.
    pub(crate) server: SocketAddr,
    /// Its number: its source addresses are 127.(16 + number).x.y.
    pub(crate) number: u8,
    /// Different for every attacker that was ever started.
    pub(crate) unique: u64,
    /// Where its victims' datagrams arrive, if it has victims.
    pub(crate) front: Option<UdpSocket>,
}

/// Who is attacked beside the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victims {
    /// Nobody.
    None,
    /// Clients whose transfers have to arrive all the same.
    Transfers,
    /// Clients whose attempts to connect may fail, but who must survive that.
    Handshakes,
}

/// A kind of attack.
#[derive(Debug)]
pub(crate) struct Kind {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// What it does, in a line.
    pub(crate) about: &'static str,
    /// Whom it attacks beside the server.
    pub(crate) victims: Victims,
    /// Before all attack together, it is given time to gather what it holds, and its
    /// rate stays what it is alone.
    pub(crate) gathers: bool,
    make: fn(&mut Field) -> io::Result<Box<dyn Attacker>>,
}
