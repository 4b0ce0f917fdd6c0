//! The `clearway get` command.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use clearway::http::Client;
use clearway::{ClientConfig, Endpoint, QlogDir, TransportConfig};
use clearway_balancer::sample::SampleDirection;

use super::Args;
use super::cause::failure;
use super::fetch::Fetch;
use super::job::{Job, jobs};
use super::part::can_resume;
use super::summary::Summary;
use super::temporary::names;
use crate::connect;
use crate::failure::{Failure, Kind};
use crate::interrupt::unless_interrupted;
use crate::log;
use crate::output::print_json;
use crate::qlog::{self, with_traces};
use crate::samples::Samples;

/// How long to wait for the closes to be sent. Servers that answer nothing are not waited for.
const GOODBYE: Duration = Duration::from_millis(50);

/// How long to wait for aborted transfers to notice.
const CLEANUP: Duration = Duration::from_millis(250);

/// Threads that wait for disks.
const WRITERS: usize = 4;

/// Fetches everything and prints a summary.
///
/// # Errors
/// See [`Kind`]; with several URLs, the first failure's.
pub(crate) fn command(args: Box<Args>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(WRITERS)
        .enable_all()
        .build()?;
    let qlog = args.qlog.open("get")?;
    let samples = args.sample.open()?;
    let outcome = runtime.block_on(get(Arc::from(args), qlog.as_ref(), samples.as_ref()));
    // Aborted transfers clean up, but a blocked output is not waited for.
    log::end();
    runtime.shutdown_timeout(CLEANUP);
    qlog::finish(qlog);
    drop(samples);
    outcome
}

async fn get(
    args: Arc<Args>,
    qlog: Option<&QlogDir>,
    samples: Option<&Samples>,
) -> Result<(), Failure> {
    let jobs = jobs(&args)?;
    let only = jobs.len() == 1;
    let client = client(&config(&args)?, qlog, samples)?;
    for job in &jobs {
        connect::direct(&client, &job.url, &args.connect.resolve, &args.connect_to);
    }
    let fetch = Fetch::new(args.clone(), client.clone(), jobs.clone());
    let begun = Instant::now();
    let outcome = unless_interrupted(within(&args, fetch.run()))
        .await
        .and_then(|outcome| outcome);
    let time = begun.elapsed();
    fetch.progress().clear();
    let (summary, outcome) = {
        fetch.give_up();
        let tally = fetch.tally();
        let outcome = match (outcome, &tally.failure) {
            (Err(mut failure), _) => {
                if tally.not_tried > 0 {
                    let rest = format!("; {} done, {} not tried", tally.done, tally.not_tried);
                    failure.message.push_str(&rest);
                }
                failure.message.push_str(&kept(&jobs));
                Err(failure)
            }
            (Ok(()), None) => Ok(()),
            (Ok(()), Some(failure)) if only => Err(failure.clone()),
            (Ok(()), Some(failure)) => {
                let message = format!("{}; first: {failure}", tally.text());
                Err(Failure::new(failure.kind, message))
            }
        };
        (Summary::of(&tally, time, outcome.as_ref().err()), outcome)
    };
    let _ = tokio::time::timeout(GOODBYE, client.close()).await;
    // A failure is one line.
    if outcome.is_ok() && !args.silent {
        say!("{}", summary.text());
    }
    if args.json {
        print_json(&summary)?;
    }
    outcome
}

/// The client's configuration.
///
/// # Errors
/// If there are no trusted certificates.
fn config(args: &Args) -> Result<ClientConfig, Failure> {
    let mut transport = TransportConfig::default();
    transport.controller = args.controller.into();
    transport.versions = args.versions;
    let config = args.trust.client_config()?.transport(transport);
    Ok(match args.connect.writes_key_log()? {
        true => config.key_log_from_env(),
        false => config,
    })
}

/// A client on a socket for IPv6 and IPv4, or for IPv4 on hosts without the other.
pub(crate) fn client(
    config: &ClientConfig,
    qlog: Option<&QlogDir>,
    samples: Option<&Samples>,
) -> Result<Client, Failure> {
    let any: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
    let [dual, v4] = any.map(|ip| SocketAddr::new(ip, 0));
    let client = |address| {
        let endpoint = with_traces(Endpoint::builder(address), qlog);
        let endpoint = match samples {
            Some(samples) => samples.watch(endpoint, "client", SampleDirection::Down),
            None => endpoint,
        };
        Client::with_endpoint(endpoint, config.clone())
    };
    client(dual)
        .or_else(|_| client(v4))
        .map_err(|error| failure("get", &error))
}

/// What a command that was stopped leaves for the next one, for people.
fn kept(jobs: &[Job]) -> String {
    let left = |job: &&Job| job.to.file().is_some_and(|file| can_resume(file, &job.url));
    let mut left = jobs.iter().filter(left).filter_map(|job| job.to.file());
    match (left.next(), left.count()) {
        (None, _) => String::new(),
        (Some(file), 0) => {
            let [part, _] = names(file);
            let part = part.display();
            format!("; partial content is kept in {part}, resume with -C")
        }
        (Some(_), more) => {
            format!(
                "; partial content of {} URLs is kept, resume with -C",
                more + 1
            )
        }
    }
}

/// Runs `work` with the time limit.
async fn within(
    args: &Args,
    work: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let Some(limit) = args.max_time else {
        return work.await;
    };
    tokio::time::timeout(limit.0, work)
        .await
        .unwrap_or_else(|_| {
            let message = format!("timed out after {limit}");
            Err(Failure::new(Kind::Timeout, message))
        })
}
