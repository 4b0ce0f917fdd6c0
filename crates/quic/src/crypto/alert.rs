//! Alerts and messages for failed handshakes, worded for the operators of both ends.

use std::borrow::Cow;

use rustls::{AlertDescription, CertificateError, Error, OtherError, PeerIncompatible};

use crate::error::{Code, TransportError};

/// The error of an application's certificate check.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct RejectedByCheck(pub(super) String);

/// Returns the transport error for a TLS failure (RFC 9001 §4.8). `alert` is the alert
/// that TLS chose, if any.
#[must_use]
pub(crate) fn transport_error(error: &Error, alert: Option<AlertDescription>) -> TransportError {
    let alert = alert.unwrap_or_else(|| alert_for(error));
    TransportError::new(Code::crypto(u8::from(alert)), reason(error))
}

/// Returns the alert for errors for which rustls names none.
fn alert_for(error: &Error) -> AlertDescription {
    match error {
        Error::InvalidMessage(invalid) => (*invalid).into(),
        Error::InvalidCertificate(problem) => problem.clone().into(),
        Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            AlertDescription::UnexpectedMessage
        }
        Error::PeerMisbehaved(_) => AlertDescription::IllegalParameter,
        Error::PeerIncompatible(_) => AlertDescription::HandshakeFailure,
        Error::NoApplicationProtocol => AlertDescription::NoApplicationProtocol,
        Error::NoCertificatesPresented => AlertDescription::CertificateRequired,
        // `Error` is non-exhaustive. Errors that are not listed are not the peer's fault.
        _ => AlertDescription::InternalError,
    }
}

/// Returns the cause in words.
#[must_use]
pub(crate) fn reason(error: &Error) -> Cow<'static, str> {
    match error {
        Error::InvalidCertificate(problem) => certificate(problem),
        Error::NoCertificatesPresented => "the peer sent no certificate".into(),
        Error::NoApplicationProtocol => "no application protocol (ALPN) in common".into(),
        Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon) => {
            "no cipher suite in common".into()
        }
        Error::PeerIncompatible(PeerIncompatible::NoKxGroupsInCommon) => {
            "no key exchange group in common".into()
        }
        Error::PeerIncompatible(PeerIncompatible::NoSignatureSchemesInCommon) => {
            "no signature scheme in common: the client supports none that fits the certificate's key".into()
        }
        Error::InappropriateHandshakeMessage {
            expect_types,
            got_type,
        } => format!("unexpected TLS message {got_type:?}, expected {expect_types:?}").into(),
        Error::FailedToGetCurrentTime => "failed to read the system time".into(),
        Error::FailedToGetRandomBytes => "failed to get random bytes from the operating system".into(),
        // `Error` is non-exhaustive, and the messages of rustls are good for the rest.
        _ => error.to_string().into(),
    }
}

fn certificate(problem: &CertificateError) -> Cow<'static, str> {
    use CertificateError as E;
    match problem {
        E::UnknownIssuer => {
            "certificate not trusted: unknown issuer (self-signed, or an intermediate \
             certificate is missing)"
                .into()
        }
        E::Expired => "certificate expired".into(),
        E::ExpiredContext { time, not_after } => format!(
            "certificate expired {} ago (or our clock is wrong)",
            format_duration(time.as_secs().saturating_sub(not_after.as_secs()))
        )
        .into(),
        E::NotValidYet => "certificate not valid yet".into(),
        E::NotValidYetContext { time, not_before } => format!(
            "certificate not valid for another {} (or our clock is wrong)",
            format_duration(not_before.as_secs().saturating_sub(time.as_secs()))
        )
        .into(),
        E::NotValidForName => "certificate is not valid for the requested name".into(),
        E::NotValidForNameContext {
            expected,
            presented,
        } => format!(
            "certificate is not valid for {}: it is valid for {}",
            expected.to_str(),
            if presented.is_empty() {
                "no name".into()
            } else {
                let names: Vec<_> = presented.iter().map(|name| plain_name(name)).collect();
                names.join(", ")
            }
        )
        .into(),
        E::Revoked => "certificate revoked".into(),
        E::BadEncoding => "certificate is malformed".into(),
        E::BadSignature => "invalid signature of the certificate or the handshake".into(),
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => {
            "certificate is not valid for this purpose (extended key usage)".into()
        }
        E::ApplicationVerificationFailure => "certificate rejected by the application".into(),
        E::Other(OtherError(why)) => other(why.as_ref()),
        // `CertificateError` is non-exhaustive. The rest is rare and gets the message of rustls.
        _ => format!("certificate: {problem}").into(),
    }
}

