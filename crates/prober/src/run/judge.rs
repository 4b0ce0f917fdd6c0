//! What came, compared with what is expected.

use core::time::Duration;

use super::{Facts, Session, Verdict};
use crate::raw::{PacketOptions, RawConnection};
use crate::script::{Case, ConnectUntil, Expected, Requirement, Setup, Step};
use crate::wire::packet::{Level, VERSION_1};

/// How much longer is listened after a sign that the connection goes on: an application may
/// close it later than the transport acknowledges.
const GRACE: Duration = Duration::from_millis(100);
/// The request that shows that a connection goes on.
const FURTHER_REQUEST: &str = "request-after";

impl Session<'_> {
    /// Waits for what the case expects, and decides.
    pub(super) async fn judge(&mut self, case: &Case) -> (Verdict, String) {
        let patience = self.limits.patience;
        let quiet = case.expected.iter().any(Expected::is_quiet);
        let loud = case.expected.iter().any(|expected| !expected.is_quiet());
        let met = |session: &Self| case.expected.iter().any(|expected| session.meets(expected));
        if loud && !quiet && self.wait_for(patience, met).await {
            return (Verdict::AsExpected, self.came());
        }
        if quiet && self.stays_quiet(case).await {
            return (Verdict::AsExpected, self.came());
        }
        if met(self) {
            return (Verdict::AsExpected, self.came());
        }
        // Whether this case has ended the server, another, or somebody, cannot be told here. A
        // case that is about just that is intrusive.
        let could_end_it = case.intrusive && self.observed.datagrams > 0;
        if self.observed.refused && !could_end_it {
            let why = format!("the server does not listen any more: {}", self.came());
            return (Verdict::NotRun, why);
        }
        if self.is_generic(case) {
            return (Verdict::Permitted, self.came());
        }
        let mut came = self.came();
        if !self.is_over() && self.goes_on().await {
            came.push_str("; the connection goes on");
        }
        let verdict = match case.requirement {
            Requirement::Must => Verdict::Deviation,
            Requirement::Should => Verdict::Unadvised,
        };
        (verdict, came)
    }

    /// Returns whether something that can be seen to come has come.
    fn meets(&self, expected: &Expected) -> bool {
        match expected {
            Expected::Close(codes) => {
                let closed = self.observed.closed.as_ref();
                closed.is_some_and(|closed| codes.contains(&closed.code))
            }
            Expected::Reset { stream, codes } => {
                let id = crate::script::Scope::stream(self, stream);
                self.observed.resets.iter().any(|reset| {
                    Some(reset.stream) == id && codes.iter().any(|code| code.code == reset.code)
                })
            }
            Expected::Status { stream, from, to } => self
                .status(stream)
                .is_some_and(|status| (*from..=*to).contains(&status)),
            Expected::Frame(name) => self.observed.has_frame(name),
            Expected::VersionNegotiation => self.is_version_negotiation(),
            Expected::StatelessReset => self.is_stateless_reset(),
            Expected::KeysUpdated => {
                let raw = self.raw.as_ref();
                raw.is_some_and(|raw| raw.peer_key_updates() > 0)
            }
            Expected::Alive
            | Expected::Silence
            | Expected::Open
            | Expected::Serves
            | Expected::AtMost(_) => false,
        }
    }

    fn is_version_negotiation(&self) -> bool {
        let (Some(received), Some((_, dcid, scid))) =
            (&self.observed.version_negotiation, &self.last_datagram)
        else {
            return false;
        };
        // Both connection IDs come back, the other way round (RFC 8999 §6).
        received.dcid == *scid && received.scid == *dcid && received.versions.contains(&VERSION_1)
    }

    fn is_stateless_reset(&self) -> bool {
        if self.observed.stateless_reset == Some(true) {
            return true;
        }
        // Without a connection nobody knows the token; the size still has to be right.
        let Some((sent, _, _)) = self.last_datagram.as_ref().filter(|_| self.raw.is_none()) else {
            return false;
        };
        let small = |size: &usize| (21..*sent).contains(size);
        let answers = &self.observed.undecryptable;
        !answers.is_empty() && answers.iter().all(small)
    }

    /// Waits for what shows only by nothing else coming.
    async fn stays_quiet(&mut self, case: &Case) -> bool {
        let met = |session: &Self| case.expected.iter().any(|expected| session.meets(expected));
        for expected in &case.expected {
            let fine = match expected {
                Expected::Alive => self.goes_on().await,
                Expected::Silence => {
                    let something = |session: &Self| session.observed.new_datagrams() > 0;
                    let time = self.limits.patience / 2;
                    let came = self
                        .wait_for(time, |session| something(session) || met(session))
                        .await;
                    !came && !self.observed.refused
                }
                Expected::Open => {
                    self.wait_for(self.limits.patience, met).await;
                    self.observed.closed.is_none() && !self.observed.refused
                }
                Expected::Serves => {
                    self.wait_for(GRACE, |_| false).await;
                    self.serves_others().await
                }
                Expected::AtMost(factor) => {
                    self.wait_for(self.limits.patience, |_| false).await;
                    self.observed.bytes > 0
                        && self.observed.bytes <= factor.saturating_mul(self.bytes_sent)
                }
                Expected::Close(_)
                | Expected::Reset { .. }
                | Expected::Status { .. }
                | Expected::Frame(_)
                | Expected::VersionNegotiation
                | Expected::KeysUpdated
                | Expected::StatelessReset => continue,
            };
            if fine || met(self) {
                return true;
            }
        }
        false
    }

    /// Returns whether everything was acknowledged and a further request is answered; without
    /// HTTP/3, whether a PING is acknowledged.
    async fn goes_on(&mut self) -> bool {
        let acked = |session: &Self| {
            let raw = session.raw.as_ref();
            raw.is_some_and(RawConnection::is_acked)
        };
        let patience = self.limits.patience;
        if self.raw.is_none() || !self.wait_for(patience, acked).await {
            return false;
        }
        let sent = match self.http_is_open {
            true => self.write_request(FURTHER_REQUEST),
            false => {
                let options = PacketOptions {
                    reliable: true,
                    ..PacketOptions::default()
                };
                self.send_packet(Level::OneRtt, &[0x01], options)
            }
        };
        let http = self.http_is_open;
        let answered = |session: &Self| match http {
            true => session.status(FURTHER_REQUEST).is_some(),
            false => acked(session),
        };
        if sent.is_err() || !self.wait_for(patience, answered).await {
            return false;
        }
        self.wait_for(GRACE, |_| false).await;
        self.observed.closed.is_none()
    }

    /// Returns whether a connection of somebody else is made and served.
    async fn serves_others(&self) -> bool {
        let (facts, setup) = (Facts::default(), Setup::default());
        let session = Session::new(self.target, self.address, &facts, &setup, self.limits).await;
        let Ok(mut other) = session else { return false };
        let connected = other
            .execute(&[Step::Connect(ConnectUntil::Confirmed)])
            .await;
        if connected.is_err() {
            return false;
        }
        let answered = other.ordinary_request(self.limits.connect).await.is_some();
        other.close().await;
        answered
    }

    /// Returns whether a generic code came where a specific one is expected.
    fn is_generic(&self, case: &Case) -> bool {
        let Some(closed) = &self.observed.closed else {
            return false;
        };
        case.expected.iter().any(|expected| match expected {
            Expected::Close(codes) => codes.iter().any(|code| closed.code.is_generic_for(*code)),
            Expected::Reset { .. }
            | Expected::Status { .. }
            | Expected::Alive
            | Expected::Frame(_)
            | Expected::VersionNegotiation
            | Expected::StatelessReset
            | Expected::KeysUpdated
            | Expected::Silence
            | Expected::Open
            | Expected::Serves
            | Expected::AtMost(_) => false,
        })
    }
}
