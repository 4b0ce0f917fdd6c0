//! Settings that change with time: windows, steps, and the clock they follow.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::Time;
use crate::spec::{Probability, Span, SpecError};

/// When the clock of a link's windows and steps starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Clock {
    /// At time zero.
    #[default]
    Absolute,
    /// When the first packet is offered to the link.
    FirstPacket,
    /// When [`crate::Link::start_windows_at`] is called. Until then windows with limits are closed
    /// and steps keep their first value.
    Explicit,
}

impl FromStr for Clock {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        match text.trim() {
            "absolute" => Ok(Self::Absolute),
            "first-packet" => Ok(Self::FirstPacket),
            "explicit" => Ok(Self::Explicit),
            _ => Err(SpecError::new(
                "clock",
                text,
                "unknown name",
                "absolute, first-packet or explicit",
            )),
        }
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absolute => "absolute",
            Self::FirstPacket => "first-packet",
            Self::Explicit => "explicit",
        })
    }
}

/// A stretch of time on a link's clock, from `from` until just before `until`.
///
/// Written `0s-2s`, or `2s-` without an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Its start.
    pub from: Duration,
    /// Its end, exclusive; `None` if it never ends.
    pub until: Option<Duration>,
}

const WINDOW_EXPECTED: &str = "a start, a dash and a later end such as 0s-2s, or 2s- for no end";

impl Window {
    /// The window from `from` until just before `until`.
    #[must_use]
    pub const fn new(from: Duration, until: Duration) -> Self {
        Self {
            from,
            until: Some(until),
        }
    }

    /// Whether `elapsed` on the link's clock is inside. `None`: the clock has not started.
    #[must_use]
    pub fn contains(&self, elapsed: Option<Duration>) -> bool {
        elapsed.is_some_and(|at| at >= self.from && self.until.is_none_or(|until| at < until))
    }
}

impl FromStr for Window {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let error = |problem: &str| SpecError::new("window", text, problem, WINDOW_EXPECTED);
        let (from, until) = text.split_once('-').ok_or_else(|| error("missing dash"))?;
        let from = from.parse::<Span>()?.0;
        let until = match until.trim() {
            "" => None,
            until => Some(until.parse::<Span>()?.0),
        };
        if until.is_some_and(|until| until <= from) {
            return Err(error("ends before it starts"));
        }
        Ok(Self { from, until })
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-", Span(self.from))?;
        self.until
            .map_or(Ok(()), |until| write!(f, "{}", Span(until)))
    }
}

/// A list of windows: `2s-4s,6s-6.1s`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Windows(pub Vec<Window>);

impl Windows {
    /// Whether `elapsed` is inside one of the windows.
    #[must_use]
    pub fn contain(&self, elapsed: Option<Duration>) -> bool {
        self.0.iter().any(|window| window.contains(elapsed))
    }
}

impl FromStr for Windows {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        text.split(',')
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, &self.0, |f, window| window.fmt(f))
    }
}

/// Windows during which arriving packets are held until the end: `1s-1.26s`. Each has an end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Freezes(Vec<(Duration, Duration)>);

impl Freezes {
    /// Adds the window from `from` until `until`; does nothing if `until` is not later.
    #[must_use]
    pub fn and(mut self, from: Duration, until: Duration) -> Self {
        if from < until {
            self.0.push((from, until));
            self.0.sort_unstable();
        }
        self
    }

    /// When a packet arrives whose nominal arrival is `arrival`, on a clock that started at
    /// `origin`.
    pub(crate) fn release(&self, origin: Time, arrival: Time) -> Time {
        self.0.iter().fold(arrival, |arrival, &(from, until)| {
            let frozen = arrival >= origin + from && arrival < origin + until;
            if frozen { origin + until } else { arrival }
        })
    }
}

impl FromStr for Freezes {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let windows: Windows = text.parse()?;
        windows
            .0
            .iter()
            .try_fold(Self::default(), |freezes, window| {
                let until = window.until.ok_or_else(|| {
                    SpecError::new(
                        "freeze",
                        text,
                        "a window has no end",
                        "windows with an end such as 1s-1.26s, or blackhole to lose the packets",
                    )
                })?;
                Ok(freezes.and(window.from, until))
            })
    }
}

