//! What each counter counts.

use serde::Serialize;

use super::Stage;

/// What a counter says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A loss.
    Loss,
    /// Not a loss, or one that another counter counts too.
    Sign,
    /// Traffic.
    Traffic,
    /// Unknown.
    Unknown,
}

/// A counter's stage and meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The stage.
    pub stage: Stage,
    /// Whether it is a loss.
    pub role: Role,
    /// What it counts. `None` if this program does not know it.
    pub meaning: Option<&'static str>,
}

/// Returns what a counter counts, or `None` if it has nothing to do with UDP.
#[must_use]
pub fn classify(name: &str) -> Option<Known> {
    if let Some(rest) = name.strip_prefix("qdisc ") {
        return Some(qdisc(rest));
    }
    if name.starts_with("nft-out ") {
        return Some(loss(Stage::Sender, "dropped by a firewall rule when sent"));
    }
    if name.starts_with("nft ") {
        return Some(loss(Stage::Firewall, "dropped by a firewall rule"));
    }
    let (group, counter) = name.split_once('.')?;
    match group {
        "Udp" | "Udp6" => Some(udp(counter)),
        "Ip" | "Ip6" | "IpExt" => Some(ip(counter)),
        "TcpExt" if counter == "IPReversePathFilter" => Some(loss(
            Stage::Ip,
            "from a source that is reached by another device (rp_filter)",
        )),
        "softnet" => Some(softnet(counter)),
        "conntrack" => Some(conntrack(counter)),
        _ if group.starts_with("dev ") => Some(device(counter)),
        _ if group.starts_with("UdpLite") => Some(unknown(Stage::ReceiveBuffer)),
        _ => None,
    }
}

const fn loss(stage: Stage, meaning: &'static str) -> Known {
    known(stage, Role::Loss, meaning)
}

const fn sign(stage: Stage, meaning: &'static str) -> Known {
    known(stage, Role::Sign, meaning)
}

const fn traffic(stage: Stage, meaning: &'static str) -> Known {
    known(stage, Role::Traffic, meaning)
}

const fn known(stage: Stage, role: Role, meaning: &'static str) -> Known {
    Known {
        stage,
        role,
        meaning: Some(meaning),
    }
}

const fn unknown(stage: Stage) -> Known {
    Known {
        stage,
        role: Role::Unknown,
        meaning: None,
    }
}

fn udp(counter: &str) -> Known {
    match counter {
        "InDatagrams" => traffic(Stage::Application, "read by programs"),
        "OutDatagrams" => traffic(Stage::Sender, "sent"),
        "NoPorts" => loss(Stage::NoPort, "to a port on which no program listens"),
        "InCsumErrors" => loss(Stage::Checksum, "with a wrong checksum"),
        "MemErrors" => loss(
            Stage::Memory,
            "beyond the memory of all UDP sockets (udp_mem)",
        ),
        "RcvbufErrors" => loss(Stage::ReceiveBuffer, "receive buffer full"),
        "SndbufErrors" => loss(Stage::Sender, "send buffer or queue of the device full"),
        // A sum of others; what they leave of it is deduced.
        "InErrors" => traffic(
            Stage::ReceiveBuffer,
            "sum of all receive errors but NoPorts",
        ),
        "IgnoredMulti" => sign(Stage::NoPort, "multicast that no program asked for"),
        _ => unknown(Stage::ReceiveBuffer),
    }
}

fn ip(counter: &str) -> Known {
    match counter {
        "InHdrErrors" => loss(Stage::Ip, "with a wrong IP header"),
        "InAddrErrors" => loss(Stage::Ip, "to an address that is not this host's"),
        "InDiscards" => loss(
            Stage::Ip,
            "discarded by IP, for lack of memory or by a rule",
        ),
        "InNoRoutes" => loss(Stage::Ip, "without a route"),
        "InTruncatedPkts" => loss(Stage::Ip, "shorter than their IP header says"),
        "InTooBigErrors" => loss(Stage::Ip, "larger than the next link allows"),
        "ReasmFails" => loss(Stage::Ip, "fragments that could not be put together"),
        "ReasmTimeout" => sign(Stage::Ip, "datagrams whose fragments did not all arrive"),
        "ReasmOverlaps" => sign(Stage::Ip, "fragments that overlap"),
        "InUnknownProtos" => sign(Stage::Ip, "of a protocol that this host does not have"),
        "InCsumErrors" => sign(Stage::Ip, "with a wrong checksum of the IP header"),
        "OutDiscards" => loss(Stage::Sender, "discarded by IP when sent"),
        "OutNoRoutes" => loss(Stage::Sender, "without a route when sent"),
        "FragFails" => loss(Stage::Sender, "too large, and not to be fragmented"),
        "InReceives" | "InDelivers" | "ForwDatagrams" | "OutRequests" | "OutTransmits"
        | "OutForwDatagrams" | "ReasmReqds" | "ReasmOKs" | "FragOKs" | "FragCreates"
        | "Forwarding" | "DefaultTTL" => traffic(Stage::Ip, "IP packets"),
        _ if counter.ends_with("Pkts") || counter.ends_with("Octets") => {
            traffic(Stage::Ip, "IP packets or bytes")
        }
        _ => unknown(Stage::Ip),
    }
}

