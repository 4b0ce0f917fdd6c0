//! Where the doctor looks: a network namespace in which nothing else happens, and processes
//! without the rights of root.

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, LinkNameSpaceType, move_into_link_name_space,
    remove_capability_from_bounding_set,
};

/// A network namespace that ends with the test.
pub(super) struct Namespace(pub(super) String);

impl Namespace {
    /// Returns `None`, with a word, where namespaces cannot be made.
    pub(super) fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let name = format!("clearway-cli-{}-{number}", std::process::id());
        let ip = |arguments: &[&str]| {
            let output = Command::new("ip").args(arguments).output();
            output.is_ok_and(|output| output.status.success())
        };
        if !rustix::process::geteuid().is_root() || !ip(&["netns", "add", &name]) {
            eprintln!("skipped: network namespaces need root and the program ip");
            return None;
        }
        let namespace = Self(name);
        assert!(ip(&["-n", &namespace.0, "link", "set", "lo", "up"]));
        Some(namespace)
    }

    /// Runs `what` on a thread in the namespace, in which are its sockets and child processes too.
    pub(super) fn run<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        let file = File::open(format!("/run/netns/{}", self.0)).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let network = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(file.as_fd(), network).unwrap();
                what()
            });
            thread.join().unwrap()
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let delete = ["netns", "del", &self.0];
        let _ = Command::new("ip").args(delete).status();
    }
}

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
