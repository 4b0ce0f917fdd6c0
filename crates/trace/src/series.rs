//! The values of a trace over time, in columns that charts are drawn from.

use std::collections::BTreeMap;

use clearway_recovery::limit::Limit;

use crate::event::{Event, EventData};
use crate::sink::Sink;

/// A quantity over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Track {
    /// Congestion window, bytes.
    Window,
    /// Bytes in flight; may be zero.
    InFlight,
    /// Slow start threshold, bytes.
    Ssthresh,
    /// Latest RTT, nanoseconds.
    LatestRtt,
    /// Smoothed RTT, nanoseconds.
    SmoothedRtt,
    /// Minimum RTT, nanoseconds.
    MinRtt,
    /// Pacing rate, bits per second.
    PacingRate,
    /// Delivery rate, bits per second.
    DeliveryRate,
    /// Bytes sent so far.
    Sent,
    /// Bytes received so far.
    Received,
    /// The queue on the path, bytes: recorded by the lab, not in the trace ([`Series::push`]).
    Queue,
}

/// A value at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Nanoseconds of the trace.
    pub time: u64,
    /// In the track's unit.
    pub value: u64,
}

/// The extremes of a track in one column, and its last value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Start of the column, nanoseconds of the trace.
    pub time: u64,
    /// The smallest value.
    pub min: u64,
    /// The largest value.
    pub max: u64,
    /// The last value.
    pub last: u64,
}

/// A text at a time: a state or a marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Nanoseconds of the trace.
    pub time: u64,
    /// The text.
    pub text: String,
}

/// Maximum number of points per track before pairs of them are merged, which halves the resolution:
/// 16 bytes each.
const MAX_POINTS: usize = 1 << 20;

/// The values of a trace over time. Bounded: when a track is full, neighbours are merged so that
/// their extremes stay; of too many losses, states and limits, the older half is left out.
#[derive(Clone, Debug)]
pub struct Series {
    /// Maximum number of points per track, and of losses, states and limits.
    most: usize,
    tracks: BTreeMap<Track, Vec<Point>>,
    losses: Vec<u64>,
    probes: Vec<u64>,
    states: Vec<Mark>,
    markers: Vec<Mark>,
    limits: Vec<(u64, Option<Limit>)>,
    flight: u64,
    sent: u64,
    received: u64,
    end: u64,
}

impl Series {
    /// An empty series.
    #[must_use]
    pub fn new() -> Self {
        Self::with_points(MAX_POINTS)
    }

    /// An empty series that keeps at most this many points per track; with 0, none.
    #[must_use]
    pub fn with_points(most: usize) -> Self {
        Self {
            most: most.min(MAX_POINTS),
            tracks: BTreeMap::new(),
            losses: Vec::new(),
            probes: Vec::new(),
            states: Vec::new(),
            markers: Vec::new(),
            limits: Vec::new(),
            flight: 0,
            sent: 0,
            received: 0,
            end: 0,
        }
    }

    /// The series of a whole trace.
    #[must_use]
    pub fn of(events: &[Event]) -> Self {
        let mut this = Self::new();
        for event in events {
            this.event(event);
        }
        this
    }

    /// Adds a value, for quantities that are not in traces.
    pub fn push(&mut self, track: Track, time: u64, value: u64) {
        self.end = self.end.max(time);
        if self.most == 0 {
            return;
        }
        let points = self.tracks.entry(track).or_default();
        // A run of equal values keeps its ends.
        if let [.., before, last] = points.as_slice()
            && before.value == value
            && last.value == value
        {
            points.pop();
        }
        points.push(Point { time, value });
        if points.len() >= self.most {
            thin(points);
        }
    }

    /// The time of the last event, nanoseconds of the trace.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// The points of a track, by time.
    #[must_use]
    pub fn points(&self, track: Track) -> &[Point] {
        self.tracks.get(&track).map_or(&[], Vec::as_slice)
    }

    /// When packets were declared lost.
    #[must_use]
    pub fn losses(&self) -> &[u64] {
        &self.losses
    }

    /// When the probe timer expired.
    #[must_use]
    pub fn probes(&self) -> &[u64] {
        &self.probes
    }

