//! Whose fault it is: the right one of two programs, the right thread of many.

use std::time::Duration;

use clearway_doctor::culprit::Cause;
use clearway_doctor::model::{Basis, Pattern};
use clearway_doctor::path::Stage;
use clearway_doctor::{Diagnosis, Health};

use super::host::{Host, Program, RECEIVER, assert_close};

const INTERVAL: Duration = Duration::from_millis(2_500);

#[test]
fn the_sick_one_of_two_programs_is_named() {
    let Some(host) = Host::new() else { return };
    let mut well = host.start(&host.receiving, "sink 0.0.0.0:4001 0 none");
    let mut sick = host.start(&host.receiving, "sink 0.0.0.0:4002 0 sleep:1000");
    let mut to_well = host.send(4_001, 3_000, 1_200);
    let mut to_sick = host.send(4_002, 2_500, 1_200);
    while to_sick.count() < 800 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut off = f64::INFINITY;
    // An estimate from a few hundred looks, on a machine whose processors others may have meanwhile:
    // one of four has to be right, while the names have to be right in all.
    for _ in 0..4 {
        let (diagnosis, sent, read) = super::buffer::examine(&host, &mut to_sick, &mut sick);
        let model = diagnosis.model.as_ref().unwrap();
        assert_eq!(diagnosis.stage, Some(Stage::ReceiveBuffer));
        let culprit = diagnosis.culprit.as_ref().unwrap();
        assert_eq!(culprit.process.as_ref().unwrap().pid, sick.pid());
        assert_eq!(culprit.socket.local.port(), 4_002);
        // Both read, and the kernel counts for both: the sick one's rate is estimated.
        let rates = model.rates.unwrap();
        assert_declared(&diagnosis);
        assert_close(
            "lost (λ - μ)",
            rates.excess_per_second * diagnosis.seconds,
            sent - read,
        );
        let found = rates.read_per_second * diagnosis.seconds;
        off = off.min((found / read - 1.0).abs());
        println!("read (μ): found {found:.0}, truth {read:.0}");
        if off <= 0.15 {
            break;
        }
    }
    assert!(
        off <= 0.15,
        "the rate of reading was off by {:.0} %",
        off * 100.0
    );
    assert!(well.count() > 0 && to_well.count() > 0);
}

/// The verdict says that μ is not measured, and a note says why.
#[track_caller]
fn assert_declared(diagnosis: &Diagnosis) {
    let rates = diagnosis.model.as_ref().unwrap().rates.unwrap();
    let (words, note) = match rates.basis {
        Basis::Estimated => ("/s are read (μ)", "is estimated from"),
        Basis::UpperBound => ("μ is at most", "μ is at most"),
        Basis::Measured => panic!("others read, too: {rates:?}"),
    };
    let second = &diagnosis.verdict[1];
    assert!(second.contains(words), "{second}");
    assert!(
        rates.basis != Basis::Estimated || second.starts_with("About "),
        "{second}"
    );
    assert!(
        diagnosis.notes.iter().any(|text| text.contains(note)),
        "{:?}",
        diagnosis.notes
    );
}

#[test]
fn saturated_thread_of_an_otherwise_idle_process_is_named() {
    let Some(host) = Host::new() else { return };
    let program = host.start(&host.receiving, "threads 0.0.0.0:4433 spin:500");
    let _sender = host.send(4433, 6_000, 200);
    std::thread::sleep(Duration::from_millis(300));
    let diagnosis = host.examine(INTERVAL);
    assert_eq!(diagnosis.stage, Some(Stage::ReceiveBuffer));
    let culprit = diagnosis.culprit.as_ref().unwrap();
    let process = culprit.process.as_ref().unwrap();
    assert_eq!(process.pid, program.pid());
    assert!(process.threads >= 13, "{process:?}");
    let thread = culprit.thread.as_ref().unwrap();
    assert_eq!(thread.name, "hot-receiver");
    // Saturated; on a machine that others use, too, it may be short of processor time instead.
    assert!(
        matches!(thread.cause, Cause::Saturated | Cause::Starved),
        "{thread:?}"
    );
    assert!(
        diagnosis.verdict[1].contains("hot-receiver"),
        "{:?}",
        diagnosis.verdict
    );
}

