//! `doctor path`: which hop between client and server loses.
//!
//! Each hop writes a file of JSON lines: one line for each second, hop and connection.
//!
//! ```json
//! {"second":1763830800,"hop":"client","connection":"9f86d081884c7d65","packets":120,"bytes":144000}
//! ```
//!
//! | field | |
//! |---|---|
//! | `second` | seconds since 1970 (Unix time) in which the packets passed |
//! | `hop` | who saw them: any name; the order of hops is given on the command line |
//! | `connection` | what all hops call the connection: a keyed hash of its first destination connection ID, in hexadecimal |
//! | `packets`, `bytes` | datagrams of this connection that passed in this second, and their UDP payload |
//! | `direction` | optional: `up` (client to server; the default) or `down` |
//!
//! Unknown fields are ignored, so that writers may add some.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// One line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HopSample {
    /// Seconds since 1970.
    pub second: u64,
    /// Who saw the packets.
    pub hop: String,
    /// What all hops call the connection.
    pub connection: String,
    /// Datagrams in this second.
    pub packets: u64,
    /// Bytes of their UDP payload.
    pub bytes: u64,
    /// Which way they went.
    #[serde(default)]
    pub direction: Direction,
}

/// A direction of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the client to the server.
    #[default]
    Up,
    /// From the server to the client.
    Down,
}

/// Reads a file's lines. `path` is for errors.
///
/// # Errors
/// If a line is not such an object.
pub fn parse(path: &str, text: &str) -> Result<Vec<HopSample>, Error> {
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            serde_json::from_str(line).map_err(|error| Error::File {
                path: format!("{path}, line {}", index + 1),
                reason: error.to_string(),
            })
        })
        .collect()
}

/// What passed between two neighbouring hops.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Segment {
    /// Which way.
    pub direction: Direction,
    /// The hop that sent.
    pub from: String,
    /// The hop that should have received.
    pub to: String,
    /// Packets that the first saw, over the seconds that both saw.
    pub sent: u64,
    /// Packets that the second saw.
    pub arrived: u64,
    /// Packets that are missing.
    pub lost: u64,
    /// Connections that lost on this segment.
    pub connections: usize,
}

impl Segment {
    /// Returns the share that was lost, from 0 to 1.
    #[must_use]
    pub fn loss(&self) -> f64 {
        self.lost as f64 / (self.sent.max(1)) as f64
    }
}

/// Which segment of a path loses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathReport {
    /// The verdict in a sentence.
    pub verdict: String,
    /// The segment that loses most, as an index, if one does.
    pub worst: Option<usize>,
    /// Every segment, in both directions.
    pub segments: Vec<Segment>,
    /// Connections that not every hop saw: they took another way, or their names differ.
    pub unmatched: usize,
}

/// From this share on, packets that one hop saw and the next did not are a loss. A smaller share may
/// have been under way when a file began or ended: totals are compared, so files should cover the same
/// time, and a thousand times the round trip of the segment.
const NOTABLE: f64 = 0.001;

impl PathReport {
    /// Compares hops in the order in which packets pass them from client to server.
    #[must_use]
    pub fn new(samples: &[HopSample], order: &[String]) -> Self {
        let table = totals(samples);
        let mut segments = Vec::new();
        for direction in [Direction::Up, Direction::Down] {
            for pair in order.windows(2) {
                let [near, far] = pair else { continue };
                let (from, to) = match direction {
                    Direction::Up => (near, far),
                    Direction::Down => (far, near),
                };
                segments.extend(segment(&table, direction, from, to));
            }
        }
        let worst = segments
            .iter()
            .enumerate()
            .filter(|(_, segment)| segment.loss() > NOTABLE)
            .max_by(|a, b| a.1.lost.cmp(&b.1.lost))
            .map(|(index, _)| index);
        Self {
            verdict: verdict(worst.and_then(|index| segments.get(index)), &segments),
            worst,
            unmatched: unmatched(samples, order),
            segments,
        }
    }
}

/// Packets by direction, hop and connection.
type Totals<'a> = BTreeMap<(Direction, &'a str, &'a str), u64>;

