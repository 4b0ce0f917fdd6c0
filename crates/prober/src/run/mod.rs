//! A case on a socket.
//!
//! ```text
//! session   the socket and the connection of one case: sending, receiving, waiting
//! steps     the steps of a script
//! judge     what came, compared with what is expected
//! came      what came, in words
//! result    the result of a case
//! ```

mod came;
mod judge;
mod result;
mod session;
mod steps;

pub use result::{CaseResult, Verdict};
pub(crate) use session::{Facts, Limits, Session};

use crate::script::Case;
use crate::target::Target;

/// Why a case ended before it could be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Further steps make no sense, because the connection is over: what came is judged.
    Over,
    /// The server lacks what the case needs.
    NotApplicable(String),
    /// The case could not be run.
    Failed(String),
}

/// Runs one case to its end, within a bounded time.
pub(crate) async fn run_case(
    case: &Case,
    target: &Target,
    address: core::net::SocketAddr,
    facts: &Facts,
    limits: Limits,
) -> CaseResult {
    let begin = std::time::Instant::now();
    let (verdict, came, sent) = match facts.missing(&case.needs) {
        Some(missing) => (Verdict::NotApplicable, missing, Vec::new()),
        None => attempt(case, target, address, facts, limits).await,
    };
    CaseResult {
        name: case.name.clone(),
        title: case.title.clone(),
        source: case.source.clone(),
        layer: case.layer,
        requirement: case.requirement,
        verdict,
        script: case.script.clone(),
        sent,
        expected: case.expectation(),
        came,
        seconds: begin.elapsed().as_secs_f64(),
    }
}

async fn attempt(
    case: &Case,
    target: &Target,
    address: core::net::SocketAddr,
    facts: &Facts,
    limits: Limits,
) -> (Verdict, String, Vec<String>) {
    let mut session = match Session::new(target, address, facts, &case.setup, limits).await {
        Ok(session) => session,
        Err(error) => return (Verdict::NotRun, format!("no socket: {error}"), Vec::new()),
    };
    let ran = tokio::time::timeout(limits.case, async {
        match session.execute(&case.steps).await {
            Ok(()) | Err(Stop::Over) => session.judge(case).await,
            Err(Stop::NotApplicable(why)) => (Verdict::NotApplicable, why),
            Err(Stop::Failed(why)) => (Verdict::NotRun, why),
        }
    });
    let (verdict, came) = match ran.await {
        Ok(judged) => judged,
        Err(_) => {
            let limit = limits.case.as_secs();
            (Verdict::NotRun, format!("not finished within {limit} s"))
        }
    };
    session.close().await;
    (verdict, came, session.into_log())
}
