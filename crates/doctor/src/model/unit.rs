//! In which unit the counters of UDP count.

use serde::Serialize;

use crate::sample::Recording;

/// What one step of `InDatagrams` and of a socket's drops stands for.
///
/// A socket with `UDP_GRO` receives trains of datagrams as one buffer, and the counters count buffers.
/// IP counts twice: buffers in `InReceives`, datagrams in `InNoECTPkts` and its three siblings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "unit")]
pub enum Unit {
    /// Datagrams.
    Datagrams,
    /// Buffers, each of this many datagrams on average.
    GroBuffers {
        /// On average.
        datagrams_each: f64,
    },
    /// Datagrams, or buffers if the program uses `UDP_GRO`: trains arrive, but other traffic hides which.
    Unclear {
        /// IP packets in one buffer, over all protocols.
        packets_each: f64,
    },
}

/// Up to this many packets in a buffer, on average, trains make no difference.
const SINGLE: f64 = 1.05;
/// UDP's count agrees with one of IP's two if it is within this factor of it.
const AGREES: f64 = 1.25;

impl Unit {
    /// Finds out from what IP and UDP counted during a recording.
    #[must_use]
    pub fn new(recording: &Recording) -> Self {
        let Some((first, last)) = recording.ends() else {
            return Self::Datagrams;
        };
        let grown = last.counters.since(&first.counters);
        let sum = |names: &[&str]| names.iter().map(|name| grown.get(name)).sum::<u64>() as f64;
        let buffers = sum(&["Ip.InReceives", "Ip6.InReceives"]);
        let packets = sum(&[
            "IpExt.InNoECTPkts",
            "IpExt.InECT0Pkts",
            "IpExt.InECT1Pkts",
            "IpExt.InCEPkts",
            "Ip6.InNoECTPkts",
            "Ip6.InECT0Pkts",
            "Ip6.InECT1Pkts",
            "Ip6.InCEPkts",
        ]);
        // Before Linux 3.11 the second does not exist, and no program receives trains either.
        if buffers == 0.0 || packets <= buffers * SINGLE {
            return Self::Datagrams;
        }
        let packets_each = packets / buffers;
        let udp = sum(&[
            "Udp.InDatagrams",
            "Udp.InErrors",
            "Udp.NoPorts",
            "Udp6.InDatagrams",
            "Udp6.InErrors",
            "Udp6.NoPorts",
        ]);
        let other = sum(&["Tcp.InSegs", "Icmp.InMsgs", "Icmp6.InMsgs"]);
        let udp_buffers = buffers - other;
        if other > buffers / 10.0 || udp <= 0.0 {
            return Self::Unclear { packets_each };
        }
        if udp <= udp_buffers * AGREES && udp * AGREES < packets {
            return Self::GroBuffers {
                datagrams_each: packets_each,
            };
        }
        if packets <= udp * AGREES {
            return Self::Datagrams;
        }
        Self::Unclear { packets_each }
    }

    /// Returns the unit's name, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Datagrams | Self::Unclear { .. } => "datagrams",
            Self::GroBuffers { .. } => "buffers",
        }
    }

    /// Returns what there is to know about the unit, if it is not plain datagrams.
    #[must_use]
    pub fn note(self) -> Option<String> {
        match self {
            Self::Datagrams => None,
            Self::GroBuffers { datagrams_each } => Some(format!(
                "Rates are in buffers of {datagrams_each:.1} datagrams on average, because the program \
                 receives whole trains (UDP_GRO)."
            )),
            Self::Unclear { packets_each } => Some(format!(
                "Trains of {packets_each:.1} packets arrive on average. If the program receives them whole \
                 (UDP_GRO), rates are in trains, otherwise in datagrams."
            )),
        }
    }
}
