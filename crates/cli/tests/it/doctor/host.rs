//! Where the doctor looks: a network namespace in which nothing else happens, and processes
//! without the rights of root.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};

pub(super) use crate::common::namespace::Namespace;

/// Runs `what` on a thread whose child processes have none of the rights of root.
pub(super) fn unprivileged<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            for capability in CapabilitySet::all().iter() {
                match remove_capability_from_bounding_set(capability) {
                    // A kernel may not have all, and only root can give them up.
                    Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            what()
        });
        thread.join().unwrap()
    })
}

/// Runs `what` while datagrams arrive at a socket that nobody reads and that has room for a few. It
/// gets the socket's port.
pub(super) fn with_losing_socket<T>(what: impl FnOnce(u16) -> T) -> T {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4_096).unwrap();
    let address = socket.local_addr().unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = EndOnDrop(&ended);
        scope.spawn(|| {
            while !ended.load(Relaxed) {
                sender.send_to(&[0; 500], address).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        what(address.port())
    })
}

/// Ends the sender, also if the test fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
