//! Servers whose host does not let them forbid fragmentation.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::common::tap::{Tap, Towards};
use crate::get::command::expect;
use crate::serve::failing_calls::{Call, with_failing};
use crate::web::{Site, TempDir, pattern};

/// RFC 9000 §14.1.
const SMALLEST_MTU: usize = 1_200;

/// Returns the size of the largest datagram that a server sends in a download.
fn largest_datagram(failing: &[Call]) -> usize {
    let (dir, out) = (TempDir::new(), TempDir::new());
    let content = pattern(3_000_000);
    dir.old_file("large", &content);
    let site = with_failing(failing, || Site::start(dir.path(), &[]));
    let largest = Arc::new(AtomicUsize::new(0));
    let seen = largest.clone();
    let tap = Tap::before(site.address(), move |towards, datagram| {
        if towards == Towards::Client {
            seen.fetch_max(datagram.len(), Relaxed);
        }
    });
    let (file, url) = (out.text("file"), format!("https://{}/large", tap.address));
    expect(0, &["-k", "-s", "-o", &file, &url]);
    assert!(fs::read(&file).unwrap() == content);
    assert!(site.stop().success());
    largest.load(Relaxed)
}

#[test]
fn server_that_cannot_forbid_fragmentation_sends_the_smallest_datagrams() {
    assert!(largest_datagram(&[]) > SMALLEST_MTU);
    assert_eq!(largest_datagram(&[Call::DontFragment]), SMALLEST_MTU);
}
