use super::*;
use crate::crypto::keys::TAG_LEN;
use crate::crypto::testing::{configs, one_rtt_pair};
use crate::crypto::{Algorithms, Suite};
use core::time::Duration;
use proptest::prelude::*;
use rustls::{ClientConfig, ServerConfig};
use std::sync::{Arc, LazyLock};

static CONFIGS: LazyLock<(Arc<ClientConfig>, Arc<ServerConfig>)> =
    LazyLock::new(|| configs(&Algorithms::default().x25519_only()));

const HEADER_LEN: usize = 5;

/// Confirmed keys of two ends.
fn confirmed() -> (OneRttKeys, OneRttKeys) {
    let (mut a, mut b) = one_rtt_pair(&CONFIGS.0, &CONFIGS.1);
    a.on_handshake_confirmed();
    b.on_handshake_confirmed();
    (a, b)
}

/// The same, after a packet of each that was acknowledged.
fn in_use() -> (OneRttKeys, OneRttKeys) {
    let (mut a, mut b) = confirmed();
    exchange(&mut a, &mut b, 1);
    b.on_ack(1, 0).unwrap();
    (a, b)
}

fn sealed(keys: &mut OneRttKeys, pn: u32) -> Vec<u8> {
    let mut packet = vec![0x43];
    packet.extend_from_slice(&pn.to_be_bytes());
    packet.extend_from_slice(b"payload");
    packet.extend_from_slice(&[0; TAG_LEN]);
    keys.seal(pn.into(), &mut packet, HEADER_LEN, 4).unwrap();
    packet
}

fn open(
    keys: &mut OneRttKeys,
    mut packet: Vec<u8>,
) -> Result<Option<OpenedPacket>, TransportError> {
    let number = keys.unprotect_header(&mut packet, 1).unwrap();
    let opened = keys.open(number.truncated.into(), &mut packet, HEADER_LEN)?;
    if let Some(opened) = opened {
        assert_eq!(&packet[HEADER_LEN..HEADER_LEN + opened.len], b"payload");
    }
    Ok(opened)
}

fn opens(keys: &mut OneRttKeys, packet: Vec<u8>) -> OpenedPacket {
    open(keys, packet).unwrap().expect("a genuine packet")
}

fn code(result: Result<Option<OpenedPacket>, TransportError>) -> Code {
    result.unwrap_err().code
}

/// One packet each way, acknowledging everything before it.
fn exchange(a: &mut OneRttKeys, b: &mut OneRttKeys, pn: u32) {
    let opened = opens(b, sealed(a, pn));
    b.on_ack(u64::from(pn) - 1, opened.generation).unwrap();
    let opened = opens(a, sealed(b, pn));
    a.on_ack(pn.into(), opened.generation).unwrap();
}

#[test]
fn key_update_needs_confirmation_then_acknowledgment_then_three_ptos() {
    let (mut a, mut b) = one_rtt_pair(&CONFIGS.0, &CONFIGS.1);
    let now = Instant::ZERO;
    assert_eq!(a.initiate_update(now), Err(KeyUpdateError::NotConfirmed));
    a.on_handshake_confirmed();
    a.initiate_update(now).unwrap();
    assert_eq!(a.generation(), 1);
    assert_eq!(a.initiate_update(now), Err(KeyUpdateError::NotAcknowledged));

    let first = opens(&mut b, sealed(&mut a, 1));
    assert!(first.updated);
    assert_eq!((first.generation, b.generation()), (1, 1));
    let answer = opens(&mut a, sealed(&mut b, 1));
    assert!(answer.updated);
    let end = now + Duration::from_secs(3);
    a.retain_previous_until(end);
    assert_eq!(a.initiate_update(now), Err(KeyUpdateError::NotAcknowledged));
    a.on_ack(1, answer.generation).unwrap();
    assert_eq!(a.initiate_update(now), Err(KeyUpdateError::TooSoon));
    assert_eq!(a.discard_at(), Some(end));
    a.initiate_update(end).unwrap();
    assert_eq!((a.generation(), a.discard_at()), (2, None));
    assert_eq!(opens(&mut b, sealed(&mut a, 2)).generation, 2);
}

