//! Tests of the search.

use std::collections::{BTreeMap, BTreeSet};

use clearway_links::Dice;

use super::*;

fn bounds() -> Bounds {
    Bounds::default()
}

/// The n-th genome of a seed: random ones, their mutants and children.
fn genomes(seed: u64, count: usize) -> Vec<Genome> {
    let mut breeder = Breeder::new(seed, bounds(), vec!["cubic".to_owned()]);
    let mut all = vec![breeder.random(), breeder.random()];
    while all.len() < count {
        let (a, b) = (all[all.len() - 1].clone(), all[all.len() - 2].clone());
        all.push(match all.len() % 3 {
            0 => breeder.random(),
            1 => breeder.mutated(&a),
            _ => breeder.crossed(&a, &b),
        });
    }
    all
}

#[test]
fn every_genome_makes_a_valid_scenario_within_bounds() {
    let envelopes = Envelopes::default();
    for seed in 0..40 {
        for genome in genomes(seed, 30) {
            for controller in ["newreno", "cubic", "bbr", "prague"] {
                let demands = envelopes.of(controller).unwrap().demands(&genome);
                let case = genome.case(controller, &demands);
                let case = case.unwrap_or_else(|error| panic!("{error}\n{genome:?}"));
                assert_eq!(case.bars.len(), demands.len(), "{genome:?}");
                assert_eq!(case.flows.len() as u64, genome.flows(), "{genome:?}");
            }
            let bounds = bounds();
            assert!((bounds.rate.0..=bounds.rate.1).contains(&genome.rate));
            assert!(genome.flows() <= bounds.flows);
            assert!(genome.loss <= bounds.loss as u32);
            if let QueueManagement::StepMarking(millis) = genome.management {
                let packets = u64::from(millis) * genome.lowest_rate() / (genome::PACKET * 8);
                assert!(packets >= bounds.marking, "{genome:?}");
            }
            let traffic = genome.traffic();
            assert!(
                traffic <= bounds.traffic * 5 / 4,
                "{traffic} bytes: {genome:?}"
            );
        }
    }
}

#[test]
fn same_seed_breeds_the_same_genomes() {
    assert_eq!(genomes(7, 50), genomes(7, 50));
    assert_ne!(genomes(7, 50), genomes(8, 50));
}

#[test]
fn forbidden_ingredients_are_not_used() {
    let without = ["late packets", "equal neighbours", "policer", "rate drop"];
    let bounds = Bounds {
        without: without.map(str::to_owned).to_vec(),
        ..Bounds::default()
    };
    let mut breeder = Breeder::new(3, bounds, Vec::new());
    for _ in 0..500 {
        let genome = breeder.random();
        let ingredients = genome.ingredients();
        assert!(
            without.iter().all(|name| !ingredients.contains(name)),
            "{genome:?}"
        );
    }
}

#[test]
fn every_simpler_genome_is_less_complex_and_valid() {
    for genome in genomes(11, 200) {
        for small in simpler(&genome) {
            assert!(complexity(&small) < complexity(&genome));
            let small = bounds().repair(small);
            small.case("cubic", &[]).unwrap();
        }
    }
}

#[test]
fn plainest_genome_cannot_be_simplified_much() {
    let plain = Genome::default();
    assert!(plain.ingredients().is_empty());
    assert!(
        simpler(&plain)
            .iter()
            .all(|small| small.ingredients().is_empty())
    );
}

/// Shrinking with a failure that needs two ingredients and a slow link, whatever else there is.
#[test]
fn shrinking_keeps_the_failure_and_removes_the_rest() {
    let needs = |genome: &Genome| {
        genome.late.is_some() && genome.neighbours.len() == 1 && genome.rate < 5_000
    };
    let mut found = 0;
    for genome in (0..60).flat_map(|seed| genomes(seed, 30)).filter(needs) {
        found += 1;
        let repair = |genome| bounds().repair(genome);
        let fails = |some: &[Genome]| some.iter().map(needs).collect::<Vec<_>>();
        let small = shrink(&genome, repair, 10_000, fails, 4);
        assert!(needs(&small), "left the class of failure: {small:?}");
        let expected: BTreeSet<&str> = ["late packets", "equal neighbours"].into();
        let mut rest = small.ingredients();
        // A slow link is part of the failure, and with it the queue that fits its RTT.
        for size in [
            "slow link",
            "shallow queue",
            "deep queue",
            "short path",
            "long path",
        ] {
            rest.remove(size);
        }
        assert_eq!(rest, expected, "{small:?}");
    }
    assert!(found >= 3, "{found} genomes to shrink");
}

