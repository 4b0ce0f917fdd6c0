use super::*;
use crate::crypto::testing::{Authority, TestSession, configs, pair, run_handshake};
use crate::crypto::{
    Algorithms, ClientAuth, ClientCrypto, ClientSessions, Group, ServerCrypto, Suite, TAG_LEN,
};
use rustls::KeyLog;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::time_provider::TimeProvider;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

/// An alert that the handshake between these two fails with, and its words.
fn failure(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> (u64, String) {
    let (mut client, mut server) = pair(client, server);
    let error = run_handshake(&mut client, &mut server).unwrap_err();
    (error.code.0 - 0x100, error.reason.into_owned())
}

/// Seals at one end, opens at the other.
fn carries(from: &Direction, to: &Direction) -> bool {
    let mut packet = [&[0x41, 0, 7][..], b"hello", &[0; TAG_LEN]].concat();
    from.seal(7, &mut packet, 3, 2).unwrap();
    to.unprotect_header(&mut packet, 1)
        .is_some_and(|n| n.truncated == 7)
        && to.open(7, &mut packet, 3) == Some(5)
        && &packet[3..8] == b"hello"
}

#[test]
fn handshake_agrees_on_keys_and_parameters() {
    let (client, server) = configs(&Algorithms::default());
    let (mut client, mut server) = pair(&client, &server);
    run_handshake(&mut client, &mut server).unwrap();
    for end in [&client.session, &server.session] {
        assert!(!end.is_handshaking());
        assert_eq!(end.alpn(), Some(&b"test"[..]));
        assert_eq!(end.group(), Some("X25519MLKEM768"));
        assert_eq!(end.cipher(), Some("TLS13_AES_128_GCM_SHA256"));
        assert!(!end.resumed());
        assert!(!end.early_data_accepted());
    }
    let (client, server) = (client.session, server.session);
    assert_eq!(
        client.peer_transport_parameters(),
        Some(&b"server parameters"[..])
    );
    assert_eq!(
        server.peer_transport_parameters(),
        Some(&b"client parameters"[..])
    );
    assert_eq!(server.server_name(), Some("localhost"));
    assert_eq!(client.peer_certificates().len(), 1);
    let export = |session: &Session| {
        let mut out = [0; 32];
        session
            .export_keying_material(&mut out, b"EXPORTER-test", None)
            .unwrap();
        out
    };
    assert_eq!(export(&client), export(&server));
    let summary = server.summary();
    assert_eq!(summary.server_name.as_deref(), Some("localhost"));
    assert_eq!(summary.group, Some("X25519MLKEM768"));
}

#[test]
fn keys_become_available_when_needed() {
    let (client, server) = configs(&Algorithms::default());
    let (mut client, mut server) = pair(&client, &server);
    server.input(client.output()).unwrap();
    assert!(client.handshake.is_none());
    let answer = server.output();
    // A server may send 1-RTT data before it hears from the client again.
    assert!(server.one_rtt.is_some());
    assert!(server.session.is_handshaking());
    assert!(server.session.peer_transport_parameters().is_some());
    client.input(answer[..1].to_vec()).unwrap();
    client.output();
    assert!(client.handshake.is_some() && client.one_rtt.is_none());
    client.input(answer[1..].to_vec()).unwrap();
    assert_eq!(client.output()[0].0, Level::Handshake);
    assert!(client.one_rtt.is_some());
    assert!(!client.session.is_handshaking());
}

#[test]
fn handshake_flights_are_in_order() {
    let (client, server) = configs(&Algorithms::default());
    let (mut client, mut server) = pair(&client, &server);
    let mut log = Vec::new();
    for _ in 0..3 {
        let output_bytes = client.output();
        log.extend(output_bytes.iter().map(|(level, _)| (Role::Client, *level)));
        server.input(output_bytes).unwrap();
        let output_bytes = server.output();
        log.extend(output_bytes.iter().map(|(level, _)| (Role::Server, *level)));
        client.input(output_bytes).unwrap();
    }
    assert_eq!(
        log,
        [
            (Role::Client, Level::Initial),
            (Role::Server, Level::Initial),
            (Role::Server, Level::Handshake),
            (Role::Client, Level::Handshake),
            (Role::Server, Level::OneRtt),
        ]
    );
    assert_eq!(client.session.read_level(), Level::OneRtt);
    assert_eq!(client.session.write_level(), Level::OneRtt);
}

#[test]
fn post_quantum_client_hello_needs_two_datagrams_and_x25519_one() {
    let hello = |algorithms: Algorithms| {
        let (client, server) = configs(&algorithms);
        pair(&client, &server).0.output()[0].1.len()
    };
    assert!(hello(Algorithms::default()) > 1200);
    assert!(hello(Algorithms::default().x25519_only()) < 600);
}

#[test]
fn client_hello_in_any_pieces_is_accepted() {
    let (client, server) = configs(&Algorithms::default());
    let (mut client, mut server) = pair(&client, &server);
    for piece in client.output()[0].1.chunks(97) {
        assert!(server.output().is_empty());
        server.session.read(Level::Initial, piece).unwrap();
    }
    assert_eq!(server.session.write_level(), Level::Initial);
    run_handshake(&mut client, &mut server).unwrap();
    assert!(!client.session.is_handshaking());
}

#[test]
fn every_suite_protects_every_encryption_level() {
    for suite in Suite::ALL {
        let (client, server) = configs(&Algorithms::default().with_suites(&[suite]));
        let (mut client, mut server) = pair(&client, &server);
        run_handshake(&mut client, &mut server).unwrap();
        let (c, s) = (client.handshake.unwrap(), server.handshake.unwrap());
        assert!(carries(&c.local, &s.remote), "{suite:?}");
        assert!(carries(&s.local, &c.remote), "{suite:?}");
        assert!(!carries(&c.local, &c.remote), "{suite:?}");
        let (mut c, mut s) = (client.one_rtt.unwrap(), server.one_rtt.unwrap());
        let mut packet = [&[0x40, 9][..], b"hello", &[0; TAG_LEN]].concat();
        c.seal(9, &mut packet, 2, 1).unwrap();
        assert_eq!(s.unprotect_header(&mut packet, 1).unwrap().truncated, 9);
        let opened = s.open(9, &mut packet, 2).unwrap();
        assert_eq!(opened.unwrap().len, 5, "{suite:?}");
    }
}

#[test]
fn unguessed_key_exchange_group_costs_a_round_trip() {
    let authority = Authority::new();
    let client = ClientCrypto::new(authority.roots()).build().unwrap();
    let server = ServerCrypto::new(authority.issue("localhost"))
        .algorithms(Algorithms::default().with_groups(&[Group::Secp384r1]))
        .build()
        .unwrap();
    let (mut c, mut s) = pair(&client, &server);
    run_handshake(&mut c, &mut s).unwrap();
    assert_eq!(c.session.group(), Some("secp384r1"));
    // The second time the client knows.
    let (mut c, mut s) = pair(&client, &server);
    s.input(c.output()).unwrap();
    assert_eq!(s.output().len(), 2);
}

#[test]
fn handshake_without_common_algorithm_fails_with_reason() {
    let (client, _) = configs(&Algorithms::default().with_suites(&[Suite::Aes128Gcm]));
    let (_, server) = configs(&Algorithms::default().with_suites(&[Suite::ChaCha20Poly1305]));
    let (alert, reason) = failure(&client, &server);
    assert_eq!((alert, &*reason), (40, "no cipher suite in common"));
}

#[test]
fn handshake_without_common_alpn_fails() {
    let authority = Authority::new();
    let client = ClientCrypto::new(authority.roots()).alpn(["h3"]);
    let server = ServerCrypto::new(authority.issue("localhost")).alpn(["other"]);
    let (alert, reason) = failure(&client.build().unwrap(), &server.build().unwrap());
    assert_eq!(alert, 120);
    assert!(reason.contains("ALPN"), "{reason}");
}

#[test]
fn untrusted_certificate_is_rejected() {
    let (client, _) = configs(&Algorithms::default());
    let (_, server) = configs(&Algorithms::default());
    let (alert, reason) = failure(&client, &server);
    assert_eq!(alert, 48);
    assert!(reason.contains("unknown issuer"), "{reason}");
}

#[test]
fn certificate_for_other_name_is_rejected_naming_both() {
    let authority = Authority::new();
    let client = ClientCrypto::new(authority.roots()).build().unwrap();
    let server = ServerCrypto::new(authority.issue("elsewhere.example"));
    let (alert, reason) = failure(&client, &server.build().unwrap());
    assert_eq!(alert, 42);
    assert!(reason.contains("localhost"), "{reason}");
    assert!(reason.contains("elsewhere.example"), "{reason}");
}

#[test]
fn expired_certificate_is_rejected_by_configured_clock() {
    #[derive(Debug)]
    struct Year9000;
    impl TimeProvider for Year9000 {
        fn current_time(&self) -> Option<UnixTime> {
            let years = Duration::from_secs(7030 * 31_556_952);
            Some(UnixTime::since_unix_epoch(years))
        }
    }
    let authority = Authority::new();
    let client = ClientCrypto::new(authority.roots()).wall_clock(Arc::new(Year9000));
    let server = ServerCrypto::new(authority.issue("localhost"));
    let (alert, reason) = failure(&client.build().unwrap(), &server.build().unwrap());
    assert_eq!(alert, 45);
    assert!(reason.contains("certificate expired"), "{reason}");
}

#[test]
fn disabled_verification_accepts_any_certificate() {
    let (_, server) = configs(&Algorithms::default());
    let client = ClientCrypto::dangerous_accept_any_certificate().alpn(["test"]);
    let (mut client, mut server) = pair(&client.build().unwrap(), &server);
    run_handshake(&mut client, &mut server).unwrap();
}

#[test]
fn client_certificate_is_requested_verified_and_exposed() {
    let authority = Authority::new();
    let required = ClientAuth::Required(authority.roots());
    let server = |auth: &ClientAuth| {
        let server = ServerCrypto::new(authority.issue("localhost"));
        server.client_auth(auth.clone()).build().unwrap()
    };
    let anonymous = ClientCrypto::new(authority.roots()).build().unwrap();
    let (alert, reason) = failure(&anonymous, &server(&required));
    assert_eq!((alert, &*reason), (116, "the peer sent no certificate"));

    let stranger = ClientCrypto::new(authority.roots()).identity(Authority::new().issue("x"));
    let (alert, _) = failure(&stranger.build().unwrap(), &server(&required));
    assert_eq!(alert, 48);

    let known = ClientCrypto::new(authority.roots()).identity(authority.issue("me"));
    let (mut c, mut s) = pair(&known.build().unwrap(), &server(&required));
    run_handshake(&mut c, &mut s).unwrap();
    assert_eq!(s.session.peer_certificates().len(), 1);

    let optional = ClientAuth::Optional(authority.roots());
    let (mut c, mut s) = pair(&anonymous, &server(&optional));
    run_handshake(&mut c, &mut s).unwrap();
    assert!(s.session.peer_certificates().is_empty());
}

/// Configurations with 0-RTT, after a first connection has brought tickets.
fn acquainted(accept: bool) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let authority = Authority::new();
    let client = ClientCrypto::new(authority.roots())
        .alpn(["test"])
        .sessions(Arc::new(ClientSessions::new(4)));
    let server = ServerCrypto::new(authority.issue("localhost"))
        .alpn(["test"])
        .early_data(accept);
    let (client, server) = (client.build().unwrap(), server.build().unwrap());
    let (mut c, mut s) = pair(&client, &server);
    assert!(c.session.early_keys().is_none());
    assert_eq!(c.session.remembered_transport_parameters(), None);
    run_handshake(&mut c, &mut s).unwrap();
    (client, server)
}

