use super::*;
use crate::{Link, Packet};

fn at(trace: &Trace, millis: u64) -> (u64, u32) {
    let (at, count) = trace.next(millis * 1_000_000);
    (at / 1_000_000, count)
}

#[test]
fn trace_repeats_after_its_last_line() {
    let trace = Trace::from_lines("2\n2\n5\n\n9\n").unwrap();
    assert_eq!(trace.period(), Duration::from_millis(9));
    assert_eq!(trace.opportunities(), 4);
    let found = [0, 2, 3, 5, 6, 9, 10, 11, 14, 18, 9_000_000_000].map(|from| at(&trace, from));
    let round = 9_000_000_000;
    let expected = [
        (2, 2),
        (2, 2),
        (5, 1),
        (5, 1),
        (9, 1),
        (9, 1),
        (11, 2),
        (11, 2),
        (14, 1),
        (18, 1),
        (round, 1),
    ];
    assert_eq!(found, expected);
    assert_eq!(trace.next(u64::MAX).0, u64::MAX);
}

#[test]
fn opportunity_at_zero_counts_at_the_end_of_each_round() {
    let trace = Trace::from_lines("0\n4\n").unwrap();
    assert_eq!([at(&trace, 0), at(&trace, 5)], [(4, 2), (8, 2)]);
}

#[test]
fn trace_lines_round_trip() {
    let lines = "2\n2\n5\n9\n";
    assert_eq!(Trace::from_lines(lines).unwrap().to_lines(), lines);
}

#[test]
fn capacity_counts_delivery_opportunities() {
    let trace = Trace::from_lines("2\n2\n5\n9\n").unwrap();
    let millis = Duration::from_millis;
    assert_eq!(trace.capacity(millis(0), millis(5)), 3000);
    assert_eq!(trace.capacity(millis(5), millis(18)), 5 * 1500);
    // 4 × 12,000 bits in 9 ms.
    assert_eq!(trace.mean(), Rate::from_bits(5_333_333));
    assert_eq!(trace.longest_gap(), millis(4));
}

#[test]
fn error_names_the_line() {
    let problem = |lines: &str| Trace::from_lines(lines).unwrap_err().problem;
    assert_eq!(
        problem("1\nx\n"),
        "line 2 (\"x\") is not a number of milliseconds"
    );
    assert_eq!(
        problem("-1"),
        "line 1 (\"-1\") is not a number of milliseconds"
    );
    assert_eq!(
        problem("3\n2\n"),
        "line 2 (\"2\") is earlier than the line before"
    );
    assert_eq!(
        problem("99999999999"),
        "line 1 (\"99999999999\") is more than 49 days"
    );
    assert_eq!(problem(""), "the trace never delivers a packet");
    assert_eq!(problem("0\n0\n"), "the trace never delivers a packet");
}

#[test]
fn trace_files_are_read_and_missing_ones_reported() {
    let path = std::env::temp_dir().join(format!("clearway-trace-{}", std::process::id()));
    fs::write(&path, "1\n2\n").unwrap();
    let text = path.display().to_string();
    let trace: Trace = text.parse().unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(trace.to_string(), text);
    assert_eq!(trace.opportunities(), 2);
    let error = text.parse::<Trace>().unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("invalid trace {text:?}: cannot read the file: ")),
        "{error}"
    );
    assert!(error.contains("expected the path of a file"), "{error}");
}

/// When packets of these wire sizes arrive that are sent at these times.
fn arrivals(lines: &str, sends: &[(u64, usize)]) -> Vec<u64> {
    let config = crate::LinkConfig {
        trace: Some(std::sync::Arc::new(Trace::from_lines(lines).unwrap())),
        ..crate::LinkConfig::default()
    };
    let mut link = Link::new(config, 1);
    let here = ([127, 0, 0, 1], 1).into();
    for &(millis, size) in sends {
        let _ = link.send(
            Time::from_millis(millis),
            Packet::new(here, here, vec![0; size - 28]),
        );
    }
    let mut arrived = Vec::new();
    while let Some(now) = link.next_event() {
        while let Some((at, _)) = link.poll_timed(now) {
            arrived.push(at.0 / 1_000_000);
        }
    }
    arrived
}

