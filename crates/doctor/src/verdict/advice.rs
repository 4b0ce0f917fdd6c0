//! What to do, with the exact command and what it would buy.

use serde::Serialize;

use super::Health;
use super::text::View;
use crate::culprit::Cause;
use crate::model::Pattern;
use crate::path::Stage;
use crate::render::words::{bytes, seconds};

/// One piece of advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// What to do and what it would buy, in a sentence.
    pub text: String,
    /// The command that does it, or shows more.
    pub command: Option<String>,
}

impl Advice {
    pub(crate) fn new(text: impl Into<String>, command: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            command: Some(command.into()),
        }
    }

    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            command: None,
        }
    }
}

/// A buffer that many would try first, in bytes.
const LARGER_BUFFER: u64 = 8 << 20;

/// Returns the advice for a verdict, the best first.
pub(super) fn advice(view: &View<'_>) -> Vec<Advice> {
    let Some(stage) = view.stage.filter(|_| view.health != Health::Healthy) else {
        return Vec::new();
    };
    match stage.stage {
        Stage::ReceiveBuffer => receive_buffer(view),
        Stage::SocketFilter => vec![Advice::new(
            "Look at the filter that the program has on its socket.",
            format!("ss -uapn 'sport = :{}'", port(view)),
        )],
        Stage::Memory => memory(),
        Stage::Checksum => checksum(view),
        Stage::NoPort => no_port(),
        Stage::Firewall => firewall(view),
        Stage::Sender => sender(view),
        Stage::Wire => wire(&device(view)),
        Stage::Ring => ring(&device(view)),
        Stage::Softnet => softnet(&device(view)),
        Stage::Device => ingress(&device(view)),
        Stage::Ip => vec![Advice::new(
            "See what is wrong with the packets, by the counter's name.",
            "nstat -az | grep -E '^Ip|ReversePath'",
        )],
        Stage::Xdp | Stage::Application => Vec::new(),
    }
}

fn memory() -> Vec<Advice> {
    vec![
        Advice::new(
            "Find the sockets that hold the memory: the queue (Recv-Q) of one that nobody reads is large.",
            "ss -uapn --sort rqueue 2>/dev/null || ss -uapnm",
        ),
        Advice::new(
            "Or raise the limit (three numbers, in pages); it moves the loss to whichever buffer fills next.",
            "sysctl net.ipv4.udp_mem",
        ),
    ]
}

fn no_port() -> Vec<Advice> {
    vec![
        Advice::new(
            "See the ports: the kernel answers such datagrams with \"port unreachable\".",
            "tcpdump -nni any -c 20 'icmp[icmptype] = icmp-unreach and icmp[icmpcode] = 3'",
        ),
        Advice::new("See which ports programs listen on.", "ss -uanp"),
    ]
}

fn wire(device: &str) -> Vec<Advice> {
    vec![Advice::new(
        "Check cable, plugs and the other side's port: frames arrive damaged.",
        format!("ethtool -S {device} | grep -iE 'crc|err|frame'"),
    )]
}

fn ring(device: &str) -> Vec<Advice> {
    vec![
        Advice::new(
            "Give the card a larger ring: it bridges the time until a processor takes its packets.",
            format!("ethtool -G {device} rx 4096"),
        ),
        Advice::new(
            "Spread its queues over more processors if one of them is busy with softirqs.",
            "mpstat -P ALL 1 3",
        ),
    ]
}

fn softnet(device: &str) -> Vec<Advice> {
    vec![
        Advice::new(
            "One processor cannot keep up with its queue: spread the receive work over more of them.",
            format!("echo ffffffff > /sys/class/net/{device}/queues/rx-0/rps_cpus"),
        ),
        Advice::new(
            "For bursts, a longer queue helps (the default is 1000 packets).",
            "sysctl -w net.core.netdev_max_backlog=10000",
        ),
    ]
}

fn ingress(device: &str) -> Vec<Advice> {
    vec![Advice::new(
        "Look at the device and at the filters at its ingress.",
        format!("ip -s -s link show {device}; tc -s filter show dev {device} ingress"),
    )]
}

fn port(view: &View<'_>) -> u16 {
    view.culprit
        .map_or(0, |culprit| culprit.socket.local.port())
}

/// The device of the stage's main counter.
fn device(view: &View<'_>) -> String {
    let name = view
        .main_counter()
        .map_or("", |counter| counter.name.as_str());
    let mut words = name.split([' ', '.']);
    match words.next() {
        Some("dev" | "qdisc") => words.next().unwrap_or("DEVICE").to_owned(),
        Some(_) | None => "DEVICE".to_owned(),
    }
}

fn receive_buffer(view: &View<'_>) -> Vec<Advice> {
    let mut advice = Vec::new();
    if view.pattern() != Pattern::Bursts || view.health == Health::Filling {
        advice.extend(faster_reading(view));
    }
    advice.extend(larger_buffer(view));
    if view.pattern() == Pattern::Bursts {
        advice.push(Advice::plain(
            "Or ask the sender to pace: a burst leaves it faster than this host can read.",
        ));
    }
    advice
}