fn totals(samples: &[HopSample]) -> Totals<'_> {
    let mut totals = Totals::new();
    for sample in samples {
        let key = (
            sample.direction,
            sample.hop.as_str(),
            sample.connection.as_str(),
        );
        let total = totals.entry(key).or_default();
        *total = total.saturating_add(sample.packets);
    }
    totals
}

fn segment(totals: &Totals<'_>, direction: Direction, from: &str, to: &str) -> Option<Segment> {
    let mut segment = Segment {
        direction,
        from: from.to_owned(),
        to: to.to_owned(),
        sent: 0,
        arrived: 0,
        lost: 0,
        connections: 0,
    };
    let of = |hop: &str| {
        let hop = hop.to_owned();
        totals
            .iter()
            .filter(move |((d, h, _), _)| *d == direction && *h == hop)
            .map(|((_, _, connection), packets)| (*connection, *packets))
            .collect::<BTreeMap<_, _>>()
    };
    let (sent, arrived) = (of(from), of(to));
    for (connection, &packets) in &sent {
        // Of a connection that the other hop never saw one cannot tell whether it should have.
        let Some(&there) = arrived.get(connection) else {
            continue;
        };
        segment.sent = segment.sent.saturating_add(packets);
        segment.arrived = segment.arrived.saturating_add(there);
        if there < packets {
            segment.connections += 1;
        }
    }
    segment.lost = segment.sent.saturating_sub(segment.arrived);
    (segment.sent > 0).then_some(segment)
}

fn unmatched(samples: &[HopSample], order: &[String]) -> usize {
    let mut seen: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for sample in samples {
        seen.entry(&sample.connection)
            .or_default()
            .insert(&sample.hop);
    }
    let all = |hops: &BTreeSet<&str>| order.iter().all(|hop| hops.contains(hop.as_str()));
    seen.values().filter(|hops| !all(hops)).count()
}

fn verdict(worst: Option<&Segment>, segments: &[Segment]) -> String {
    match worst {
        Some(segment) => format!(
            "Packets are lost between {} and {}: {} of {} ({:.2} %), on {} connection{}.",
            segment.from,
            segment.to,
            segment.lost,
            segment.sent,
            segment.loss() * 100.0,
            segment.connections,
            if segment.connections == 1 { "" } else { "s" }
        ),
        None if segments.is_empty() => {
            "No two neighbouring hops saw the same connection: nothing can be compared.".to_owned()
        }
        None => "Every hop saw what the one before it sent.".to_owned(),
    }
}

/// Returns the order of hops: as given, or else client, balancer, server, and the others by name.
#[must_use]
pub fn order(samples: &[HopSample], given: &[String]) -> Vec<String> {
    if !given.is_empty() {
        return given.to_vec();
    }
    let rank = |hop: &str| match hop {
        "client" => 0,
        "balancer" => 1,
        "server" => 3,
        _ => 2,
    };
    let names: BTreeSet<&str> = samples.iter().map(|sample| sample.hop.as_str()).collect();
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_by_key(|hop| rank(hop));
    names.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(hop: &str, connection: &str, second: u64, packets: u64) -> String {
        format!(
            "{{\"second\":{second},\"hop\":\"{hop}\",\"connection\":\"{connection}\",\"packets\":{packets},\"bytes\":1}}\n"
        )
    }

    #[test]
    fn hop_that_loses_is_named() {
        let mut text = String::new();
        for (hop, packets) in [("server", 80), ("client", 100), ("balancer", 100)] {
            for second in 0..3 {
                text += &line(hop, "aa", second, packets);
                text += &line(hop, "bb", second, 50);
            }
        }
        text += &line("client", "only-here", 0, 500);
        let samples = parse("x", &text).unwrap();
        let report = PathReport::new(&samples, &order(&samples, &[]));
        let worst = &report.segments[report.worst.unwrap()];
        assert_eq!(
            (worst.from.as_str(), worst.to.as_str()),
            ("balancer", "server")
        );
        assert_eq!((worst.sent, worst.lost, worst.connections), (450, 60, 1));
        assert_eq!(report.unmatched, 1);
    }

    #[test]
    fn nothing_to_compare_is_not_called_healthy() {
        let report = PathReport::new(&[], &[]);
        assert!(report.verdict.contains("nothing can be compared"));
        let error = parse("file", "{}\n").unwrap_err().to_string();
        assert!(error.starts_with("file, line 1: "), "{error}");
    }
}
