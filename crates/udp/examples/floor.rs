//! Measures UDP alone on loopback, without QUIC, with both ends in turn on one core: Gbit/s, time
//! per datagram and system calls per MB for whole trains, short trains and single datagrams. Other
//! measurements are compared with this floor.
//!
//! `cargo run --release -p clearway-udp --example floor [seconds per row]`

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clearway_udp::{Options, RecvBatch, RecvError, Socket, Transmit};

/// UDP payload bytes, as an Ethernet path carries them.
const DATAGRAM: usize = 1452;

/// Trains sent before they are received: what one turn of an event loop may bring.
const TRAINS: usize = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let seconds: f64 = std::env::args().nth(1).map_or(Ok(1.0), |arg| arg.parse())?;
    let length = Duration::from_secs_f64(seconds);
    println!(
        "{:<24} {:>8} {:>12} {:>9} {:>9}",
        "", "Gbit/s", "ns/datagram", "sends/MB", "recvs/MB"
    );
    for (name, datagrams, offload) in [
        ("45 datagrams, GSO + GRO", 45, true),
        ("10 datagrams, GSO + GRO", 10, true),
        ("single datagrams", 1, false),
    ] {
        row(name, datagrams, offload, length)?;
    }
    Ok(())
}

fn row(
    name: &str,
    datagrams: usize,
    offload: bool,
    length: Duration,
) -> Result<(), Box<dyn Error>> {
    let options = Options {
        gso: offload,
        gro: offload,
        ..Options::default()
    };
    let sender = Socket::bind("127.0.0.1:0".parse()?, &options)?;
    let receiver = Socket::bind("127.0.0.1:0".parse()?, &options)?;
    let elapsed = run(
        &sender,
        &receiver,
        receiver.local_addr()?,
        datagrams,
        length,
    )?;

    let (sent, received) = (sender.counters(), receiver.counters());
    if sent.sent_bytes != received.received_bytes {
        return Err(format!(
            "{name}: {} of {} bytes came",
            received.received_bytes, sent.sent_bytes
        )
        .into());
    }
    let (bytes, seconds) = (sent.sent_bytes as f64, elapsed.as_secs_f64());
    println!(
        "{name:<24} {:>8.1} {:>12.0} {:>9.1} {:>9.1}",
        bytes * 8e-9 / seconds,
        seconds * 1e9 / sent.sent_datagrams as f64,
        sent.send_calls as f64 * 1e6 / bytes,
        received.receive_calls as f64 * 1e6 / bytes,
    );
    Ok(())
}

fn run(
    sender: &Socket,
    receiver: &Socket,
    remote: SocketAddr,
    datagrams: usize,
    length: Duration,
) -> Result<Duration, Box<dyn Error>> {
    let train = vec![0; datagrams * DATAGRAM];
    let mut batch = RecvBatch::for_socket(receiver, TRAINS);
    let start = Instant::now();
    while start.elapsed() < length {
        let mut transmits: [Transmit<'_>; TRAINS] = std::array::from_fn(|_| Transmit {
            segment_size: Some(DATAGRAM),
            ..Transmit::new(remote, &train)
        });
        sender.send_many(&mut transmits)?;
        receive(receiver, &mut batch)?;
    }
    Ok(start.elapsed())
}

/// Receives what is waiting, without a further call where a batch had room left.
fn receive(socket: &Socket, batch: &mut RecvBatch) -> io::Result<()> {
    loop {
        match socket.recv(batch) {
            Ok(_) if batch.is_full() => {}
            Ok(_) => return Ok(()),
            Err(RecvError::WouldBlock) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}
