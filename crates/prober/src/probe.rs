//! Many cases against one server.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use tokio::sync::{OnceCell, Semaphore};
use tokio::task::JoinSet;

use crate::run::{CaseResult, Facts, Limits, Session, Stop, Verdict, run_case};
use crate::script::{Case, Setup, Step};
use crate::target::{Target, TargetError, Trust};
use crate::wire::parameters;

/// How long an ordinary handshake may take, by default.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an answer may take, by default: several retransmissions on any ordinary path.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// How many cases run at a time, by default: few enough that no server takes it for an attack.
const PARALLEL: usize = 4;
/// A case waits several times at most; none lasts longer than this beyond its own `wait`s.
const CASE_FACTOR: u32 = 12;

/// Why a server cannot be probed at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// The target cannot be used.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// No QUIC connection could be made.
    #[error("cannot connect to {address}: {reason}")]
    Connect {
        /// Where to.
        address: SocketAddr,
        /// What came instead.
        reason: String,
    },
    /// The certificate is not trusted.
    #[error("the certificate of {address} is not trusted: {reason}")]
    Certificate {
        /// Where to.
        address: SocketAddr,
        /// What is wrong with it.
        reason: String,
    },
    /// There is a QUIC server, but it does not speak HTTP/3.
    #[error("{address} speaks QUIC but not HTTP/3: {reason}")]
    NotHttp3 {
        /// Where to.
        address: SocketAddr,
        /// What came instead.
        reason: String,
    },
}

/// What a server showed of itself in an ordinary connection.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Contact {
    /// The address that is probed.
    pub address: SocketAddr,
    /// The status of an ordinary GET.
    pub status: u16,
    /// Its transport parameters that are integers, by name.
    pub parameters: Vec<(&'static str, u64)>,
    /// Its SETTINGS: identifiers and values.
    pub settings: Vec<(u64, u64)>,
    /// Whether it sent a ticket that permits 0-RTT.
    pub early_data: bool,
    #[serde(skip)]
    facts: Facts,
}

/// The results of all cases that ran.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// The URL as it was given.
    pub url: String,
    /// What the server showed of itself.
    pub contact: Contact,
    /// The results, in the order of the cases.
    pub results: Vec<CaseResult>,
}

impl Report {
    /// Returns the results that deviate from a MUST.
    pub fn deviations(&self) -> impl Iterator<Item = &CaseResult> {
        self.with(Verdict::Deviation)
    }

    /// Returns the results with a verdict.
    pub fn with(&self, verdict: Verdict) -> impl Iterator<Item = &CaseResult> {
        let results = self.results.iter();
        results.filter(move |result| result.verdict == verdict)
    }

    /// Returns how many results have a verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.with(verdict).count()
    }
}

/// A prober of one server.
#[derive(Clone, Debug)]
pub struct Probe {
    url: String,
    target: Target,
    limits: Limits,
    parallel: usize,
    address: Option<SocketAddr>,
    contact: Arc<OnceCell<Contact>>,
}

impl Probe {
    /// Creates a prober of the server of a URL, such as `https://example.org/`.
    ///
    /// # Errors
    /// If the URL is not one of a server with TLS, or the trusted certificates cannot be used.
    pub fn new(url: &str, trust: Trust) -> Result<Self, TargetError> {
        Ok(Self {
            url: url.to_owned(),
            target: Target::new(url, trust)?,
            limits: limits(CONNECT_TIMEOUT, PATIENCE),
            parallel: PARALLEL,
            address: None,
            contact: Arc::default(),
        })
    }

