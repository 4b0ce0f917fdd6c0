//! Takes samples from a source.

use core::time::Duration;
use std::io;

use crate::counters::Counters;
use crate::error::{Error, ParseError};
use crate::sample::{Levels, Look, Missing, Sample};
use crate::source::{
    Place, Source, conntrack, device, firewall, qdisc, snmp, sock_diag, sockstat, softnet,
    udp_table,
};

/// How much a sample has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The sockets and the counters of UDP: what charts and the model of a socket need.
    Quick,
    /// Every counter, levels, devices, queueing disciplines and the firewall, too.
    Full,
}

/// Reads a sample from `source`. Whatever cannot be read is left out and named in
/// [`Sample::missing`].
///
/// # Errors
/// [`Error::Blind`] if the counters of UDP cannot be read: without them there is no diagnosis.
pub fn sample(source: &mut impl Source, at: Duration, depth: Depth) -> Result<Sample, Error> {
    let mut reader = Reader {
        source,
        sample: Sample {
            at,
            full: depth == Depth::Full,
            ..Sample::default()
        },
    };
    reader.udp()?;
    reader.sockets();
    if depth == Depth::Full {
        reader.protocols();
        reader.levels();
        reader.devices();
        reader.firewall();
    }
    Ok(reader.sample)
}

/// Looks once more at the sockets that have something in their queues.
/// When is for the caller to say.
pub fn look(source: &mut impl Source) -> Look {
    let mut sockets = Vec::new();
    for place in [Place::SocketsV4, Place::SocketsV6] {
        let bytes = source.read(place).unwrap_or_default();
        sockets.extend(sock_diag::parse(&bytes).unwrap_or_default());
    }
    sockets.retain(|socket| socket.queue > 0);
    Look {
        at: Duration::ZERO,
        sockets,
    }
}

struct Reader<'a, S> {
    source: &'a mut S,
    sample: Sample,
}

impl<S: Source> Reader<'_, S> {
    fn udp(&mut self) -> Result<(), Error> {
        let blind = |reason: String| Error::Blind {
            what: Place::Snmp.subject(),
            reason,
        };
        let snmp = self
            .source
            .read(Place::Snmp)
            .map_err(|e| blind(e.to_string()))?;
        let snmp =
            snmp::parse(&String::from_utf8_lossy(&snmp)).map_err(|e| blind(e.to_string()))?;
        if snmp.find("Udp.InDatagrams").is_none() {
            return Err(blind("it has no counters of UDP".to_owned()));
        }
        self.sample.counters.merge(snmp);
        self.counters(Place::Snmp6, snmp::parse_v6);
        Ok(())
    }

    fn protocols(&mut self) {
        self.counters(Place::Netstat, snmp::parse);
        self.counters(Place::Softnet, softnet::parse);
        self.counters(Place::Conntrack, conntrack::parse);
    }

    fn sockets(&mut self) {
        for (netlink, table) in [
            (Place::SocketsV4, Place::Udp),
            (Place::SocketsV6, Place::Udp6),
        ] {
            let sockets = self
                .bytes(netlink, sock_diag::parse)
                .or_else(|| self.text(table, udp_table::parse));
            self.sample.sockets.extend(sockets.unwrap_or_default());
        }
    }

    fn levels(&mut self) {
        self.sample.levels = Levels {
            udp_pages: self.text(Place::Sockstat, sockstat::udp_pages),
            udp_limits: self.text(Place::UdpMem, sockstat::udp_mem),
            page_size: page_size(),
            conntrack_count: self.text(Place::ConntrackCount, sockstat::number),
            conntrack_max: self.text(Place::ConntrackMax, sockstat::number),
        };
    }

    fn devices(&mut self) {
        if let Some((devices, counters)) = self.bytes(Place::Links, device::parse) {
            self.sample.counters.merge(counters);
            self.sample.devices = devices;
        }
        let devices = self.sample.devices.clone();
        if let Some(counters) = self.bytes(Place::Qdiscs, |bytes| qdisc::parse(bytes, &devices)) {
            self.sample.counters.merge(counters);
        }
    }

    fn firewall(&mut self) {
        let Some(chains) = self.bytes(Place::FirewallChains, firewall::parse_chains) else {
            return;
        };
        let rules = self.bytes(Place::FirewallRules, |bytes| {
            firewall::parse_rules(bytes, &chains)
        });
        self.sample.counters.merge(rules.unwrap_or_default());
    }

    fn counters(&mut self, place: Place, parse: fn(&str) -> Result<Counters, ParseError>) {
        let counters = self.text(place, parse);
        self.sample.counters.merge(counters.unwrap_or_default());
    }

    fn text<T>(
        &mut self,
        place: Place,
        parse: impl FnOnce(&str) -> Result<T, ParseError>,
    ) -> Option<T> {
        self.bytes(place, |bytes| parse(&String::from_utf8_lossy(bytes)))
    }

    fn bytes<T>(
        &mut self,
        place: Place,
        parse: impl FnOnce(&[u8]) -> Result<T, ParseError>,
    ) -> Option<T> {
        let (why, needs) = match self.source.read(place) {
            Ok(bytes) => match parse(&bytes) {
                Ok(parsed) => return Some(parsed),
                Err(error) => (error.to_string(), None),
            },
            Err(error) if is_absent(&error) && place.is_optional() => return None,
            Err(error) => {
                let refused = error.kind() == io::ErrorKind::PermissionDenied;
                (error.to_string(), refused.then(|| place.needs().to_owned()))
            }
        };
        let what = place.subject().to_owned();
        if !self
            .sample
            .missing
            .iter()
            .any(|missing| missing.what == what)
        {
            self.sample.missing.push(Missing { what, why, needs });
        }
        None
    }
}

/// Whether the kernel does not have it: no such file, or a netlink family that is not built in.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput
    )
}

#[cfg(target_os = "linux")]
fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

#[cfg(not(target_os = "linux"))]
fn page_size() -> u64 {
    4_096
}
