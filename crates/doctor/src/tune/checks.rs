//! What is looked at.

use std::fs;

use super::{Finding, Status};
use crate::render::words::{bytes, count};

/// What a program like Clearway asks for: 3 ms at 10 Gbit/s.
const BUFFER: u64 = 4 << 20;
/// Packets a processor's queue should hold: a burst of 10 Gbit/s for 10 ms, in trains less.
const BACKLOG: u64 = 1_000;

/// Where settings are read from, so that tests can bring their own.
pub trait Facts {
    /// Returns the text of a file, such as `/proc/sys/net/core/rmem_max`.
    fn file(&self, path: &str) -> Option<String>;
    /// Returns the names in a folder.
    fn folder(&self, path: &str) -> Vec<String>;
}

/// This host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host;

impl Facts for Host {
    fn file(&self, path: &str) -> Option<String> {
        fs::read_to_string(path).ok()
    }

    fn folder(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }
}

/// Looks at everything.
#[must_use]
pub fn check(facts: &impl Facts) -> Vec<Finding> {
    let mut findings = vec![
        buffer(facts, "rmem_max", "receive"),
        buffer(facts, "wmem_max", "send"),
        backlog(facts),
        kernel(facts),
        conntrack(facts),
        qdisc(facts),
    ];
    for device in facts.folder("/sys/class/net") {
        if facts
            .folder(&format!("/sys/class/net/{device}"))
            .iter()
            .any(|name| name == "device")
        {
            findings.push(queues(facts, &device));
        }
    }
    findings
}

fn finding(
    subject: impl Into<String>,
    status: Status,
    text: String,
    command: Option<String>,
) -> Finding {
    Finding {
        subject: subject.into(),
        status,
        text,
        command,
    }
}

fn number(facts: &impl Facts, path: &str) -> Option<u64> {
    facts.file(path)?.trim().parse().ok()
}

fn buffer(facts: &impl Facts, name: &str, direction: &str) -> Finding {
    let subject = format!("largest {direction} buffer (net.core.{name})");
    let Some(limit) = number(facts, &format!("/proc/sys/net/core/{name}")) else {
        return finding(subject, Status::Unknown, "cannot be read".to_owned(), None);
    };
    if limit >= BUFFER {
        return finding(subject, Status::Fine, bytes(limit), None);
    }
    let text = format!(
        "{}: programs get no more, however much they ask for; {} hold 3 ms at 10 Gbit/s",
        bytes(limit),
        bytes(BUFFER)
    );
    finding(
        subject,
        Status::Limits,
        text,
        Some(format!("sysctl -w net.core.{name}={BUFFER}")),
    )
}

fn backlog(facts: &impl Facts) -> Finding {
    let subject = "queue of a processor (net.core.netdev_max_backlog)";
    match number(facts, "/proc/sys/net/core/netdev_max_backlog") {
        None => finding(subject, Status::Unknown, "cannot be read".to_owned(), None),
        Some(limit) if limit >= BACKLOG => finding(
            subject,
            Status::Fine,
            format!("{} packets", count(limit)),
            None,
        ),
        Some(limit) => finding(
            subject,
            Status::Limits,
            format!("{} packets: bursts overflow it", count(limit)),
            Some(format!("sysctl -w net.core.netdev_max_backlog={BACKLOG}")),
        ),
    }
}