    /// The states of the controller, with the time of entry.
    #[must_use]
    pub fn states(&self) -> &[Mark] {
        &self.states
    }

    /// What limited the sender, with the time from which on it did; `None` if the trace no longer
    /// says.
    #[must_use]
    pub fn limits(&self) -> &[(u64, Option<Limit>)] {
        &self.limits
    }

    /// Markers set by the lab.
    #[must_use]
    pub fn markers(&self) -> &[Mark] {
        &self.markers
    }

    /// The largest value of a track.
    #[must_use]
    pub fn max(&self, track: Track) -> Option<u64> {
        self.points(track).iter().map(|point| point.value).max()
    }

    /// A track between two times in `count` columns of equal width; columns without a change repeat
    /// the current value, those before the first value are `None`.
    #[must_use]
    pub fn columns(&self, track: Track, from: u64, to: u64, count: usize) -> Vec<Option<Column>> {
        let points = self.points(track);
        let width = to.saturating_sub(from).checked_div(count as u64);
        let width = width.unwrap_or(1).max(1);
        let mut at = points.partition_point(|point| point.time < from);
        let before = at.checked_sub(1).and_then(|before| points.get(before));
        let mut held = before.map(|point| point.value);
        (0..count as u64)
            .map(|index| {
                let time = from.saturating_add(index.saturating_mul(width));
                let end = time.saturating_add(width);
                let mut column = held.map(|value| Column {
                    time,
                    min: value,
                    max: value,
                    last: value,
                });
                while let Some(point) = points.get(at).filter(|point| point.time < end) {
                    let value = point.value;
                    let known = column.get_or_insert(Column {
                        time,
                        min: value,
                        max: value,
                        last: value,
                    });
                    known.min = known.min.min(value);
                    known.max = known.max.max(value);
                    known.last = value;
                    held = Some(value);
                    at = at.saturating_add(1);
                }
                column
            })
            .collect()
    }
}

/// Adds to a list of at most `most`; a full one loses its older half.
fn add<T>(list: &mut Vec<T>, most: usize, item: T) {
    if list.len() >= most {
        list.drain(..list.len().div_ceil(2));
    }
    if most > 0 {
        list.push(item);
    }
}

/// Merges neighbours: the extremes of each four points stay, in their order.
fn thin(points: &mut Vec<Point>) {
    let mut kept = Vec::with_capacity((points.len() / 2).saturating_add(2));
    for four in points.chunks(4) {
        let (Some(low), Some(high)) = (
            four.iter().min_by_key(|point| point.value),
            four.iter().max_by_key(|point| point.value),
        ) else {
            continue;
        };
        let (first, second) = if low.time <= high.time {
            (low, high)
        } else {
            (high, low)
        };
        kept.push(*first);
        kept.push(*second);
    }
    *points = kept;
}

impl Default for Series {
    fn default() -> Self {
        Self::new()
    }
}

