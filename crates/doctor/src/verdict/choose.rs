//! Chooses the stage that the verdict is about.

use super::{Health, SOON};
use crate::focus::Focus;
use crate::model::Model;
use crate::path::{Stage, StageReport, State};
use crate::track::Track;

/// What the verdict is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case<'a> {
    /// The stage that loses, if one does.
    pub(super) stage: Option<Stage>,
    /// The socket at which it loses. In a healthy host the one that is fullest.
    pub(super) track: Option<&'a Track>,
}

/// A stage earlier on the path whose losses are less than this share of a later one's is not what
/// the verdict is about.
const MINOR: f64 = 0.01;

/// Returns the first stage that loses, and the socket.
pub(super) fn choose<'a>(path: &[StageReport], tracks: &'a [Track], focus: &Focus) -> Case<'a> {
    let most = path
        .iter()
        .map(|stage| loses(stage, tracks, focus))
        .max()
        .unwrap_or(0);
    let first = path.iter().find(|stage| {
        let lost = loses(stage, tracks, focus);
        lost > 0 && lost as f64 >= most as f64 * MINOR
    });
    let stage = first.map(|report| report.stage);
    let at_socket = stage.is_none_or(is_at_socket);
    let track = at_socket.then(|| worst(tracks, stage)).flatten();
    Case { stage, track }
}

/// What a stage loses that the verdict may be about.
fn loses(report: &StageReport, tracks: &[Track], focus: &Focus) -> u64 {
    if report.state != State::Losing {
        return 0;
    }
    // At a socket only those that were asked for count.
    if is_at_socket(report.stage) && !focus.is_everything() {
        return report.lost.min(tracks.iter().map(Track::lost).sum());
    }
    report.lost
}

/// Whether a stage's losses are counted at a socket, too.
const fn is_at_socket(stage: Stage) -> bool {
    match stage {
        Stage::Checksum | Stage::SocketFilter | Stage::Memory | Stage::ReceiveBuffer => true,
        Stage::Sender
        | Stage::Wire
        | Stage::Ring
        | Stage::Xdp
        | Stage::Softnet
        | Stage::Device
        | Stage::Ip
        | Stage::Firewall
        | Stage::NoPort
        | Stage::Application => false,
    }
}

/// The socket that lost most; if there is none and nothing is lost, the one whose queue grew most.
fn worst(tracks: &[Track], stage: Option<Stage>) -> Option<&Track> {
    let losing = tracks.iter().filter(|track| track.lost() > 0);
    match stage {
        // What is lost for a full buffer is lost where the buffer is full.
        Some(Stage::ReceiveBuffer) => losing.max_by(|a, b| {
            let key = |track: &Track| (track.fullest().is_some_and(|f| f > 0.5), track.lost());
            key(a).cmp(&key(b))
        }),
        // A filter or a checksum does not fill the buffer.
        Some(_) => losing.max_by(|a, b| {
            let key = |track: &Track| (track.fullest().is_none_or(|f| f < 0.9), track.lost());
            key(a).cmp(&key(b))
        }),
        None => tracks.iter().max_by_key(|track| track.queue_growth()),
    }
}

/// Decides between healthy and filling where nothing is lost.
pub(super) fn settle<'a>(case: Case<'a>, model: Option<&Model>) -> (Health, Case<'a>) {
    if case.stage.is_some() {
        return (Health::Losing, case);
    }
    let filling = case.track.is_some_and(fills_steadily)
        && model
            .and_then(|model| model.seconds_to_overflow)
            .is_some_and(|seconds| seconds <= SOON.as_secs_f64());
    if filling {
        let stage = Some(Stage::ReceiveBuffer);
        return (Health::Filling, Case { stage, ..case });
    }
    (Health::Healthy, case)
}

/// Whether a queue grows from each quarter of the recording to the next, and is more than a
/// hundredth of the buffer: a healthy queue goes up and down.
fn fills_steadily(track: &Track) -> bool {
    let quarter = track.moments.len() / 4;
    if quarter == 0 {
        return false;
    }
    let means: Vec<f64> = track
        .moments
        .chunks(quarter)
        .take(4)
        .map(|moments| moments.iter().map(|m| m.queue as f64).sum::<f64>() / moments.len() as f64)
        .collect();
    let limit = track.limit().unwrap_or(u64::MAX) as f64;
    means.windows(2).all(|pair| matches!(pair, [a, b] if b > a))
        && means.last().is_some_and(|&last| last > limit / 100.0)
}
