//! The HTTP/3 matrix: what is tried, and what must then have been seen.

use std::path::Path;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::Value;

use crate::{
    program::{Program, Unsupported},
    verdict::Verdict,
};

/// One thing that two HTTP/3 stacks must manage together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Case {
    /// One small page.
    Handshake,
    /// One page of five million bytes.
    Transfer,
    /// 1,999 pages of 32 bytes: more than a connection may have open at once.
    Requests,
    /// An address proven by Retry.
    Retry,
    /// A second connection on a ticket of the first.
    Resumption,
    /// A second connection whose requests travel as early data.
    ZeroRtt,
    /// A key update halfway, started by the client.
    KeyUpdate,
    /// Pages of many sizes at once.
    Get,
    /// Echoed uploads with trailers both ways.
    Post,
}

impl Case {
    /// Options of the server.
    fn server(self) -> &'static [&'static str] {
        match self {
            Self::Retry => &["--retry"],
            Self::ZeroRtt => &["--zero-rtt"],
            Self::Handshake
            | Self::Transfer
            | Self::Requests
            | Self::Resumption
            | Self::KeyUpdate
            | Self::Get
            | Self::Post => &[],
        }
    }

    /// Options of the client.
    fn client(self) -> &'static [&'static str] {
        match self {
            Self::Handshake => &["--bytes", "1000"],
            Self::Transfer => &["--bytes", "5000000"],
            Self::Requests => &["--bytes", "32", "--requests", "1999"],
            Self::Retry => &["--bytes", "10000"],
            Self::Resumption => &["--bytes", "10000", "--resume"],
            Self::ZeroRtt => &["--bytes", "32", "--requests", "40", "--zero-rtt"],
            Self::KeyUpdate => &["--bytes", "3000000", "--key-update"],
            Self::Get => &["--bytes", "100001", "--requests", "20", "--parallel", "5"],
            Self::Post => &["--post", "1000003", "--requests", "3", "--parallel", "3"],
        }
    }

    /// Requests of one connection, the bytes of each, and how many connections.
    fn load(self) -> (u64, u64, u64) {
        match self {
            Self::Handshake => (1, 1_000, 1),
            Self::Transfer => (1, 5_000_000, 1),
            Self::Requests => (1_999, 32, 1),
            Self::Retry => (1, 10_000, 1),
            Self::Resumption => (1, 10_000, 2),
            Self::ZeroRtt => (40, 32, 2),
            Self::KeyUpdate => (1, 3_000_000, 1),
            Self::Get => (20, 100_001, 1),
            Self::Post => (3, 1_000_003, 1),
        }
    }

    /// What came of it, from what both sides report.
    fn judge(self, client: &Value, server: &[Value]) -> Verdict {
        let (requests, bytes, connections) = self.load();
        let (requests, bytes) = (requests * connections, requests * bytes * connections);
        if client["requests"] != requests || client["bytes"] != bytes {
            return Verdict::Fail(format!(
                "client: {} bytes in {} requests, expected {bytes} in {requests}",
                client["bytes"], client["requests"]
            ));
        }
        let last = server.last().unwrap_or(&Value::Null);
        let seen = match self {
            Self::Handshake | Self::Transfer | Self::Requests | Self::Get => return Verdict::Pass,
            Self::Retry => either("retried", [&client["retried"], &last["retried"]]),
            Self::Resumption => own("resumed", &client["resumed"]),
            Self::ZeroRtt => {
                let key = "zero_rtt_accepted";
                // Of two connections that ended at about the same time the first may be
                // told of last; it cannot have had early data.
                let taken = server.iter().find(|closed| closed[key] == true);
                let told = &taken.unwrap_or(last)[key];
                own(key, &client[key]).and_then(|_| either(key, [&client[key], told]))
            }
            Self::KeyUpdate => {
                let counts = [&client["key_updates"], &last["peer_key_updates"]];
                let told = counts.map(|count| count.as_u64().map(|count| Value::Bool(count > 0)));
                let [client, server] = told.map(Option::unwrap_or_default);
                either("a key update", [&client, &server])
            }
            Self::Post if client["trailers_seen"] == requests => Ok(true),
            Self::Post => Err(format!(
                "client: trailers_seen is {}, expected {requests}",
                client["trailers_seen"]
            )),
        };
        match seen {
            Ok(true) => Verdict::Pass,
            Ok(false) => Verdict::Unproven("no side reports it".to_owned()),
            Err(why) => Verdict::Fail(why),
        }
    }
}

/// A fact that the client must report.
fn own(key: &str, value: &Value) -> Result<bool, String> {
    if *value == Value::Bool(true) {
        Ok(true)
    } else {
        Err(format!("client: {key} is {value}"))
    }
}