#[test]
fn key_update_changes_phase_bit_and_keeps_header_key() {
    let (mut a, mut b) = confirmed();
    for generation in 0..5u32 {
        let packet = sealed(&mut a, 10 * generation);
        // Read by the header key of the first generation, before any update.
        let first = b.unprotect_header(&mut packet.clone(), 1).unwrap().first;
        assert_eq!(first & KEY_PHASE != 0, generation % 2 == 1);
        opens(&mut b, packet);
        exchange(&mut a, &mut b, 10 * generation + 1);
        a.previous = None;
        a.initiate_update(Instant::ZERO).unwrap();
    }
}

#[test]
fn released_ciphers_follow_every_key_update() {
    let (mut a, mut b) = confirmed();
    for generation in 0..5u32 {
        exchange(&mut a, &mut b, 10 * generation + 1);
        a.release_ciphers();
        b.release_ciphers();
        a.previous = None;
        a.initiate_update(Instant::ZERO).unwrap();
        // The first packet after the rest is of the next phase already.
        let opened = opens(&mut b, sealed(&mut a, 10 * generation + 2));
        assert!(opened.updated);
        assert_eq!(opened.generation, u64::from(generation) + 1);
        assert!(b.next.is_some());
        exchange(&mut a, &mut b, 10 * generation + 3);
    }
}

/// Which ciphers are there: to seal with, to open with, for headers.
fn warm(keys: &OneRttKeys) -> [bool; 4] {
    [
        keys.local.key.has_cipher(),
        keys.remote.key.has_cipher(),
        keys.local_header.has_cipher(),
        keys.remote_header.has_cipher(),
    ]
}

#[test]
fn first_packet_after_release_creates_receive_ciphers_of_both_phases() {
    let (mut a, mut b) = in_use();
    let forge = |mut packet: Vec<u8>| {
        *packet.last_mut().unwrap() ^= 1;
        packet
    };
    b.release_ciphers();
    opens(&mut b, sealed(&mut a, 1));
    assert!(b.next.as_ref().is_some_and(|key| key.has_cipher()));
    assert_eq!(warm(&b), [false, true, false, true]);
    a.initiate_update(Instant::ZERO).unwrap();
    for pn in 2..5 {
        b.release_ciphers();
        assert_eq!((b.next.is_none(), warm(&b)), (true, [false; 4]));
        assert_eq!(open(&mut b, forge(sealed(&mut a, pn))).unwrap(), None);
        assert!(b.next.as_ref().is_some_and(|key| key.has_cipher()));
        assert_eq!(warm(&b), [false, true, false, true]);
    }
    assert!(opens(&mut b, sealed(&mut a, 5)).updated);
}

#[test]
fn forged_packets_recreate_released_ciphers_once() {
    let (mut a, mut b) = in_use();
    opens(&mut b, sealed(&mut a, 1));
    b.release_ciphers();
    let mut made: Option<*const PacketKey> = None;
    for pn in 2..50 {
        let mut forged = sealed(&mut a, pn);
        *forged.last_mut().unwrap() ^= 1;
        assert_eq!(open(&mut b, forged).unwrap(), None);
        let next: *const PacketKey = &**b.next.as_ref().unwrap();
        assert_eq!(*made.get_or_insert(next), next);
        assert_eq!(warm(&b), [false, true, false, true]);
    }
    assert_eq!(b.failed_opens(), 48);
    opens(&mut b, sealed(&mut a, 50));
    opens(&mut a, sealed(&mut b, 1));
}

#[test]
fn late_packet_of_previous_keys_opens_after_release() {
    let (mut a, mut b) = confirmed();
    let late = sealed(&mut a, 1);
    a.initiate_update(Instant::ZERO).unwrap();
    assert!(opens(&mut b, sealed(&mut a, 2)).updated);
    b.release_ciphers();
    assert_eq!(opens(&mut b, late).generation, 0);
    assert_eq!(warm(&b), [false, true, false, true]);
    opens(&mut a, sealed(&mut b, 1));
    assert_eq!(warm(&b), [true; 4]);
}

