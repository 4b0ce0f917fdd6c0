//! Idle periods, and moments with nothing in flight between two ACKs.

use super::*;

/// A bulk sender over a path of 100 ms whose receiver acknowledges every second packet.
/// After `idle_after` rounds the application sends nothing for a while. Returns the window
/// after each ACK.
fn windows_at_each_ack(idle_after: u64, idle: Duration) -> Vec<u64> {
    let rtt = Duration::from_millis(100);
    let mut cubic = cubic();
    cubic.window = 300 * MDS;
    send(&mut cubic, 0..300, 0);
    cubic.on_congestion(&lost(0..1, 300));
    send(&mut cubic, 300..301, 0);
    cubic.on_ack(&acked(300, 1, 0));
    let (mut now, mut next, mut windows) = (at_ms(0), 301, Vec::new());
    for round in 0..120 {
        if round == idle_after {
            cubic.on_limit(Limit::Application, now);
            now += idle;
            cubic.restart_from_idle(now);
        }
        let packets = cubic.window() / MDS;
        send(&mut cubic, next..next + packets, 0);
        cubic.on_limit(Limit::Congestion, now);
        now += rtt;
        for at in (0..packets).step_by(2) {
            let size = (packets - at).min(2);
            cubic.on_ack(&Ack {
                now,
                smoothed_rtt: rtt,
                next_index: next + packets,
                ..acked(next + at + size - 1, size, packets - at - size)
            });
            windows.push(cubic.window());
        }
        next += packets;
    }
    windows
}

#[test]
fn idle_shifts_the_curve_by_exactly_the_idle_time() {
    let steady = windows_at_each_ack(40, Duration::ZERO);
    assert!(
        *steady.last().unwrap() > steady[0] + 50 * MDS,
        "the curve rises at all"
    );
    for idle in [0, 4, 60] {
        for after in [1, 40, 90] {
            let paused = windows_at_each_ack(after, Duration::from_secs(idle));
            assert_eq!(paused.len(), steady.len(), "{idle} s after {after} rounds");
            for (ack, (with, without)) in paused.iter().zip(&steady).enumerate() {
                let off = with.abs_diff(*without);
                assert!(
                    off <= MDS,
                    "{idle} s after {after} rounds: {off} at ACK {ack}"
                );
            }
        }
    }
}

/// The bug that the test above would find: the pause counts as time in use.
#[test]
fn clock_running_while_idle_makes_the_window_jump() {
    let grown = |limit: Limit| {
        let mut cubic = in_avoidance(cubic());
        cubic.on_limit(limit, at_ms(100));
        cubic.on_limit(Limit::Congestion, at_ms(60_100));
        cubic.on_ack(&Ack {
            now: at_ms(60_200),
            ..acked(150, 50, 0)
        });
        cubic.window()
    };
    assert!(grown(Limit::Congestion) > grown(Limit::Application) + 10 * MDS);
}

#[test]
fn empty_pipe_between_acks_does_not_change_growth() {
    let grown = |flicker: bool| {
        let mut cubic = cubic();
        // After heavy loss: two packets, one ACK for both.
        cubic.window = 2 * MDS;
        send(&mut cubic, 0..2, 0);
        cubic.on_congestion(&lost(0..1, 2));
        send(&mut cubic, 2..3, 0);
        cubic.on_ack(&acked(2, 1, 0));
        assert_eq!(cubic.window(), 2 * MDS);
        let mut next = 3;
        for round in 1..=20 {
            let now = at_ms(10 * round);
            let packets = cubic.window() / MDS;
            send(&mut cubic, next..next + packets, 0);
            next += packets;
            cubic.on_ack(&Ack {
                now,
                ..acked(next - 1, packets, 0)
            });
            if flicker {
                cubic.on_limit(Limit::Application, now);
                cubic.restart_from_idle(now);
            }
            cubic.on_limit(Limit::Congestion, now);
        }
        cubic.window()
    };
    assert_eq!(grown(true), grown(false));
    assert!(
        grown(true) >= 20 * MDS,
        "a datagram a round: {}",
        grown(true)
    );
}
