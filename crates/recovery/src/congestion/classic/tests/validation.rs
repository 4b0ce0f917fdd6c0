//! Losses after a long time in which the application was the limit (RFC 7661).

use super::*;

/// NewReno at 50 packets that pauses for this long and then has a flight of 50, of which the first
/// `lost` are lost. Returns it after the recovery.
fn after_pause(seconds: u64, lost_packets: u64) -> Classic<NewReno> {
    let mut reno = in_avoidance(newreno());
    reno.on_limit(Limit::Application, at_ms(0));
    reno.on_limit(Limit::Congestion, at_ms(seconds * 1_000));
    send(&mut reno, 151..201, 0);
    reno.on_congestion(&lost(151..151 + lost_packets, 201));
    reno.on_ack(&acked(200, 50 - lost_packets, 0));
    send(&mut reno, 201..203, 0);
    reno.on_ack(&acked(202, 2, 0));
    assert_eq!(reno.state(), State::CongestionAvoidance);
    reno
}

#[test]
fn loss_after_a_long_pause_responds_to_what_the_path_has_carried() {
    assert_eq!(after_pause(10, 40).window(), half(50 * MDS));
    // Ten packets of fifty arrived.
    assert_eq!(after_pause(11, 40).window(), half(10 * MDS));
    // 49 of fifty: nearly as always.
    assert_eq!(after_pause(11, 1).window(), half(49 * MDS));
}

#[test]
fn spurious_loss_after_a_long_pause_restores_the_window() {
    let mut reno = after_pause(60, 40);
    reno.on_spurious(&spurious(201));
    assert_eq!(reno.window(), 50 * MDS);
}

/// The flight after the pause arrives, so a loss of the next one is answered as always.
#[test]
fn round_without_loss_validates_the_window() {
    let mut reno = in_avoidance(newreno());
    reno.on_limit(Limit::Application, at_ms(0));
    reno.on_limit(Limit::Congestion, at_ms(60_000));
    send(&mut reno, 151..201, 0);
    reno.on_ack(&acked(160, 10, 40));
    reno.on_ack(&acked(201, 40, 0));
    let window = reno.window();
    send(&mut reno, 202..252, 0);
    reno.on_congestion(&lost(202..242, 252));
    reno.on_ack(&acked(251, 10, 0));
    send(&mut reno, 252..254, 0);
    reno.on_ack(&acked(253, 2, 0));
    assert_eq!(reno.window(), half(window));
}
