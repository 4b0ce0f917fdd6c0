//! The `clearway relay` command.

use core::future::pending;
use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::time::Instant;

use clearway_links::Span;

use super::report::Report;
use super::{Args, Config, Relay, RelayStats};
use crate::failure::{Failure, Kind};
use crate::interrupt::Interrupts;
use crate::output::print_json;

/// Runs a relay until its time is over or a signal arrives.
///
/// # Errors
/// If the options contradict each other, the address cannot be bound, or the relay fails while
/// running.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    let config = args
        .config()
        .map_err(|error| Failure::new(Kind::Arguments, error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let started = Instant::now();
    let mut relay = Relay::start(config.clone()).map_err(|error| {
        let what = format!("cannot listen on {}", config.listen);
        Failure::caused(Kind::Address, what, &error)
    })?;
    let listen = relay.local_addr();
    runtime.block_on(async {
        // Before anybody is told that it listens: whoever is, may stop it at once.
        let interrupts = Interrupts::new()?;
        announce(&config, listen);
        wait(&mut relay, interrupts, args).await
    })?;
    let stats = relay.stop()?;
    conclude(&config, listen, started.elapsed(), &stats, args.json)?;
    Ok(())
}

fn announce(config: &Config, listen: SocketAddr) {
    let plain = |settings: String| {
        if settings.is_empty() {
            "sent at once".to_owned()
        } else {
            settings
        }
    };
    say!("relay: listening on {listen}, forwarding to {}", config.to);
    say!("relay: up   {}", plain(config.up.to_string()));
    say!("relay: down {}", plain(config.down.to_string()));
}

/// Waits until the time is over, a signal arrives, or the relay ends by itself.
async fn wait(relay: &mut Relay, mut interrupts: Interrupts, args: &Args) -> io::Result<()> {
    let over = sleep(args.duration);
    tokio::pin!(over);
    loop {
        tokio::select! {
            () = relay.ended() => return Ok(()),
            _ = interrupts.next() => return Ok(()),
            () = &mut over => return Ok(()),
            () = sleep(args.every) => {
                let stats = relay.stats()?;
                say!(
                    "relay: {} client(s), up {}/{} delivered, down {}/{} delivered",
                    stats.live_flows,
                    stats.up.delivered,
                    stats.up.sent,
                    stats.down.delivered,
                    stats.down.sent,
                );
            }
        }
    }
}

/// Waits for this long, or forever.
async fn sleep(span: Option<Span>) {
    match span {
        Some(span) => tokio::time::sleep(span.0).await,
        None => pending().await,
    }
}

fn conclude(
    config: &Config,
    listen: SocketAddr,
    duration: Duration,
    stats: &RelayStats,
    json: bool,
) -> Result<(), Failure> {
    let report = Report::new(config, listen, duration, stats);
    say!("{}", report.text().trim_end());
    if json {
        print_json(&report)?;
    }
    Ok(())
}
