//! Verdicts, from what both sides report.

use serde_json::Value;

use crate::case::{Case, Fact};

/// The result of a case between two programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The case works, and the reports prove it.
    Pass,
    /// The bytes were right, but no side reports the feature of the case.
    Unproven(String),
    /// The case does not work, with the reason.
    Fail(String),
    /// A program reports that its stack does not support it.
    Unsupported(String),
    /// A program is missing.
    NotRun(String),
}

/// The reports of both sides.
#[derive(Debug)]
pub(crate) struct Evidence<'a> {
    /// The client's object.
    pub(crate) client: &'a Value,
    /// The server's objects, one per closed connection, in order; empty if it does not report any.
    pub(crate) server: &'a [Value],
}

impl Evidence<'_> {
    /// Returns the verdict.
    pub(crate) fn judge(&self, case: Case) -> Verdict {
        if let Err(why) = self.whole(case) {
            return Verdict::Fail(why);
        }
        let mut unproven = Vec::new();
        for fact in case.facts() {
            match self.holds(*fact) {
                Ok(true) => {}
                Ok(false) => unproven.push(format!("{fact:?}")),
                Err(why) => return Verdict::Fail(why),
            }
        }
        if unproven.is_empty() {
            Verdict::Pass
        } else {
            Verdict::Unproven(format!("no side reports {}", unproven.join(", ")))
        }
    }

    /// Returns whether all responses arrived, counted on all connections or on the last one: a
    /// client may make the first only for its ticket.
    fn whole(&self, case: Case) -> Result<(), String> {
        let [bytes, requests] = ["bytes", "requests"].map(|key| &self.client[key]);
        let last = (case.bytes() * case.streams(), case.streams());
        let all = (last.0 * case.connections(), last.1 * case.connections());
        if [last, all].iter().any(|(b, r)| bytes == b && requests == r) {
            return Ok(());
        }
        let (all_bytes, all_requests) = all;
        Err(format!(
            "client: {bytes} bytes in {requests} requests, expected {all_bytes} in {all_requests}"
        ))
    }

    /// Returns whether a fact is reported (true), or not reported by anybody (false).
    ///
    /// # Errors
    /// Which side reports the opposite.
    fn holds(&self, fact: Fact) -> Result<bool, String> {
        let last = self.server.last().unwrap_or(&Value::Null);
        let yes = Value::Bool(true);
        match fact {
            Fact::Resumed => {
                expect("client", "resumed", &self.client["resumed"], &yes)?;
                Ok(true)
            }
            Fact::ZeroRtt(accepted) => {
                let key = "zero_rtt_accepted";
                let client = reported("client", key, &self.client[key], &accepted.into())?;
                // A client whose ticket allows no early data may have nothing to report.
                if accepted && !client {
                    return Err(format!("client: {key} is null, expected true"));
                }
                reported("server", key, &last[key], &accepted.into())?;
                Ok(true)
            }
            Fact::Retried => {
                let client = reported("client", "retried", &self.client["retried"], &yes)?;
                let server = reported("server", "retried", &last["retried"], &yes)?;
                Ok(client || server)
            }
            Fact::KeyUpdate => {
                let (key, of_client) = ("peer_key_updates", &last["peer_key_updates"]);
                Ok(some("server", key, of_client)?
                    || some("client", "key_updates", &self.client["key_updates"])?)
            }
            Fact::Migrated => reported("server", "migrated", &last["migrated"], &yes),
            Fact::Received(bytes) => {
                reported("server", "received", &last["received"], &bytes.into())
            }
        }
    }
}

/// Checks a value that must be reported.
fn expect(who: &str, key: &str, value: &Value, expected: &Value) -> Result<(), String> {
    if value == expected {
        Ok(())
    } else {
        Err(format!("{who}: {key} is {value}, expected {expected}"))
    }
}

/// Checks a value if it is reported. Returns whether it is.
fn reported(who: &str, key: &str, value: &Value, expected: &Value) -> Result<bool, String> {
    if value.is_null() {
        return Ok(false);
    }
    expect(who, key, value, expected).map(|()| true)
}

