//! A control for `crosstraffic`: TCP of the kernel in the place of QUIC, in the same network and
//! beside the same connection. What the kernel's own NewReno or CUBIC gets there says how much of a
//! share is the algorithm's, and how much the implementation's.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result};
use clap::Args;

use super::{
    catalogue, cleanup,
    inside::{TcpFlow, TcpSender},
    test,
    tunnel::{self, Tunnel},
};

/// The client's port of the connection that is measured.
const PORT: u16 = 5002;

/// Options of `interop control`
#[derive(Debug, Args)]
pub(crate) struct Control {
    #[command(flatten)]
    sender: TcpSender,
    /// How often it is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// The seed of the network in the first run; the next ones have the next numbers
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Measures the share of TCP with the chosen controller beside CUBIC, and prints the rates in kbit/s
/// and their median.
pub(crate) fn run(options: &Control) -> Result<()> {
    cleanup::on_signals()?;
    let mut rates = Vec::new();
    for repetition in 0..options.repetitions {
        let seed = options.seed.saturating_add(repetition.into());
        rates.push(measure(&options.sender, seed)?);
    }
    rates.sort_unstable();
    let median = rates.get(rates.len() / 2).context("no repetitions")?;
    println!("median {median} kbit/s of {rates:?}");
    Ok(())
}

fn measure(sender: &TcpSender, seed: u64) -> Result<u64> {
    let test = &catalogue::BESIDE_TCP;
    let bytes: usize = test.files.iter().map(|(count, size)| count * size).sum();
    let tunnel = Tunnel::new(test.conditions.down, seed, 0)?;
    let cubic = test::start_cubic(&tunnel)?;
    let [client, server] = &tunnel.spaces;
    let address = SocketAddr::new(tunnel::CLIENT.into(), PORT);
    let mut flow = TcpFlow::start(server, (client, address), sender, Some(bytes))?;
    flow.wait(test.patience)?;
    drop((flow, cubic));
    let recorded = tunnel.end();
    let span = recorded.tcp_arrived(PORT).context("nothing arrived")?;
    let (first, last) = span;
    let rate = kbit(bytes, last - first);
    let beside = test::beside(&recorded, PORT, span);
    eprintln!("{}: {rate} kbit/s; {beside}", sender.controller);
    Ok(rate)
}

fn kbit(bytes: usize, time: Duration) -> u64 {
    (8.0 * bytes as f64 / time.as_secs_f64() / 1000.0) as u64
}
