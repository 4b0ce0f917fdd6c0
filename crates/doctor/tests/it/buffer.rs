//! The receive buffer: which socket, which rates, for how long.

use std::time::Duration;

use clearway_doctor::Health;
use clearway_doctor::model::{Basis, Pattern, Unit};
use clearway_doctor::path::Stage;

use super::host::{Host, Program, assert_close};
use clearway_doctor::Diagnosis;

const INTERVAL: Duration = Duration::from_millis(2_500);

/// Examines while both programs count: the diagnosis, what was sent, what was read.
pub fn examine(host: &Host, sender: &mut Program, reader: &mut Program) -> (Diagnosis, f64, f64) {
    let (diagnosis, counted) =
        host.examine_counting(&host.receiving, INTERVAL, &mut [sender, reader]);
    (diagnosis, counted[0], counted[1])
}

/// What the model says arrived and was read, as counts: comparing counts instead of rates makes a
/// pause of the machine harmless.
fn modelled(diagnosis: &Diagnosis) -> (f64, f64) {
    let rates = diagnosis.model.as_ref().unwrap().rates.unwrap();
    (
        rates.arriving_per_second * diagnosis.seconds,
        rates.read_per_second * diagnosis.seconds,
    )
}

#[test]
fn sustained_overload_names_program_and_rates_within_15_percent() {
    let Some(host) = Host::new() else { return };
    let mut reader = host.start(&host.receiving, "sink 0.0.0.0:4433 0 sleep:1000");
    let mut sender = host.send(4433, 2_500, 1_200);
    // Until the buffer is full: what is sent meanwhile is more than it holds.
    while sender.count() < 800 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (diagnosis, sent, read) = examine(&host, &mut sender, &mut reader);
    assert_eq!(diagnosis.health, Health::Losing);
    assert_eq!(diagnosis.stage, Some(Stage::ReceiveBuffer));
    let culprit = diagnosis.culprit.as_ref().unwrap();
    assert_eq!(culprit.process.as_ref().unwrap().pid, reader.pid());
    assert_eq!(culprit.socket.local, "0.0.0.0:4433".parse().unwrap());
    let model = diagnosis.model.as_ref().unwrap();
    assert_eq!(model.shape.pattern, Pattern::Sustained);
    let rates = model.rates.unwrap();
    assert_eq!(
        (rates.basis, rates.unit),
        (Basis::Measured, Unit::Datagrams)
    );
    let (arrived, processed) = modelled(&diagnosis);
    assert_close("arriving (λ)", arrived, sent);
    assert_close("read (μ)", processed, read);
    assert_close("load (ρ)", rates.load.unwrap(), sent / read);
    assert!(
        diagnosis.verdict[1].contains("larger buffer does not help"),
        "{:?}",
        diagnosis.verdict
    );
}

#[test]
fn bursts_are_told_from_lasting_overload_and_a_larger_buffer_is_advised() {
    let Some(host) = Host::new() else { return };
    // It works instead of sleeping, because waking up takes long where others have the processors.
    let mut reader = host.start(&host.receiving, "sink 0.0.0.0:4433 0 spin:50");
    // Bursts of 400, five a second: the reader is idle nine tenths of the time.
    let program = format!("send {}:4433 2000 1200 400", super::host::RECEIVER);
    let mut sender = host.start(&host.sending, &program);
    let (diagnosis, sent, read) = examine(&host, &mut sender, &mut reader);
    assert_eq!(diagnosis.stage, Some(Stage::ReceiveBuffer));
    let model = diagnosis.model.as_ref().unwrap();
    assert_eq!(model.shape.pattern, Pattern::Bursts);
    let (arrived, processed) = modelled(&diagnosis);
    assert_close("arriving (λ)", arrived, sent);
    assert_close("read (μ)", processed, read);
    // A burst less what the buffer holds: some ninety datagrams, and a few that were read meanwhile.
    let lost = model.shape.largest_burst_lost;
    assert!((200..=2 * 400).contains(&lost), "{lost}");
    assert!(
        diagnosis.verdict[1].contains("a larger buffer helps"),
        "{:?}",
        diagnosis.verdict
    );
    let command = diagnosis.advice[0].command.as_ref().unwrap();
    assert!(
        command.starts_with("sysctl -w net.core.rmem_max="),
        "{command}"
    );
}

#[test]
fn filling_buffer_is_announced_with_seconds_to_overflow() {
    // A reader that others keep from the processors may be so slow that the buffer does not last: then
    // less is sent.
    for rate in [1_600, 1_300, 1_000, 700] {
        let Some(host) = Host::new() else { return };
        let mut reader = host.start(&host.receiving, "sink 0.0.0.0:4433 4000000 sleep:1000");
        let mut sender = host.send(4433, rate, 1_200);
        while sender.count() < 400 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let (diagnosis, sent, read) = examine(&host, &mut sender, &mut reader);
        if diagnosis.health == Health::Losing {
            continue;
        }
        assert_eq!(diagnosis.health, Health::Filling);
        let model = diagnosis.model.as_ref().unwrap();
        assert_eq!(model.truesize.bytes, 2_304);
        let memory = diagnosis.culprit.as_ref().unwrap().socket.memory.unwrap();
        let room = (memory.limit - memory.charged) as f64;
        let excess = (sent - read) * 2_304.0 / diagnosis.seconds;
        let found = model.seconds_to_overflow.unwrap();
        assert_close("seconds to overflow", found, room / excess);
        let (arrived, processed) = modelled(&diagnosis);
        assert_close("arriving (λ)", arrived, sent);
        assert_close("read (μ)", processed, read);
        return;
    }
    panic!("at every rate the buffer was full at once");
}

#[test]
fn trains_are_counted_as_buffers() {
    let Some(host) = Host::new() else { return };
    let mut reader = host.start(&host.receiving, "gro 0.0.0.0:4433 sleep:3000");
    let program = format!("trains {}:4433 800", super::host::RECEIVER);
    let mut sender = host.start(&host.sending, &program);
    while sender.count() < 100 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (diagnosis, sent, read) = examine(&host, &mut sender, &mut reader);
    assert_eq!(diagnosis.stage, Some(Stage::ReceiveBuffer));
    let rates = diagnosis.model.as_ref().unwrap().rates.unwrap();
    let Unit::GroBuffers { datagrams_each } = rates.unit else {
        panic!("{rates:?}")
    };
    assert_close("datagrams in a buffer", datagrams_each, 20.0);
    let (arrived, processed) = modelled(&diagnosis);
    assert_close("arriving (λ), in buffers", arrived, sent);
    assert_close("read (μ), in buffers", processed, read);
}