impl fmt::Display for Freezes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, &self.0, |f, &(from, until)| {
            Window::new(from, until).fmt(f)
        })
    }
}

/// Random loss that depends on the time: `30%`, `30%@0s-2s`, `30%@0s-2s,1%`. The first entry that
/// covers the moment applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossWindows(pub Vec<(Probability, Option<Window>)>);

impl LossWindows {
    /// The same loss at all times.
    #[must_use]
    pub fn always(p: Probability) -> Self {
        Self(vec![(p, None)])
    }

    /// Loss inside `window` only.
    #[must_use]
    pub fn during(p: Probability, window: Window) -> Self {
        Self(vec![(p, Some(window))])
    }

    /// The probability at `elapsed` on the link's clock.
    #[must_use]
    pub fn at(&self, elapsed: Option<Duration>) -> Probability {
        self.0
            .iter()
            .find(|(_, window)| window.is_none_or(|window| window.contains(elapsed)))
            .map_or(Probability::NEVER, |&(p, _)| p)
    }
}

impl FromStr for LossWindows {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        text.split(',')
            .map(|part| match part.split_once('@') {
                None => Ok((part.parse()?, None)),
                Some((p, window)) => Ok((p.parse()?, Some(window.parse()?))),
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl fmt::Display for LossWindows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, &self.0, |f, (p, window)| match window {
            None => write!(f, "{p}"),
            Some(window) => write!(f, "{p}@{window}"),
        })
    }
}

/// A value that changes in steps: `100M,10M@10s,100M@20s`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule<T> {
    first: T,
    steps: Vec<(Duration, T)>,
}

impl<T: Copy> Schedule<T> {
    /// A schedule that always has `value`.
    #[must_use]
    pub const fn fixed(value: T) -> Self {
        Self {
            first: value,
            steps: Vec::new(),
        }
    }

    /// Changes to `value` from `at` on, on the link's clock.
    ///
    /// # Panics
    /// If `at` is not later than the previous step.
    #[must_use]
    pub fn then(mut self, at: Duration, value: T) -> Self {
        let last = self.steps.last().map(|&(last, _)| last);
        assert!(
            last.is_none_or(|last| last < at),
            "steps must be in order of time"
        );
        self.steps.push((at, value));
        self
    }

    /// The value at `elapsed` on the link's clock; the first value while the clock has not started.
    #[must_use]
    pub fn at(&self, elapsed: Option<Duration>) -> T {
        let Some(elapsed) = elapsed else {
            return self.first;
        };
        let passed = self.steps.partition_point(|&(at, _)| at <= elapsed);
        match passed.checked_sub(1) {
            None => self.first,
            Some(index) => self.steps[index].1,
        }
    }

    /// The steps after `elapsed`, in order; all of them if the clock has not
    /// started.
    pub fn steps_after(
        &self,
        elapsed: Option<Duration>,
    ) -> impl Iterator<Item = (Duration, T)> + '_ {
        let passed = elapsed.map_or(0, |elapsed| {
            self.steps.partition_point(|&(at, _)| at <= elapsed)
        });
        self.steps[passed..].iter().copied()
    }
}

impl<T> From<T> for Schedule<T> {
    fn from(first: T) -> Self {
        Self {
            first,
            steps: Vec::new(),
        }
    }
}

impl<T: Copy + FromStr<Err = SpecError>> FromStr for Schedule<T> {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let error = |problem: &str| {
            SpecError::new(
                "schedule",
                text,
                problem,
                "a first value, then value@time in order of time, such as 100M,10M@10s,100M@20s",
            )
        };
        let mut parts = text.split(',');
        let first = parts.next().unwrap_or_default().parse()?;
        let mut steps: Vec<(Duration, T)> = Vec::new();
        for part in parts {
            let (value, at) = part
                .split_once('@')
                .ok_or_else(|| error("step without a time"))?;
            let at = at.parse::<Span>()?.0;
            if steps.last().is_some_and(|&(last, _)| last >= at) {
                return Err(error("steps are not in order of time"));
            }
            steps.push((at, value.parse()?));
        }
        Ok(Self { first, steps })
    }
}

