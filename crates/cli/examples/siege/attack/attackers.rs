//! All attackers of a slice.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use super::{Attack, Kind, Outcome, Victims};

/// The running attackers of a slice.
pub(crate) struct Attackers {
    attacks: Vec<Attack>,
    /// For each kind, the socket that attacked clients connect to.
    fronts: Vec<Option<Front>>,
}

/// The socket that the clients of one attacker connect to.
struct Front {
    victims: Victims,
    socket: UdpSocket,
}

/// The results of attackers.
#[derive(Default)]
pub(crate) struct Ended {
    pub(crate) outcomes: Vec<Outcome>,
    /// Attackers that this machine does not allow, and why.
    pub(crate) skipped: Vec<String>,
    /// Attackers that did not attack, and why.
    pub(crate) defects: Vec<String>,
}

impl Attackers {
    /// Starts those that need time to open connections, if there are others.
    pub(crate) fn gather(
        kinds: &[&'static Kind],
        server: SocketAddr,
        rate: u64,
    ) -> io::Result<Self> {
        let fronts = kinds
            .iter()
            .zip(1..)
            .map(|(kind, number)| front(kind, number));
        let mut this = Self {
            attacks: Vec::new(),
            fronts: fronts.collect::<io::Result<_>>()?,
        };
        if kinds.len() > 1 {
            for kind in kinds.iter().filter(|kind| kind.gathers) {
                this.attacks.push(Attack::start(kind, server, None, rate)?);
            }
        }
        Ok(this)
    }

    /// Whether those keep as many connections open as they want to.
    pub(crate) fn have_gathered(&self) -> bool {
        self.attacks.iter().all(Attack::has_gathered)
    }

    /// The addresses that attacked clients have to connect to.
    pub(crate) fn relays(&self) -> io::Result<Vec<(Victims, SocketAddr)>> {
        let fronts = self.fronts.iter().flatten();
        fronts
            .map(|front| Ok((front.victims, front.socket.local_addr()?)))
            .collect()
    }

    /// Starts all others.
    pub(crate) fn start(
        &mut self,
        kinds: &[&'static Kind],
        server: SocketAddr,
        rate: u64,
    ) -> io::Result<()> {
        let started = self.attacks.len();
        for (kind, front) in kinds.iter().zip(&mut self.fronts) {
            if self.attacks[..started]
                .iter()
                .any(|attack| attack.name() == kind.name)
            {
                continue;
            }
            let front = front.take().map(|front| front.socket);
            self.attacks.push(Attack::start(kind, server, front, rate)?);
        }
        Ok(())
    }

    /// Stops all of them and returns their results.
    pub(crate) fn end(self) -> Ended {
        self.attacks.iter().for_each(Attack::halt);
        let mut ended = Ended::default();
        for attack in self.attacks {
            let name = attack.name();
            match attack.join() {
                Ok(outcome) => {
                    if outcome.traffic.packets == 0 {
                        ended.defects.push(format!("{name} did not send a packet"));
                    }
                    ended.outcomes.push(outcome);
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    ended
                        .skipped
                        .push(format!("{name} was skipped: it needs root ({error})"));
                }
                Err(error) => ended.defects.push(format!("{name} failed: {error}")),
            }
        }
        ended
    }
}

fn front(kind: &Kind, number: u8) -> io::Result<Option<Front>> {
    match kind.victims {
        Victims::None => Ok(None),
        victims @ (Victims::Transfers | Victims::Handshakes) => {
            let socket = UdpSocket::bind((Ipv4Addr::new(127, 3, 0, number), 0))?;
            socket.set_nonblocking(true)?;
            Ok(Some(Front { victims, socket }))
        }
    }
}
