use super::*;
use crate::time::Instant;

fn half() -> RecvHalf {
    RecvHalf::new(Window::new(1_000, 10_000, Instant::ZERO))
}

fn code<T>(result: Result<T, TransportError>) -> Option<Code> {
    result.err().map(|e| e.code)
}

#[test]
fn end_of_stream_is_read_once_after_all_data() {
    let mut half = half();
    let news = half.on_data(5, true, b"world", 100, 0).unwrap();
    assert_eq!((news.raised, news.readable), (10, false));
    assert_eq!(half.read_chunk(99), Err(ReadError::Blocked));
    assert!(half.on_data(0, false, b"hello", 90, 0).unwrap().readable);
    assert_eq!(half.state(), RecvState::DataRecvd);
    let mut out = [0; 20];
    assert_eq!(half.read(&mut out), Ok(Some(10)));
    assert_eq!(&out[..10], b"helloworld");
    assert_eq!(half.read(&mut out), Ok(None));
    assert_eq!(half.state(), RecvState::DataRead);
    assert_eq!(half.read(&mut out), Err(ReadError::Unknown));
}

#[test]
fn final_size_violations_are_errors() {
    let wrong = Some(Code::FINAL_SIZE_ERROR);
    let mut known = half();
    known.on_data(0, true, b"abc", 100, 0).unwrap();
    assert_eq!(code(known.on_data(3, false, b"d", 100, 0)), wrong);
    assert_eq!(code(known.on_data(0, true, b"ab", 100, 0)), wrong);
    assert_eq!(code(known.on_reset(0, 4, 100)), wrong);
    assert_eq!(code(known.on_reset(0, 3, 100)), None);
    let mut early = half();
    early.on_data(10, false, b"abc", 100, 0).unwrap();
    assert_eq!(code(early.on_data(0, true, b"abc", 100, 0)), wrong);
    assert_eq!(code(early.on_reset(0, 12, 100)), wrong);
}

#[test]
fn flow_control_violations_are_errors() {
    let over = Some(Code::FLOW_CONTROL_ERROR);
    assert_eq!(code(half().on_data(0, false, &[0; 1_001], 5_000, 0)), over);
    assert_eq!(code(half().on_data(0, false, &[0; 100], 99, 0)), over);
    assert_eq!(code(half().on_data(0, false, &[0; 100], 100, 0)), None);
    assert_eq!(
        code(half().on_data(u64::MAX, false, &[0; 100], 99, 0)),
        over
    );
    assert_eq!(code(half().on_data(VARINT_MAX, false, &[0], 99, 0)), over);
    assert_eq!(code(half().on_reset(0, 1_001, 5_000)), over);
    assert_eq!(code(half().on_reset(0, 900, 899)), over);
}

#[test]
fn data_before_reliable_size_is_delivered_before_the_reset() {
    // Of 20 bytes, of which 8 are reliable, these arrive, and the reset between them.
    for before in [&[(0, 4)][..], &[(4, 4)], &[(0, 8)], &[(0, 20)], &[]] {
        let mut half = half();
        for &(offset, len) in before {
            half.on_data(offset, false, &[7; 20][..len], 100, 0)
                .unwrap();
        }
        let news = half.on_reset_at(9, 20, 8, 100).unwrap();
        assert_eq!(news.discarded, 12, "{before:?}");
        for (offset, len) in [(0, 5), (5, 3), (8, 12)] {
            half.on_data(offset, false, &[7; 20][..len], 0, 0).unwrap();
        }
        assert_eq!(half.state(), RecvState::ResetRecvd);
        let mut out = [0; 20];
        assert_eq!(half.peek(), Ok(true));
        assert_eq!(half.read(&mut out[..3]), Ok(Some(3)));
        assert_eq!(half.read_chunk(20).unwrap().unwrap(), [7; 5][..]);
        assert_eq!(half.usage(), BufferUsage::default(), "{before:?}");
        assert_eq!(half.window.consumed(), 20);
        assert_eq!(half.read(&mut out), Err(ReadError::Reset(9)));
        assert_eq!(half.state(), RecvState::ResetRead);
    }
}

#[test]
fn reset_is_not_reported_while_reliable_data_is_missing() {
    let mut half = half();
    half.on_data(0, false, b"abc", 100, 0).unwrap();
    assert!(!half.on_reset_at(9, 10, 6, 100).unwrap().readable);
    assert_eq!(half.read_chunk(99).unwrap().unwrap(), "abc");
    assert_eq!(half.read_chunk(99), Err(ReadError::Blocked));
    // The end of the stream is its reset, although everything has arrived.
    assert!(!half.on_data(6, true, b"ghij", 0, 0).unwrap().readable);
    assert!(half.on_data(3, false, b"defg", 0, 0).unwrap().readable);
    assert_eq!(half.read_chunk(99).unwrap().unwrap(), "def");
    assert_eq!(half.read_chunk(99), Err(ReadError::Reset(9)));
}

