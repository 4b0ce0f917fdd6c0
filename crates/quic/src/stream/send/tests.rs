use super::*;

const BUDGET: u64 = 1 << 20;

/// Returns what is left with `room` free of a budget of [`BUDGET`].
fn shared(room: u64) -> WriteBudget {
    WriteBudget {
        room,
        left: 64 * BUDGET,
        private: MIN_STREAM_BUFFER,
        quarter: BUDGET / 4,
    }
}

#[test]
fn stream_without_credit_buffers_only_its_minimum() {
    let mut half = SendHalf::new(0);
    assert_eq!(half.writable_bytes(&shared(BUDGET)), MIN_STREAM_BUFFER);
    half.write(&[0; MIN_STREAM_BUFFER as usize]);
    assert_eq!(half.writable_bytes(&shared(BUDGET)), 0);
    assert_eq!(half.charge(), 0);
    assert!(half.wanted_schedule().stalled);
    assert!(half.raise_max_data(100_000));
    assert_eq!(half.charge(), MIN_STREAM_BUFFER);
    assert_eq!(half.writable_bytes(&shared(BUDGET)), 100_000);
    assert!(half.wanted_schedule().paid);
}

#[test]
fn data_acknowledged_ahead_of_loss_counts_at_least_half() {
    let mut half = SendHalf::new(BUDGET);
    half.write(&[0; 100_000]);
    half.on_sent(0, 100_000);
    assert_eq!(half.charge(), 100_000);
    half.on_acked(70_000, 30_000, false);
    assert_eq!(half.charge(), 70_000);
    half.on_acked(1_000, 69_000, false);
    assert_eq!(half.charge(), 50_000, "held for one kilobyte");
    half.on_acked(0, 1_000, false);
    assert_eq!(half.charge(), 0);
}

#[test]
fn progress_counts_data_acknowledged_behind_loss() {
    let mut half = SendHalf::new(60);
    half.write(&[0; 100]);
    half.on_sent(0, 50);
    assert!(!half.progress().is_stalled());
    half.on_sent(50, 10);
    half.on_acked(0, 10, false);
    half.on_acked(20, 20, false);
    let progress = half.progress();
    assert_eq!((progress.acked, progress.sent), (30, 60));
    assert_eq!((progress.written, progress.limit), (100, 60));
    assert!(progress.is_stalled());
    half.raise_max_data(61);
    assert!(!half.progress().is_stalled());
}

#[test]
fn full_send_budget_leaves_every_stream_its_minimum() {
    let mut half = SendHalf::new(BUDGET);
    assert_eq!(half.writable_bytes(&shared(0)), MIN_STREAM_BUFFER);
    half.write(&[0; 10_000]);
    assert_eq!(half.writable_bytes(&shared(0)), MIN_STREAM_BUFFER - 10_000);
    assert!(!half.is_worth_writing(&shared(0)));
    half.on_sent(0, 10_000);
    half.on_acked(0, 2_000, false);
    assert!(half.is_worth_writing(&shared(0)));
}

#[test]
fn writable_event_is_sent_when_a_quarter_of_budget_is_free() {
    let mut half = SendHalf::new(4 * BUDGET);
    half.write(&vec![0; BUDGET as usize]);
    assert!(!half.is_worth_writing(&shared(BUDGET / 4 - 1)));
    assert!(half.is_worth_writing(&shared(BUDGET / 4)));
}

#[test]
fn stop_sending_resets_stream_with_peers_code() {
    let mut half = SendHalf::new(BUDGET);
    half.write(b"abc");
    half.on_sent(0, 2);
    assert!(half.on_stop(9));
    assert!(!half.on_stop(9));
    assert_eq!(half.state(), SendState::ResetSent);
    assert_eq!((half.reset_code(), half.final_size()), (Some(9), 2));
    assert_eq!(half.check_writable(), Err(WriteError::Stopped(9)));
    assert_eq!(half.wanted_schedule(), ScheduleState::default());
    assert!(!half.on_acked(0, 2, false));
    half.on_reset_acked();
    assert!(half.state().is_terminal());
}

#[test]
fn reset_with_reliable_size_delivers_the_data_before_it() {
    let mut half = SendHalf::new(BUDGET);
    half.write(b"0123456789");
    half.buffer.finish();
    assert!(half.on_sent(0, 10));
    assert!(half.reset_at(9, 4));
    assert!(half.may_send_reset());
    assert_eq!((half.final_size(), half.reliable_size()), (10, 4));
    assert_eq!(half.check_writable(), Err(WriteError::Unknown));
    // Only what comes before the offset is repeated, and without the end.
    half.buffer.on_lost(0, 10, true);
    assert_eq!(half.buffer.next_free(), Some(Span::new(0, 4)));
    assert!(half.wanted_schedule().free);
    assert!(!half.on_sent(0, 4));
    assert_eq!(half.wanted_schedule(), ScheduleState::default());
    half.on_reset_acked();
    assert_eq!(half.state(), SendState::ResetSent, "data is missing");
    assert!(!half.on_acked(0, 4, false));
    assert_eq!(half.state(), SendState::ResetAcked);
    assert_eq!((half.charge(), half.held(), half.ready()), (0, 0, 0));
}

#[test]
fn reset_with_reliable_size_waits_until_that_was_sent() {
    let mut half = SendHalf::new(3);
    half.write(b"0123456789");
    assert!(!half.on_sent(0, 2));
    assert!(half.reset_at(9, 4));
    assert!(!half.may_send_reset());
    assert_eq!(half.next_paid(), Span::new(2, 3));
    assert!(!half.on_sent(2, 1));
    assert!(half.wanted_schedule().stalled);
    assert!(half.raise_max_data(100));
    assert_eq!(half.next_paid(), Span::new(3, 4));
    assert!(!half.on_sent(3, 1));
    assert!(half.may_send_reset());
    assert_eq!(half.final_size(), 4);
    assert!(!half.on_acked(0, 4, false));
    assert_eq!(half.state(), SendState::ResetSent);
    half.on_reset_acked();
    assert!(half.state().is_terminal());
}

#[test]
fn reliable_size_covers_what_was_acknowledged_and_not_what_was_never_written() {
    let mut half = SendHalf::new(BUDGET);
    assert!(half.reset_at(9, 4));
    assert_eq!((half.reliable_size(), half.final_size()), (0, 0));
    let mut half = SendHalf::new(BUDGET);
    half.write(b"0123456789");
    half.on_sent(0, 8);
    half.on_acked(0, 4, false);
    assert!(half.reset_at(9, 4));
    // The peer has it, but its application may not.
    assert_eq!((half.reliable_size(), half.final_size()), (4, 8));
    half.on_reset_acked();
    assert!(half.state().is_terminal());
    assert!(!half.reset_at(9, 4));
}

#[test]
fn stream_of_rejected_0rtt_starts_over() {
    let mut half = SendHalf::new(10);
    half.write(b"abc");
    half.buffer.finish();
    assert!(half.on_sent(0, 3));
    half.on_rejected();
    assert_eq!(half.state(), SendState::Ready);
    assert!(half.wanted_schedule().stalled);
    half.raise_max_data(2);
    assert_eq!(half.next_paid(), Span::new(0, 2));
    assert!(!half.on_sent(0, 2));
}
