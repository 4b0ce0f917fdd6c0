//! Which bytes of a stream have arrived, told from the frames alone: what is new, and
//! so pays for a peer's unproductive frames (`connection::work`).

use std::ops::Range;

use clearway_quic::testing::Streams;

/// What a STREAM frame brings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NewData {
    /// Bytes that nobody had sent before.
    pub(super) bytes: u64,
    /// It goes beyond everything before it: what the connection's credit is spent on.
    pub(super) raised: u64,
}

/// What has arrived of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Arrivals {
    /// Disjoint, in order, and with gaps between them.
    ranges: Vec<Range<u64>>,
    /// The highest offset, or the final size.
    pub(super) highest: u64,
    final_size: Option<u64>,
    /// The application stopped reading, and nothing is kept.
    stopped: bool,
    /// It is complete, or was reset.
    over: bool,
}

impl Arrivals {
    /// STREAM with the bytes `from..to` is taken.
    pub(super) fn on_stream(&mut self, from: u64, to: u64, fin: bool) -> NewData {
        if self.over {
            return NewData::default();
        }
        let raised = to.saturating_sub(self.highest);
        self.highest = self.highest.max(to);
        if fin {
            self.final_size = Some(to);
        }
        if self.stopped {
            self.over = self.final_size.is_some();
            return NewData { bytes: 0, raised };
        }
        let bytes = self.insert(from..to);
        let complete = self.final_size.map(|size| 0..size);
        self.over = complete.is_some_and(|all| all.is_empty() || self.ranges == [all]);
        NewData { bytes, raised }
    }

    /// RESET_STREAM is taken.
    pub(super) fn on_reset(&mut self, final_size: u64) {
        if !self.over {
            self.highest = final_size;
            self.over = true;
        }
    }

    /// The application stopped reading.
    pub(super) fn on_stop(&mut self) {
        self.stopped = true;
    }

    /// Adds a range; how many bytes of it were missing.
    fn insert(&mut self, new: Range<u64>) -> u64 {
        if new.is_empty() {
            return 0;
        }
        let touches = |known: &Range<u64>| known.start <= new.end && new.start <= known.end;
        let (near, mut ranges): (Vec<_>, Vec<_>) = self.ranges.drain(..).partition(touches);
        let overlap = |known: &Range<u64>| {
            let (from, to) = (known.start.max(new.start), known.end.min(new.end));
            to.saturating_sub(from)
        };
        let known: u64 = near.iter().map(overlap).sum();
        let from = near.iter().map(|known| known.start).min();
        let to = near.iter().map(|known| known.end).max();
        ranges.push(from.unwrap_or(u64::MAX).min(new.start)..to.unwrap_or(0).max(new.end));
        ranges.sort_by_key(|range| range.start);
        self.ranges = ranges;
        new.end - new.start - known
    }

    /// Hands a STREAM frame with these bytes to `streams`, and compares what it is said
    /// to have brought with what it brought.
    pub(super) fn hear<E>(
        &mut self,
        streams: &mut Streams,
        (from, to, fin): (u64, u64, bool),
        take: impl FnOnce(&mut Streams) -> Result<bool, E>,
    ) -> Result<Result<(), E>, String> {
        let before = streams.productive_work();
        streams.take_progress();
        let is_new = match take(streams) {
            Ok(is_new) => is_new,
            Err(error) => return Ok(Err(error)),
        };
        let news = self.on_stream(from, to, fin);
        let after = streams.productive_work();
        let said = (
            is_new,
            after.stored.wrapping_sub(before.stored),
            after.announced.wrapping_sub(before.announced),
            streams.take_progress(),
        );
        let due = (
            // Where nothing is kept, nobody knows what came before.
            news.bytes > 0 || news.raised > 0 && from < to,
            news.bytes,
            news.raised,
            news.bytes > 0,
        );
        if said != due {
            return Err(format!(
                "bytes {from} to {to} are said to be new, stored, announced and progress by \
                 {said:?}, due is {due:?}"
            ));
        }
        Ok(Ok(()))
    }
}

#[test]
fn ranges_in_any_order_count_each_byte_once() {
    let mut arrivals = Arrivals::default();
    let new = [
        (4, 6, 2),
        (0, 2, 2),
        (1, 5, 2),
        (8, 9, 1),
        (6, 8, 2),
        (0, 9, 0),
    ];
    for (from, to, bytes) in new {
        assert_eq!(arrivals.on_stream(from, to, false).bytes, bytes);
    }
    assert_eq!(arrivals.ranges, [Range { start: 0, end: 9 }]);
    assert_eq!(arrivals.on_stream(9, 9, true), NewData::default());
    assert!(arrivals.over);
}