#[test]
fn resumed_connection_sends_early_data() {
    let (client, server) = acquainted(true);
    let (mut client, mut server) = pair(&client, &server);
    assert_eq!(
        client.session.remembered_transport_parameters(),
        Some(&b"server parameters"[..])
    );
    assert_eq!(client.session.peer_transport_parameters(), None);
    let sending = client.session.early_keys().unwrap();
    server.input(client.output()).unwrap();
    let receiving = server.session.early_keys().unwrap();
    assert!(carries(&sending, &receiving));
    run_handshake(&mut client, &mut server).unwrap();
    assert!(client.session.resumed() && server.session.resumed());
    assert!(client.session.early_data_accepted());
    assert!(server.session.early_data_accepted());
    assert_eq!(client.session.remembered_transport_parameters(), None);
    assert_eq!(
        client.session.peer_transport_parameters(),
        Some(&b"server parameters"[..])
    );
}

#[test]
fn early_data_of_replayed_client_hello_is_rejected() {
    let (client, server) = acquainted(true);
    let (mut client, mut first) = pair(&client, &server);
    let hello = client.output();
    first.input(hello.clone()).unwrap();
    assert!(first.session.early_data_accepted());
    let mut replayed = TestSession::new(Session::server(Version::V1, server, Vec::new()).unwrap());
    replayed.input(hello).unwrap();
    assert!(!replayed.session.early_data_accepted());
    assert!(replayed.session.early_keys().is_none());
    replayed.output();
    assert!(!replayed.session.resumed());
}

