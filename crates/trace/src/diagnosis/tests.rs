use clearway_recovery::limit::Limit;

use super::*;
use crate::detect::Detector;
use crate::detect::testing::Script;
use crate::event::{EventData, Frame, Packet, PacketType};

const MS: u64 = 1_000_000;

/// A sender at a window of two packets that enters recovery with each send.
fn spiral(rounds: u64) -> Vec<Event> {
    let mut script = Script::new("cubic", 10);
    script.round(2, 2);
    for _ in 0..rounds {
        script.state("recovery");
        script.round(2, 2);
        script.state("congestion_avoidance");
        script.window(2, 0);
    }
    script.events
}

#[test]
fn headline_of_a_spiral_names_symptom_and_cause() {
    let found = Examination::of(None, &spiral(60)).diagnosis;
    let headline = &found.headline;
    assert!(
        headline.starts_with("Stuck: window at its floor for 0.6 s with no loss; cause: "),
        "{headline}"
    );
    assert!(
        headline.contains("flips between recovery and congestion avoidance once a round trip"),
        "{headline}"
    );
    assert!(
        headline.contains("an idle adjustment fires while data waits"),
        "{headline}"
    );
    assert!(headline.ends_with('.'), "{headline}");
    assert_eq!(found.severity, Some(Severity::Error));
    let first = &found.problems[0];
    assert_eq!(first.detector, Detector::FloorPinned);
    assert_eq!(
        first.cause.as_ref().map(|cause| cause.detector),
        Some(Detector::RecoveryFlap)
    );
}

/// A sender at a window of two packets that moves its growth curve with each send.
fn adjusted(rounds: u64) -> Vec<Event> {
    let mut script = Script::new("cubic", 10);
    for round in 0..rounds {
        script.round(2, 2);
        script.metrics(|metrics| metrics.extra = vec![("epoch_shift".into(), round * 10 * MS)]);
    }
    script.events
}

#[test]
fn headline_names_an_idle_adjustment_without_changes_of_state() {
    let found = Examination::of(None, &adjusted(200));
    let headline = &found.diagnosis.headline;
    assert_eq!(
        headline,
        "Stuck: window at its floor for 2.0 s with no loss; cause: an idle adjustment fires once \
         a round trip while data waits."
    );
    // More than findings of one kind are kept.
    assert!(found.flips.len() > 190, "{}", found.flips.len());
    let evidence = &found.diagnosis.problems[0].evidence;
    let shift = "idle adjustment: the growth curve is moved by 10 ms";
    assert!(
        evidence.iter().any(|moment| moment.text == shift),
        "{evidence:#?}"
    );
}

#[test]
fn adjustment_after_a_pause_of_the_application_is_no_flip() {
    let mut script = Script::new("cubic", 10);
    for round in 0..20 {
        script.round(10, 10);
        script
            .limit(clearway_recovery::limit::Limit::Application)
            .wait(50);
        script
            .send(1)
            .limit(clearway_recovery::limit::Limit::Congestion);
        script.metrics(|metrics| metrics.extra = vec![("epoch_shift".into(), round * 50 * MS)]);
    }
    assert!(Examination::of(None, &script.events).flips.is_empty());
}

#[test]
fn evidence_shows_one_flip_with_its_times() {
    let found = Examination::of(None, &spiral(60));
    let evidence = &found.diagnosis.problems[0].evidence;
    let texts: Vec<&str> = evidence.iter().map(|moment| moment.text.as_str()).collect();
    for expected in [
        "congestion state recovery",
        "sent packets ",
        "received an ACK up to packet ",
        "congestion state congestion_avoidance",
        "nothing in flight",
    ] {
        assert!(
            texts.iter().any(|text| text.starts_with(expected)),
            "{expected}: {texts:#?}"
        );
    }
    assert!(evidence.windows(2).all(|pair| pair[0].time <= pair[1].time));
    let spans = evidence.last().expect("events").time - evidence[0].time;
    assert!(spans <= 40 * MS, "{spans}");
    assert_eq!(found.flips.len(), 60);
}

#[test]
fn recovery_after_a_loss_is_no_flip() {
    let mut script = Script::new("cubic", 10);
    for _ in 0..20 {
        script.round(8, 8);
        script.lose(script.next - 1);
        script.state("recovery").wait(10);
        script.state("congestion_avoidance").wait(10);
    }
    assert!(Examination::of(None, &script.events).flips.is_empty());
}

