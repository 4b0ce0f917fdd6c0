//! The verdict: the first stage that loses, in two sentences, and what to do.

mod advice;
mod choose;
mod text;

use core::time::Duration;

use serde::Serialize;

use crate::culprit::{Culprit, Owner};
use crate::focus::Focus;
use crate::model::Model;
use crate::path::{Stage, StageReport, walk};
use crate::sample::{Missing, Recording};
use crate::track::Track;

pub use advice::Advice;

/// Whether a host loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Nothing was lost.
    Healthy,
    /// Nothing was lost yet, but a queue fills.
    Filling,
    /// Something is lost.
    Losing,
}

/// What is to be said about a recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// Whether the host loses.
    pub health: Health,
    /// The first stage that loses.
    pub stage: Option<Stage>,
    /// Two sentences: what is lost where and by whom; why, and what that means.
    pub verdict: [String; 2],
    /// The program at which it is lost, if there is one.
    pub culprit: Option<Culprit>,
    /// The model of its socket.
    pub model: Option<Model>,
    /// What to do, the best first.
    pub advice: Vec<Advice>,
    /// What else is worth knowing.
    pub notes: Vec<String>,
    /// Every stage of the path.
    pub path: Vec<StageReport>,
    /// The sockets that lost or queued, the worst first.
    pub sockets: Vec<SocketReport>,
    /// What could not be seen.
    pub missing: Vec<Missing>,
    /// How long was looked.
    pub seconds: f64,
    /// The kernel's release.
    pub kernel: String,
    /// The network namespace.
    pub namespace: String,
}

/// A socket that lost or queued.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SocketReport {
    /// The program at it.
    pub culprit: Culprit,
    /// What it lost during the recording.
    pub lost: u64,
    /// How full its buffer was at most, from 0 to 1, if known.
    pub fullest: Option<f64>,
}

/// Most sockets that are listed.
const MAX_LISTED: usize = 20;
/// A buffer as full as this is worth listing.
const NOTABLE: f64 = 0.25;
/// A queue that overflows later than this is not worth a warning.
const SOON: Duration = Duration::from_secs(60);

impl Diagnosis {
    /// Diagnoses a recording: a pure function of its samples.
    #[must_use]
    pub fn new(recording: &Recording, focus: &Focus) -> Self {
        let owners = Owner::all(recording);
        let mut tracks = Track::all(recording);
        let path = walk(recording, &tracks);
        let seconds = recording.ends().map_or(0.0, |(first, last)| {
            last.at.saturating_sub(first.at).as_secs_f64()
        });
        let all = tracks.clone();
        tracks.retain(|track| focus.includes(&track.socket, &owners));
        let sockets = socket_reports(&tracks, &owners);
        let case = choose::choose(&path, &tracks, focus);
        let model = case
            .track
            .map(|track| Model::new(recording, &all, track, &owners));
        let culprit = case.track.map(|track| Culprit::new(&track.socket, &owners));
        let (health, case) = choose::settle(case, model.as_ref());
        let view = text::View {
            stage: case.stage.and_then(|stage| path.get(stage.number())),
            health,
            culprit: culprit.as_ref().filter(|_| health != Health::Healthy),
            model: model.as_ref().filter(|_| health != Health::Healthy),
            lost: case.track.map_or(0, Track::lost),
            recording,
            path: &path,
            seconds,
            tracks: &tracks,
        };
        Self {
            health,
            stage: case.stage,
            verdict: text::verdict(&view),
            advice: advice::advice(&view),
            notes: text::notes(&view),
            culprit: view.culprit.cloned(),
            model: view.model.cloned(),
            path,
            sockets,
            missing: recording.samples.last().map_or_else(Vec::new, |last| {
                let first = recording.samples.first().into_iter();
                let mut missing: Vec<Missing> = first
                    .chain([last])
                    .flat_map(|s| s.missing.clone())
                    .collect();
                missing.dedup_by(|a, b| a.what == b.what);
                let mut seen = std::collections::HashSet::new();
                missing.retain(|m| seen.insert(m.what.clone()));
                missing
            }),
            seconds,
            kernel: recording.kernel.clone(),
            namespace: recording.namespace.clone(),
        }
    }
}

fn socket_reports(tracks: &[Track], owners: &[Owner<'_>]) -> Vec<SocketReport> {
    let notable = |track: &&Track| {
        track.lost() > 0 || track.fullest().is_some_and(|fullest| fullest >= NOTABLE)
    };
    let mut listed: Vec<&Track> = tracks.iter().filter(notable).collect();
    listed.sort_by_key(|track| core::cmp::Reverse((track.lost(), track.socket.queue)));
    listed
        .into_iter()
        .take(MAX_LISTED)
        .map(|track| SocketReport {
            culprit: Culprit::new(&track.socket, owners),
            lost: track.lost(),
            fullest: track.fullest(),
        })
        .collect()
}
