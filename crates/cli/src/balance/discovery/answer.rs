//! Questions to name servers, and what they answer.
//!
//! This file uses nothing else of the command, so that the fuzz target `balancer_inputs` contains it.

use core::net::{IpAddr, SocketAddr};

use clearway_balancer::config::DiscoveredServer;
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};

/// Most targets of one name that are asked for.
const MOST: usize = 1_024;

/// A record of an SRV answer.
#[derive(Debug)]
pub(super) struct Target {
    priority: u16,
    weight: u16,
    port: u16,
    pub(super) host: String,
}

impl Target {
    /// Returns the target that a record names, if it is an SRV record.
    pub(super) fn new(data: &RData<'_>) -> Option<Self> {
        let RData::SRV(srv) = data else {
            return None;
        };
        Some(Self {
            priority: srv.priority,
            weight: srv.weight,
            port: srv.port,
            host: srv.target.to_string(),
        })
    }

    /// Returns the server at one of the target's addresses.
    pub(super) fn server(&self, ip: IpAddr) -> DiscoveredServer {
        DiscoveredServer {
            address: SocketAddr::new(ip, self.port),
            weight: u32::from(self.weight).clamp(1, 100),
            draining: false,
        }
    }
}

/// Returns the targets of the first priority. The others are a fallback, which health probes make
/// unnecessary.
pub(super) fn first_priority(mut targets: Vec<Target>) -> Vec<Target> {
    let first = targets.iter().map(|target| target.priority).min();
    targets.retain(|target| Some(target.priority) == first);
    targets.truncate(MOST);
    targets
}

/// Returns the address in a record, if it is one of an address.
pub(super) fn address(data: &RData<'_>) -> Option<IpAddr> {
    match data {
        RData::A(a) => Some(IpAddr::from(a.address.to_be_bytes())),
        RData::AAAA(aaaa) => Some(IpAddr::from(aaaa.address.to_be_bytes())),
        _ => None,
    }
}

/// Reads the answer to the question with this number, and hands `take` its records.
///
/// # Errors
/// If it is malformed, to another question, or says that there is no answer.
pub(super) fn read(id: u16, answer: &[u8], take: impl FnMut(&RData<'_>)) -> Result<(), String> {
    let answer = Packet::parse(answer).map_err(|error| error.to_string())?;
    if answer.id() != id || !answer.has_flags(PacketFlag::RESPONSE) {
        return Err("the answer is to another question".to_owned());
    }
    match answer.rcode() {
        RCODE::NoError => {}
        code => return Err(format!("the name server answered {code:?}")),
    }
    answer
        .answers
        .iter()
        .map(|record| &record.rdata)
        .for_each(take);
    Ok(())
}

/// Returns a question with its length before it.
///
/// # Errors
/// If the name is not one.
pub(super) fn question(id: u16, name: &str, kind: TYPE) -> simple_dns::Result<Vec<u8>> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let (kind, class) = (QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN));
    let question = Question::new(Name::new(name)?, kind, class, false);
    packet.questions.push(question);
    let packet = packet.build_bytes_vec()?;
    // A name has at most 255 bytes.
    let len = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    Ok([&len.to_be_bytes()[..], &packet].concat())
}

/// Returns the first name server in a file such as /etc/resolv.conf (resolv.conf(5)).
pub(super) fn first_name_server(text: &str) -> Option<SocketAddr> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let address = words.next().filter(|word| *word == "nameserver");
        let address = address.and_then(|_| words.next())?;
        Some(SocketAddr::new(address.parse().ok()?, 53))
    })
}