fn softnet(counter: &str) -> Known {
    match counter {
        "processed" => traffic(Stage::Softnet, "packets"),
        "dropped" => loss(
            Stage::Softnet,
            "queue of a processor full (netdev_max_backlog)",
        ),
        "time_squeeze" => sign(
            Stage::Softnet,
            "times that a processor had to stop with packets left",
        ),
        "flow_limit_count" => sign(
            Stage::Softnet,
            "dropped because one flow had filled the queue",
        ),
        "received_rps" => traffic(Stage::Softnet, "packets handed to another processor"),
        "cpu_collision" => sign(Stage::Softnet, "collisions of processors when sending"),
        _ => unknown(Stage::Softnet),
    }
}

fn conntrack(counter: &str) -> Known {
    match counter {
        "drop" => loss(Stage::Firewall, "no room for a connection in the table"),
        "insert_failed" => loss(
            Stage::Firewall,
            "a connection could not be put into the table",
        ),
        "early_drop" => sign(Stage::Firewall, "connections evicted from a full table"),
        "invalid" => sign(Stage::Firewall, "packets that belong to no connection"),
        "found" | "new" | "insert" | "delete" | "delete_list" | "searched" | "ignore"
        | "icmp_error" | "expect_new" | "expect_create" | "expect_delete" | "search_restart"
        | "clashres" => traffic(Stage::Firewall, "of connection tracking"),
        "chainlength" | "chaintoolong" => {
            loss(Stage::Firewall, "too many connections with the same hash")
        }
        _ => unknown(Stage::Firewall),
    }
}

fn device(counter: &str) -> Known {
    match counter {
        "rx_crc_errors" => loss(Stage::Wire, "damaged on the cable (CRC)"),
        "rx_frame_errors" => loss(Stage::Wire, "damaged on the cable (alignment)"),
        "rx_length_errors" => loss(Stage::Wire, "frames of a wrong length"),
        "rx_missed_errors" => loss(Stage::Ring, "the card had no free buffer"),
        "rx_fifo_errors" => loss(Stage::Ring, "the card's own memory was full"),
        "rx_over_errors" => loss(Stage::Ring, "the card's ring was full"),
        "rx_dropped" => loss(Stage::Device, "dropped by the device or before IP"),
        "rx_nohandler" => sign(Stage::Device, "on a device that nobody reads"),
        "rx_otherhost_dropped" => sign(Stage::Device, "frames for other hosts"),
        "rx_errors" => sign(Stage::Wire, "sum of the card's receive errors"),
        "tx_dropped" => loss(Stage::Sender, "dropped by the device when sent"),
        "tx_errors"
        | "tx_aborted_errors"
        | "tx_carrier_errors"
        | "tx_fifo_errors"
        | "tx_heartbeat_errors"
        | "tx_window_errors" => sign(Stage::Sender, "errors when sending"),
        "rx_packets" | "tx_packets" | "rx_bytes" | "tx_bytes" | "multicast" | "collisions"
        | "rx_compressed" | "tx_compressed" => traffic(Stage::Device, "traffic of a device"),
        _ => unknown(Stage::Device),
    }
}

fn qdisc(rest: &str) -> Known {
    let ingress = rest
        .split_ascii_whitespace()
        .any(|word| word == "ingress" || word == "clsact");
    match rest.rsplit_once('.').map(|(_, counter)| counter) {
        Some("drops") if ingress => {
            loss(Stage::Device, "dropped by a filter at the device's ingress")
        }
        Some("drops") => loss(Stage::Sender, "queue of the device full, or shaped"),
        Some("requeues") => sign(Stage::Sender, "times that the device was busy"),
        Some("overlimits") => sign(Stage::Sender, "times that a rate limit was reached"),
        Some(_) | None => unknown(Stage::Sender),
    }
}