#[test]
fn shrinking_stops_after_its_tries() {
    let genome = genomes(5, 30).pop().unwrap();
    let mut asked = 0;
    let repair = |genome| bounds().repair(genome);
    let fails = |some: &[Genome]| {
        asked += some.len();
        vec![false; some.len()]
    };
    assert_eq!(shrink(&genome, repair, 5, fails, 2), genome);
    assert!(asked <= 5);
}

/// A controller that fails beyond 100 ms wherever packets are late.
struct Imaginary {
    runs: u64,
    dice: Dice,
}

impl Imaginary {
    fn new() -> Self {
        Self {
            runs: 0,
            dice: Dice::new(1, 1),
        }
    }
}

impl Evaluate for Imaginary {
    fn evaluate(&mut self, trials: &[Trial]) -> Vec<Evaluation> {
        self.runs += trials.len() as u64;
        let _ = self.dice.below(2);
        trials.iter().map(imagine).collect()
    }
}

fn imagine(trial: &Trial) -> Evaluation {
    let genome = &trial.genome;
    let late = genome.late.map_or(0, |late| late.ppm);
    let bad = late > 0 && genome.rtt > 100_000;
    let ratio = if bad {
        2.0 + f64::from(late) / 1e6
    } else {
        f64::from(genome.rtt) / 1e6
    };
    Evaluation {
        answers: vec![Answer {
            oracle: Oracle::Utilisation,
            value: Some(1.0),
            limit: 1.0,
            ratio,
            recovery: None,
        }],
        findings: BTreeSet::new(),
        violations: Vec::new(),
        limits: BTreeMap::new(),
        digest: String::new(),
        events: 1,
    }
}

fn settings(known: KnownCases) -> HuntSettings {
    HuntSettings {
        controller: "cubic".to_owned(),
        seed: 1,
        bounds: bounds(),
        known,
        rivals: Vec::new(),
        at_once: 2,
    }
}

fn hunt(known: KnownCases) -> Hunt {
    Hunt::new(settings(known))
}

#[test]
fn hunt_finds_shrinks_and_reports_a_failure_once() {
    let mut hunt = hunt(KnownCases::default());
    let mut world = Imaginary::new();
    for _ in 0..20 {
        hunt.generation(&mut world);
    }
    assert_eq!(hunt.cases().len(), 1, "{:?}", hunt.cases());
    let case = &hunt.cases()[0];
    assert!(case.ingredients.contains("late packets"));
    assert!(case.ingredients.len() <= 3, "{:?}", case.ingredients);
    assert_eq!(case.seeds, 3);
    assert!(
        case.is_silent() && case.cause().contains("no finding"),
        "{}",
        case.cause()
    );
    assert_eq!(hunt.tally().evaluations, world.runs);
    assert_eq!(hunt.tally().silent, hunt.tally().missed);
}

/// The plainest queue is shallow on a long path, so a shrunk network may have an ingredient that
/// the one that was met had not.
#[test]
fn same_network_is_reported_once() {
    for seed in 1..=8 {
        let mut hunt = Hunt::new(HuntSettings {
            seed,
            ..settings(KnownCases::default())
        });
        let mut world = Imaginary::new();
        for _ in 0..20 {
            hunt.generation(&mut world);
        }
        let networks: BTreeSet<String> = hunt
            .cases()
            .iter()
            .map(|case| format!("{:?}", case.genome))
            .collect();
        assert_eq!(networks.len(), hunt.cases().len(), "seed {seed}");
    }
}

#[test]
fn known_failure_is_counted_and_not_pursued() {
    let text = "[[known]]\ncontroller = [\"cubic\"]\noracle = [\"utilisation\"]\n\
                with = [\"late packets\"]\nreason = \"as measured\"";
    let mut hunt = hunt(KnownCases::parse("known", text).unwrap());
    let mut world = Imaginary::new();
    for _ in 0..10 {
        hunt.generation(&mut world);
    }
    assert!(hunt.cases().is_empty());
    assert!(hunt.tally().known["as measured"] > 0);
    assert_eq!(world.runs, 240, "nothing was confirmed or shrunk");
}