/// UDP segmentation came with Linux 4.18, receive offload for UDP with 5.0.
fn kernel(facts: &impl Facts) -> Finding {
    let subject = "offloads of UDP (GSO, GRO)";
    let release = facts.file("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.trim().parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let release = release.trim();
    match version {
        (0, _) => finding(
            subject,
            Status::Unknown,
            "the kernel's version cannot be read".to_owned(),
            None,
        ),
        (5.., _) => finding(
            subject,
            Status::Fine,
            format!("Linux {release} has both"),
            None,
        ),
        (4, 18..) => finding(
            subject,
            Status::Limits,
            format!(
                "Linux {release} can send trains but not receive them (GRO for UDP came with 5.0): upgrade it"
            ),
            None,
        ),
        (_, _) => finding(
            subject,
            Status::Limits,
            format!(
                "Linux {release} has neither (GSO for UDP came with 4.18, GRO with 5.0): upgrade it"
            ),
            None,
        ),
    }
}

fn conntrack(facts: &impl Facts) -> Finding {
    let subject = "connection tracking of UDP";
    let count_of = |name: &str| {
        number(
            facts,
            &format!("/proc/sys/net/netfilter/nf_conntrack_{name}"),
        )
    };
    let (Some(tracked), Some(most)) = (count_of("count"), count_of("max")) else {
        return finding(
            subject,
            Status::Fine,
            "the kernel does not track connections".to_owned(),
            None,
        );
    };
    if tracked == 0 {
        return finding(
            subject,
            Status::Fine,
            "no connection is tracked in this network namespace".to_owned(),
            None,
        );
    }
    let text = format!(
        "{} of at most {} connections are tracked: each packet costs a lookup, and a full table drops; exempt the \
         service's port (PORT)",
        count(tracked),
        count(most)
    );
    let command = "nft add table inet quic; nft 'add chain inet quic raw { type filter hook prerouting priority raw; }'; \
                   nft add rule inet quic raw udp dport PORT notrack";
    finding(subject, Status::Limits, text, Some(command.to_owned()))
}

fn qdisc(facts: &impl Facts) -> Finding {
    let subject = "queue discipline (net.core.default_qdisc)";
    let name = facts.file("/proc/sys/net/core/default_qdisc");
    match name.as_deref().map(str::trim) {
        None => finding(
            subject,
            Status::Unknown,
            "only to be seen in the host's own network namespace".to_owned(),
            None,
        ),
        Some("pfifo_fast" | "pfifo") => finding(
            subject,
            Status::Limits,
            "pfifo_fast lets one flow delay all others: fq_codel and fq share the link".to_owned(),
            Some(
                "sysctl -w net.core.default_qdisc=fq_codel   # devices that come up from now on"
                    .to_owned(),
            ),
        ),
        Some(name) => finding(subject, Status::Fine, name.to_owned(), None),
    }
}

/// A card with one receive queue is served by one processor.
fn queues(facts: &impl Facts, device: &str) -> Finding {
    let subject = format!("receive queues of {device}");
    let names = facts.folder(&format!("/sys/class/net/{device}/queues"));
    let receive: Vec<&String> = names
        .iter()
        .filter(|name| name.starts_with("rx-"))
        .collect();
    let processors = facts
        .folder("/sys/devices/system/cpu")
        .iter()
        .filter(|name| {
            name.strip_prefix("cpu")
                .is_some_and(|n| n.parse::<u32>().is_ok())
        })
        .count();
    let spread = receive.iter().any(|queue| {
        let mask = facts.file(&format!("/sys/class/net/{device}/queues/{queue}/rps_cpus"));
        mask.is_some_and(|mask| mask.chars().any(|digit| ('1'..='f').contains(&digit)))
    });
    if receive.len() > 1 || spread || processors < 2 {
        let text = format!("{} for {processors} processors", receive.len());
        return finding(subject, Status::Fine, text, None);
    }
    finding(
        subject,
        Status::Limits,
        format!("one for {processors} processors: a single one of them takes all packets"),
        Some(format!(
            "ethtool -L {device} combined {processors} || echo ffffffff > /sys/class/net/{device}/queues/rx-0/rps_cpus"
        )),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Default)]
    struct Fake(BTreeMap<&'static str, &'static str>);

    impl Facts for Fake {
        fn file(&self, path: &str) -> Option<String> {
            self.0.get(path).map(|text| (*text).to_owned())
        }

        fn folder(&self, path: &str) -> Vec<String> {
            let names = self
                .0
                .keys()
                .filter_map(|file| file.strip_prefix(path)?.strip_prefix('/'));
            let mut names: Vec<String> = names
                .filter_map(|rest| rest.split('/').next().map(str::to_owned))
                .collect();
            names.dedup();
            names
        }
    }

    fn status(findings: &[Finding], subject: &str) -> Status {
        findings
            .iter()
            .find(|finding| finding.subject.contains(subject))
            .unwrap()
            .status
    }

    #[test]
    fn small_buffers_old_kernels_and_single_queues_limit() {
        let facts = Fake(BTreeMap::from([
            ("/proc/sys/net/core/rmem_max", "212992\n"),
            ("/proc/sys/net/core/wmem_max", "8388608\n"),
            ("/proc/sys/kernel/osrelease", "4.19.0-6-amd64\n"),
            ("/proc/sys/net/core/default_qdisc", "fq\n"),
            ("/proc/sys/net/netfilter/nf_conntrack_count", "7\n"),
            ("/proc/sys/net/netfilter/nf_conntrack_max", "10\n"),
            ("/sys/class/net/eth0/device", ""),
            ("/sys/class/net/eth0/queues/rx-0/rps_cpus", "00\n"),
            ("/sys/devices/system/cpu/cpu0/x", ""),
            ("/sys/devices/system/cpu/cpu1/x", ""),
        ]));
        let findings = check(&facts);
        for (subject, expected) in [
            ("rmem_max", Status::Limits),
            ("wmem_max", Status::Fine),
            ("backlog", Status::Unknown),
            ("offloads", Status::Limits),
            ("tracking", Status::Limits),
            ("discipline", Status::Fine),
            ("eth0", Status::Limits),
        ] {
            assert_eq!(status(&findings, subject), expected, "{subject}");
        }
    }
}