#[test]
fn rejected_early_data_leaves_working_connection() {
    let (client, server) = acquainted(true);
    let (mut client, mut server) = pair(&client, &server);
    assert!(client.session.early_keys().is_some());
    server.session.refuse_early_data();
    run_handshake(&mut client, &mut server).unwrap();
    assert!(client.session.resumed());
    assert!(!client.session.early_data_accepted());
    assert!(!server.session.early_data_accepted());
}

#[test]
fn tickets_resume_without_early_data() {
    let (client, server) = acquainted(false);
    let (mut client, mut server) = pair(&client, &server);
    assert!(client.session.early_keys().is_none());
    run_handshake(&mut client, &mut server).unwrap();
    assert!(client.session.resumed());
}

#[test]
fn crypto_data_at_wrong_level_is_protocol_violation() {
    let (client, server) = configs(&Algorithms::default());
    let (mut client, mut server) = pair(&client, &server);
    let hello = client.output();
    let early = server.session.read(Level::Handshake, &hello[0].1);
    assert_eq!(early.unwrap_err().code, Code::PROTOCOL_VIOLATION);
    server.input(hello).unwrap();
    let late = server.session.read(Level::Initial, &[1]).unwrap_err();
    assert_eq!(late.code, Code::PROTOCOL_VIOLATION);
    assert!(late.reason.contains("Initial"), "{late}");
    // ServerHello and what follows it in one Initial: rustls sees the excess.
    let answer: Vec<u8> = server.output().concat_bytes();
    let excess = client.session.read(Level::Initial, &answer).unwrap_err();
    assert_eq!(excess.code, Code::crypto(10));
}

