use core::time::Duration;

use clearway_recovery::congestion::SlowStart;
use clearway_recovery::controller::SavedPath;

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

/// The error of `GOOD` with one part replaced by another.
fn broken(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    parse(&GOOD.replacen(from, to, 1)).unwrap_err().to_string()
}

/// Each replacement in [`GOOD`] causes an error with this position and text.
fn each_is_said(changes: &[(&str, &str, &str)]) {
    for (from, to, said) in changes {
        let error = broken(from, to);
        assert!(error.starts_with("mine.toml:"), "{to}: {error}");
        assert!(error.contains(said), "{to}: {error}");
    }
}

#[test]
fn valid_scenario_compiles() {
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
fn slow_start_and_resumed_path_reach_the_case() {
    let compiled = |settings: &str| {
        let text = GOOD.replace("[pass]", &format!("[transport]\n{settings}\n[pass]"));
        let cases = parse(&text).unwrap().cases(Size::Full, "cubic");
        cases.unwrap().remove(0)
    };
    let case = compiled("slow_start = \"search\"");
    assert_eq!(case.transport.slow_start, SlowStart::Search);
    assert_eq!(case.resumed, None);
    let resumed = compiled("resume_capacity = \"625kB\"\nresume_rtt = \"50ms\"").resumed;
    let saved = SavedPath {
        capacity: 625_000,
        rtt: Duration::from_millis(50),
    };
    assert_eq!(resumed, Some(saved));
    let nothing = compiled("resume_capacity = \"0\"\nresume_rtt = \"50ms\"");
    assert_eq!(nothing.resumed, None);
}

#[test]
fn controller_bars_replace_general_bars() {
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
fn errors_give_position_and_remedy() {
    let cases = [
        (
            "duration",
            "durration",
            "mine.toml:3:1: unknown setting \"durration\"; did you mean duration? Expected duration = \"60s\"",
        ),
        (
            "traffic =",
            "trafic =",
            "mine.toml:10:1: unknown setting \"trafic\"; did you mean traffic? Expected traffic = \"download\"",
        ),
        (
            "duration = \"10s\"",
            "",
            "mine.toml:1:1: missing setting \"duration\"; expected duration = \"60s\"",
        ),
        (
            "bytes =",
            "byte =",
            "mine.toml:11:1: unknown setting \"byte\" in [[flows]]; did you mean bytes?",
        ),
        ("\"download\"", "\"downlod\"", "did you mean download?"),
        (
            "rate=10M",
            "rate=-10M",
            "mine.toml:7:8: invalid rate \"-10M\"",
        ),
        ("rate=10M", "rat=10M", "invalid setting \"rat\""),
        ("queue=1bdp", "queue=0", "expected packets such as 250"),
        ("queue=1bdp", "queue=500B", "500 bytes cannot hold a packet"),
        ("queue=1bdp", "queue=-1bdp", "not a multiple of the BDP"),
        ("rate=10M queue", "queue", "requires a limited rate"),
        ("queue=1bdp", "trace=nowhere.trace", "cannot read the file"),
        ("rtt = \"30ms\"", "rtt = \"30\"", "mine.toml:6:7: invalid "),
        ("1MB", "a lot", "mine.toml:11:9: invalid size \"a lot\""),
        (
            "util_min = \"50%\"",
            "utl_min = \"50%\"",
            "unknown bar or controller \"utl_min\"; did you mean util_min?",
        ),
        ("50%", "0.5", "expected a percentage such as 85%"),
        ("pass.bbr", "pass.bbbr", "did you mean bbr?"),
        (
            "30ms\"",
            "{rtt}\"",
            "no value for {rtt}; the scenario has no [grid]",
        ),
        ("[[flows]]", "[flows]", "flows must be a list of tables"),
        ("name = \"mine\"", "name = ", "mine.toml:2:8: "),
    ];
    each_is_said(&cases);
}

#[test]
fn grid_expands_to_every_combination_and_ci_can_shrink_it() {
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
fn every_catalogue_scenario_compiles() {
    let all = catalogue();
    let numbers: Vec<u32> = all.iter().map(|scenario| scenario.number).collect();
    assert_eq!(numbers, (1..=63).collect::<Vec<_>>());
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

#[test]
fn input_that_would_panic_or_never_end_is_rejected() {
    let cases = [
        (
            "1bdp",
            "1e30bdp",
            "mine.toml:7:8: invalid queue \"1e30bdp\": value is too large",
        ),
        (
            "1bdp",
            "infbdp",
            "mine.toml:7:8: invalid queue \"infbdp\": value is too large",
        ),
        (
            "1bdp",
            "99999999999999999999",
            "mine.toml:7:8: invalid queue \"99999999999999999999\": must be at most 4294967295 packets",
        ),
        (
            "\"1MB\"",
            "\"1MB\"\nrebind = [\"5s\", \"1s\"]",
            "mine.toml:12:17: the rebinding at \"1s\" is not later than 5s",
        ),
        (
            "\"1MB\"",
            "\"1MB\"\nrebind = [\"1s\", \"1s\"]",
            "mine.toml:12:17: the rebinding at \"1s\" is not later than 1s",
        ),
        (
            "\"1MB\"",
            "\"1MB\"\nrebind = [\"0s\"]",
            "mine.toml:12:11: the rebinding at \"0s\" is not later than 0ns",
        ),
        (
            "\"1MB\"",
            "\"1MB\"\nflows = 4000000000",
            "mine.toml:12:9: \"4000000000\" is too large; expected a whole number from 1 to 10000",
        ),
        (
            "[pass]",
            "flows = 9999\n[[flows]]\ntraffic = \"download\"\nflows = 9999\n[pass]",
            "mine.toml:16:9: the scenario has 19998 flows in total; expected at most 10000",
        ),
        (
            "\"download\"",
            "\"requests\"\nflows = 10000\ncount = 100000",
            "mine.toml:12:9: the scenario has 1000000000 transfers in total",
        ),
        (
            "duration",
            "seeds = 9223372036854775807\nduration",
            "mine.toml:3:9: \"9223372036854775807\" is too large; expected a whole number from 1 to 1000000",
        ),
    ];
    each_is_said(&cases);
}

#[test]
fn oversized_grid_is_rejected_before_it_is_expanded() {
    let values = |unit: &str| {
        let all: Vec<String> = (1..=400).map(|n| format!("\"{n}{unit}\"")).collect();
        all.join(", ")
    };
    let text = GOOD.replace("30ms", "{rtt}").replace("10M", "{rate}")
        + &format!(
            "[grid]\nrate = [{}]\nrtt = [{}]\n",
            values("M"),
            values("ms")
        );
    let error = parse(&text).unwrap_err();
    assert_eq!(error.problem, "the grid has 160000 points");
}

#[test]
fn settings_without_effect_are_rejected() {
    let cases = [
        (
            "rate=10M",
            "rate=10M rate=20M",
            "7:8: \"rate\" is set more than once",
        ),
        (
            "[network]",
            "[network]\nboth = \"\"",
            "8:1: \"both\" is set more than once",
        ),
        (
            "[network]",
            "[grid]\nrtt = [\"1s\"]\n[network]",
            "6:1: [grid] sets \"rtt\", but {rtt} is not used",
        ),
        (
            "[network]",
            "[ci]\ngrid = { rtt = [\"1s\"] }\n[network]",
            "6:10: [ci] grid sets \"rtt\", which is not in [grid]",
        ),
        ("[network]", "[variants]\n[network]", "[variants] is empty"),
        (
            "\"10s\"",
            "\"0s\"",
            "3:12: invalid duration \"0s\": must be greater than zero",
        ),
        (
            "\"10s\"",
            "\"10s\"\nwarmup = \"10s\"",
            "4:10: invalid warm-up \"10s\": must be shorter than the run; expected less than the duration, 10s",
        ),
    ];
    each_is_said(&cases);
}

#[test]
fn values_without_effect_are_rejected() {
    let cases = [
        (
            "1MB",
            "0",
            "11:9: invalid size \"0\": must be greater than zero",
        ),
        ("\"mine\"", "\"\"", "2:8: invalid scenario name \"\""),
        (
            "\"mine\"",
            "\"../../x\"",
            "2:8: invalid scenario name \"../../x\"",
        ),
        (
            "\"mine\"",
            "\"a\\u001b[2Jb\"",
            "2:8: control character U+001B is not allowed",
        ),
        (
            "duration",
            "title = \"\\u0007\"\nduration",
            "3:9: control character U+0007 is not allowed",
        ),
        (
            "queue=1bdp",
            "queue=1bdp burst=3",
            "7:8: burst has no effect without random loss",
        ),
        (
            "\"50%\"",
            "\"850%\"",
            "15:12: util cannot exceed 100%, found \"850%\"; expected at most 100%",
        ),
        (
            "[pass]",
            "[transport]\nmax_ack_delay = \"16384ms\"\n[pass]",
            "14:17: invalid max_ack_delay \"16384ms\": peers reject it",
        ),
        (
            "[pass]",
            "[transport]\nslow_start = \"serch\"\n[pass]",
            "14:14: unknown slow start \"serch\"; did you mean search?",
        ),
        (
            "[pass]",
            "[transport]\nresume_rtt = \"50ms\"\n[pass]",
            "14:14: resume_capacity and resume_rtt have no effect without each other",
        ),
        (
            "[pass.bbr]",
            "[[missed]]\ncontroller = [\"bbr\"]\nbar = \"loss_max\"\nreason = \"\"\n[pass.bbr]",
            "19:7: bbr has no bar loss_max",
        ),
        (
            "[pass.bbr]",
            "[[missed]]\ncontroller = [\"bbr\"]\nbar = \"util_min\"\nvariant=\"x\"\nreason = \"\"\n[pass.bbr]",
            "20:9: no grid point has \"x\" in its name",
        ),
    ];
    each_is_said(&cases);
    let lossy = GOOD.replace("queue=1bdp", "queue=1bdp gilbert=1%:20% burst=3");
    assert!(parse(&lossy).is_ok(), "bursts of a burst model");
    let point = GOOD.replace("queue=1bdp", "queue=1bdp loss=0% burst=3");
    assert!(parse(&point).is_ok(), "a point of a grid without losses");
}

#[test]
fn errors_point_to_where_the_fix_belongs() {
    let error = broken("pass.bbr", "pass.bbbr");
    assert!(
        error.starts_with("mine.toml:17:7: unknown controller in [pass.bbbr]"),
        "{error}"
    );
    let error = broken("util_min = \"80%\"", "util_min = \"80\"");
    assert!(
        error.starts_with("mine.toml:18:12: "),
        "bbr's bars count too: {error}"
    );
    let grid = "[grid]\nrate = [\"10M\", \"-5M\"]\nbdp = [\"1\", \"-1\"]\n";
    let text = GOOD.replace("10M", "{rate}").replace("1bdp", "{bdp}bdp") + grid;
    let error = parse(&text).unwrap_err().to_string();
    assert!(
        error.starts_with("mine.toml:20:16: invalid rate \"-5M\""),
        "{error}"
    );
    let text = text.replace(", \"-5M\"", "");
    let error = parse(&text).unwrap_err().to_string();
    assert!(
        error.starts_with("mine.toml:21:13: invalid queue \"-1bdp\""),
        "{error}"
    );
}

#[test]
fn flow_setting_without_effect_is_an_error_with_remedy() {
    let with = |lines: &str| broken("traffic = \"download\"\nbytes = \"1MB\"", lines);
    let cases = [
        (
            "traffic = \"on-off\"\nbytes = \"1MB\"\nevery = \"2s\"",
            "every has no effect on \"on-off\" traffic; remove it (gap is the pause between two \
             transfers), or use traffic = \"requests\" or \"video\"",
        ),
        (
            "traffic = \"download\"\nbitrate = \"5M\"",
            "bitrate has no effect on \"download\" traffic; remove it, or use traffic = \"video\"",
        ),
        (
            "traffic = \"video\"\nevery = \"2s\"\nbitrate = \"5M\"\nbytes = \"1MB\"",
            "bytes has no effect on \"video\" traffic; remove it (bitrate and every",
        ),
        (
            "traffic = \"download\"\ncount = 3",
            "count has no effect on \"download\" traffic",
        ),
        (
            "traffic = \"paced\"\nchunk = 500\ninterval = \"1ms\"\nburst_bytes = \"1MB\"",
            "burst_bytes has no effect without bursts; add bursts",
        ),
        (
            "traffic = \"download\"\nspacing = \"5s\"",
            "spacing has no effect without flows",
        ),
        (
            "traffic = \"download\"\nnext_leg_rtt = \"5ms\"",
            "next_leg_rtt has no effect without migrate",
        ),
    ];
    for (lines, said) in cases {
        let error = with(lines);
        assert!(error.contains(said), "{lines}: {error}");
    }
}