impl Sink for Series {
    fn event(&mut self, event: &Event) {
        let time = event.time;
        self.end = self.end.max(time);
        match &event.data {
            EventData::RecoveryMetricsUpdated(metrics) => {
                let told = [
                    (Track::Window, metrics.congestion_window),
                    (Track::InFlight, metrics.bytes_in_flight),
                    (Track::Ssthresh, metrics.ssthresh),
                    (Track::LatestRtt, metrics.latest_rtt),
                    (Track::SmoothedRtt, metrics.smoothed_rtt),
                    (Track::MinRtt, metrics.min_rtt),
                    (Track::PacingRate, metrics.pacing_rate),
                    (Track::DeliveryRate, metrics.delivery_rate),
                ];
                for (track, value) in told {
                    if let Some(value) = value {
                        self.push(track, time, value);
                    }
                }
                self.flight = metrics.bytes_in_flight.unwrap_or(self.flight);
            }
            EventData::PacketSent(packet) => {
                let size = packet.size.unwrap_or(0);
                self.sent = self.sent.saturating_add(size);
                self.push(Track::Sent, time, self.sent);
                if packet.counts_in_flight() == Some(true) {
                    self.flight = self.flight.saturating_add(size);
                    self.push(Track::InFlight, time, self.flight);
                }
            }
            EventData::PacketReceived(packet) => {
                let size = packet.size.unwrap_or(0);
                self.received = self.received.saturating_add(size);
                self.push(Track::Received, time, self.received);
            }
            EventData::DataBlockedUpdated { reason } => {
                add(&mut self.limits, self.most, (time, *reason));
            }
            EventData::PacketLost {
                mtu_probe: false, ..
            } => {
                add(&mut self.losses, self.most, time);
            }
            EventData::TimerUpdated {
                kind: Some(crate::event::TimerKind::Pto),
                change: crate::event::TimerChange::Expired,
            } => {
                add(&mut self.probes, self.most, time);
            }
            EventData::CongestionStateUpdated { new, .. } => {
                add(
                    &mut self.states,
                    self.most,
                    Mark {
                        time,
                        text: new.to_string(),
                    },
                );
            }
            EventData::Marker { kind, message } => {
                add(
                    &mut self.markers,
                    self.most,
                    Mark {
                        time,
                        text: format!("{kind}: {message}"),
                    },
                );
            }
            EventData::TupleAssigned { .. } => self.flight = 0,
            EventData::PacketLost { .. }
            | EventData::TimerUpdated { .. }
            | EventData::ConnectionStarted(_)
            | EventData::ConnectionClosed(_)
            | EventData::ConnectionStateUpdated { .. }
            | EventData::ParametersSet(_)
            | EventData::VersionInformation { .. }
            | EventData::AlpnInformation { .. }
            | EventData::PacketDropped { .. }
            | EventData::StreamDataRead { .. }
            | EventData::StreamDataBlockedUpdated { .. }
            | EventData::MigrationStateUpdated { .. }
            | EventData::KeyUpdated { .. }
            | EventData::KeyDiscarded { .. }
            | EventData::RecoveryParametersSet(_)
            | EventData::EcnStateUpdated { .. }
            | EventData::MtuUpdated { .. }
            | EventData::Scenario { .. }
            | EventData::EventsDropped { .. }
            | EventData::Other { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Metrics;

    fn metrics(time: u64, window: u64, flight: u64) -> Event {
        Event {
            time,
            data: EventData::RecoveryMetricsUpdated(Box::new(Metrics {
                congestion_window: Some(window),
                bytes_in_flight: Some(flight),
                ..Metrics::default()
            })),
        }
    }

    #[test]
    fn columns_keep_extremes_and_carry_values_forward() {
        let series = Series::of(&[
            metrics(10, 100, 50),
            metrics(11, 100, 0),
            metrics(12, 100, 70),
            metrics(45, 30, 20),
        ]);
        let flight = series.columns(Track::InFlight, 0, 50, 5);
        assert_eq!(flight[0], None);
        let second = flight[1].expect("a value");
        assert_eq!((second.min, second.max, second.last), (0, 70, 70));
        let third = flight[2].expect("held");
        assert_eq!((third.min, third.max), (70, 70));
        let last = flight[4].expect("a value");
        assert_eq!((last.min, last.max, last.last), (20, 70, 20));
        assert_eq!(series.max(Track::Window), Some(100));
        assert_eq!(series.end(), 45);
    }

    #[test]
    fn runs_of_equal_values_keep_only_their_ends() {
        let mut series = Series::new();
        for time in 0..1_000 {
            series.push(Track::Queue, time, 7);
        }
        series.push(Track::Queue, 1_000, 8);
        let times: Vec<u64> = series.points(Track::Queue).iter().map(|p| p.time).collect();
        assert_eq!(times, [0, 999, 1_000]);
    }

    #[test]
    fn thinning_keeps_peaks() {
        let mut points: Vec<Point> = (0..1_000)
            .map(|time| Point {
                time,
                value: if time == 501 { 9_999 } else { time % 7 },
            })
            .collect();
        thin(&mut points);
        assert_eq!(points.len(), 500);
        assert!(points.iter().any(|point| point.value == 9_999));
        assert!(points.windows(2).all(|pair| pair[0].time <= pair[1].time));
    }
}
