//! The parsers of HTTP/3 except field sections: frame headers, settings, priorities, capsules,
//! datagrams. Whatever is decoded round-trips, and capsules do not depend on how the body is split.
#![no_main]

use bytes::Bytes;
use clearway_http3::capsule::{Capsule, CapsuleReader};
use clearway_http3::frame::FrameHeader;
use clearway_http3::{Priority, Settings, datagram};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], u8)| {
    let (bytes, cut) = input;
    if let Some((header, size)) = FrameHeader::parse(bytes) {
        let mut out = Vec::new();
        header.encode(&mut out);
        assert!(out.len() <= size, "the shortest form is not longer");
        assert_eq!(FrameHeader::parse(&out), Some((header, out.len())));
    }
    settings(bytes);
    let priority = Priority::parse(bytes);
    assert!(priority.urgency <= 7);
    assert_eq!(Priority::parse(priority.to_value().as_bytes()), priority);
    if let Ok((stream, payload)) = datagram::decode(Bytes::copy_from_slice(bytes)) {
        let again = datagram::decode(datagram::encode(stream, &payload));
        assert_eq!(again, Ok((stream, payload)));
    }
    assert_eq!(
        capsules(bytes, usize::MAX),
        capsules(bytes, usize::from(cut).max(1))
    );
});

fn settings(bytes: &[u8]) {
    let Ok(settings) = Settings::decode(bytes) else {
        return;
    };
    let mut out = Vec::new();
    settings.encode(None, &mut out);
    let (_, size) = FrameHeader::parse(&out).expect("a frame");
    assert_eq!(Settings::decode(&out[size..]), Ok(settings));
    assert!(settings.check_compatible(&settings).is_ok());
}

/// Returns the capsules of even types, whether there was an error, and whether the end is between
/// two.
fn capsules(bytes: &[u8], cut: usize) -> (Vec<Capsule>, bool, bool) {
    let mut reader = CapsuleReader::new(64);
    let mut found = Vec::new();
    for piece in bytes.chunks(cut) {
        let mut piece = Bytes::copy_from_slice(piece);
        loop {
            match reader.next(&mut piece, |kind| kind % 2 == 0) {
                Ok(Some(capsule)) => found.push(capsule),
                Ok(None) => break,
                Err(_) => return (found, true, false),
            }
        }
    }
    (found, false, reader.is_at_boundary())
}
