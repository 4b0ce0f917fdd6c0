//! The places that are read, one file for each.
//!
//! A [`Source`] hands over a place's bytes as the kernel wrote them; the parsers are pure functions of
//! these bytes. [`live::Live`] reads this host, [`Capture`] a directory with what another host gave.

use std::io;
use std::path::{Path, PathBuf};

pub mod conntrack;
pub mod device;
pub mod firewall;
#[cfg(target_os = "linux")]
pub mod live;
#[cfg(target_os = "linux")]
pub mod namespace;
pub mod netlink;
pub mod process;
pub mod qdisc;
pub mod snmp;
pub mod sock_diag;
pub mod sockstat;
pub mod softnet;
pub mod udp_table;

/// A place of the kernel that has counters or limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Counters of IP, ICMP, TCP and UDP over IPv4.
    Snmp,
    /// The same over IPv6.
    Snmp6,
    /// Further counters of IPv4 and TCP.
    Netstat,
    /// UDP sockets over IPv4, as text.
    Udp,
    /// UDP sockets over IPv6, as text.
    Udp6,
    /// The queues between network devices and protocols, per processor.
    Softnet,
    /// Memory of sockets.
    Sockstat,
    /// Counters of connection tracking.
    Conntrack,
    /// How many connections are tracked.
    ConntrackCount,
    /// How many connections may be tracked.
    ConntrackMax,
    /// Limits on the memory of all UDP sockets.
    UdpMem,
    /// UDP sockets over IPv4 with their memory (netlink).
    SocketsV4,
    /// UDP sockets over IPv6 with their memory (netlink).
    SocketsV6,
    /// Network devices and their counters (netlink).
    Links,
    /// Queueing disciplines and their counters (netlink).
    Qdiscs,
    /// Chains of the firewall (netlink).
    FirewallChains,
    /// Rules of the firewall (netlink).
    FirewallRules,
}

impl Place {
    /// Every place.
    pub const ALL: [Self; 17] = [
        Self::Snmp,
        Self::Snmp6,
        Self::Netstat,
        Self::Udp,
        Self::Udp6,
        Self::Softnet,
        Self::Sockstat,
        Self::Conntrack,
        Self::ConntrackCount,
        Self::ConntrackMax,
        Self::UdpMem,
        Self::SocketsV4,
        Self::SocketsV6,
        Self::Links,
        Self::Qdiscs,
        Self::FirewallChains,
        Self::FirewallRules,
    ];

    /// Returns the path under `/proc`, or under a capture's directory for what netlink answers.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Snmp => "net/snmp",
            Self::Snmp6 => "net/snmp6",
            Self::Netstat => "net/netstat",
            Self::Udp => "net/udp",
            Self::Udp6 => "net/udp6",
            Self::Softnet => "net/softnet_stat",
            Self::Sockstat => "net/sockstat",
            Self::Conntrack => "net/stat/nf_conntrack",
            Self::ConntrackCount => "sys/net/netfilter/nf_conntrack_count",
            Self::ConntrackMax => "sys/net/netfilter/nf_conntrack_max",
            Self::UdpMem => "sys/net/ipv4/udp_mem",
            Self::SocketsV4 => "netlink/sockets_v4",
            Self::SocketsV6 => "netlink/sockets_v6",
            Self::Links => "netlink/links",
            Self::Qdiscs => "netlink/qdiscs",
            Self::FirewallChains => "netlink/firewall_chains",
            Self::FirewallRules => "netlink/firewall_rules",
        }
    }

    /// Returns what is to be seen there, for people.
    #[must_use]
    pub const fn subject(self) -> &'static str {
        match self {
            Self::Snmp => "the UDP and IPv4 counters (/proc/net/snmp)",
            Self::Snmp6 => "the UDP and IPv6 counters (/proc/net/snmp6)",
            Self::Netstat => "further IPv4 counters (/proc/net/netstat)",
            Self::Udp => "the list of UDP sockets (/proc/net/udp)",
            Self::Udp6 => "the list of UDP sockets over IPv6 (/proc/net/udp6)",
            Self::Softnet => "the queues of the processors (/proc/net/softnet_stat)",
            Self::Sockstat => "the memory of all UDP sockets (/proc/net/sockstat)",
            Self::Conntrack => "connection tracking (/proc/net/stat/nf_conntrack)",
            Self::ConntrackCount | Self::ConntrackMax => "the size of the connection table",
            Self::UdpMem => "the memory limits of UDP (/proc/sys/net/ipv4/udp_mem)",
            Self::SocketsV4 | Self::SocketsV6 => {
                "the sizes of receive buffers (netlink, sock_diag)"
            }
            Self::Links => "the network devices (netlink)",
            Self::Qdiscs => "the queueing disciplines (netlink)",
            Self::FirewallChains | Self::FirewallRules => "the firewall's counters (nftables)",
        }
    }

    /// Returns what makes the place readable if the kernel refused.
    #[must_use]
    pub const fn needs(self) -> &'static str {
        match self {
            Self::FirewallChains | Self::FirewallRules => "root, or the capability CAP_NET_ADMIN",
            Self::Snmp
            | Self::Snmp6
            | Self::Netstat
            | Self::Udp
            | Self::Udp6
            | Self::Softnet
            | Self::Sockstat
            | Self::Conntrack
            | Self::ConntrackCount
            | Self::ConntrackMax
            | Self::UdpMem
            | Self::SocketsV4
            | Self::SocketsV6
            | Self::Links
            | Self::Qdiscs => "root",
        }
    }

    /// Whether a host may lack the place: no IPv6, no connection tracking, no firewall.
    #[must_use]
    pub const fn is_optional(self) -> bool {
        match self {
            Self::Snmp6
            | Self::Udp6
            | Self::Conntrack
            | Self::ConntrackCount
            | Self::ConntrackMax
            // Only in the host's own network namespace.
            | Self::UdpMem
            | Self::FirewallChains
            | Self::FirewallRules => true,
            Self::Snmp
            | Self::Netstat
            | Self::Udp
            | Self::Softnet
            | Self::Sockstat
            | Self::SocketsV4
            | Self::SocketsV6
            | Self::Links
            | Self::Qdiscs => false,
        }
    }
}

/// Where places are read from.
pub trait Source {
    /// Returns a place's bytes as the kernel wrote them.
    ///
    /// # Errors
    /// Those of reading. `NotFound` means that the host does not have the place.
    fn read(&mut self, place: Place) -> io::Result<Vec<u8>>;
}

/// A directory with the places of a host as files.
#[derive(Clone, Debug)]
pub struct Capture {
    directory: PathBuf,
}

impl Capture {
    /// Reads from this directory.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
        }
    }

    /// Writes every place that `source` has into `directory`.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn save(source: &mut impl Source, directory: &Path) -> io::Result<()> {
        for place in Place::ALL {
            let Ok(bytes) = source.read(place) else {
                continue;
            };
            let file = directory.join(place.path());
            if let Some(folder) = file.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(file, bytes)?;
        }
        Ok(())
    }
}

impl Source for Capture {
    fn read(&mut self, place: Place) -> io::Result<Vec<u8>> {
        std::fs::read(self.directory.join(place.path()))
    }
}

/// Escapes what a terminal may interpret: names of processes and devices may contain anything.
#[must_use]
pub fn clean(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_alphanumeric() || c.is_ascii_graphic() || c == ' ' {
            text.push(c);
        } else {
            text.extend(c.escape_default());
        }
    }
    text
}