/// Checks that a count is not zero if it is reported. Returns whether it is reported.
fn some(who: &str, key: &str, value: &Value) -> Result<bool, String> {
    match value.as_u64() {
        None if value.is_null() => Ok(false),
        Some(1..) => Ok(true),
        None | Some(0) => Err(format!("{who}: {key} is {value}, expected 1 or more")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn judge(case: Case, client: &Value, server: &[Value]) -> Verdict {
        let evidence = Evidence { client, server };
        evidence.judge(case)
    }

    fn fails(verdict: &Verdict, word: &str) -> bool {
        matches!(verdict, Verdict::Fail(why) if why.contains(word))
    }

    #[test]
    fn bytes_and_requests_must_be_exact() {
        let sound = json!({"bytes": 10_000_001, "requests": 1});
        assert_eq!(judge(Case::Transfer, &sound, &[]), Verdict::Pass);
        let short = json!({"bytes": 10_000_000, "requests": 1});
        assert!(fails(&judge(Case::Transfer, &short, &[]), "bytes"));
        let silent = json!({"bytes": 10_000_001});
        assert!(fails(
            &judge(Case::Transfer, &silent, &[]),
            "in null requests"
        ));
    }

    #[test]
    fn a_resumption_is_the_clients_to_report() {
        let run = |resumed| json!({"bytes": 200_000, "requests": 2, "resumed": resumed});
        assert_eq!(
            judge(Case::Resumption, &run(json!(true)), &[]),
            Verdict::Pass
        );
        assert!(fails(
            &judge(Case::Resumption, &run(json!(false)), &[]),
            "resumed"
        ));
        assert!(fails(
            &judge(Case::Resumption, &run(Value::Null), &[]),
            "resumed"
        ));
    }

    #[test]
    fn early_data_is_checked_on_the_second_connection() {
        let run = json!({
            "bytes": 100_000, "requests": 20, "resumed": true, "zero_rtt_accepted": true
        });
        let (no, yes) = (
            json!({"zero_rtt_accepted": false}),
            json!({"zero_rtt_accepted": true}),
        );
        assert_eq!(
            judge(Case::ZeroRtt, &run, &[no.clone(), yes.clone()]),
            Verdict::Pass
        );
        assert!(fails(
            &judge(Case::ZeroRtt, &run, &[yes, no]),
            "server: zero_rtt"
        ));
        assert!(fails(
            &judge(Case::ZeroRttRefused, &run, &[]),
            "client: zero_rtt"
        ));
    }

    #[test]
    fn early_data_never_sent_was_not_accepted() {
        let run = json!({"bytes": 100_000, "requests": 20, "resumed": true});
        assert_eq!(judge(Case::ZeroRttRefused, &run, &[]), Verdict::Pass);
        assert!(fails(&judge(Case::ZeroRtt, &run, &[]), "client: zero_rtt"));
    }

    #[test]
    fn fact_needs_one_report_and_no_contradiction() {
        let run = |retried| json!({"bytes": 100_000, "requests": 1, "retried": retried});
        let (silent, yes, no) = (
            json!({}),
            json!({"retried": true}),
            json!({"retried": false}),
        );
        let (client_silent, client_yes) = (run(Value::Null), run(json!(true)));
        assert_eq!(judge(Case::Retry, &client_yes, &[]), Verdict::Pass);
        assert_eq!(judge(Case::Retry, &client_silent, &[yes]), Verdict::Pass);
        assert!(fails(
            &judge(Case::Retry, &client_yes, &[no]),
            "server: retried"
        ));
        let verdict = judge(Case::Retry, &client_silent, &[silent]);
        assert!(matches!(verdict, Verdict::Unproven(_)), "{verdict:?}");
    }

    #[test]
    fn the_last_connection_may_be_counted_alone_but_nothing_between() {
        let run = |bytes, requests| json!({"bytes": bytes, "requests": requests, "resumed": true, "zero_rtt_accepted": true});
        assert_eq!(judge(Case::ZeroRtt, &run(50_000, 10), &[]), Verdict::Pass);
        assert_eq!(judge(Case::ZeroRtt, &run(100_000, 20), &[]), Verdict::Pass);
        for (bytes, requests) in [(50_000, 20), (100_000, 10), (75_000, 15)] {
            assert!(fails(
                &judge(Case::ZeroRtt, &run(bytes, requests), &[]),
                "bytes"
            ));
        }
    }

    #[test]
    fn only_the_server_reports_who_started_a_key_update() {
        let run = |updates| json!({"bytes": 30_000_000, "requests": 1, "key_updates": updates});
        let server = |own, peer| json!({"key_updates": own, "peer_key_updates": peer});
        assert_eq!(judge(Case::KeyUpdate, &run(1), &[]), Verdict::Pass);
        assert!(fails(
            &judge(Case::KeyUpdate, &run(0), &[]),
            "client: key_updates"
        ));
        assert!(fails(&judge(Case::KeyUpdate, &run(-1), &[]), "-1"));
        assert!(fails(
            &judge(Case::KeyUpdate, &run(1), &[server(1, 0)]),
            "server: peer_key"
        ));
        assert_eq!(
            judge(Case::KeyUpdate, &run(1), &[server(1, 1)]),
            Verdict::Pass
        );
    }
}