#[test]
fn resumed_hunt_goes_on_as_if_it_had_not_stopped() {
    let whole = |generations: usize, journal: Journal, out: &mut Vec<u8>| {
        let mut world = Imaginary::new();
        let mut remembering = Remembering::new(&mut world, journal, Some(out));
        let mut hunt = hunt(KnownCases::default());
        for _ in 0..generations {
            for case in hunt.generation(&mut remembering) {
                remembering.found(&case);
            }
        }
        (
            hunt.tally().clone(),
            hunt.cases().to_vec(),
            remembering.fresh,
        )
    };
    let header = JournalLine::Hunt(JournalHeader {
        version: JOURNAL_VERSION,
        program: String::new(),
        controllers: Vec::new(),
        seed: 1,
        settings: String::new(),
        shard: String::new(),
    });
    let first_line = format!("{}\n", serde_json::to_string(&header).unwrap()).into_bytes();
    let mut uninterrupted = first_line.clone();
    let (tally, cases, fresh) = whole(12, Journal::default(), &mut uninterrupted);
    let mut interrupted = first_line;
    let (_, _, before) = whole(5, Journal::default(), &mut interrupted);
    // It was killed while it wrote.
    interrupted.extend(b"{\"run\":{\"contr");
    let journal = Journal::parse("j", core::str::from_utf8(&interrupted).unwrap()).unwrap();
    interrupted.truncate(journal.complete);
    let (again, same, after) = whole(12, journal, &mut interrupted);
    assert_eq!((again, same), (tally, cases));
    assert_eq!(before + after, fresh, "nothing was run twice");
    assert!(interrupted == uninterrupted, "the journals differ");
}

#[test]
fn journal_errors_name_the_line() {
    let error = Journal::parse("j", "nonsense\n").unwrap_err();
    assert!(
        error.starts_with("j:1: not a line of a hunt's journal"),
        "{error}"
    );
    assert!(Journal::parse("j", "").unwrap().header.is_none());
}

#[test]
fn envelopes_and_known_cases_parse_and_give_reasons() {
    let envelopes = Envelopes::default();
    for controller in ["newreno", "cubic", "bbr", "prague"] {
        let envelope = envelopes.of(controller).unwrap();
        assert!(envelope.reasons().count() >= 7, "{controller}");
    }
    let _ = KnownCases::ours();
    let error = envelopes.of("cubik").unwrap_err();
    assert!(error.contains("did you mean cubic?"), "{error}");
    let error = KnownCases::parse(
        "k",
        "[[known]]\ncontroller = [\"bbr\"]\noracle = [\"loss\"]\nwith = [\"rain\"]\nreason = \"x\"",
    );
    let error = error.unwrap_err();
    assert!(
        error.contains("entry 1: unknown ingredient \"rain\""),
        "{error}"
    );
}

#[test]
fn bounds_errors_name_the_setting_and_what_is_expected() {
    let error = |text: &str| Bounds::parse("b.toml", text).unwrap_err();
    assert!(error("rat = [\"1M\", \"2M\"]").contains("unknown field `rat`"));
    assert!(error("rate = [\"2M\", \"1M\"]").contains("expected the smaller value first"));
    assert!(error("marking = 1001").contains("expected 0 to 1000 packets"));
    assert!(error("rate = [\"1\", \"1M\"]").contains("expected 64k to 10G"));
    assert!(error("rtt = [\"20\", \"1s\"]").contains("rtt: invalid time"));
    assert!(error("flows = 0").contains("expected 1 to 1000"));
    assert!(error("without = [\"late\"]").contains("unknown ingredient \"late\""));
    let own = Bounds::parse("b.toml", "rate = [\"1M\", \"1G\"]\nloss = \"2%\"").unwrap();
    assert_eq!((own.rate, own.loss), ((1_000, 1_000_000), 20_000));
    assert_eq!(own.rtt, Bounds::default().rtt);
}

#[test]
fn demands_leave_out_what_makes_no_sense() {
    let envelopes = Envelopes::default();
    let oracles = |controller: &str, genome: &Genome| {
        let demands = envelopes.of(controller).unwrap().demands(genome);
        demands
            .iter()
            .map(|demand| demand.oracle)
            .collect::<BTreeSet<_>>()
    };
    let plain = Genome {
        seconds: 60,
        ..Genome::default()
    };
    assert!(oracles("bbr", &plain).contains(&Oracle::Utilisation));
    assert!(!oracles("bbr", &plain).contains(&Oracle::Share), "one flow");
    assert!(
        !oracles("cubic", &plain).contains(&Oracle::Queueing),
        "promises nothing"
    );
    let late_change = Genome {
        rate_steps: vec![Step { at: 700, to: 100 }],
        ..plain.clone()
    };
    assert!(
        !oracles("bbr", &late_change).contains(&Oracle::Loss),
        "the queue has to drain"
    );
    assert!(oracles("bbr", &late_change).contains(&Oracle::Utilisation));
    let lossy = Genome {
        loss: 40_000,
        ..plain
    };
    assert!(!oracles("bbr", &lossy).contains(&Oracle::Utilisation));
    // At 4 % of loss Reno cannot have more than its response function says.
    let reno = envelopes.of("newreno").unwrap().demands(&lossy);
    let util = reno.iter().find(|it| it.oracle == Oracle::Utilisation);
    assert!(util.is_none_or(|it| it.limit < 0.1), "{util:?}");
}
