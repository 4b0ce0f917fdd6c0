//! The verdict's words.

use crate::culprit::{BusyThread, Cause, Culprit};
use crate::model::{Basis, Model, Pattern, Unit};
use crate::path::{Role, Stage, StageReport, State};
use crate::render::words::{bytes, count, percent, rate, seconds};
use crate::sample::Recording;
use crate::track::Track;
use crate::verdict::Health;

/// What the words are about.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) health: Health,
    pub(super) stage: Option<&'a StageReport>,
    pub(super) culprit: Option<&'a Culprit>,
    pub(super) model: Option<&'a Model>,
    /// What the socket lost.
    pub(super) lost: u64,
    pub(super) recording: &'a Recording,
    pub(super) path: &'a [StageReport],
    pub(super) seconds: f64,
    pub(super) tracks: &'a [Track],
}

impl View<'_> {
    pub(super) fn thread(&self) -> Option<&BusyThread> {
        self.culprit?.thread.as_ref()
    }

    pub(super) fn pattern(&self) -> Pattern {
        self.model
            .map_or(Pattern::Mixed, |model| model.shape.pattern)
    }

    /// The stage's counter of losses that moved most.
    pub(super) fn main_counter(&self) -> Option<&crate::path::CounterReport> {
        let counters = self.stage?.counters.iter();
        counters
            .filter(|counter| counter.role == Role::Loss && counter.grown > 0)
            .max_by_key(|counter| counter.grown)
    }
}

/// Returns the two sentences.
pub(super) fn verdict(view: &View<'_>) -> [String; 2] {
    match (view.health, view.stage) {
        (Health::Losing, Some(stage)) => losing(view, stage),
        (Health::Filling, _) => filling(view),
        (Health::Losing | Health::Healthy, _) => healthy(view),
    }
}

fn healthy(view: &View<'_>) -> [String; 2] {
    let grown = view
        .recording
        .ends()
        .map(|(a, b)| b.counters.since(&a.counters));
    let read = grown.map_or(0, |g| g.get("Udp.InDatagrams") + g.get("Udp6.InDatagrams"));
    let fullest = view
        .tracks
        .iter()
        .filter_map(Track::fullest)
        .fold(0.0, f64::max);
    let past = view
        .path
        .iter()
        .filter(|stage| stage.state == State::Past)
        .count();
    let first = format!(
        "No UDP datagram was lost in the last {} in {}.",
        seconds(view.seconds),
        view.recording.namespace
    );
    let mut second = format!(
        "Programs read {}, and the fullest receive buffer was {} full",
        rate(read as f64 / view.seconds.max(1e-9)),
        percent(fullest.min(1.0))
    );
    second.push_str(match past {
        0 => ".",
        _ => "; losses in the table are of the past and no longer grow.",
    });
    [first, second]
}

fn filling(view: &View<'_>) -> [String; 2] {
    let Some(model) = view.model else {
        return healthy(view);
    };
    let left = model.seconds_to_overflow.unwrap_or_default();
    [
        format!(
            "Nothing is lost yet, but the receive buffer of {} fills and will overflow in about {}.",
            who(view),
            seconds(left)
        ),
        cause_sentence(view),
    ]
}

fn losing(view: &View<'_>, stage: &StageReport) -> [String; 2] {
    match stage.stage {
        Stage::ReceiveBuffer => [receive_buffer(view, stage), cause_sentence(view)],
        Stage::SocketFilter => [
            format!(
                "{} are lost at {}: a filter that the program attached to its socket refuses them.",
                lost(view, stage),
                who(view)
            ),
            "The host and the network are not to blame; the program asked for it (SO_ATTACH_FILTER or \
             SO_ATTACH_BPF).".to_owned(),
        ],
        Stage::Memory => memory(view, stage),
        Stage::Checksum => checksum(view, stage),
        Stage::NoPort => no_port(view, stage),
        Stage::Firewall => firewall(view, stage),
        Stage::Sender => sender(view, stage),
        Stage::Wire
        | Stage::Ring
        | Stage::Xdp
        | Stage::Softnet
        | Stage::Device
        | Stage::Ip
        | Stage::Application => before_sockets(view, stage),
    }
}

fn lost(view: &View<'_>, stage: &StageReport) -> String {
    let unit = view
        .model
        .and_then(|model| model.rates)
        .map_or("datagrams", |rates| rates.unit.name());
    // At a socket what the socket lost; the stage may have lost elsewhere, too.
    let at_socket = view.culprit.is_some() && view.lost > 0;
    let number = if at_socket {
        view.lost.min(stage.lost)
    } else {
        stage.lost
    };
    let per_second = number as f64 / view.seconds.max(1e-9);
    format!("{} {unit} ({})", count(number), rate(per_second))
}