#[test]
fn late_packet_opens_while_previous_keys_are_kept() {
    let (mut a, mut b) = confirmed();
    let late: Vec<_> = (1..=3).map(|pn| sealed(&mut a, pn)).collect();
    a.initiate_update(Instant::ZERO).unwrap();
    assert!(opens(&mut b, sealed(&mut a, 4)).updated);
    let opened = opens(&mut b, late[1].clone());
    assert_eq!((opened.generation, opened.updated), (0, false));
    let end = Instant::from_nanos(1000);
    b.retain_previous_until(end);
    b.discard_previous(Instant::from_nanos(999));
    opens(&mut b, late[2].clone());
    b.discard_previous(end);
    assert_eq!(open(&mut b, late[0].clone()), Ok(None));
    assert_eq!(b.failed_opens(), 1);
    opens(&mut b, sealed(&mut a, 5));
}

#[test]
fn simultaneous_key_update_by_both_ends_works() {
    let (mut a, mut b) = confirmed();
    a.initiate_update(Instant::ZERO).unwrap();
    b.initiate_update(Instant::ZERO).unwrap();
    exchange(&mut a, &mut b, 1);
    assert_eq!((a.generation(), b.generation()), (1, 1));
    assert!(!opens(&mut b, sealed(&mut a, 2)).updated);
}

#[test]
fn second_key_update_before_confirmation_is_an_error() {
    let (mut a, mut b) = confirmed();
    a.initiate_update(Instant::ZERO).unwrap();
    opens(&mut b, sealed(&mut a, 1));
    // The client goes on as if the server had answered, which it has not.
    a.promote().unwrap();
    a.advance_local().unwrap();
    assert_eq!(a.generation(), 2);
    let result = open(&mut b, sealed(&mut a, 2));
    assert_eq!(code(result), Code::KEY_UPDATE_ERROR);
}

#[test]
fn newer_keys_with_lower_packet_number_are_an_error() {
    let (mut a, mut b) = confirmed();
    opens(&mut b, sealed(&mut a, 10));
    a.initiate_update(Instant::ZERO).unwrap();
    let result = open(&mut b, sealed(&mut a, 5));
    assert_eq!(code(result), Code::KEY_UPDATE_ERROR);
}

#[test]
fn late_packet_of_old_keys_above_newer_keys_is_an_error() {
    let (mut a, mut b) = confirmed();
    let old = sealed(&mut a, 6);
    a.initiate_update(Instant::ZERO).unwrap();
    let misplaced = sealed(&mut a, 5);
    opens(&mut b, sealed(&mut a, 7));
    opens(&mut b, old);
    assert_eq!(code(open(&mut b, misplaced)), Code::KEY_UPDATE_ERROR);
}

#[test]
fn old_keys_with_higher_packet_number_do_not_open() {
    let (mut a, mut b) = confirmed();
    let misplaced = sealed(&mut a, 20);
    a.initiate_update(Instant::ZERO).unwrap();
    opens(&mut b, sealed(&mut a, 10));
    assert_eq!(open(&mut b, misplaced), Ok(None));
}

#[test]
fn ack_of_new_keys_under_old_keys_is_an_error() {
    let (mut a, mut b) = confirmed();
    sealed(&mut a, 1);
    a.initiate_update(Instant::ZERO).unwrap();
    sealed(&mut a, 2);
    let opened = opens(&mut a, sealed(&mut b, 1));
    assert_eq!(opened.generation, 0);
    assert_eq!(a.on_ack(1, opened.generation), Ok(()));
    let error = a.on_ack(2, opened.generation).unwrap_err();
    assert_eq!(error.code, Code::KEY_UPDATE_ERROR);
}

#[test]
fn keys_update_before_confidentiality_limit() {
    let (mut a, mut b) = confirmed();
    a.set_update_after(10);
    for pn in 1..=100 {
        exchange(&mut a, &mut b, pn);
        b.previous = None;
    }
    assert_eq!((a.generation(), b.generation()), (9, 9));
}

