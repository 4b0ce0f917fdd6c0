//! Whose fault it is: the right one of two programs, the right thread of many.

use std::time::Duration;

use clearway_doctor::Health;
use clearway_doctor::culprit::Cause;
use clearway_doctor::model::{Basis, Pattern};
use clearway_doctor::path::Stage;

use super::host::{Host, RECEIVER, assert_close};

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
        assert_ne!(rates.basis, Basis::Measured);
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
/// thread, and that a larger buffer does not help.
#[track_caller]
fn assert_naive_proxy(host: &Host, pid: u32) {
    let diagnosis = host.examine(INTERVAL);
    assert_eq!(diagnosis.stage, Some(Stage::ReceiveBuffer));
    let culprit = diagnosis.culprit.as_ref().unwrap();
    assert_eq!(culprit.process.as_ref().unwrap().pid, pid);
    assert_eq!(culprit.socket.local.port(), 4_433);
    let model = diagnosis.model.as_ref().unwrap();
    assert_eq!(model.shape.pattern, Pattern::Sustained);
    assert!(model.rates.unwrap().load.unwrap() > 1.0);
    let thread = culprit.thread.as_ref().unwrap();
    assert!(
        matches!(
            thread.cause,
            Cause::Saturated | Cause::Starved | Cause::Moving
        ),
        "{thread:?}"
    );
    assert!(
        diagnosis.verdict[1].contains("larger buffer does not help"),
        "{:?}",
        diagnosis.verdict
    );
}

#[test]
fn naive_proxy_in_rust_is_named_with_its_thread() {
    let Some(host) = Host::new() else { return };
    let proxy = host.start(&host.receiving, "proxy 0.0.0.0:4433 10.99.0.1:9 spin:150");
    let _sender = host.send(4433, 12_000, 200);
    std::thread::sleep(Duration::from_millis(300));
    assert_naive_proxy(&host, proxy.pid());
}

#[test]
fn naive_proxy_in_python_is_named_with_its_thread() {
    let Some(host) = Host::new() else { return };
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
    let proxy = host.start_other(
        &host.receiving,
        &[interpreter, &file, "4433", "10.99.0.1", "9"],
    );
    let _sender = host.send(4433, 12_000, 200);
    std::thread::sleep(Duration::from_millis(300));
    assert_naive_proxy(&host, proxy.pid());
}

#[test]
fn naive_proxy_in_go_is_named_with_its_thread() {
    let Some(host) = Host::new() else { return };
    if !super::host::has("go") {
        return;
    }
    let binary = std::env::temp_dir().join(format!("doctor-naive-{}", std::process::id()));
    let binary = binary.to_str().unwrap();
    if !super::host::run("go", &["build", "-o", binary, &source("naive.go")]) {
        println!("skipped: go does not build here");
        return;
    }
    let proxy = host.start_other(&host.receiving, &[binary, "4433", "10.99.0.1", "9"]);
    let _sender = host.send(4433, 12_000, 200);
    std::thread::sleep(Duration::from_millis(300));
    let _ = std::fs::remove_file(binary);
    assert_naive_proxy(&host, proxy.pid());
}

fn source(name: &str) -> String {
    format!("{}/tests/it/naive/{name}", env!("CARGO_MANIFEST_DIR"))
}
