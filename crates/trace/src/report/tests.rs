use super::*;
use crate::detect::healthy_transfer;
use crate::detect::testing::Script;
use crate::diagnosis::Examiner;
use crate::event::Event;
use crate::series::Track;

fn examined(events: &[Event]) -> Examination {
    let mut it = Examination::of(None, events);
    for at in 0..100 {
        it.series.push(Track::Queue, at * 10_000_000, at * 1_000);
    }
    it
}

fn report(title: &str, it: &Examination) -> String {
    html(
        title,
        &[Panel {
            title,
            facts: &[("path".into(), "rate & <delay>".into())],
            examination: it,
        }],
    )
}

/// The page's data.
fn data(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once("id=\"data\">").expect("data");
    let (json, _) = rest.split_once("</script>").expect("its end");
    serde_json::from_str(json).expect("valid JSON")
}

#[test]
fn report_page_has_no_external_references() {
    let page = report("a transfer", &examined(&healthy_transfer())).to_ascii_lowercase();
    for outside in [
        "http:",
        "https:",
        " src=",
        "href=",
        "url(",
        "@import",
        "<link",
        "<img",
        "<iframe",
        "xmlhttprequest",
        "import(",
    ] {
        let at = page.find(outside);
        let around = at.map(|at| &page[at.saturating_sub(40)..(at + 60).min(page.len())]);
        assert!(at.is_none(), "{outside}: {around:?}");
    }
    // The only requests are those of a page that `clearway view` serves, to it.
    assert_eq!(page.matches("fetch(").count(), 2);
    assert_eq!(page.matches("fetch(`examine?").count(), 1);
    assert_eq!(page.matches("fetch(`connections/").count(), 1);
    assert_eq!(page.matches("eventsource(\"live\")").count(), 1);
    assert!(page.contains("{\"served\":null,"));
}

#[test]
fn report_data_has_headline_lanes_marks_and_problems() {
    let mut script = Script::new("cubic", 10);
    for _ in 0..60 {
        script.state("recovery").round(2, 2);
        script.state("congestion_avoidance").window(2, 0);
    }
    let page = data(&report("x", &examined(&script.events)));
    let panel = &page["panels"][0];
    let headline = panel["headline"].as_str().expect("a headline");
    assert!(
        headline.starts_with("Stuck: window at its floor for 0.6 s"),
        "{headline}"
    );
    assert_eq!(panel["severity"], "error");
    assert_eq!(panel["flips"].as_array().map(Vec::len), Some(60));
    let lanes = panel["lanes"].as_array().expect("lanes");
    let names: Vec<&str> = lanes
        .iter()
        .filter_map(|lane| lane["name"].as_str())
        .collect();
    let expected = [
        "Window and bytes in flight",
        "Round-trip time",
        "Bytes transferred",
        "Queue on the path",
    ];
    assert_eq!(names, expected);
    assert!(
        panel["states"]
            .as_array()
            .is_some_and(|states| states.len() == 120)
    );
    assert!(!panel["bands"].as_array().expect("bands").is_empty());
    let evidence = panel["problems"][0]["evidence"]
        .as_array()
        .expect("evidence");
    assert!(evidence.len() > 5, "{evidence:#?}");
    let path = &panel["facts"][0];
    assert_eq!(path[1], "rate & <delay>");
}

#[test]
fn zero_bytes_in_flight_stay_zero() {
    let page = data(&report("x", &examined(&healthy_transfer())));
    let lines = &page["panels"][0]["lanes"][0]["lines"];
    let flight = lines
        .as_array()
        .expect("lines")
        .iter()
        .find(|line| line["name"] == "in flight");
    let values = flight.expect("a line")["v"].as_array().expect("values");
    assert!(values.iter().any(|value| value == 0));
}

#[test]
fn text_from_the_trace_cannot_leave_its_place() {
    let title = "</script></title><script>alert(1)</script>{{data}}{{script}}";
    let page = report(title, &examined(&healthy_transfer()));
    assert!(!page.contains("<script>alert"));
    assert_eq!(page.matches("</script>").count(), 2, "data and script");
    assert_eq!(data(&page)["panels"][0]["title"], title);
}

#[test]
fn empty_trace_produces_a_page() {
    let page = report("nothing", &Examiner::new(None).finish());
    assert!(
        data(&page)["panels"][0]["lanes"]
            .as_array()
            .expect("lanes")
            .is_empty()
    );
}

#[test]
fn page_of_many_large_traces_stays_below_its_limit() {
    let mut it = Examination::of(None, &healthy_transfer());
    for at in 0..300_000_u64 {
        for track in [
            Track::Window,
            Track::InFlight,
            Track::LatestRtt,
            Track::PacingRate,
            Track::Sent,
            Track::Queue,
        ] {
            it.series
                .push(track, at * 1_000_003, (at * 7_919) % 1_000_000_007);
        }
    }
    it.flips = (0..60_000).map(|at| at * 5_000_000).collect();
    for count in [1, 3, MAX_PANELS + 5] {
        let panel = Panel {
            title: "x",
            facts: &[],
            examination: &it,
        };
        let page = html("x", &vec![panel; count]);
        assert!(page.len() <= MAX_PAGE, "{count}: {} bytes", page.len());
        let shown = data(&page)["panels"].as_array().map(Vec::len);
        assert_eq!(shown, Some(count.min(MAX_PANELS)));
    }
}
