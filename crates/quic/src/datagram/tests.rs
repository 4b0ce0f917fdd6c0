use super::*;
use proptest::prelude::*;

const SMALL: QueueLimits = QueueLimits {
    bytes: 100,
    count: 4,
};

fn message(n: u8, len: usize) -> Bytes {
    Bytes::from(vec![n; len])
}

fn sender() -> DatagramSender {
    let mut sender = DatagramSender::new(SMALL);
    sender.set_peer_limit(65_535);
    sender
}

#[test]
fn datagram_to_peer_without_support_is_rejected_as_unsupported() {
    let mut sender = DatagramSender::new(SMALL);
    assert_eq!(sender.max_size(1_000), None);
    assert_eq!(
        sender.send(message(0, 1), 1_000),
        Err(SendDatagramError::Unsupported)
    );
}

#[test]
fn too_large_error_states_the_largest_size() {
    let mut sender = sender();
    let too_large = |max| Err(SendDatagramError::TooLarge { max });
    assert_eq!(sender.send(message(0, 50), 50), too_large(49));
    assert_eq!(sender.send(message(0, 49), 50), Ok(()));
    assert_eq!(sender.send(message(0, 101), 1_000), too_large(100));
    sender.set_peer_limit(20);
    assert_eq!(sender.send(message(0, 20), 1_000), too_large(19));
    assert_eq!(sender.send(message(0, 19), 1_000), Ok(()));
}

#[test]
fn rejected_sender_is_notified_once_when_there_is_room() {
    let mut sender = sender();
    sender.send(message(1, 60), 1_000).unwrap();
    assert!(!sender.take_writable());
    assert_eq!(
        sender.send(message(2, 60), 1_000),
        Err(SendDatagramError::Full)
    );
    assert!(!sender.take_writable());
    assert_eq!(sender.pop(1_000, 1_000).unwrap().data, message(1, 60));
    assert!(sender.take_writable());
    assert!(!sender.take_writable());
    sender.send(message(3, 60), 1_000).unwrap();
    sender.pop(1_000, 1_000).unwrap();
    assert!(!sender.take_writable(), "nobody was refused since");
    assert_eq!(sender.dropped(), 0);
}

#[test]
fn length_field_is_omitted_where_it_would_not_fit() {
    let mut sender = sender();
    for n in 0..3 {
        sender.send(message(n, 30), 1_000).unwrap();
    }
    assert_eq!(sender.pop(30, 1_000), None, "type and data need 31");
    assert!(!sender.pop(31, 1_000).unwrap().explicit_length);
    assert!(sender.pop(32, 1_000).unwrap().explicit_length);
    sender.set_peer_limit(31);
    assert!(!sender.pop(500, 1_000).unwrap().explicit_length);
}

#[test]
fn datagram_too_large_for_smaller_mtu_is_dropped_and_does_not_block_the_queue() {
    let mut sender = sender();
    sender.send(message(1, 50), 1_000).unwrap();
    sender.send(message(2, 10), 1_000).unwrap();
    assert_eq!(sender.pop(20, 40).unwrap().data, message(2, 10));
    assert_eq!(sender.dropped(), 1);
}

#[test]
fn datagram_frame_above_our_announced_size_is_protocol_violation() {
    let mut none = DatagramReceiver::new(SMALL, 0);
    let error = none.on_frame(message(0, 0), 1, 0).unwrap_err();
    assert_eq!(error.code, Code::PROTOCOL_VIOLATION);
    let mut some = DatagramReceiver::new(SMALL, 20);
    assert_eq!(some.on_frame(message(0, 19), 20, 0), Ok(0));
    let error = some.on_frame(message(0, 20), 21, 0).unwrap_err();
    assert_eq!(error.code, Code::PROTOCOL_VIOLATION);
}

#[test]
fn full_receive_queue_drops_and_counts_the_oldest() {
    let mut receiver = DatagramReceiver::new(SMALL, 65_535);
    for n in 0..6 {
        let dropped = receiver.on_frame(message(n, 0), 1, 1);
        assert_eq!(dropped, Ok(u32::from(n >= 4)), "{n}");
    }
    assert!(receiver.take_readable());
    assert!(!receiver.take_readable());
    assert_eq!(receiver.dropped(), 2);
    assert_eq!(receiver.on_frame(message(9, 101), 102, 101), Ok(0));
    assert_eq!(receiver.on_frame(message(9, 101), 102, 102), Ok(1));
    assert_eq!(receiver.dropped(), 4, "it fits no queue of this size");
    assert_eq!(receiver.queue.messages.len(), 4, "and displaces none");
    while receiver.recv().is_some() {}
    receiver.on_frame(message(9, 1), 2, 0).unwrap();
    assert!(receiver.take_readable());
}

proptest! {
    #[test]
    fn receive_queue_is_bounded_and_every_message_is_accounted_for(
        sizes in proptest::collection::vec(0..120_usize, 0..100),
        read_every in 1..9_usize,
    ) {
        let mut receiver = DatagramReceiver::new(SMALL, 65_535);
        let mut read = 0;
        for (n, size) in sizes.iter().enumerate() {
            let before = receiver.dropped();
            let small = receiver.on_frame(message(0, *size), size + 1, 60).unwrap();
            prop_assert!(u64::from(small) <= receiver.dropped() - before);
            prop_assert!(receiver.queue.bytes <= SMALL.bytes);
            prop_assert!(receiver.queue.messages.len() <= SMALL.count);
            if n % read_every == 0 && receiver.recv().is_some() {
                read += 1;
            }
        }
        let waiting = receiver.queue.messages.len() as u64;
        prop_assert_eq!(read + waiting + receiver.dropped(), sizes.len() as u64);
    }
}
