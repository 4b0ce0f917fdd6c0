//! RFC 9002 §6.2: the probe timeout.

use super::harness::{BYTES, Bench, Fixed, MS, PATH, at};
use crate::pto::TimerType;
use crate::{PathId, PtoContext, Space};

fn client() -> PtoContext {
    PtoContext::default()
}

fn server() -> PtoContext {
    PtoContext {
        peer_completed_address_validation: true,
        ..PtoContext::default()
    }
}

fn confirmed() -> PtoContext {
    PtoContext {
        handshake_confirmed: true,
        has_handshake_keys: true,
        peer_completed_address_validation: true,
        amplification_blocked: false,
    }
}

/// §6.2.1: smoothed_rtt + max(4·rttvar, kGranularity) + max_ack_delay.
#[test]
fn pto_of_1_rtt_packets_includes_max_ack_delay() {
    let mut bench = Bench::sampled(100);
    bench.send(1000);
    // 100 + 4·50 + 25.
    assert_eq!(bench.recovery.next_timeout(), Some(at(1325)));
    bench.recovery.set_max_ack_delay(MS * 5);
    assert_eq!(bench.recovery.next_timeout(), Some(at(1305)));
}

#[test]
fn pto_of_handshake_packets_excludes_max_ack_delay() {
    let mut bench = Bench::handshaking(server());
    bench.send_in(Space::Handshake, 0);
    assert_eq!(bench.recovery.next_timeout(), Some(at(999)));
}

/// §6.2.1: each expiry doubles the period, over all spaces.
#[test]
fn each_pto_expiry_doubles_the_period_of_all_spaces() {
    let mut bench = Bench::handshaking(server());
    bench.send_in(Space::Initial, 0);
    bench.send_in(Space::Handshake, 0);
    assert_eq!(bench.fire(), at(999));
    assert_eq!(bench.out.pto, Some(Space::Initial));
    bench.send_in(Space::Initial, 999);
    bench.recovery.discard_space(Space::Initial, at(1000));
    // Discarding keys starts over (§6.2.2).
    assert_eq!(bench.recovery.path(PATH).unwrap().pto_count(), 0);
    assert_eq!(bench.fire(), at(1999));
    assert_eq!(bench.out.pto, Some(Space::Handshake));
    assert_eq!(bench.fire(), at(1999 + 1998));
    assert_eq!(bench.fire(), at(1999 + 1998 + 3996));
    assert!(bench.out.lost.is_empty(), "§6.2: no loss by timeout");
}

/// §6.2.1: sending an ack-eliciting packet restarts the period.
#[test]
fn sending_an_ack_eliciting_packet_restarts_the_pto() {
    let mut bench = Bench::sampled(100);
    bench.send(1000);
    bench.send(1200);
    assert_eq!(bench.recovery.next_timeout(), Some(at(1525)));
    bench.send_ack_only(1300);
    assert_eq!(bench.recovery.next_timeout(), Some(at(1525)));
}

/// §6.2.1: so does an ACK of new packets; otherwise the timer would expire although packets
/// are being acknowledged.
#[test]
fn new_ack_restarts_the_pto() {
    let mut bench = Bench::sampled(100);
    bench.send_many(3, 1000);
    bench.ack(1..=1, 1300);
    let path = bench.recovery.path(PATH).unwrap();
    let period = path.pto(Space::Data, MS * 25);
    assert_eq!(bench.recovery.next_timeout(), Some(at(1300) + period));
}

/// §6.2.1: an acknowledgment resets the backoff.
#[test]
fn ack_resets_the_pto_backoff() {
    let mut bench = Bench::sampled(100);
    bench.send(1000);
    bench.fire();
    bench.send(1325);
    assert_eq!(bench.recovery.path(PATH).unwrap().pto_count(), 1);
    bench.ack(2..=2, 1400);
    assert_eq!(bench.recovery.path(PATH).unwrap().pto_count(), 0);
}

/// §6.2.1: not at a client whose address may not be validated yet.
#[test]
fn initial_ack_does_not_reset_the_pto_backoff_of_a_client() {
    let mut bench = Bench::handshaking(client());
    bench.send_in(Space::Initial, 0);
    bench.fire();
    bench.send_in(Space::Initial, 999);
    bench.ack_in(Space::Initial, 1..=1, 1100);
    assert_eq!(bench.recovery.path(PATH).unwrap().pto_count(), 1);
}

/// §6.2.1: no probes for 1-RTT packets before the handshake is confirmed.
#[test]
fn no_pto_for_1_rtt_packets_before_handshake_confirmation() {
    let mut bench = Bench::handshaking(server());
    bench.send(0);
    assert_eq!(bench.recovery.next_timeout(), None);
    bench.recovery.set_handshake_state(confirmed(), at(50));
    assert!(bench.recovery.next_timeout().is_some());
}

