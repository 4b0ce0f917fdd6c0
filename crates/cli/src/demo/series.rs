//! A sender's window and bytes in flight over time, as an [`Observer`] sees
//! them.

use std::sync::{Arc, Mutex, PoisonError};

use clearway::{Instant, Observer, TraceEvent};

/// Width of a bin, in nanoseconds: the demo's RTT.
const BIN: u64 = 10_000_000;

/// Maximum number of bins, twice the longest run: a limit on the memory that a broken clock can
/// cost.
const MAX_BINS: usize = 6_000;

/// The extremes of one bin, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bin {
    /// The largest congestion window.
    pub(super) window: u64,
    /// Most bytes in flight.
    pub(super) in_flight: u64,
}

/// The recorded series.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    origin: Option<Instant>,
    bins: Vec<Bin>,
    window: u64,
    in_flight: u64,
}

impl Series {
    /// Records the values at this time. Bins without events repeat the previous values.
    fn record(&mut self, now: Instant) {
        let origin = *self.origin.get_or_insert(now);
        let index = (now - origin).as_nanos() as u64 / BIN;
        let index = usize::try_from(index).unwrap_or(MAX_BINS).min(MAX_BINS - 1);
        if self.bins.len() <= index {
            let quiet = Bin {
                window: self.window,
                in_flight: self.bins.last().map_or(0, |_| self.in_flight),
            };
            self.bins.resize(index, quiet);
            self.bins.push(Bin::default());
        }
        let bin = &mut self.bins[index];
        bin.window = bin.window.max(self.window);
        bin.in_flight = bin.in_flight.max(self.in_flight);
    }

    fn on_event(&mut self, now: Instant, event: &TraceEvent<'_>) {
        match *event {
            TraceEvent::Metrics(ref metrics) => {
                // Until now the previous values held.
                self.record(now);
                self.window = metrics.window;
                self.in_flight = metrics.in_flight;
                self.record(now);
            }
            TraceEvent::PacketSent {
                size,
                ack_eliciting: true,
                ..
            } => {
                self.in_flight += u64::from(size);
                self.record(now);
            }
            // No other event changes either value.
            _ => {}
        }
    }

    /// The last known congestion window, bytes.
    pub(super) const fn window(&self) -> u64 {
        self.window
    }

    /// Seconds recorded.
    pub(super) fn seconds(&self) -> f64 {
        (self.bins.len() as u64 * BIN) as f64 / 1e9
    }

    /// The series in `count` columns of equal width, each with its extremes.
    pub(super) fn columns(&self, count: usize) -> Vec<Bin> {
        let bins = &self.bins;
        (0..count)
            .map(|i| {
                let start = i * bins.len() / count;
                let end = ((i + 1) * bins.len() / count).max(start + 1);
                let slice = bins.get(start..end.min(bins.len())).unwrap_or(&[]);
                Bin {
                    window: slice.iter().map(|bin| bin.window).max().unwrap_or(0),
                    in_flight: slice.iter().map(|bin| bin.in_flight).max().unwrap_or(0),
                }
            })
            .collect()
    }
}

/// The observer's store, which others can read.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorder(Arc<Mutex<Series>>);

impl Recorder {
    /// What was recorded so far.
    pub(super) fn series(&self) -> Series {
        self.lock().clone()
    }

    /// The congestion window now, bytes.
    pub(super) fn window(&self) -> u64 {
        self.lock().window()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Series> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Recorder {
    fn on_event(&mut self, now: Instant, event: &TraceEvent<'_>) {
        self.lock().on_event(now, event);
    }
}

#[cfg(test)]
mod tests {
    use clearway_quic::event::Metrics;
    use clearway_quic::path::ecn::Mark;
    use clearway_quic::wire::PacketKind;

    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + ms * 1_000_000)
    }

    fn metrics(window: u64, in_flight: u64) -> TraceEvent<'static> {
        TraceEvent::Metrics(Metrics {
            window,
            in_flight,
            ..Metrics::default()
        })
    }

    fn sent(size: u16) -> TraceEvent<'static> {
        TraceEvent::PacketSent {
            kind: PacketKind::OneRtt,
            number: 0,
            size,
            ack_eliciting: true,
            in_flight: true,
            mtu_probe: false,
            ecn: Mark::NotEct,
            payload: &[],
        }
    }

    #[test]
    fn bins_without_events_repeat_the_last_values() {
        let mut recorder = Recorder::default();
        recorder.on_event(ms(0), &metrics(12_000, 0));
        recorder.on_event(ms(1), &sent(1_200));
        recorder.on_event(ms(35), &metrics(6_000, 0));
        recorder.on_event(ms(47), &metrics(6_000, 0));
        let found: Vec<_> = recorder
            .series()
            .columns(5)
            .iter()
            .map(|bin| (bin.window, bin.in_flight))
            .collect();
        assert_eq!(found[..4], [(12_000, 1_200); 4]);
        assert_eq!(found[4], (6_000, 0));
        assert_eq!(recorder.window(), 6_000);
    }

    #[test]
    fn columns_keep_peaks_even_when_more_than_bins() {
        let mut recorder = Recorder::default();
        for i in 0..100 {
            let window = if i == 42 { 99_000 } else { 3_000 };
            recorder.on_event(ms(i * 10), &metrics(window, 0));
        }
        let columns = recorder.series().columns(10);
        assert_eq!(columns[4].window, 99_000);
        assert_eq!(columns.iter().filter(|bin| bin.window == 3_000).count(), 9);
        assert_eq!(recorder.series().columns(300).len(), 300);
        assert_eq!(Series::default().columns(3), [Bin::default(); 3]);
    }

    #[test]
    fn time_far_ahead_allocates_no_more_than_the_bound() {
        let mut recorder = Recorder::default();
        recorder.on_event(ms(0), &metrics(1, 1));
        recorder.on_event(Instant::FAR_FUTURE, &metrics(1, 1));
        assert_eq!(recorder.series().bins.len(), MAX_BINS);
    }
}