#[test]
fn healthy_transfer_names_its_limit() {
    let found = Examination::of(None, &crate::detect::healthy_transfer()).diagnosis;
    assert!(
        found.headline.starts_with("No problems found. "),
        "{}",
        found.headline
    );
    assert!(found.problems.is_empty());
    assert_eq!(found.severity, None);
}

/// Rounds of twenty packets, of which these are lost: each one a number within the round.
fn lossy(rounds: u64, lost: &[u64]) -> Examination {
    let mut script = Script::new("cubic", 20);
    script.limit(Limit::Congestion);
    for _ in 0..rounds {
        let first = script.next;
        script.send(20).wait(20);
        for number in lost {
            script.lose(first + number);
        }
        let arrived = (0..20).filter(|number| !lost.contains(number));
        let ranges = arrived.map(|number| (first + number, first + number));
        script.receive(Frame::ack(ranges));
    }
    Examination::of(None, &script.events)
}

#[test]
fn moderate_loss_is_mentioned_after_the_limit() {
    let found = lossy(50, &[3]);
    assert_eq!(
        found.diagnosis.headline,
        "No problems found. The network was the limit 100 % of the time, as expected for a bulk \
         transfer. 5.0 % of the packets sent were declared lost, in 50 places, one at a time."
    );
    assert_eq!(
        (found.totals.packets_lost, found.totals.loss_bursts),
        (50, 50)
    );
}

#[test]
fn heavy_loss_is_not_called_no_problem() {
    let headline = lossy(5, &[3, 4, 5, 9]).diagnosis.headline;
    let expected = "Heavy loss: 20.0 % of the packets sent were declared lost, in 10 bursts of up to 3. \
                    The network was the limit";
    assert!(headline.starts_with(expected), "{headline}");
}

#[test]
fn few_losses_are_not_mentioned() {
    for (rounds, lost) in [(9, &[3][..]), (50, &[])] {
        let headline = lossy(rounds, lost).diagnosis.headline;
        assert!(headline.ends_with("bulk transfer."), "{headline}");
    }
}

#[test]
fn problems_are_ranked_by_severity_then_symptom() {
    let at = |detector, severity, t1| Finding::new(detector, 0, t1, severity);
    let findings = [
        at(Detector::PtoStorm, Severity::Warning, 900 * MS),
        at(Detector::MultiCut, Severity::Error, 0),
        at(Detector::FloorPinned, Severity::Error, 500 * MS),
    ];
    let found = Diagnosis::of_findings(&findings, &Breakdown::new());
    let order: Vec<Detector> = found.problems.iter().map(|each| each.detector).collect();
    assert_eq!(
        order,
        [
            Detector::FloorPinned,
            Detector::MultiCut,
            Detector::PtoStorm
        ]
    );
}

#[test]
fn comparison_says_what_differs_and_since_when() {
    let healthy = |rounds: u64| {
        let mut script = Script::new("cubic", 10);
        for round in 0..rounds {
            script.round(2, 2 + round / 4);
        }
        Examination::of(None, &script.events)
    };
    let stuck = Examination::of(None, &spiral(60));
    assert!(compare(&stuck, &stuck).is_empty());
    let found = compare(&stuck, &healthy(61));
    let window = found.iter().find(|each| each.what == "congestion window");
    let window = window.unwrap_or_else(|| panic!("{found:#?}"));
    let since = window.since.expect("a time");
    assert!((20 * MS..200 * MS).contains(&since), "{window}");
    assert_eq!(window.here, "2.4 kB");
    let only = found
        .iter()
        .find(|each| each.what.starts_with("Stuck: window at its floor"));
    assert_eq!(
        only.map(|each| each.here.as_str()),
        Some("yes"),
        "{found:#?}"
    );
}

#[test]
fn receiver_is_told_what_arrived_and_where_to_look() {
    let mut examiner = Examiner::new(None);
    for number in 0..100_u64 {
        let packet = Packet::new(PacketType::OneRtt, number, 12_500);
        examiner.event(&Event {
            time: number * 10_000_000,
            data: EventData::PacketReceived(packet),
        });
    }
    let it = examiner.finish_at(0, Vec::new());
    assert!(it.totals.is_receiver());
    assert_eq!(
        it.diagnosis.headline,
        "No problems found. This end received 1.2 MB in 0.990 s (10 Mbit/s); what limited the \
         transfer is in the trace of the other end, the sender."
    );
}