/// `python3 (process 12), UDP socket 0.0.0.0:4433`
fn who(view: &View<'_>) -> String {
    let Some(culprit) = view.culprit else {
        return "an unknown socket".to_owned();
    };
    let socket = format!("UDP socket {}", culprit.socket.local);
    match &culprit.process {
        Some(process) => format!("{} (process {}), {socket}", process.name, process.pid),
        None => format!(
            "{socket} of a process of user {} that cannot be seen",
            culprit.socket.uid
        ),
    }
}

fn receive_buffer(view: &View<'_>, stage: &StageReport) -> String {
    let why = match view.pattern() {
        Pattern::Sustained => "its receive buffer is full all the time",
        Pattern::Bursts => "bursts overflow its receive buffer",
        Pattern::Mixed => "its receive buffer overflows",
    };
    format!("{} are lost at {}: {why}.", lost(view, stage), who(view))
}

/// The rates and the thread: why the buffer fills, and whether a larger one would help.
fn cause_sentence(view: &View<'_>) -> String {
    let rates = view.model.and_then(|model| model.rates);
    let mut text = match rates {
        Some(rates) => {
            let unit = rates.unit.name();
            let about = match rates.basis {
                Basis::Measured => "",
                Basis::Estimated => "about ",
                Basis::UpperBound => "",
            };
            let read = rate(rates.read_per_second);
            match rates.basis {
                Basis::Measured | Basis::Estimated => {
                    let arriving = rate(rates.arriving_per_second);
                    format!("{about}{arriving} {unit} arrive (λ) and {about}{read} are read (μ)")
                }
                Basis::UpperBound => {
                    let excess = rate(rates.excess_per_second);
                    format!(
                        "{excess} {unit} more arrive than are read (λ - μ; μ is at most {read})"
                    )
                }
            }
        }
        None if view.culprit.is_none() => {
            return "The program that had it has ended meanwhile.".to_owned();
        }
        None => "Its rates are not known".to_owned(),
    };
    if let Some(thread) = view.thread() {
        text.push_str(&thread_words(thread));
    }
    let mut text = capital(&text);
    text.push_str(match view.pattern() {
        Pattern::Sustained => "; a larger buffer does not help, only faster reading does.",
        Pattern::Bursts => "; it keeps up between bursts, so a larger buffer helps.",
        Pattern::Mixed => "; a larger buffer delays the loss, faster reading ends it.",
    });
    text
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}

fn thread_words(thread: &BusyThread) -> String {
    let name = format!("thread \"{}\" ({})", thread.name, thread.tid);
    let share = percent(thread.share);
    match thread.cause {
        Cause::Saturated => format!(", because {name} is saturated ({share} of one core)"),
        Cause::Starved => format!(
            ", because {name} lacks processor time (it had {share} of one core and waited for one {} \
             of the time)",
            percent(thread.waiting_share.unwrap_or(0.0))
        ),
        Cause::Moving => format!(
            ", because the program takes all of one core that it gets ({}), with one task that moves between \
             its threads; the busiest is {name} ({share})",
            percent(thread.process_share)
        ),
        Cause::Stopped => format!(", because {name} is stopped"),
        Cause::Waiting => format!(
            ", although the program's busiest {name} uses {share} of one core: it waits for something else \
             between reads"
        ),
        Cause::Busy => format!("; the program's busiest {name} uses {share} of one core"),
    }
}

fn memory(view: &View<'_>, stage: &StageReport) -> [String; 2] {
    let levels = view.recording.samples.last().map(|sample| sample.levels);
    let level =
        levels.and_then(|l| Some((l.udp_pages? * l.page_size, l.udp_limits?[2] * l.page_size)));
    let held = level.map_or_else(String::new, |(held, most)| {
        format!(" (now {} of at most {})", bytes(held), bytes(most))
    });
    [
        format!(
            "{} are lost because the UDP sockets of the whole host hold more memory than they may{held}.",
            lost(view, stage)
        ),
        "The socket at which it shows need not be the one that holds the memory; the limit is net.ipv4.udp_mem."
            .to_owned(),
    ]
}

fn checksum(view: &View<'_>, stage: &StageReport) -> [String; 2] {
    let wrong_sum = view
        .main_counter()
        .is_some_and(|counter| counter.name.ends_with("InCsumErrors"));
    let at = view
        .culprit
        .map_or_else(String::new, |_| format!(" at {}", who(view)));
    if wrong_sum {
        [
            format!("{} are lost{at}: their UDP checksum is wrong.", lost(view, stage)),
            "They were damaged on the way or made with a wrong checksum; the program is not to blame.".to_owned(),
        ]
    } else {
        [
            format!(
                "{} are lost before any socket: they are shorter than their UDP header says.",
                lost(view, stage)
            ),
            "Whoever sends them, or a device on the way, makes damaged datagrams; no program here is to blame."
                .to_owned(),
        ]
    }
}

