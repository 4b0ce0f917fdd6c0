//! Attacks the built `clearway serve` in every way we know of, one kind of attacker
//! after the other and then all together, and checks that well-behaved clients do not
//! suffer.
//!
//! ```sh
//! cargo run --release -p clearway-cli --example siege                # ten minutes
//! cargo run --release -p clearway-cli --example siege -- --ci        # one minute
//! cargo run --release -p clearway-cli --example siege -- --list
//! cargo run --release -p clearway-cli --example siege -- --markdown  # tables of docs/measurements
//! cargo run --release -p clearway-cli --example siege -- --kind icmp --seconds 15
//! ```
//!
//! # How it measures
//! The server has a processor core to itself. Attackers and clients share the other
//! cores; attackers run at the lowest priority, so they use what the clients leave. As
//! root, server and clients run at the highest, so that other programs are not measured.
//!
//! Each step has two slices, each with a freshly started server. In the first slice,
//! the baseline, the attackers attack a sink: a second server on their own core, which
//! makes them use the same processor time as in an attack. In the second slice they
//! attack the server. The difference is what the attack does to the server.
//!
//! An attacker sends at most `--rate` packets a second of its own accord. All together
//! share four times that rate, which is more than their core can do.
//!
//! # How to read it
//! One line for each step:
//!
//! | column | meaning |
//! |---|---|
//! | packets, bytes, pkt/s | sent by the attackers |
//! | held | most connections or handshakes that attackers kept open at once |
//! | done, failed | requests of well-behaved clients |
//! | median, p95 ms | how long those requests took |
//! | ratio | median divided by the baseline's, for the worst class of request |
//! | MiB, fds | the server's peak memory and open descriptors |
//! | serv, att | share of a core used by the server and by the attackers |
//!
//! The lines below a step say what each attacker achieved, and with `!` which
//! requirement was missed.
//!
//! # What is required
//! - Every byte arrives, and no request takes longer than ten seconds.
//! - No class of requests (small, large, upload, newcomer) has a median of more than
//!   twice its baseline and 5 ms (50 ms with `--ci`). A step in which only that was missed
//!   runs again, twice at most, and all its samples are judged together.
//! - The server uses at most `--memory` MiB and fewer than `--descriptors` descriptors.
//! - The server lives, and serves a new client within five seconds of the attack's end.
//! - Clients that are themselves attacked (forged Retry and Version Negotiation, spoofed
//!   copies of their packets) survive; so does `clearway get`.
//!
//! Exit code 0 if all of that holds, 1 if not, 130 after a signal.
//!
//! Linux only: it uses source addresses in 127.0.0.0/8, `/proc` and processor affinity.
//! ICMP messages can only be sent by root; without it that attack is skipped.

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
#[cfg(target_os = "linux")]
mod table;

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