#[test]
fn keys_at_confidentiality_limit_keep_reserve_for_close() {
    let (mut a, _) = one_rtt_pair(&CONFIGS.0, &CONFIGS.1);
    a.confidentiality_limit = CLOSING_RESERVE + 10;
    a.set_update_after(u64::MAX);
    for pn in 0..10 {
        a.check_limits().unwrap();
        sealed(&mut a, pn);
    }
    let error = a.check_limits().unwrap_err();
    assert_eq!(error.code, Code::AEAD_LIMIT_REACHED);
    for pn in 10..10 + CLOSING_RESERVE as u32 {
        sealed(&mut a, pn);
    }
    let error = a.seal(999, &mut [0x40; 64], HEADER_LEN, 4).unwrap_err();
    assert_eq!(error.code, Code::AEAD_LIMIT_REACHED);
    // Once confirmed, there is a way out.
    a.on_handshake_confirmed();
    a.check_limits().unwrap();
    sealed(&mut a, 1000);
    assert_eq!(a.generation(), 1);
}

#[test]
fn forged_packets_over_integrity_limit_close_connection() {
    let (mut a, mut b) = confirmed();
    b.integrity_limit = 3;
    for pn in 0..3 {
        let mut forged = sealed(&mut a, pn);
        *forged.last_mut().unwrap() ^= 1;
        assert_eq!(open(&mut b, forged), Ok(None));
    }
    opens(&mut b, sealed(&mut a, 7));
    assert_eq!(
        b.count_failed_open().unwrap_err().code,
        Code::AEAD_LIMIT_REACHED
    );
    assert_eq!(b.failed_opens(), 4);
}

#[test]
fn forged_key_phase_bit_changes_nothing() {
    let (mut a, mut b) = confirmed();
    let mut forged = sealed(&mut a, 1);
    forged[0] ^= KEY_PHASE;
    assert_eq!(open(&mut b, forged), Ok(None));
    assert_eq!(b.generation(), 0);
    assert_eq!(b.open(1, &mut [], 0), Ok(None));
    assert_eq!(b.open(1, &mut [0x40; 3], HEADER_LEN), Ok(None));
    opens(&mut b, sealed(&mut a, 1));
}

#[test]
fn chacha20_has_no_confidentiality_limit() {
    let algorithms = Algorithms::default().with_suites(&[Suite::ChaCha20Poly1305]);
    let (client, server) = configs(&algorithms);
    let (mut a, mut b) = one_rtt_pair(&client, &server);
    a.on_handshake_confirmed();
    a.local.sealed = 1 << 40;
    opens(&mut b, sealed(&mut a, 1));
    assert_eq!(a.generation(), 0);
    a.initiate_update(Instant::ZERO).unwrap();
    opens(&mut b, sealed(&mut a, 2));
    assert_eq!(b.generation(), 1);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Send {
        from: usize,
    },
    Deliver {
        to: usize,
        which: prop::sample::Index,
    },
    Lose {
        to: usize,
        which: prop::sample::Index,
    },
    Update {
        end: usize,
    },
    Forget {
        end: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let end = 0usize..2;
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => end.clone().prop_map(|from| Step::Send { from }),
        6 => (end.clone(), index()).prop_map(|(to, which)| Step::Deliver { to, which }),
        1 => (end.clone(), index()).prop_map(|(to, which)| Step::Lose { to, which }),
        3 => end.clone().prop_map(|end| Step::Update { end }),
        1 => end.prop_map(|end| Step::Forget { end }),
    ]
}

/// A packet on its way, and what it says.
struct InFlight {
    bytes: Vec<u8>,
    generation: u64,
    largest_received: Option<u64>,
}

struct Side {
    keys: OneRttKeys,
    next_pn: u32,
    largest_received: Option<u64>,
    arriving: Vec<InFlight>,
}

impl Side {
    fn new(keys: OneRttKeys) -> Self {
        Self {
            keys,
            next_pn: 0,
            largest_received: None,
            arriving: Vec::new(),
        }
    }