#[test]
fn healthy_host_under_full_load_is_healthy() {
    let Some(host) = Host::new() else { return };
    let mut reader = host.start(&host.receiving, "acknowledge 0.0.0.0:4433");
    let _sender = host.start(&host.sending, &format!("window {RECEIVER}:4433"));
    let before = reader.count();
    let diagnosis = host.examine(INTERVAL);
    assert!(reader.count() - before > 5_000, "this is not full load");
    assert_eq!(diagnosis.health, Health::Healthy);
    assert_eq!((diagnosis.stage, diagnosis.advice.len()), (None, 0));
}

/// What the verdict must say about a proxy that is too slow: process, full buffer, λ > μ, the busy
/// thread, and that a larger buffer does not help. What it forwards is counted behind it.
fn assert_naive_proxy(start: impl FnOnce(&Host) -> Program) {
    let Some(host) = Host::new() else { return };
    let mut forwarded = host.start(&host.sending, "sink 0.0.0.0:9 4000000 none");
    let proxy = start(&host);
    let mut sender = host.send(4433, 12_000, 200);
    while sender.count() < 6_000 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut tries = Vec::new();
    // The proxy has a second socket, which nobody sends to, but which counts as one that may be read: the
    // rate of reading is an estimate. And others may take the processors from sender and proxy alike. So
    // one of four has to be right, while the names have to be in all.
    for _ in 0..4 {
        let (diagnosis, sent, read) = super::buffer::examine(&host, &mut sender, &mut forwarded);
        assert_eq!(diagnosis.stage, Some(Stage::ReceiveBuffer));
        let culprit = diagnosis.culprit.as_ref().unwrap();
        assert_eq!(culprit.process.as_ref().unwrap().pid, proxy.pid());
        assert_eq!(culprit.socket.local.port(), 4_433);
        assert_declared(&diagnosis);
        match naive_proxy(&diagnosis, sent, read) {
            Ok(()) => return,
            Err(wrong) => tries.push(wrong),
        }
    }
    panic!("{tries:#?}");
}

/// Whether the verdict is as the truth: full buffer, rates, busy thread, and no help from a larger buffer.
fn naive_proxy(diagnosis: &Diagnosis, sent: f64, read: f64) -> Result<(), String> {
    let model = diagnosis.model.as_ref().unwrap();
    let rates = model.rates.unwrap();
    for (name, found, truth) in [
        ("λ", rates.arriving_per_second * diagnosis.seconds, sent),
        ("μ", rates.read_per_second * diagnosis.seconds, read),
    ] {
        println!("{name}: found {found:.0}, truth {truth:.0}");
        if (found / truth - 1.0).abs() > 0.15 {
            return Err(format!("{name}: found {found:.0}, truth {truth:.0}"));
        }
    }
    let thread = diagnosis.culprit.as_ref().unwrap().thread.as_ref().unwrap();
    let causes = [Cause::Saturated, Cause::Starved, Cause::Moving];
    let says = diagnosis.verdict[1].contains("larger buffer does not help");
    let is_right = model.shape.pattern == Pattern::Sustained
        && rates.load.unwrap() > 1.0
        && causes.contains(&thread.cause)
        && says;
    is_right
        .then_some(())
        .ok_or_else(|| format!("{thread:?}, {:?}", diagnosis.verdict))
}

#[test]
fn naive_proxy_in_rust_is_named_with_its_thread() {
    assert_naive_proxy(|host| {
        host.start(&host.receiving, "proxy 0.0.0.0:4433 10.99.0.1:9 spin:150")
    });
}

#[test]
fn naive_proxy_in_python_is_named_with_its_thread() {
    let interpreter = "/usr/bin/python3";
    let interpreter = if std::path::Path::new(interpreter).exists() {
        interpreter
    } else {
        "python3"
    };
    if !super::host::has("python3") {
        return;
    }
    let file = source("naive.py");
    assert_naive_proxy(|host| {
        let program = [interpreter, &file, "4433", "10.99.0.1", "9"];
        host.start_other(&host.receiving, &program)
    });
}

#[test]
fn naive_proxy_in_go_is_named_with_its_thread() {
    if !super::host::has("go") {
        return;
    }
    let binary = std::env::temp_dir().join(format!("doctor-naive-{}", std::process::id()));
    let binary = binary.to_str().unwrap();
    if !super::host::run("go", &["build", "-o", binary, &source("naive.go")]) {
        println!("skipped: go does not build here");
        return;
    }
    assert_naive_proxy(|host| {
        let proxy = host.start_other(&host.receiving, &[binary, "4433", "10.99.0.1", "9"]);
        let _ = std::fs::remove_file(binary);
        proxy
    });
}

fn source(name: &str) -> String {
    format!("{}/tests/it/naive/{name}", env!("CARGO_MANIFEST_DIR"))
}
