//! SRV records of DNS (RFC 2782), asked for again and again.
//!
//! Questions go over TCP (RFC 7766), so that any number of records fits and nobody else can answer.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use clearway_balancer::config::DiscoveredServer;
use rustix::rand::{GetRandomFlags, getrandom};
use simple_dns::rdata::RData;
use simple_dns::{Name, TYPE};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::answer::{Target, address, first_name_server, first_priority, question, read};
use super::{Complaint, Discovered};
use crate::failure::{Failure, Kind};

/// Where the system's name servers are (resolv.conf(5)).
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Longest time without an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Most servers of one name.
const MOST: usize = 1_024;

/// Asks for the records from now on.
///
/// # Errors
/// If the name is not one, or the system's name servers are not known.
pub(super) fn follow(
    discovered: Discovered,
    name: String,
    name_server: Option<SocketAddr>,
    every: Duration,
) -> Result<(), Failure> {
    let invalid =
        |message: String| Failure::new(Kind::Arguments, format!("[discovery]: {message}"));
    Name::new(&name).map_err(|error| invalid(format!("srv: invalid name {name:?}: {error}")))?;
    let name_server = match name_server {
        Some(address) => address,
        None => systems().map_err(invalid)?,
    };
    tokio::spawn(async move {
        let mut complaint = Complaint::default();
        let what = format!("the SRV records of {name}");
        loop {
            match look_up(name_server, &name).await {
                Ok(found) if found.is_empty() => complaint.say(&what, "there are none"),
                Ok(found) => {
                    discovered.update(&found);
                    complaint.settle(&what);
                }
                Err(error) => complaint.say(&what, &error),
            }
            tokio::time::sleep(every).await;
        }
    });
    Ok(())
}

/// Returns the system's first name server.
fn systems() -> Result<SocketAddr, String> {
    let text = std::fs::read_to_string(RESOLV_CONF);
    let text = text.map_err(|error| format!("{RESOLV_CONF}: {error}; set name_server"))?;
    first_name_server(&text)
        .ok_or_else(|| format!("{RESOLV_CONF} names no name server; set name_server"))
}

async fn look_up(server: SocketAddr, name: &str) -> Result<Vec<DiscoveredServer>, String> {
    let mut targets = Vec::new();
    ask(server, name, TYPE::SRV, |data| {
        targets.extend(Target::new(data));
    })
    .await?;
    let mut found = Vec::new();
    for target in first_priority(targets) {
        for ip in addresses(server, &target.host).await? {
            found.push(target.server(ip));
        }
        found.truncate(MOST);
    }
    Ok(found)
}

async fn addresses(server: SocketAddr, host: &str) -> Result<Vec<IpAddr>, String> {
    let mut found = Vec::new();
    for kind in [TYPE::A, TYPE::AAAA] {
        ask(server, host, kind, |data| found.extend(address(data))).await?;
    }
    Ok(found)
}