/// §6.2.2.1: a client probes even with nothing in flight.
#[test]
fn client_probes_while_the_server_may_be_amplification_limited() {
    let mut bench = Bench::handshaking(client());
    assert_eq!(bench.recovery.next_timeout(), None, "nothing sent yet");
    bench.send_in(Space::Initial, 0);
    bench.ack_in(Space::Initial, 0..=0, 100);
    assert_eq!(bench.in_flight(), 0);
    // 100 + 4·50 from the ACK on.
    assert_eq!(bench.fire(), at(400));
    assert_eq!(bench.out.pto, Some(Space::Initial));
    let keys = PtoContext {
        has_handshake_keys: true,
        ..client()
    };
    bench.recovery.set_handshake_state(keys, at(500));
    assert_eq!(bench.fire(), at(1100), "backed off");
    assert_eq!(bench.out.pto, Some(Space::Handshake));
    bench.recovery.set_handshake_state(server(), at(1200));
    assert_eq!(bench.recovery.next_timeout(), None);
}

/// The pseudocode of A.8 leaves this client without a timer, in conflict with §6.2.2.1.
#[test]
fn client_timer_stays_armed_with_only_0_rtt_in_flight() {
    let mut bench = Bench::handshaking(client());
    bench.send_in(Space::Initial, 0);
    bench.send_in(Space::Data, 1);
    bench.ack_in(Space::Initial, 0..=0, 100);
    bench.fire();
    assert_eq!(bench.out.pto, Some(Space::Initial));
}

/// §6.2.2.1: a server at its limit arms no timer; once it may send, the timer may be
/// overdue.
#[test]
fn amplification_limited_server_has_no_pto() {
    let mut bench = Bench::handshaking(server());
    bench.send_in(Space::Initial, 0);
    let blocked = PtoContext {
        amplification_blocked: true,
        ..server()
    };
    bench.recovery.set_handshake_state(blocked, at(1));
    assert_eq!(bench.recovery.next_timeout(), None);
    bench.recovery.set_handshake_state(server(), at(5000));
    assert_eq!(bench.recovery.next_timeout(), Some(at(999)));
    bench.timeout(at(5000));
    assert_eq!(bench.out.pto, Some(Space::Initial));
    // Even if nothing could be sent, the next one lies ahead.
    assert_eq!(bench.recovery.next_timeout(), Some(at(5000 + 1998)));
}

/// §6.2.1: no probe while a timer for losses is set.
#[test]
fn pto_is_not_armed_while_the_loss_timer_is() {
    let mut bench = Bench::sampled(80);
    bench.send_many(2, 1000);
    bench.ack(2..=2, 1080);
    assert_eq!(bench.recovery.next_timeout(), Some(at(1090)));
}

/// §6.2.1: the earlier of the Initial and the Handshake space.
#[test]
fn pto_probes_the_space_with_the_earliest_deadline() {
    let mut bench = Bench::handshaking(server());
    bench.send_in(Space::Handshake, 0);
    bench.send_in(Space::Initial, 10);
    bench.fire();
    assert_eq!(bench.out.pto, Some(Space::Handshake));
}

#[test]
fn silent_path_is_probed_with_growing_periods() {
    let mut bench = Bench::sampled(100);
    bench.send(1000);
    let mut last = at(1000);
    for _ in 0..40 {
        let due = bench.fire();
        assert!(due > last && due - last <= MS * 60_000);
        last = due;
    }
    assert!(last > at(1000) + MS * 60_000 * 30);
}

/// §6.2.2: a better initial RTT changes the time of the first probe.
#[test]
fn known_initial_rtt_shortens_the_first_pto() {
    let mut bench = Bench::handshaking(server());
    bench.recovery.set_initial_rtt(PATH, MS * 50);
    bench.send_in(Space::Initial, 0);
    // 50 + 4 · 25.
    assert_eq!(bench.recovery.next_timeout(), Some(at(150)));
}

#[test]
fn armed_timer_tells_loss_timer_from_pto() {
    let mut bench = Bench::sampled(80);
    assert_eq!(bench.recovery.armed_timer(), None);
    bench.send_many(2, 1000);
    let due = bench.recovery.next_timeout().unwrap();
    assert_eq!(bench.recovery.armed_timer(), Some((due, TimerType::Pto)));
    bench.ack(2..=2, 1080);
    assert_eq!(
        bench.recovery.armed_timer(),
        Some((at(1090), TimerType::Loss))
    );
}

/// §6.2.2.1, RFC 9000 §9: the client probes on the path it sends on.
#[test]
fn client_probe_for_blocked_server_is_sent_on_the_active_path() {
    let mut bench = Bench::handshaking(client());
    bench.send_in(Space::Initial, 0);
    bench.ack_in(Space::Initial, 0..=0, 100);
    let other = PathId(1);
    let controller = Box::new(Fixed::new(1 << 30));
    bench.recovery.add_path(other, controller, BYTES, at(100));
    bench.recovery.set_active_path(other, at(100));
    // Without a sample there: 333 + 4 · 166.5 ms from the ACK on.
    assert_eq!(bench.fire(), at(1099));
    assert_eq!(bench.recovery.path(other).unwrap().pto_count(), 1);
    assert_eq!(bench.recovery.path(PATH).unwrap().pto_count(), 0);
}

/// RFC 9000 §18.2: the PTO includes the max_ack_delay that the peer declares.
#[test]
fn changed_max_ack_delay_changes_the_pto() {
    let mut bench = Bench::sampled(80);
    bench.recovery.set_max_ack_delay(MS * 40);
    assert_eq!(bench.recovery.config().max_ack_delay, MS * 40);
    bench.send(1000);
    // 80 + 4 · 40 + 40.
    assert_eq!(bench.recovery.next_timeout(), Some(at(1280)));
}