#[test]
fn packets_leave_at_delivery_opportunities() {
    // One packet each, then what comes later waits for the next round.
    assert_eq!(
        arrivals("2\n5\n9\n", &[(0, 1500), (0, 1500), (6, 1500)]),
        [2, 5, 9]
    );
    // An opportunity that nobody waits for is lost.
    assert_eq!(arrivals("2\n5\n9\n", &[(3, 1500), (10, 1500)]), [5, 11]);
    // Small ones share, large ones take two.
    assert_eq!(
        arrivals("2\n5\n9\n", &[(0, 500), (0, 500), (0, 500), (0, 500)]),
        [2, 2, 2, 5]
    );
    assert_eq!(
        arrivals("2\n5\n9\n", &[(0, 2000), (0, 1000), (0, 1500)]),
        [5, 5, 9]
    );
    // Two opportunities at once.
    assert_eq!(
        arrivals("3\n3\n4\n", &[(0, 1500), (0, 1500), (0, 1500)]),
        [3, 3, 4]
    );
}

fn random(text: &str) -> (RandomTrace, Trace) {
    let random: RandomTrace = text.parse().unwrap();
    (random, random.generate())
}

#[test]
fn random_trace_has_its_mean_and_length() {
    let (random, trace) = random("random:seed=24");
    assert_eq!(trace.period(), random.length);
    assert_eq!(trace.mean(), Rate::from_mbit(12));
    // No gap is longer than an outage and the spacing at the lowest rate.
    assert!(trace.longest_gap() > Duration::from_millis(250));
    assert!(trace.longest_gap() <= random.outage + Duration::from_millis(10));
    assert_eq!(trace, random.generate());
    assert_ne!(trace.moments, self::random("random:seed=25").1.moments);
    assert_eq!(trace.to_string().parse(), Ok(trace));
}

#[test]
fn random_trace_uses_its_full_swing() {
    let (_, trace) = random("random:swing=10:steady:length=60s");
    assert!(trace.longest_gap() <= Duration::from_millis(10));
    let per_second: Vec<_> = (0..600)
        .map(|tenth| {
            let from = Duration::from_millis(tenth * 100);
            trace.capacity(from, from + Duration::from_millis(100))
        })
        .collect();
    let (least, most) = (
        per_second.iter().min().unwrap(),
        per_second.iter().max().unwrap(),
    );
    assert!(*most > 5 * least, "{least} {most}");
    // An opportunity more or less at either end.
    assert!(*most <= 10 * (least + 1500) + 1500, "{least} {most}");
}

#[test]
fn random_trace_specs_round_trip_and_errors_give_the_reason() {
    for text in [
        "random:mean=12M:swing=10:outage=500ms:length=120s:seed=1",
        "random:mean=1G:swing=1:steady:length=10ms:seed=0",
    ] {
        assert_eq!(text.parse::<RandomTrace>().unwrap().to_string(), text);
    }
    let problem = |text: &str| text.parse::<RandomTrace>().unwrap_err().problem;
    assert_eq!(problem("random:mean=0"), "mean must be greater than zero");
    assert_eq!(
        problem("random:length=0s"),
        "length must be from 10ms to 600s"
    );
    assert_eq!(
        problem("random:length=2000000s"),
        "length must be from 10ms to 600s"
    );
    assert_eq!(problem("random:outage=0ms"), "must be greater than zero");
    assert_eq!(
        problem("random:swing=0"),
        "swing must be a number from 1 to 1000"
    );
    assert_eq!(problem("random:speed=1"), "unknown option");
    assert_eq!(problem("12M"), "does not start with \"random\"");
}