trait ConcatBytes {
    fn concat_bytes(self) -> Vec<u8>;
}

impl ConcatBytes for Vec<(Level, Vec<u8>)> {
    fn concat_bytes(self) -> Vec<u8> {
        self.into_iter().flat_map(|(_, bytes)| bytes).collect()
    }
}

#[test]
fn malformed_handshake_message_causes_alert() {
    let (client, server) = configs(&Algorithms::default());
    let (_, mut server) = pair(&client, &server);
    let error = server
        .session
        .read(Level::Initial, &[1, 0, 0, 4, 9, 9, 9, 9])
        .unwrap_err();
    assert_eq!(error.code, Code::crypto(50), "{error}");
    assert!(server.session.read(Level::Initial, &[1]).is_err());
}

#[test]
fn tls_key_update_message_is_rejected() {
    let (client, server) = configs(&Algorithms::default());
    let (mut client, mut server) = pair(&client, &server);
    run_handshake(&mut client, &mut server).unwrap();
    let key_update = [24, 0, 0, 1, 0];
    for end in [&mut client, &mut server] {
        let error = end.session.read(Level::OneRtt, &key_update).unwrap_err();
        assert_eq!(error.code, Code::crypto(10), "{error}");
    }
}

#[test]
fn key_log_of_two_connections_has_two_sets_of_secrets() {
    type Secrets = BTreeMap<Vec<u8>, BTreeSet<String>>;
    #[derive(Debug, Default)]
    struct Collect(Mutex<Secrets>);
    impl KeyLog for Collect {
        fn log(&self, label: &str, client_random: &[u8], _: &[u8]) {
            let mut log = self.0.lock().unwrap();
            let labels = log.entry(client_random.to_vec()).or_default();
            labels.insert(label.to_owned());
        }
    }
    let authority = Authority::new();
    let log = Arc::new(Collect::default());
    let client = ClientCrypto::new(authority.roots()).key_log(log.clone());
    let client = client.build().unwrap();
    let server = ServerCrypto::new(authority.issue("localhost"))
        .build()
        .unwrap();
    for _ in 0..2 {
        let (mut c, mut s) = pair(&client, &server);
        run_handshake(&mut c, &mut s).unwrap();
    }
    let log = log.0.lock().unwrap();
    assert_eq!(log.len(), 2);
    for labels in log.values() {
        for label in [
            "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
            "SERVER_HANDSHAKE_TRAFFIC_SECRET",
            "CLIENT_TRAFFIC_SECRET_0",
            "SERVER_TRAFFIC_SECRET_0",
        ] {
            assert!(labels.contains(label), "{label}");
        }
    }
}

/// Settings that were built with rustls alone have packet keys which can't rest or
/// seal in a train: an error that says so, no panic.
#[test]
fn tls_config_of_other_crypto_provider_is_rejected() {
    let authority = Authority::new();
    let (chain, key) = authority.issue_pem("localhost");
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).map(Result::unwrap);
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.collect(), key)
        .unwrap();
    let client = ClientCrypto::new(authority.roots()).build().unwrap();
    let (mut client, mut server) = pair(&client, &Arc::new(server));
    let error = run_handshake(&mut client, &mut server).unwrap_err();
    assert_eq!(error.code, Code::INTERNAL_ERROR);
    assert!(error.reason.contains("ServerCrypto"), "{error}");
}