/// A fact that one side must report and none may deny.
fn either(key: &str, [client, server]: [&Value; 2]) -> Result<bool, String> {
    for (who, value) in [("client", client), ("server", server)] {
        if *value == Value::Bool(false) {
            return Err(format!("{who}: {key} is false"));
        }
    }
    Ok([client, server].contains(&&Value::Bool(true)))
}

/// One case between two programs.
pub(crate) fn cell(case: Case, client: &Program, server: &Program, folder: &Path) -> Verdict {
    for program in [client, server] {
        if !program.path.exists() {
            return Verdict::NotRun(format!("no {}", program.path.display()));
        }
    }
    attempt(case, client, server, folder).unwrap_or_else(|error| {
        match error.downcast_ref::<Unsupported>() {
            Some(Unsupported(why)) => Verdict::Unsupported(why.clone()),
            None => Verdict::Fail(format!("{error:#}")),
        }
    })
}

fn attempt(case: Case, client: &Program, server: &Program, folder: &Path) -> Result<Verdict> {
    let running = server.serve(case.server(), folder)?;
    let report = client.get(case.client(), &running.address, folder);
    let report = report.with_context(|| format!("server: {}", running.complaint()))?;
    let (_, _, connections) = case.load();
    Ok(case.judge(&report, &running.closed(connections)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A client's report of a sound run, with other facts besides.
    fn sound(case: Case, facts: Value) -> Value {
        let (requests, bytes, connections) = case.load();
        let mut report = json!({
            "requests": requests * connections, "bytes": requests * bytes * connections
        });
        if let (Some(report), Value::Object(mut facts)) = (report.as_object_mut(), facts) {
            report.append(&mut facts);
        }
        report
    }

    #[test]
    fn loads_are_those_of_the_options() {
        for case in Case::value_variants() {
            let (requests, bytes, _) = case.load();
            let value = |names: [&str; 2]| {
                let at = case.client().iter().position(|word| names.contains(word));
                at.map(|at| case.client()[at + 1].parse::<u64>().unwrap())
            };
            assert_eq!(value(["--requests"; 2]).unwrap_or(1), requests);
            assert_eq!(value(["--bytes", "--post"]), Some(bytes));
        }
    }

    #[test]
    fn missing_byte_is_a_failure() {
        for case in Case::value_variants() {
            let mut report = sound(*case, json!({"resumed": true}));
            report["bytes"] = json!(report["bytes"].as_u64().unwrap() - 1);
            let verdict = case.judge(&report, &[]);
            assert!(matches!(verdict, Verdict::Fail(why) if why.contains("bytes")));
        }
    }

    #[test]
    fn what_a_case_is_about_must_be_seen() {
        let yes = [
            (Case::Retry, json!({"retried": true})),
            (Case::Resumption, json!({"resumed": true})),
            (Case::ZeroRtt, json!({"zero_rtt_accepted": true})),
            (Case::KeyUpdate, json!({"key_updates": 1})),
            (Case::Post, json!({"trailers_seen": 3})),
        ];
        let no = [
            (Case::Retry, json!({"retried": false})),
            (Case::Resumption, json!({"resumed": false})),
            (Case::Resumption, json!({})),
            (Case::ZeroRtt, json!({"zero_rtt_accepted": false})),
            (Case::ZeroRtt, json!({})),
            (Case::KeyUpdate, json!({"key_updates": 0})),
            (Case::Post, json!({"trailers_seen": 2})),
        ];
        for (case, facts) in yes {
            assert_eq!(case.judge(&sound(case, facts), &[]), Verdict::Pass);
        }
        for (case, facts) in no {
            let verdict = case.judge(&sound(case, facts), &[]);
            assert!(matches!(verdict, Verdict::Fail(_)), "{case:?}: {verdict:?}");
        }
    }

    #[test]
    fn early_data_unknown_to_the_server_is_a_failure() {
        let client = sound(Case::ZeroRtt, json!({"zero_rtt_accepted": true}));
        let judge = |server: Value| Case::ZeroRtt.judge(&client, &[server]);
        assert_eq!(judge(json!({"zero_rtt_accepted": true})), Verdict::Pass);
        assert_eq!(judge(json!({})), Verdict::Pass);
        let denied = judge(json!({"zero_rtt_accepted": false}));
        assert!(matches!(denied, Verdict::Fail(why) if why.contains("server")));
    }

    #[test]
    fn a_server_may_tell_for_a_silent_client() {
        let silent = sound(Case::Retry, json!({"retried": null}));
        let judge = |server: Value| Case::Retry.judge(&silent, &[server]);
        assert_eq!(judge(json!({"retried": true})), Verdict::Pass);
        assert!(matches!(judge(json!({"retried": false})), Verdict::Fail(_)));
        assert!(matches!(judge(json!({})), Verdict::Unproven(_)));
    }
}
