//! A siege: every attack that we know of against the built `clearway serve`, alone and
//! together, while clients that behave well use it and are timed.
//!
//! ```sh
//! cargo run --release -p clearway-cli --example siege                # ten minutes
//! cargo run --release -p clearway-cli --example siege -- --ci        # one
//! cargo run --release -p clearway-cli --example siege -- --list
//! cargo run --release -p clearway-cli --example siege -- --kind icmp --seconds 15
//! ```
//!
//! The server has a core to itself; attackers and clients share the others, where
//! attackers run at the lowest priority: they take what the clients leave. Each step
//! has two slices with a new server each. In the first, the baseline, the attackers
//! aim at a sink, a second server on their own core, so that they cost the clients as
//! much; in the second they aim at the server. What differs is what the attack does to
//! the server. An attacker sends at most `--rate` packets a second of its own accord;
//! all together share four times that, which is more than their core can do.
//!
//! A line a step: packets and bytes sent; connections or handshakes that the server
//! kept for attackers; requests of well-behaved clients, and how many failed; their
//! median and 95th percentile; the ratio of the median to the baseline's, of the kind
//! of request (small, large, upload, newcomer) where it is worst; the server's peak
//! memory and descriptors; how much of a core the server and the attackers used. Below
//! it what the attackers achieved, and each bar that was missed.
//!
//! The bars: every byte arrives, within ten seconds a request; no median is more than
//! twice the baseline's; memory stays under `--memory` and descriptors under
//! `--descriptors`; the server lives, and answers a newcomer within five seconds of the
//! end of the attack; so do clients that are attacked themselves. Exit code 1 if one of
//! them is missed, 130 after a signal.
//!
//! ICMP needs root, and is left out with a sentence without it. Linux only: sources in
//! 127.0.0.0/8, `/proc`, processor affinity.

#[cfg(target_os = "linux")]
mod args;
#[cfg(target_os = "linux")]
mod attack;
#[cfg(target_os = "linux")]
mod command;
#[cfg(target_os = "linux")]
mod cores;
#[cfg(target_os = "linux")]
mod honest;
#[cfg(target_os = "linux")]
mod panics;
#[cfg(target_os = "linux")]
mod plan;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
mod server;
#[cfg(target_os = "linux")]
mod site;
#[cfg(target_os = "linux")]
mod slice;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    command::run()
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("siege: this runs on Linux only");
    ExitCode::FAILURE
}
