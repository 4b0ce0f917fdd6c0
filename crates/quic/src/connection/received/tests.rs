use super::*;

const MS: Duration = Duration::from_millis(1);

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

/// What the next ACK frame reports, which is then sent whole.
fn report(received: &mut ReceivedPackets) -> Vec<RangeInclusive<u64>> {
    let ranges: Vec<_> = received.ranges_to_report().collect();
    received.on_reported(ranges.len());
    ranges
}

/// The peer acknowledges an ACK frame; three PTOs are 300 ms.
fn acked(received: &mut ReceivedPackets, largest: u64, now: u64) {
    received.on_report_acked(largest, at(now), || MS * 300);
}

fn with(numbers: impl IntoIterator<Item = u64>) -> ReceivedPackets {
    let mut received = ReceivedPackets::new();
    for number in numbers {
        received.insert(number);
    }
    received
}

#[test]
fn ranges_below_an_acknowledged_report_are_not_reported_again() {
    let mut received = with([0, 1, 4, 5, 7, 8, 9]);
    assert_eq!(report(&mut received), [7..=9, 4..=5, 0..=1]);
    acked(&mut received, 8, 0);
    assert_eq!(report(&mut received), [8..=9]);
}

/// Before, the gap was forgotten together with the report, so that the late packet was a
/// duplicate that nobody acknowledged.
#[test]
fn late_packet_below_an_acknowledged_report_is_reported() {
    let mut received = with([0, 1, 4, 5]);
    report(&mut received);
    acked(&mut received, 5, 0);
    assert!(!received.is_seen(2));
    received.insert(2);
    received.insert(6);
    assert_eq!(report(&mut received), [4..=6, 2..=2]);
    // This report was sent before the late packet arrived.
    acked(&mut received, 5, 1);
    assert_eq!(report(&mut received), [4..=6, 2..=2]);
    acked(&mut received, 6, 2);
    assert_eq!(report(&mut received), [6..=6]);
}

/// A report that was sent before a packet came says that it is missing. Its acknowledgement may
/// arrive later than the packet, and the reports that contain the packet may all be lost.
#[test]
fn late_packet_is_reported_until_a_report_that_contains_it_has_arrived() {
    for gap_below in [false, true] {
        let first = u64::from(gap_below);
        let mut received = with([first, 2, 4, 5]);
        report(&mut received);
        received.insert(3);
        report(&mut received);
        acked(&mut received, 5, 0);
        let ranges = report(&mut received);
        assert!(
            ranges.contains(&(2..=5)) || ranges.contains(&(3..=5)),
            "{ranges:?}"
        );
        acked(&mut received, 5, 400);
        acked(&mut received, 5, 800);
        assert_eq!(report(&mut received), [3..=5], "three PTOs change nothing");
        received.insert(6);
        report(&mut received);
        acked(&mut received, 6, 801);
        assert_eq!(report(&mut received), [6..=6]);
    }
}

/// Before, each late packet put off the confirmation of all that were late before it.
#[test]
fn packets_that_are_late_again_and_again_are_confirmed() {
    let mut received = with([0, 1]);
    for number in (3..1_000).step_by(2) {
        received.insert(number);
        let largest = number;
        report(&mut received);
        received.insert(number - 1);
        report(&mut received);
        acked(&mut received, largest, number);
        let oldest = report(&mut received).last().map(|range| *range.start());
        assert!(
            oldest.is_some_and(|oldest| oldest + 8 >= number),
            "{number}: {oldest:?}"
        );
    }
}

#[test]
fn gap_is_forgotten_after_three_ptos() {
    let mut received = with([0, 1, 3]);
    acked(&mut received, 3, 0);
    received.insert(5);
    acked(&mut received, 5, 299);
    assert!(!received.is_seen(2));
    acked(&mut received, 5, 300);
    assert!(received.is_seen(2), "number 3 came three PTOs ago");
    assert!(!received.is_seen(4), "number 5 came later");
    acked(&mut received, 5, 600);
    assert!(received.is_seen(4));
    assert_eq!(report(&mut received), [5..=5]);
}

/// As long as no report is known to have arrived, all that was received is reported.
#[test]
fn unacknowledged_ranges_are_reported_however_old() {
    let mut received = with([0, 2, 4]);
    acked(&mut received, 0, 0);
    acked(&mut received, 0, 1_000);
    acked(&mut received, 0, 2_000);
    assert_eq!(report(&mut received), [4..=4, 2..=2, 0..=0]);
}

#[test]
fn ranges_that_do_not_fit_are_reported_in_turn() {
    let mut received = with((0..200).map(|n| n * 2));
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..(200_usize - NEWEST_REPORTED).div_ceil(MAX_REPORTED - NEWEST_REPORTED) {
        let ranges = report(&mut received);
        assert!(ranges.len() <= MAX_REPORTED);
        assert!(
            ranges
                .windows(2)
                .all(|pair| pair[0].start() > &(pair[1].end() + 1))
        );
        assert_eq!(ranges[0], 398..=398);
        seen.extend(ranges.into_iter().map(|range| *range.start()));
    }
    assert_eq!(seen.len(), 200);
}

#[test]
fn ranges_left_out_for_lack_of_room_are_reported_again() {
    let mut received = with([0, 2, 4, 6]);
    received.on_reported(2);
    acked(&mut received, 6, 0);
    assert_eq!(report(&mut received), [6..=6, 4..=4, 2..=2, 0..=0]);
    received.insert(8);
    report(&mut received);
    acked(&mut received, 8, 1);
    assert_eq!(report(&mut received), [8..=8]);
}

/// An idle connection has no gaps, and pays nothing for them.
#[test]
fn gaps_that_are_filled_or_forgotten_use_no_memory() {
    let mut received = with([0, 1, 3]);
    acked(&mut received, 3, 0);
    assert!(received.gaps.is_some());
    received.insert(2);
    received.insert(4);
    acked(&mut received, 4, 1);
    assert!(received.gaps.is_some(), "what was late is confirmed now");
    acked(&mut received, 4, 2);
    assert!(received.gaps.is_none());
    assert_eq!(report(&mut received), [4..=4]);
}

#[test]
fn gaps_without_end_use_bounded_memory() {
    let mut received = ReceivedPackets::new();
    for number in 0..100_000 {
        received.insert(number * 2);
        report(&mut received);
    }
    assert!(received.memory() <= 2 * MAX_RANGES * 16 + size_of::<Gaps>());
    assert!(received.is_seen(1), "forgotten");
}