fn faster_reading(view: &View<'_>) -> Vec<Advice> {
    let pid = view
        .culprit
        .and_then(|culprit| culprit.process.as_ref())
        .map_or(0, |process| process.pid);
    let Some(thread) = view.thread() else {
        return vec![Advice::plain("Make the program read faster.")];
    };
    let tid = thread.tid;
    match thread.cause {
        Cause::Saturated | Cause::Busy => vec![
            Advice::new(
                "Read faster: see what the thread spends its time on, and move it elsewhere.",
                format!("perf top -t {tid}"),
            ),
            Advice::plain(
                "Or give the work to several threads, each with its own socket on the same port (SO_REUSEPORT), \
                 and read in batches (recvmmsg, UDP_GRO).",
            ),
        ],
        Cause::Moving => vec![
            Advice::new(
                "Read faster: see what the program spends its time on, and move it off the task that receives.",
                format!("perf top -p {pid}"),
            ),
            Advice::plain(
                "Or receive in several tasks, each with its own socket on the same port (SO_REUSEPORT).",
            ),
        ],
        Cause::Starved => vec![
            Advice::new(
                "Give it processor time: see who has the processors.",
                "top -H -b -n 1 | head -20",
            ),
            Advice::new(
                "If the program is in a container, see whether its quota throttles it.",
                format!("cat /sys/fs/cgroup$(cut -d: -f3 /proc/{pid}/cgroup | tail -1)/cpu.stat"),
            ),
        ],
        Cause::Stopped => vec![Advice::new("Let it go on.", format!("kill -CONT {pid}"))],
        Cause::Waiting => vec![Advice::new(
            "See what it waits for between reads: a lock, a disk, a timer, another socket.",
            format!("timeout 5 strace -f -c -p {pid}"),
        )],
    }
}

fn larger_buffer(view: &View<'_>) -> Option<Advice> {
    let model = view.model?;
    let limit = model.limit?;
    if view.pattern() == Pattern::Bursts {
        // What the socket holds and what it lost, with a reserve of a quarter; the kernel doubles what
        // a program asks for.
        let lost = model.shape.largest_burst_lost.max(view.lost.min(1));
        let needed = limit.saturating_add(lost.saturating_mul(model.truesize.bytes));
        let ask = (needed + needed / 4).div_ceil(2).next_multiple_of(4_096);
        return Some(Advice::new(
            format!(
                "Enlarge the buffer: the largest burst lost {lost} beyond the {} that it has; {} (SO_RCVBUF in the \
                 program) hold it with a reserve.",
                bytes(limit),
                bytes(ask)
            ),
            format!("sysctl -w net.core.rmem_max={ask}"),
        ));
    }
    let larger = LARGER_BUFFER.max(limit.saturating_mul(2));
    let delay = model.delay_by_buffer(larger)?;
    Some(Advice::new(
        format!(
            "A larger buffer (SO_RCVBUF in the program) only delays the loss: one of {} (it has {}) would hold out {} \
             longer, then lose as much.",
            bytes(larger),
            bytes(limit),
            seconds(delay)
        ),
        format!("sysctl -w net.core.rmem_max={}", larger / 2),
    ))
}

fn checksum(view: &View<'_>) -> Vec<Advice> {
    let port = port(view);
    let filter = if port == 0 {
        "udp".to_owned()
    } else {
        format!("udp port {port}")
    };
    vec![Advice::new(
        "See who sends them: tcpdump marks them \"bad udp cksum\" or \"truncated\". On the machine that sends, \
         checksum offload makes every datagram look so; look here, at the receiver.",
        format!("tcpdump -nni any -vv -c 20 '{filter}'"),
    )]
}

fn firewall(view: &View<'_>) -> Vec<Advice> {
    let Some(counter) = view.main_counter() else {
        return Vec::new();
    };
    if let Some(rule) = counter.name.strip_prefix("nft ") {
        let (chain, handle) = rule.split_once(" handle ").unwrap_or((rule, "0"));
        return vec![
            Advice::new("Look at the rule.", format!("nft -a list chain {chain}")),
            Advice::new(
                "If it should not be there, delete it.",
                format!("nft delete rule {chain} handle {handle}"),
            ),
        ];
    }
    if counter.name.starts_with("conntrack.") {
        return vec![
            Advice::new(
                "Do not track UDP that needs no NAT: it costs a lookup per packet, and an attacker fills the table.",
                "nft add table inet raw; nft 'add chain inet raw pre { type filter hook prerouting priority raw; }'; \
                 nft add rule inet raw pre meta l4proto udp notrack",
            ),
            Advice::new(
                "Or enlarge the table (some 320 bytes each).",
                "sysctl -w net.netfilter.nf_conntrack_max=1048576",
            ),
        ];
    }
    vec![Advice::new(
        "Look for rules and policies that drop without a counter.",
        "nft -a list ruleset; iptables-legacy-save -c",
    )]
}

fn sender(view: &View<'_>) -> Vec<Advice> {
    let losses = view.stage.map_or(&[][..], |stage| &stage.counters);
    let moved = |prefix: &str| {
        let mut losses = losses.iter().filter(|counter| counter.grown > 0);
        losses
            .find(|counter| counter.name.starts_with(prefix))
            .map(|counter| counter.name.clone())
    };
    if let Some(rule) = moved("nft-out ") {
        let rule = rule.trim_start_matches("nft-out ").to_owned();
        let (chain, _) = rule.split_once(" handle ").unwrap_or((&rule, ""));
        return vec![Advice::new(
            "Look at the rule.",
            format!("nft -a list chain {chain}"),
        )];
    }
    if let Some(qdisc) = moved("qdisc ") {
        let device = qdisc.split(' ').nth(1).unwrap_or("DEVICE").to_owned();
        return vec![
            Advice::new(
                "Look at the queue and its limits.",
                format!("tc -s qdisc show dev {device}"),
            ),
            Advice::plain(
                "Send slower, paced to the rate of the queue; a longer queue only adds delay.",
            ),
        ];
    }
    vec![Advice::new(
        "See which place refuses what is sent.",
        "nstat -az | grep -E 'UdpSndbufErrors|IpOut'; tc -s qdisc; ip -s link",
    )]
}