/// Asks a name server, and hands `take` what it answers.
async fn ask(
    server: SocketAddr,
    name: &str,
    kind: TYPE,
    take: impl FnMut(&RData<'_>),
) -> Result<(), String> {
    let asked = tokio::time::timeout(PATIENCE, exchange(server, name, kind, take)).await;
    let asked = asked.unwrap_or_else(|_| Err("no answer".to_owned()));
    asked.map_err(|error| format!("{name} from {server}: {error}"))
}

async fn exchange(
    server: SocketAddr,
    name: &str,
    kind: TYPE,
    take: impl FnMut(&RData<'_>),
) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let mut id = [0; 2];
    getrandom(&mut id, GetRandomFlags::empty()).map_err(|error| error.to_string())?;
    let id = u16::from_ne_bytes(id);
    let question = question(id, name, kind).map_err(|error| error.to_string())?;
    let mut stream = TcpStream::connect(server).await.map_err(text)?;
    stream.write_all(&question).await.map_err(text)?;
    let len = stream.read_u16().await.map_err(text)?;
    let mut answer = vec![0; usize::from(len)];
    stream.read_exact(&mut answer).await.map_err(text)?;
    read(id, &answer, take)
}

#[cfg(test)]
mod tests {
    use clearway_balancer::config::{Discovery, DiscoverySource};
    use simple_dns::rdata::{A, AAAA, SRV};
    use simple_dns::{CLASS, Packet, RCODE, ResourceRecord};
    use tokio::net::TcpListener;

    use super::*;

    /// A record with its name.
    fn record(name: &'static str, data: RData<'static>) -> (&'static str, RData<'static>) {
        (name, data)
    }

    fn srv(priority: u16, weight: u16, port: u16, target: &'static str) -> RData<'static> {
        let target = Name::new_unchecked(target);
        RData::SRV(SRV {
            priority,
            weight,
            port,
            target,
        })
    }

    fn a(last: u8) -> RData<'static> {
        let address = u32::from_be_bytes([10, 0, 0, last]);
        RData::A(A { address })
    }

    /// Answers questions from these records, forever.
    async fn serve(listener: TcpListener, records: Vec<(&'static str, RData<'static>)>) {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let len = stream.read_u16().await.unwrap();
            let mut question = vec![0; usize::from(len)];
            stream.read_exact(&mut question).await.unwrap();
            let mut packet = Packet::parse(&question).unwrap().into_reply();
            let asked = packet.questions[0].clone();
            for (name, data) in &records {
                let record =
                    ResourceRecord::new(Name::new_unchecked(name), CLASS::IN, 5, data.clone());
                if asked.qname.to_string() == *name && record.match_qtype(asked.qtype) {
                    packet.answers.push(record);
                }
            }
            if packet.answers.is_empty() && asked.qname.to_string().starts_with("unknown") {
                *packet.rcode_mut() = RCODE::NameError;
            }
            let answer = packet.build_bytes_vec().unwrap();
            stream.write_u16(answer.len() as u16).await.unwrap();
            stream.write_all(&answer).await.unwrap();
        }
    }

    #[tokio::test]
    async fn targets_of_the_first_priority_are_found_with_their_addresses() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let name = "_quic._udp.example.org";
        let v6 = u128::from("2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap());
        tokio::spawn(serve(
            listener,
            vec![
                record(name, srv(1, 0, 443, "a.example.org")),
                record(name, srv(1, 500, 444, "b.example.org")),
                record(name, srv(2, 9, 445, "c.example.org")),
                record("a.example.org", a(1)),
                record("a.example.org", RData::AAAA(AAAA { address: v6 })),
                record("b.example.org", a(2)),
                record("c.example.org", a(3)),
            ],
        ));
        let found = look_up(server, name).await.unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|server| (server.address.to_string(), server.weight))
            .collect();
        let expected = [
            ("10.0.0.1:443", 1),
            ("[2001:db8::1]:443", 1),
            ("10.0.0.2:444", 100),
        ];
        assert_eq!(
            found,
            expected.map(|(address, weight)| (address.to_owned(), weight))
        );
        let error = look_up(server, "unknown.example.org").await.unwrap_err();
        assert!(
            error.contains("the name server answered NameError"),
            "{error}"
        );

        let discovered = Discovered::start(Discovery {
            source: DiscoverySource::Srv {
                name: name.to_owned(),
                name_server: Some(server),
                every: Duration::from_secs(1),
            },
            keep: Duration::from_secs(60),
        })
        .unwrap();
        for _ in 0..2_000 {
            if discovered.servers().len() == 3 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{:?}", discovered.servers());
    }

    #[tokio::test]
    async fn invalid_name_and_silent_server_are_errors() {
        let start = |name: &str| {
            let source = DiscoverySource::Srv {
                name: name.to_owned(),
                name_server: Some(SocketAddr::from(([127, 0, 0, 1], 9))),
                every: Duration::from_secs(1),
            };
            let keep = Duration::from_secs(1);
            Discovered::start(Discovery { source, keep })
        };
        let long = "a".repeat(64);
        let error = start(&long).unwrap_err().to_string();
        assert!(error.contains("srv: invalid name"), "{error}");
        // Nobody listens: the name server of the loopback interface is none of ours.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = listener.local_addr().unwrap();
        drop(listener);
        let error = look_up(closed, "a.example.org").await.unwrap_err();
        assert!(
            error.contains(&format!("a.example.org from {closed}: ")),
            "{error}"
        );
    }

    #[test]
    fn first_name_server_of_the_system_is_found() {
        let text =
            "# nameserver 10.0.0.9\nsearch example.org\nnameserver 10.0.0.1\nnameserver ::1\n";
        assert_eq!(
            first_name_server(text),
            Some(SocketAddr::from(([10, 0, 0, 1], 53)))
        );
        assert_eq!(first_name_server("nameserver\nnameserver x\n"), None);
    }
}