fn no_port(view: &View<'_>, stage: &StageReport) -> [String; 2] {
    [
        format!(
            "{} arrived for ports on which no program listens.",
            lost(view, stage)
        ),
        "The kernel does not say which ports; a program has ended, listens on another address, or somebody \
         sends to the wrong port.".to_owned(),
    ]
}

fn firewall(view: &View<'_>, stage: &StageReport) -> [String; 2] {
    let Some(counter) = view.main_counter() else {
        return before_sockets(view, stage);
    };
    let levels = view.recording.samples.last().map(|sample| sample.levels);
    let table = levels.and_then(|l| Some((l.conntrack_count?, l.conntrack_max?)));
    if counter.name.starts_with("conntrack.") {
        let (tracked, most) = table.unwrap_or_default();
        let full = most > 0 && tracked * 100 >= most * 95;
        return [
            format!(
                "{} are lost in connection tracking: {}.",
                lost(view, stage),
                counter.meaning.unwrap_or("unknown")
            ),
            if full {
                format!(
                    "The table is full: {} of {} connections.",
                    count(tracked),
                    count(most)
                )
            } else {
                format!(
                    "The table has {} of {} connections.",
                    count(tracked),
                    count(most)
                )
            },
        ];
    }
    if counter.deduced {
        return [
            format!(
                "{} IP packets ({}) arrived and were delivered to no protocol: a firewall drops them.",
                count(stage.lost),
                rate(stage.lost_per_second)
            ),
            "This is deduced: no counter of the kernel's explains them, and the rule or policy that drops them has \
             no counter of its own.".to_owned(),
        ];
    }
    [
        format!("{} are dropped by a firewall rule.", lost(view, stage)),
        format!(
            "It is the rule \"{}\".",
            counter.name.trim_start_matches("nft ")
        ),
    ]
}

fn sender(view: &View<'_>, stage: &StageReport) -> [String; 2] {
    let main = stage
        .counters
        .iter()
        .filter(|counter| counter.role == Role::Loss && counter.grown > 0);
    // The most specific: a queue or a rule says where, the protocols' counters only that.
    let specific = main
        .clone()
        .find(|counter| counter.name.starts_with("qdisc ") || counter.name.starts_with("nft-out "));
    let counter = specific.or_else(|| view.main_counter());
    let what = counter
        .and_then(|counter| counter.meaning)
        .unwrap_or("not sent");
    let name = counter.map_or("", |counter| counter.name.trim_start_matches("nft-out "));
    [
        format!(
            "{} that programs of this host sent did not leave it: {what}.",
            lost(view, stage)
        ),
        format!(
            "The counter is \"{name}\"; what is sent faster than that place lets through is lost there, and \
             receivers are not to blame."
        ),
    ]
}

fn before_sockets(view: &View<'_>, stage: &StageReport) -> [String; 2] {
    let counter = view.main_counter();
    let what = counter
        .and_then(|counter| counter.meaning)
        .unwrap_or("of an unknown kind");
    let name = counter.map_or("", |counter| counter.name.as_str());
    [
        format!(
            "{} packets ({}) are lost before they reach a socket, at the stage \"{}\": {what}.",
            count(stage.lost),
            rate(stage.lost_per_second),
            stage.stage.name()
        ),
        format!(
            "The counter is \"{name}\"; it counts packets of every protocol, and no program is to blame."
        ),
    ]
}

/// What else is worth knowing.
pub(super) fn notes(view: &View<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(rates) = view.model.and_then(|model| model.rates) {
        notes.extend(rates.unit.note());
        if !matches!(rates.unit, Unit::Datagrams) && view.health == Health::Healthy {
            notes.clear();
        }
        match rates.basis {
            Basis::Measured => {}
            Basis::Estimated => notes.push(
                "The kernel counts reads for all sockets of the network namespace together. This socket's share \
                 (μ) is estimated from how the kernel gives its memory back."
                    .to_owned(),
            ),
            Basis::UpperBound => notes.push(
                "The kernel counts reads for all sockets of the network namespace together, and others read \
                 too: μ is at most what is shown. The difference λ - μ is exact."
                    .to_owned(),
            ),
        }
    }
    let current = view.stage.map(|stage| stage.stage);
    for stage in view.path {
        if stage.state == State::Losing && Some(stage.stage) != current {
            notes.push(format!(
                "Also losing: {} ({}).",
                stage.stage.name(),
                rate(stage.lost_per_second)
            ));
        }
    }
    let others = view.tracks.iter().filter(|track| track.lost() > 0).count();
    match others.saturating_sub(1) {
        _ if view.culprit.is_none() => {}
        0 => {}
        1 => notes.push("Another socket loses, too: see the list.".to_owned()),
        others => notes.push(format!("{others} other sockets lose, too: see the list.")),
    }
    notes
}