/// Returns the message of an error from our own check or from the verifier.
fn other(why: &(dyn core::error::Error + Send + Sync + 'static)) -> Cow<'static, str> {
    let text = why.to_string();
    // A plain `openssl req -x509` makes such certificates.
    if text == "CaUsedAsEndEntity" {
        "certificate is a CA certificate (basicConstraints CA:TRUE), not a server certificate"
            .into()
    } else if why.is::<RejectedByCheck>() {
        format!("certificate not trusted: {text}").into()
    } else {
        format!("certificate: {text}").into()
    }
}

/// Strips the type from a name that rustls presents as `DnsName("localhost")`.
fn plain_name(name: &str) -> &str {
    let inner = name
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.map_or(name, |inner| inner.trim_matches('"'))
}

/// Formats a duration in seconds, minutes, hours or days.
fn format_duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::UnixTime;
    use std::time::Duration;

    #[test]
    fn expired_certificate_error_names_time_since_expiry() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let error = Error::InvalidCertificate(CertificateError::ExpiredContext {
            time: at(1_000_000),
            not_after: at(1_000_000 - 3 * 86_400),
        });
        let error = transport_error(&error, None);
        assert_eq!(error.code, Code::crypto(45));
        assert!(error.reason.contains("expired 3 days ago"), "{error}");
    }

    #[test]
    fn certificate_name_mismatch_error_lists_plain_names() {
        let error = Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            expected: "example.org".try_into().unwrap(),
            presented: vec!["DnsName(\"localhost\")".into(), "odd".into()],
        });
        let words = reason(&error);
        assert!(
            words.ends_with("not valid for example.org: it is valid for localhost, odd"),
            "{words}"
        );
    }

    #[test]
    fn unnamed_certificate_error_has_readable_message() {
        let reason = |why: RejectedByCheck| {
            let problem = CertificateError::Other(OtherError(std::sync::Arc::new(why)));
            reason(&Error::InvalidCertificate(problem)).into_owned()
        };
        assert_eq!(
            reason(RejectedByCheck("too old".into())),
            "certificate not trusted: too old"
        );
        let authority = reason(RejectedByCheck("CaUsedAsEndEntity".into()));
        assert!(authority.contains("CA:TRUE"), "{authority}");
    }

    /// What a peer's certificate can be refused for: the alert that the peer gets and
    /// words that name the cause.
    #[test]
    fn every_certificate_error_has_alert_and_message() {
        use CertificateError as E;
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let nameless = E::NotValidForNameContext {
            expected: "example.org".try_into().unwrap(),
            presented: Vec::new(),
        };
        let for_clients = E::InvalidPurposeContext {
            required: rustls::ExtendedKeyPurpose::ServerAuth,
            presented: vec![rustls::ExtendedKeyPurpose::ClientAuth],
        };
        let early = E::NotValidYetContext {
            time: at(1_000),
            not_before: at(1_000 + 3 * 3_600),
        };
        let expired = E::ExpiredContext {
            time: at(1_090),
            not_after: at(1_000),
        };
        let odd = OtherError(std::sync::Arc::new(std::io::Error::other("unheard of")));
        for (problem, alert, words) in [
            (E::UnknownIssuer, 48, "unknown issuer"),
            (E::Expired, 45, "certificate expired"),
            (expired, 45, "certificate expired 90 s ago"),
            (E::NotValidYet, 45, "certificate not valid yet"),
            (early, 45, "certificate not valid for another 3 h"),
            (E::Revoked, 44, "certificate revoked"),
            (
                E::NotValidForName,
                42,
                "certificate is not valid for the requested name",
            ),
            (
                nameless,
                42,
                "not valid for example.org: it is valid for no name",
            ),
            (E::BadEncoding, 42, "certificate is malformed"),
            (E::BadSignature, 51, "invalid signature of the certificate"),
            (E::InvalidPurpose, 43, "not valid for this purpose"),
            (for_clients, 43, "not valid for this purpose"),
            (
                E::ApplicationVerificationFailure,
                49,
                "certificate rejected by the application",
            ),
            (E::Other(odd), 46, "certificate: unheard of"),
            // Words of rustls.
            (E::UnhandledCriticalExtension, 42, "certificate: "),
            (E::UnknownRevocationStatus, 48, "certificate: "),
            (E::ExpiredRevocationList, 48, "certificate: "),
            (E::InvalidOcspResponse, 113, "certificate: "),
        ] {
            let what = format!("{problem:?}");
            let error = transport_error(&Error::InvalidCertificate(problem), None);
            assert_eq!(error.code, Code::crypto(alert), "{what}");
            assert!(error.reason.contains(words), "{what}: {}", error.reason);
        }
    }

    /// Everything else that a handshake fails with.
    #[test]
    fn every_handshake_error_has_alert_and_message() {
        use rustls::{ContentType, HandshakeType, InvalidMessage, PeerMisbehaved};
        let out_of_turn = Error::InappropriateHandshakeMessage {
            expect_types: vec![HandshakeType::ServerHello],
            got_type: HandshakeType::Finished,
        };
        let out_of_place = Error::InappropriateMessage {
            expect_types: vec![ContentType::Handshake],
            got_type: ContentType::Alert,
        };
        let incompatible = |why| Error::PeerIncompatible(why);
        for (error, alert, words) in [
            (
                Error::NoCertificatesPresented,
                116,
                "the peer sent no certificate",
            ),
            (Error::NoApplicationProtocol, 120, "ALPN"),
            (
                incompatible(PeerIncompatible::NoCipherSuitesInCommon),
                40,
                "no cipher suite in common",
            ),
            (
                incompatible(PeerIncompatible::NoKxGroupsInCommon),
                40,
                "no key exchange group in common",
            ),
            (
                incompatible(PeerIncompatible::NoSignatureSchemesInCommon),
                40,
                "no signature scheme in common",
            ),
            // Words of rustls.
            (
                incompatible(PeerIncompatible::Tls13RequiredForQuic),
                40,
                "Tls13RequiredForQuic",
            ),
            (
                out_of_turn,
                10,
                "unexpected TLS message Finished, expected [ServerHello]",
            ),
            (out_of_place, 10, "Alert"),
            (
                Error::InvalidMessage(InvalidMessage::MessageTooShort),
                50,
                "MessageTooShort",
            ),
            (
                Error::PeerMisbehaved(PeerMisbehaved::MissingQuicTransportParameters),
                47,
                "MissingQuicTransportParameters",
            ),
            (Error::FailedToGetCurrentTime, 80, "system time"),
            (Error::FailedToGetRandomBytes, 80, "random bytes"),
            (Error::General("odd".into()), 80, "odd"),
        ] {
            let what = format!("{error:?}");
            let error = transport_error(&error, None);
            assert_eq!(error.code, Code::crypto(alert), "{what}");
            assert!(error.reason.contains(words), "{what}: {}", error.reason);
        }
    }

    #[test]
    fn error_without_alert_gets_default_alert() {
        let alert = |error: Error| transport_error(&error, None).code;
        assert_eq!(alert(Error::NoApplicationProtocol), Code::crypto(120));
        assert_eq!(alert(Error::NoCertificatesPresented), Code::crypto(116));
        assert_eq!(alert(Error::FailedToGetRandomBytes), Code::crypto(80));
    }

    #[test]
    fn alert_chosen_by_tls_is_used() {
        let error = transport_error(
            &Error::General("x".into()),
            Some(AlertDescription::UnknownCA),
        );
        assert_eq!(error.code, Code::crypto(48));
    }

    #[test]
    fn durations_are_formatted_readably() {
        let spans = [59, 119, 600, 10_000, 10_000_000].map(format_duration);
        assert_eq!(spans, ["59 s", "119 s", "10 min", "2 h", "115 days"]);
    }
}