    /// Sets how long an ordinary handshake may take. Default: 10 s.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.limits = limits(limit, self.limits.patience);
        self
    }

    /// Sets how long to wait for each answer. Default: 1.5 s. A case that expects an answer and
    /// gets none takes this long; a server farther away than a third of it needs more.
    #[must_use]
    pub fn patience(mut self, limit: Duration) -> Self {
        self.limits = limits(self.limits.connect, limit);
        self
    }

    /// Sets how many cases run at a time, at least 1. Default: 4, so that no server takes it for
    /// an attack.
    #[must_use]
    pub fn parallel(mut self, cases: usize) -> Self {
        self.parallel = cases.max(1);
        self
    }

    /// Probes this address instead of resolving the host. The name is still sent and checked.
    #[must_use]
    pub fn address(mut self, address: SocketAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// Appends the TLS secrets of every connection to the file that the environment variable
    /// `SSLKEYLOGFILE` names, so that a capture can be decrypted.
    #[must_use]
    pub fn key_log_from_env(mut self) -> Self {
        self.target.log_keys();
        self
    }

    /// Returns the host and the port of the URL.
    #[must_use]
    pub fn host_and_port(&self) -> (&str, u16) {
        self.target.host_and_port()
    }

    /// Makes an ordinary connection and a request, once, to learn what the server offers.
    ///
    /// # Errors
    /// If there is no HTTP/3 server.
    pub async fn contact(&self) -> Result<&Contact, ProbeError> {
        self.contact.get_or_try_init(|| self.first_contact()).await
    }

    async fn first_contact(&self) -> Result<Contact, ProbeError> {
        let addresses = match self.address {
            Some(address) => vec![address],
            None => self.target.resolve().await?,
        };
        let mut last = None;
        for address in addresses {
            match self.contact_at(address).await {
                Ok(contact) => return Ok(contact),
                Err(error) => last = Some(error),
            }
        }
        // There is at least one address, so there is an error.
        Err(last.unwrap_or_else(|| {
            ProbeError::Target(TargetError::Resolve {
                host: self.target.host_and_port().0.to_owned(),
                reason: "it has no addresses".to_owned(),
            })
        }))
    }

    async fn contact_at(&self, address: SocketAddr) -> Result<Contact, ProbeError> {
        let connect = |reason: String| ProbeError::Connect { address, reason };
        let (facts, setup) = (Facts::default(), Setup::default());
        let session = Session::new(&self.target, address, &facts, &setup, self.limits).await;
        let mut session = session.map_err(|error| connect(error.to_string()))?;
        let ordinary = [Step::Connect(crate::script::ConnectUntil::Confirmed)];
        if let Err(stop) = session.execute(&ordinary).await {
            return Err(self.not_connected(address, &session, &stop));
        }
        let found = session.ordinary_request(self.limits.connect).await;
        let Some((status, facts)) = found else {
            let limit = self.limits.connect.as_secs_f64();
            let reason = format!(
                "no response to GET {} within {limit} s ({})",
                self.target.path,
                session.came()
            );
            return Err(ProbeError::NotHttp3 { address, reason });
        };
        session.close().await;
        let integers = parameters::NAMES.iter().filter(|(_, id)| {
            matches!(id, 0x01 | 0x03..=0x0b | 0x0e | 0x20) && facts.parameters.get(*id).is_some()
        });
        Ok(Contact {
            address,
            status,
            parameters: integers
                .map(|(name, id)| (*name, facts.parameters.integer(*id)))
                .collect(),
            settings: facts.settings.clone(),
            early_data: facts.early_data,
            facts,
        })
    }

    /// Says in one sentence why there is no connection.
    fn not_connected(&self, address: SocketAddr, session: &Session<'_>, stop: &Stop) -> ProbeError {
        let observed = &session.observed;
        let limit = self.limits.connect.as_secs_f64();
        let reason = if observed.refused {
            "nobody listens on this UDP port: the connection was refused by ICMP".to_owned()
        } else if let Some(reason) = session.tls_failure() {
            if reason.contains("certificate") || reason.contains("Certificate") {
                return ProbeError::Certificate { address, reason };
            }
            format!("TLS failed: {reason}")
        } else if let Some(closed) = &observed.closed {
            if closed.code.code == 0x178 {
                let reason = "it does not offer the protocol h3 (TLS alert \
                              no_application_protocol)"
                    .to_owned();
                return ProbeError::NotHttp3 { address, reason };
            }
            session.came()
        } else if observed.version_negotiation.is_some() {
            format!("it does not support QUIC version 1: {}", session.came())
        } else if observed.datagrams == 0 {
            format!(
                "no answer within {limit} s: the server does not speak QUIC on this port, or UDP \
                 is blocked on the way"
            )
        } else {
            match stop {
                Stop::Failed(why) | Stop::NotApplicable(why) => why.clone(),
                Stop::Over => session.came(),
            }
        };
        ProbeError::Connect { address, reason }
    }

    /// Runs cases, several at a time, each on connections of its own. A case with an unexpected
    /// result is repeated once all have run, with twice the patience, so that a server is blamed
    /// only for what it does twice. `on_result` is told of each result when it is final. A server
    /// that cannot be reached any more makes cases [`Verdict::NotRun`].
    ///
    /// # Errors
    /// If there is no HTTP/3 server to begin with.
    pub async fn run(
        &self,
        cases: &[Case],
        mut on_result: impl FnMut(&CaseResult),
    ) -> Result<Report, ProbeError> {
        let contact = self.contact().await?.clone();
        let first: Vec<&Case> = cases.iter().collect();
        let mut results = self
            .run_side_by_side(&contact, &first, self.limits, |result| {
                if !result.is_to_be_repeated() {
                    on_result(result);
                }
            })
            .await;
        let again: Vec<&Case> = cases
            .iter()
            .zip(&results)
            .filter(|(_, result)| result.is_to_be_repeated())
            .map(|(case, _)| case)
            .collect();
        let patient = limits(self.limits.connect, self.limits.patience * 2);
        let mut second = self
            .run_side_by_side(&contact, &again, patient, |_| {})
            .await
            .into_iter();
        for (case, result) in cases.iter().zip(&mut results) {
            if result.is_to_be_repeated()
                && let Some(second) = second.next()
            {
                result.add_second_attempt(second, case.intrusive);
                on_result(result);
            }
        }
        Ok(Report {
            url: self.url.clone(),
            contact,
            results,
        })
    }

    /// Runs each case once. The results are in the order of the cases.
    async fn run_side_by_side(
        &self,
        contact: &Contact,
        cases: &[&Case],
        limits: Limits,
        mut on_result: impl FnMut(&CaseResult),
    ) -> Vec<CaseResult> {
        let permits = Arc::new(Semaphore::new(self.parallel));
        let mut running = JoinSet::new();
        for (at, case) in cases.iter().copied().cloned().enumerate() {
            let (permits, target, contact) =
                (permits.clone(), self.target.clone(), contact.clone());
            running.spawn(async move {
                // The semaphore is never closed.
                let _permit = permits.acquire_owned().await;
                let result = run_case(&case, &target, contact.address, &contact.facts, limits);
                (at, result.await)
            });
        }
        let mut results = Vec::with_capacity(cases.len());
        while let Some(done) = running.join_next().await {
            match done {
                Ok((at, result)) => {
                    on_result(&result);
                    results.push((at, result));
                }
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }
        results.sort_by_key(|(at, _)| *at);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// Runs one case.
    ///
    /// # Errors
    /// If there is no HTTP/3 server to begin with.
    pub async fn run_case(&self, case: &Case) -> Result<CaseResult, ProbeError> {
        let contact = self.contact().await?;
        let Self { target, limits, .. } = self;
        Ok(run_case(case, target, contact.address, &contact.facts, *limits).await)
    }
}

fn limits(connect: Duration, patience: Duration) -> Limits {
    Limits {
        connect,
        patience,
        case: (connect * 2 + patience * CASE_FACTOR).max(Duration::from_secs(60)),
    }
}