impl<T: fmt::Display> fmt::Display for Schedule<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.fmt(f)?;
        self.steps
            .iter()
            .try_for_each(|(at, value)| write!(f, ",{value}@{}", Span(*at)))
    }
}

/// Items with commas between them.
pub(crate) fn write_list<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    mut write: impl FnMut(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(",")?;
        }
        write(f, item)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rate;

    const fn secs(secs: u64) -> Option<Duration> {
        Some(Duration::from_secs(secs))
    }

    #[test]
    fn window_includes_start_and_excludes_end() {
        let window: Window = "1s-3s".parse().unwrap();
        let inside = [0, 1, 2, 3].map(|at| window.contains(secs(at)));
        assert_eq!(inside, [false, true, true, false]);
        assert!(!window.contains(None));
        let open: Window = "2s-".parse().unwrap();
        assert!(open.contains(secs(1_000_000)));
    }

    #[test]
    fn first_matching_loss_window_applies() {
        let loss: LossWindows = "30%@0s-2s,1%".parse().unwrap();
        assert_eq!(loss.at(secs(1)), Probability::from_percent(30));
        assert_eq!(loss.at(secs(2)), Probability::from_percent(1));
        assert_eq!(loss.at(None), Probability::from_percent(1));
        assert_eq!(LossWindows::default().at(secs(1)), Probability::NEVER);
    }

    #[test]
    fn schedule_steps_at_given_times() {
        let rate: Schedule<Rate> = "100M,10M@10s,0@20s".parse().unwrap();
        assert_eq!(rate.at(None), Rate::from_mbit(100));
        assert_eq!(rate.at(secs(9)), Rate::from_mbit(100));
        assert_eq!(rate.at(secs(10)), Rate::from_mbit(10));
        assert_eq!(rate.at(secs(99)), Rate::Stopped);
        let later: Vec<_> = rate.steps_after(secs(10)).collect();
        assert_eq!(later, [(Duration::from_secs(20), Rate::Stopped)]);
    }

    #[test]
    fn freeze_ends_at_its_end_or_that_of_an_adjacent_one() {
        let freezes: Freezes = "5s-6s,1s-2s,2s-3s".parse().unwrap();
        assert_eq!(freezes.to_string(), "1s-2s,2s-3s,5s-6s");
        let released = [0, 1, 2, 3, 5, 6]
            .map(|at| freezes.release(Time::from_secs(10), Time::from_secs(10 + at)));
        assert_eq!(released, [10, 13, 13, 13, 16, 16].map(Time::from_secs));
        let error = "1s-".parse::<Freezes>().unwrap_err();
        assert_eq!(error.problem, "a window has no end");
    }

    #[test]
    fn specs_round_trip() {
        for text in ["30%", "30%@0s-2s", "30%@0s-2s,1%@2.5s-,0.1%"] {
            assert_eq!(text.parse::<LossWindows>().unwrap().to_string(), text);
        }
        for text in ["100M", "100M,10M@10s,unlimited@20s"] {
            assert_eq!(text.parse::<Schedule<Rate>>().unwrap().to_string(), text);
        }
        let windows = "0s-2s,3s-";
        assert_eq!(windows.parse::<Windows>().unwrap().to_string(), windows);
    }

    #[test]
    fn error_names_the_invalid_part() {
        let loss = |text: &str| text.parse::<LossWindows>().unwrap_err();
        assert_eq!(loss("30%@2s-1s").problem, "ends before it starts");
        assert_eq!(loss("30%@2s").problem, "missing dash");
        assert_eq!(loss("30%@0-2").text, "2");
        assert_eq!(loss("30@0s-2s").what, "probability");
        let rate = |text: &str| text.parse::<Schedule<Rate>>().unwrap_err().problem;
        assert_eq!(rate("1M,2M"), "step without a time");
        assert_eq!(rate("1M,2M@2s,3M@2s"), "steps are not in order of time");
    }
}
