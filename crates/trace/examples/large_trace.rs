//! Writes a large trace of a plausible transfer, to measure what reads it.
//!
//! ```sh
//! cargo run --release -p clearway-trace --example large_trace -- 10000000 /tmp/large.sqlog
//! ```
//! The arguments are the number of events and the file. A window that saws, packets, ACKs, metrics,
//! losses, and from the middle on one that is stuck at its floor for as long as a tenth of the
//! trace, which `clearway diagnose` has to find.

use std::error::Error;
use std::fs::File;

use clearway_recovery::limit::Limit;
use clearway_trace::Sink as _;
use clearway_trace::event::{
    Event, EventData, Frame, Metrics, Packet, PacketType, RecoveryParameters, Role, TimerChange,
    TimerKind,
};
use clearway_trace::qlog::{Description, Writer};

/// Bytes of a packet.
const SIZE: u64 = 1_200;
/// Nanoseconds of a round trip.
const ROUND: u64 = 10_000_000;

/// The transfer, round trip by round trip.
struct Transfer {
    writer: Writer<File>,
    now: u64,
    number: u64,
    window: u64,
    written: u64,
}

impl Transfer {
    fn tell(&mut self, data: EventData) {
        let time = self.now;
        self.writer.event(&Event { time, data });
        self.written += 1;
    }

    fn metrics(&mut self, in_flight: u64) {
        let metrics = Metrics {
            congestion_window: Some(self.window * SIZE),
            bytes_in_flight: Some(in_flight * SIZE),
            latest_rtt: Some(ROUND + self.number % 7 * 100_000),
            ..Metrics::default()
        };
        self.tell(EventData::RecoveryMetricsUpdated(Box::new(metrics)));
    }

    /// Sends a window, and receives its acknowledgements.
    fn round(&mut self, stuck: bool) {
        let first = self.number;
        if stuck {
            self.state("recovery");
        }
        for sent in 1..=self.window {
            self.now += 1_000;
            let frame = Frame::Ping;
            let packet = Packet {
                frames: Some(vec![frame]),
                ..Packet::new(PacketType::OneRtt, self.number, SIZE)
            };
            self.tell(EventData::PacketSent(packet));
            self.metrics(sent);
            self.number += 1;
        }
        let reason = Some(Limit::Congestion);
        self.tell(EventData::DataBlockedUpdated { reason });
        let (kind, change) = (Some(TimerKind::Pto), TimerChange::Set(Some(3 * ROUND)));
        self.tell(EventData::TimerUpdated { kind, change });
        self.now += ROUND - self.window * 1_000;
        let packet = Packet {
            frames: Some(vec![Frame::ack([(first, self.number - 1)])]),
            ..Packet::new(PacketType::OneRtt, first, 40)
        };
        self.tell(EventData::PacketReceived(packet));
        self.metrics(0);
        if stuck {
            self.state("congestion_avoidance");
            self.metrics(0);
        }
    }

    fn state(&mut self, new: &'static str) {
        let new = new.into();
        let (old, trigger) = (None, None);
        self.tell(EventData::CongestionStateUpdated { old, new, trigger });
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let events: u64 = arguments
        .next()
        .ok_or("expected the number of events")?
        .parse()?;
    let path = arguments.next().ok_or("expected the file to write")?;
    let description = Description {
        role: Some(Role::Server),
        title: format!("{events} events"),
        ..Description::default()
    };
    let mut transfer = Transfer {
        writer: Writer::new(File::create(&path)?, &description),
        now: 0,
        number: 0,
        window: 10,
        written: 0,
    };
    transfer.tell(EventData::RecoveryParametersSet(Box::new(
        RecoveryParameters {
            controller: Some("cubic".into()),
            max_datagram_size: Some(SIZE),
            minimum_congestion_window: Some(2 * SIZE),
            ..RecoveryParameters::default()
        },
    )));
    transfer.state("slow_start");
    while transfer.written < events {
        let stuck = (events / 2..events / 2 + events / 10).contains(&transfer.written);
        transfer.window = match transfer.window {
            _ if stuck => 2,
            200.. => 140,
            window => window + 1,
        };
        transfer.round(stuck);
    }
    transfer.writer.flush();
    if let Some(error) = transfer.writer.error() {
        return Err(format!("cannot write {path}: {error}").into());
    }
    println!(
        "{} events, {} bytes",
        transfer.written,
        std::fs::metadata(&path)?.len()
    );
    Ok(())
}
