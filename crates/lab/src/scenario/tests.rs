use core::time::Duration;

use super::*;

const GOOD: &str = r#"
name = "mine"
duration = "10s"

[network]
rtt = "30ms"
both = "rate=10M queue=1bdp"

[[flows]]
traffic = "download"
bytes = "1MB"

[pass]
completes_within = "5s"
util_min = "50%"

[pass.bbr]
util_min = "80%"
"#;

fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse("mine.toml", text)
}

/// The error of `GOOD` with one thing put in place of another.
fn broken(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    parse(&GOOD.replacen(from, to, 1)).unwrap_err().to_string()
}

#[test]
fn a_good_scenario_compiles() {
    let scenario = parse(GOOD).unwrap();
    let cases = scenario.cases(Size::Full, "cubic").unwrap();
    assert_eq!(cases.len(), 1);
    let case = &cases[0];
    assert_eq!(case.duration, Duration::from_secs(10));
    assert_eq!(case.network.base_rtt(), Duration::from_millis(30));
    // 10 Mbit/s over 30 ms are 37,500 bytes.
    let queue = case.network.down.queue.at(None);
    assert_eq!(queue, clearway_links::QueueLimit::Bytes(37_500));
    assert_eq!(case.bars.len(), 2);
}

#[test]
fn a_controllers_own_bars_take_the_place_of_the_general_ones() {
    let scenario = parse(GOOD).unwrap();
    let bars = |controller| {
        let cases = scenario.cases(Size::Full, controller).unwrap();
        let mut bars: Vec<String> = cases[0].bars.iter().map(Bar::text).collect();
        bars.sort();
        bars
    };
    assert_eq!(bars("cubic"), ["time ≤ 5.00 s", "util ≥ 50.0 %"]);
    assert_eq!(bars("bbr"), ["time ≤ 5.00 s", "util ≥ 80.0 %"]);
}

#[test]
fn mistakes_say_where_and_what_would_be_right() {
    let cases = [
        (
            "duration",
            "durration",
            "mine.toml:3:1: there is no setting \"durration\"; did you mean duration? Then write duration = \"60s\"",
        ),
        (
            "traffic =",
            "trafic =",
            "mine.toml:10:1: there is no setting \"trafic\"; did you mean traffic? Then write traffic = \"download\"",
        ),
        (
            "duration = \"10s\"",
            "",
            "mine.toml:1:1: duration is missing; write duration = \"60s\"",
        ),
        (
            "bytes =",
            "byte =",
            "mine.toml:11:1: [[flows]] has no setting \"byte\"; did you mean bytes?",
        ),
        ("\"download\"", "\"downlod\"", "did you mean download?"),
        ("rate=10M", "rate=-10M", "mine.toml:7:8: bad rate \"-10M\""),
        ("rate=10M", "rat=10M", "bad setting \"rat\""),
        ("queue=1bdp", "queue=0", "write packets such as 250"),
        (
            "queue=1bdp",
            "queue=500B",
            "impossible: 500 bytes hold no packet",
        ),
        ("queue=1bdp", "queue=-1bdp", "no multiple of the BDP"),
        ("rate=10M queue", "queue", "where the rate has no limit"),
        ("queue=1bdp", "trace=nowhere.trace", "it cannot be read"),
        ("rtt = \"30ms\"", "rtt = \"30\"", "mine.toml:6:7: bad "),
        ("1MB", "a lot", "mine.toml:11:9: \"a lot\" is no size"),
        (
            "util_min = \"50%\"",
            "utl_min = \"50%\"",
            "no bar and no controller is called \"utl_min\"; did you mean util_min?",
        ),
        ("50%", "0.5", "write a percentage such as 85%"),
        ("pass.bbr", "pass.bbbr", "did you mean bbr?"),
        (
            "30ms\"",
            "{rtt}\"",
            "no value for {rtt}; there is no [grid]",
        ),
        ("[[flows]]", "[flows]", "flows is no list of tables"),
        ("name = \"mine\"", "name = ", "mine.toml:2:8: "),
    ];
    for (from, to, said) in cases {
        let error = broken(from, to);
        assert!(error.contains(said), "{to}: {error}");
    }
}

#[test]
fn a_grid_is_every_combination_and_ci_can_shrink_it() {
    let text = GOOD.replace("30ms", "{rtt}").replace("10M", "{rate}")
        + "[grid]\nrtt = [\"10ms\", \"20ms\"]\nrate = [\"10M\", \"20M\", \"30M\"]\n\
           [ci]\nseeds = 2\ngrid = { rate = [\"20M\"] }\n";
    let scenario = parse(&text).unwrap();
    let labels = |size| {
        let cases = scenario.cases(size, "cubic").unwrap();
        cases
            .into_iter()
            .map(|case| case.variant)
            .collect::<Vec<_>>()
    };
    assert_eq!(labels(Size::Full).len(), 6);
    assert_eq!(labels(Size::Ci), ["rate=20M rtt=10ms", "rate=20M rtt=20ms"]);
    assert_eq!(
        (scenario.seeds(Size::Full), scenario.seeds(Size::Ci)),
        (1, 2)
    );
}

#[test]
fn the_catalogue_is_whole() {
    let all = catalogue();
    let numbers: Vec<u32> = all.iter().map(|scenario| scenario.number).collect();
    assert_eq!(numbers, (1..=44).collect::<Vec<_>>());
    for scenario in all {
        assert!(!scenario.title.is_empty(), "{}", scenario.name);
        assert!(!scenario.explanation.is_empty(), "{}", scenario.name);
        assert!(!scenario.origin.is_empty(), "{}", scenario.name);
        for controller in &scenario.controllers {
            for case in scenario.cases(Size::Full, controller).unwrap() {
                assert!(
                    !case.bars.is_empty() || scenario.name == "random_loss",
                    "{} {controller} has no bar",
                    scenario.name
                );
            }
        }
    }
}

#[test]
fn scenarios_are_found_by_name_and_number() {
    assert_eq!(find("14").unwrap().name, "shallow_25");
    assert_eq!(find("shallow_25").unwrap().number, 14);
    let error = find("shalow_25").unwrap_err();
    assert!(error.contains("did you mean shallow_25?"), "{error}");
}
