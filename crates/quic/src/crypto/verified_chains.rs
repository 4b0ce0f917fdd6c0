//! Certificate chains that were verified lately, so that a client which opens many connections to
//! a server verifies the signatures of its chain once, a fifth of what a handshake costs it.
//!
//! A verifier with roots alone decides by the chain, the name and the time. The first two are
//! compared, and the last may be wrong by [`LIFETIME`]. That the server holds the private key is
//! verified in each handshake.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};

/// How long after its verification a chain is accepted: less than clocks differ by.
const LIFETIME: Duration = Duration::from_secs(60);

/// Most chains that are remembered, the last ones.
const MAX_CHAINS: usize = 64;

/// Identifies a chain and the name that it was verified for.
type ChainId = [u8; SHA256_OUTPUT_LEN];

/// Verifies certificates with `inner`, but not again what it accepted a moment ago.
#[derive(Debug)]
pub(super) struct RememberingVerifier {
    inner: Arc<dyn ServerCertVerifier>,
    /// Accepted chains with the time of their verification.
    accepted: Mutex<VecDeque<(ChainId, UnixTime)>>,
}

impl RememberingVerifier {
    /// `inner` has to decide by its arguments alone.
    pub(super) fn new(inner: Arc<dyn ServerCertVerifier>) -> Self {
        Self {
            inner,
            accepted: Mutex::default(),
        }
    }

    /// Whether the chain was accepted lately. One whose verification lies in the future was
    /// verified before the clock was set back, and is not.
    fn was_accepted(&self, id: &ChainId, now: UnixTime) -> bool {
        let accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        let at = accepted.iter().rev().find(|(other, _)| other == id);
        at.and_then(|(_, at)| now.as_secs().checked_sub(at.as_secs()))
            .is_some_and(|age| age < LIFETIME.as_secs())
    }

    fn remember(&self, id: ChainId, now: UnixTime) {
        let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        accepted.retain(|(other, _)| *other != id);
        if accepted.len() >= MAX_CHAINS {
            accepted.pop_front();
        }
        accepted.push_back((id, now));
    }
}

/// Returns the identity of a chain, in which no two different ones run together.
fn chain_id(
    end_entity: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    server_name: &ServerName<'_>,
) -> ChainId {
    let name = server_name.to_str();
    let certificates = std::iter::once(end_entity).chain(intermediates);
    let mut context = Context::new(&SHA256);
    for part in std::iter::once(name.as_bytes()).chain(certificates.map(AsRef::as_ref)) {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    let mut id = [0; SHA256_OUTPUT_LEN];
    id.copy_from_slice(context.finish().as_ref());
    id
}

impl ServerCertVerifier for RememberingVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let id = chain_id(end_entity, intermediates, server_name);
        if self.was_accepted(&id, now) {
            return Ok(ServerCertVerified::assertion());
        }
        let verified = self.inner.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        )?;
        self.remember(id, now);
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::super::client_config::certificate_check_verifier;
    use super::*;

    /// Counts how often the inner verifier is asked, which accepts unless told otherwise.
    struct Fixture {
        asked: Arc<AtomicUsize>,
        rejects: Arc<AtomicBool>,
        verifier: RememberingVerifier,
    }

    impl Fixture {
        fn new() -> Self {
            let asked = Arc::new(AtomicUsize::new(0));
            let rejects = Arc::new(AtomicBool::new(false));
            let inner = {
                let (asked, rejects) = (asked.clone(), rejects.clone());
                certificate_check_verifier(move |_| {
                    asked.fetch_add(1, Ordering::Relaxed);
                    if rejects.load(Ordering::Relaxed) {
                        return Err("not now".to_owned());
                    }
                    Ok(())
                })
            };
            Self {
                asked,
                rejects,
                verifier: RememberingVerifier::new(inner),
            }
        }

        /// Verifies a chain, the first certificate of which is the server's own, for a name at a
        /// time in seconds. Returns whether it was accepted.
        fn verify(&self, chain: &[&'static [u8]], name: &'static str, at: u64) -> bool {
            let chain: Vec<CertificateDer<'_>> =
                chain.iter().map(|der| CertificateDer::from(*der)).collect();
            let name = ServerName::try_from(name).unwrap();
            let at = UnixTime::since_unix_epoch(Duration::from_secs(at));
            let (end_entity, intermediates) = chain.split_first().unwrap();
            self.verifier
                .verify_server_cert(end_entity, intermediates, &name, &[], at)
                .is_ok()
        }

        fn asked(&self) -> usize {
            self.asked.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn chain_is_verified_once_a_minute() {
        let fixture = Fixture::new();
        for (at, asked) in [(1_000, 1), (1_000, 1), (1_059, 1), (1_060, 2), (1_119, 2)] {
            assert!(fixture.verify(&[b"leaf", b"issuer"], "a.test", at));
            assert_eq!(fixture.asked(), asked, "at {at}");
        }
    }

    #[test]
    fn another_name_certificate_or_order_is_verified() {
        let fixture = Fixture::new();
        assert!(fixture.verify(&[b"leaf", b"issuer"], "a.test", 1_000));
        let others: [(&[&[u8]], &str); 6] = [
            (&[b"leaf", b"issuer"], "b.test"),
            (&[b"leaf", b"issueR"], "a.test"),
            (&[b"leag", b"issuer"], "a.test"),
            (&[b"issuer", b"leaf"], "a.test"),
            (&[b"leafissuer"], "a.test"),
            (&[b"leaf"], "a.test"),
        ];
        for (before, (chain, name)) in (1..).zip(others) {
            assert_eq!(fixture.asked(), before);
            assert!(fixture.verify(chain, name, 1_000));
        }
        assert_eq!(fixture.asked(), 7);
    }

    #[test]
    fn rejection_is_not_remembered_and_acceptance_does_not_outlast_its_minute() {
        let fixture = Fixture::new();
        let verify = |at| fixture.verify(&[b"leaf"], "a.test", at);
        fixture.rejects.store(true, Ordering::Relaxed);
        assert!(!verify(1_000));
        assert!(!verify(1_000));
        assert_eq!(fixture.asked(), 2);
        fixture.rejects.store(false, Ordering::Relaxed);
        assert!(verify(1_001));
        fixture.rejects.store(true, Ordering::Relaxed);
        assert!(verify(1_060));
        assert!(!verify(1_061));
    }

    #[test]
    fn chain_is_verified_again_once_the_clock_is_set_back() {
        let fixture = Fixture::new();
        assert!(fixture.verify(&[b"leaf"], "a.test", 1_000));
        assert!(fixture.verify(&[b"leaf"], "a.test", 999));
        assert_eq!(fixture.asked(), 2);
    }

    #[test]
    fn only_the_last_chains_are_remembered() {
        let fixture = Fixture::new();
        let names: Vec<&'static str> = (0..=MAX_CHAINS)
            .map(|n| &*format!("n{n}.test").leak())
            .collect();
        for name in &names {
            assert!(fixture.verify(&[b"leaf"], name, 1_000));
        }
        assert_eq!(fixture.asked(), MAX_CHAINS + 1);
        assert!(fixture.verify(&[b"leaf"], names[1], 1_000));
        assert_eq!(fixture.asked(), MAX_CHAINS + 1);
        assert!(fixture.verify(&[b"leaf"], names[0], 1_000));
        assert_eq!(fixture.asked(), MAX_CHAINS + 2);
        let accepted = fixture.verifier.accepted.lock().unwrap();
        assert_eq!(accepted.len(), MAX_CHAINS);
    }
}