    fn send(&mut self) -> InFlight {
        let bytes = sealed(&mut self.keys, self.next_pn);
        self.next_pn += 1;
        InFlight {
            bytes,
            generation: self.keys.generation(),
            largest_received: self.largest_received,
        }
    }

    /// A genuine packet opens exactly if its keys are kept, and never is an
    /// error.
    fn deliver(&mut self, packet: InFlight) -> Result<(), TestCaseError> {
        let at = self.keys.remote.generation;
        let keys_kept = match packet.generation {
            g if g + 1 == at => self.keys.previous.is_some(),
            g => g >= at,
        };
        prop_assert!(packet.generation <= at + 1);
        let mut header = packet.bytes.clone();
        let pn = self
            .keys
            .unprotect_header(&mut header, 1)
            .unwrap()
            .truncated;
        let opened = open(&mut self.keys, packet.bytes).unwrap();
        prop_assert_eq!(opened.is_some(), keys_kept);
        let Some(opened) = opened else { return Ok(()) };
        prop_assert_eq!(opened.generation, packet.generation);
        prop_assert_eq!(opened.updated, packet.generation > at);
        self.largest_received = self.largest_received.max(Some(pn.into()));
        if let Some(largest) = packet.largest_received {
            self.keys.on_ack(largest, opened.generation).unwrap();
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_order_of_key_updates_keeps_packets_readable(steps in prop::collection::vec(step(), 1..300)) {
        let (a, b) = confirmed();
        let mut ends = [Side::new(a), Side::new(b)];
        for step in steps {
            match step {
                Step::Send { from } => {
                    let packet = ends[from].send();
                    ends[1 - from].arriving.push(packet);
                }
                Step::Deliver { to, which } if !ends[to].arriving.is_empty() => {
                    let at = which.index(ends[to].arriving.len());
                    let packet = ends[to].arriving.remove(at);
                    ends[to].deliver(packet)?;
                }
                Step::Lose { to, which } if !ends[to].arriving.is_empty() => {
                    let at = which.index(ends[to].arriving.len());
                    ends[to].arriving.remove(at);
                }
                Step::Deliver { .. } | Step::Lose { .. } => {}
                // Without the wait for three PTOs, to make it harder.
                Step::Update { end } => {
                    if ends[end].keys.may_update().is_ok() {
                        ends[end].keys.advance_local().unwrap();
                    }
                }
                Step::Forget { end } => ends[end].keys.previous = None,
            }
            for Side { keys, .. } in &ends {
                prop_assert!(keys.local.generation - keys.remote.generation <= 1);
            }
        }
        // However it went, a fresh exchange brings both together.
        for from in [0, 1, 0] {
            let packet = ends[from].send();
            ends[1 - from].deliver(packet)?;
        }
        prop_assert_eq!(ends[0].keys.generation(), ends[1].keys.generation());
    }
}

/// Until then it is work without use, on the way to the first data.
#[test]
fn next_receive_key_is_derived_once_a_packet_is_acknowledged() {
    let (mut a, mut b) = confirmed();
    opens(&mut b, sealed(&mut a, 1));
    sealed(&mut b, 1);
    opens(&mut b, sealed(&mut a, 2));
    assert!(b.next.is_none());
    b.on_ack(1, 0).unwrap();
    opens(&mut b, sealed(&mut a, 3));
    assert!(b.next.is_some());
}

/// The peer has confirmed the handshake and updated its keys, and HANDSHAKE_DONE is late.
#[test]
fn key_update_is_followed_before_the_handshake_is_confirmed() {
    let (mut a, mut b) = one_rtt_pair(&CONFIGS.0, &CONFIGS.1);
    a.on_handshake_confirmed();
    let late = sealed(&mut a, 1);
    a.initiate_update(Instant::ZERO).unwrap();
    let mut forged = sealed(&mut a, 2);
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(open(&mut b, forged).unwrap(), None);
    assert!(opens(&mut b, sealed(&mut a, 3)).updated);
    assert_eq!(opens(&mut b, late).generation, 0);
}