#[test]
fn reliable_size_only_shrinks_and_the_code_stays() {
    let mut half = half();
    half.on_data(0, false, b"abc", 100, 0).unwrap();
    assert_eq!(half.on_reset_at(9, 10, 6, 100).unwrap().discarded, 4);
    assert_eq!(half.on_reset_at(9, 10, 8, 0).unwrap(), Received::default());
    assert_eq!(half.on_reset_at(9, 10, 5, 0).unwrap().discarded, 1);
    let wrong = half.on_reset_at(8, 10, 5, 0);
    assert_eq!(code(wrong), Some(Code::STREAM_STATE_ERROR));
    assert_eq!(code(half.on_reset(9, 11, 0)), Some(Code::FINAL_SIZE_ERROR));
    assert!(half.on_reset(9, 10, 0).unwrap().readable);
    assert_eq!(half.read_chunk(99), Err(ReadError::Reset(9)));
    assert_eq!(half.window.consumed(), 10);
}

#[test]
fn stopping_a_stream_whose_reliable_data_is_missing_ends_it() {
    let mut half = half();
    half.on_data(0, false, b"abc", 100, 0).unwrap();
    assert_eq!(half.on_reset_at(9, 10, 6, 100).unwrap().discarded, 4);
    assert_eq!(half.stop(1), Some(6));
    assert!(half.state().is_terminal() && !half.wants_stop());
    let late = half.on_data(3, false, b"def", 0, 0).unwrap();
    assert_eq!(late, Received::default());
    // And the other way round.
    let mut half = RecvHalf::new(Window::new(1_000, 10_000, Instant::ZERO));
    assert_eq!(half.stop(1), Some(0));
    assert_eq!(half.on_reset_at(9, 10, 6, 100).unwrap().discarded, 10);
    assert!(half.state().is_terminal());
}

#[test]
fn unread_data_of_reset_stream_returns_credit() {
    let mut half = half();
    half.on_data(0, false, &[0; 100], 500, 0).unwrap();
    assert_eq!(half.read(&mut [0; 30]), Ok(Some(30)));
    let news = half.on_reset(7, 400, 500).unwrap();
    assert_eq!((news.raised, news.discarded), (300, 370));
    assert_eq!(half.read_chunk(9), Err(ReadError::Reset(7)));
    assert!(half.state().is_terminal());
    assert_eq!(half.usage().memory, 0);
}

#[test]
fn reset_with_unread_data_is_reported() {
    let mut half = half();
    assert!(
        half.on_data(0, false, b"unread", 99, usize::MAX)
            .unwrap()
            .readable
    );
    assert!(half.on_reset(7, 6, 99).unwrap().readable);
    assert!(!half.on_reset(7, 6, 99).unwrap().readable, "told once");
    assert_eq!(half.read_chunk(0), Err(ReadError::Reset(7)));
    let mut stopped = RecvHalf::new(Window::new(1_000, 10_000, Instant::ZERO));
    stopped.stop(3);
    assert!(!stopped.on_reset(7, 0, 99).unwrap().readable);
}

#[test]
fn stopped_stream_discards_data_and_counts_credit() {
    let mut half = half();
    half.on_data(0, false, &[0; 100], 500, 0).unwrap();
    assert_eq!(half.stop(3), Some(100));
    assert_eq!(half.stop(3), None);
    assert!(half.wants_stop());
    let news = half.on_data(100, false, &[0; 50], 400, 0).unwrap();
    assert_eq!((news.raised, news.discarded), (50, 50));
    assert_eq!(half.read_chunk(9), Err(ReadError::Unknown));
    half.on_data(150, true, &[], 400, 0).unwrap();
    assert_eq!(half.state(), RecvState::DataRead);
    assert!(!half.wants_stop());
}

#[test]
fn readable_event_is_sent_once_until_read_blocks() {
    let mut half = half();
    assert!(half.on_data(0, false, b"a", 9, 0).unwrap().readable);
    assert!(!half.on_data(1, false, b"b", 9, 0).unwrap().readable);
    assert_eq!(half.read(&mut [0; 9]), Ok(Some(2)));
    assert!(!half.on_data(2, false, b"c", 9, 0).unwrap().readable);
    assert_eq!(half.read(&mut [0; 9]), Ok(Some(1)));
    assert_eq!(half.read(&mut [0; 9]), Err(ReadError::Blocked));
    assert!(half.on_data(3, true, b"", 9, 0).unwrap().readable);
}

#[test]
fn peek_tells_data_from_the_end_and_from_a_gap() {
    let mut half = half();
    assert_eq!(half.peek(), Err(ReadError::Blocked));
    half.on_data(5, true, b"world", 100, 0).unwrap();
    assert_eq!(half.peek(), Err(ReadError::Blocked));
    half.on_data(0, false, b"hello", 90, 0).unwrap();
    assert_eq!(half.peek(), Ok(true));
    assert_eq!(half.read(&mut [0; 10]), Ok(Some(10)));
    assert_eq!(half.peek(), Ok(false));
}
