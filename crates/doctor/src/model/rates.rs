//! Rates of arrival and of reading.

use core::time::Duration;

use serde::Serialize;

use super::{Truesize, Unit, drain, span};
use crate::culprit::Owner;
use crate::sample::Recording;
use crate::track::{Moment, Track};

/// Rates of a socket, or of the sockets that a program has on one port.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// What is read per second: μ.
    pub read_per_second: f64,
    /// What arrives at the socket per second: λ.
    pub arriving_per_second: f64,
    /// λ - μ: what is lost or queued per second. Exact, however the two are known.
    pub excess_per_second: f64,
    /// ρ = λ / μ. `None` if nothing is read.
    pub load: Option<f64>,
    /// How μ is known.
    pub basis: Basis,
    /// In which unit all of it is.
    pub unit: Unit,
}

/// How the rate of reading is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The kernel's counter; nobody else in the network namespace reads enough to matter.
    Measured,
    /// From how the kernel gives the socket's memory back.
    Estimated,
    /// The kernel's counter, in which other sockets are counted too: μ is at most this.
    UpperBound,
}

/// Reading a datagram takes a program at least this long, in batches on a fast machine. So a process
/// that had no processor time cannot have read.
const CHEAPEST_READ: Duration = Duration::from_nanos(200);
/// Share of what is read that others may have read for the counter to count as this socket's.
const NEGLIGIBLE: f64 = 0.05;

/// If a socket seems to read this share of what is counted, and others seem to read nothing, it reads
/// all of it: the count is exact, and what the memory tells is not.
const NEARLY_ALL: f64 = 0.75;

impl Rates {
    /// Computes the rates of the program's sockets on this one's port.
    pub(super) fn new(
        recording: &Recording,
        tracks: &[Track],
        track: &Track,
        owners: &[Owner<'_>],
        unit: Unit,
        truesize: Truesize,
    ) -> Option<Self> {
        let seconds = span(track)?;
        let group = group(tracks, track, owners);
        let is_ours = |inode| group.iter().any(|one| one.socket.inode == inode);
        let read = reads(recording)? as f64;
        let others = others_at_most(tracks, owners, &is_ours);
        let (read_per_second, basis) = if others.is_some_and(|most| most <= read * NEGLIGIBLE) {
            (read / seconds, Basis::Measured)
        } else {
            let each = group
                .iter()
                .map(|one| drain::reads_per_second(one, truesize.bytes));
            match each.sum::<Option<f64>>() {
                Some(rate)
                    if rate >= read / seconds * NEARLY_ALL && others_are_idle(tracks, &is_ours) =>
                {
                    (read / seconds, Basis::Estimated)
                }
                Some(rate) => (rate.min(read / seconds), Basis::Estimated),
                None => (read / seconds, Basis::UpperBound),
            }
        };
        let lost: u64 = group.iter().map(|one| one.lost()).sum();
        let growth: i64 = group.iter().map(|one| one.queue_growth()).sum();
        let queued = growth as f64 / truesize.bytes.max(1) as f64;
        let excess_per_second = (lost as f64 + queued) / seconds;
        let arriving_per_second = (read_per_second + excess_per_second).max(0.0);
        Some(Self {
            read_per_second,
            arriving_per_second,
            excess_per_second,
            load: (read_per_second > 0.0).then(|| arriving_per_second / read_per_second),
            basis,
            unit,
        })
    }
}

/// The sockets of the same program on the same port: shards of one service.
fn group<'a>(tracks: &'a [Track], track: &Track, owners: &[Owner<'_>]) -> Vec<&'a Track> {
    let owner = |inode: u64| {
        let owner = owners.iter().find(|owner| owner.has(inode));
        owner.map(|owner| owner.process.pid)
    };
    let ours = owner(track.socket.inode);
    let same = |one: &&Track| {
        one.socket.inode == track.socket.inode
            || ours.is_some()
                && one.socket.local.port() == track.socket.local.port()
                && owner(one.socket.inode) == ours
    };
    tracks.iter().filter(same).collect()
}

/// What programs read during a recording, in the whole network namespace.
fn reads(recording: &Recording) -> Option<u64> {
    let (first, last) = recording.ends()?;
    let grown = last.counters.since(&first.counters);
    Some(grown.get("Udp.InDatagrams") + grown.get("Udp6.InDatagrams"))
}

/// Whether nothing was ever seen in the queue of another socket, nor lost there.
fn others_are_idle(tracks: &[Track], is_ours: &impl Fn(u64) -> bool) -> bool {
    let others = tracks.iter().filter(|track| !is_ours(track.socket.inode));
    let is_idle = |track: &Track| {
        let charged = |moment: &Moment| moment.charged.unwrap_or(moment.queue);
        track.lost() == 0 && track.looks.is_empty() && track.moments.iter().all(|m| charged(m) == 0)
    };
    others.into_iter().all(is_idle)
}

/// Returns how much other sockets can have been read at most, or `None` if there is no telling.
fn others_at_most(
    tracks: &[Track],
    owners: &[Owner<'_>],
    is_ours: &impl Fn(u64) -> bool,
) -> Option<f64> {
    let mut others = tracks
        .iter()
        .filter(|track| !is_ours(track.socket.inode))
        .peekable();
    if others.peek().is_none() {
        return Some(0.0);
    }
    let mut pids: Vec<u32> = Vec::new();
    let mut time = Duration::ZERO;
    for track in others {
        let mut known = false;
        for owner in owners.iter().filter(|owner| owner.has(track.socket.inode)) {
            // The program's own further sockets: its time says nothing about which it read.
            if owner.process.sockets.iter().any(|&inode| is_ours(inode)) {
                return None;
            }
            known = true;
            if !pids.contains(&owner.process.pid) {
                pids.push(owner.process.pid);
                time += owner.run();
            }
        }
        // Without a process (inode 0) nobody reads it, and of others' processes nothing is known.
        if !known && track.socket.inode != 0 {
            return None;
        }
    }
    Some(time.as_secs_f64() / CHEAPEST_READ.as_secs_f64())
}
