//! Prints the requests, latencies and busy times of the event loop on modelled cores.

use clearway_sim::closed_loop::{ClosedLoop, run};

fn main() -> Result<(), clearway_sim::SimError> {
    println!(
        "{:>11} {:>9} {:>10} {:>6} {:>7} {:>9} {:>9}",
        "connections", "in flight", "requests/s", "server", "clients", "p50", "p99"
    );
    for (connections, in_flight) in [
        (1, 1),
        (1, 16),
        (1, 100),
        (1, 1000),
        (10, 1),
        (10, 10),
        (10, 100),
        (100, 1),
        (100, 10),
    ] {
        let report = run(&ClosedLoop {
            connections,
            in_flight,
            ..ClosedLoop::default()
        })?;
        let [server, clients] = report.busy_per_mille();
        println!(
            "{connections:>11} {in_flight:>9} {:>10.0} {server:>6} {clients:>7} {:>9} {:>9}",
            report.total() as f64 / report.elapsed.as_secs_f64(),
            format!("{:?}", report.p50),
            format!("{:?}", report.p99),
        );
    }
    Ok(())
}
