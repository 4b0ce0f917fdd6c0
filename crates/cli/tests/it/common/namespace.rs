//! Network namespaces, which begin and end with a test.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace that ends with the test.
pub(crate) struct Namespace(pub(crate) String);

impl Namespace {
    /// Returns `None`, with a word, where namespaces cannot be made.
    pub(crate) fn new() -> Option<Self> {
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
    pub(crate) fn run<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
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

impl Namespace {
    /// Runs `ip` with these arguments in the namespace.
    pub(crate) fn ip(&self, arguments: &[&str]) {
        let command = Command::new("ip")
            .args(["-n", &self.0])
            .args(arguments)
            .output();
        let output = command.unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ip {arguments:?}: {error}");
    }

    /// Connects `other` by a cable, whose end here is `device`, with this address, and sends what
    /// leaves `other` here.
    pub(crate) fn connect(&self, device: &str, address: &str, other: &Self, other_address: &str) {
        let create = ["link", "add", device, "type", "veth", "peer", "name", "up0"];
        self.ip(&[&create[..], &["netns", &other.0]].concat());
        for (space, device, address) in [(self, device, address), (other, "up0", other_address)] {
            // An IPv6 address is usable at once only if nobody is asked who else has it.
            let (prefix, options) = match address.contains(':') {
                true => (64, &["nodad"][..]),
                false => (24, &[][..]),
            };
            let address = format!("{address}/{prefix}");
            space.ip(&[&["address", "add", &address, "dev", device], options].concat());
            space.ip(&["link", "set", device, "up"]);
        }
        other.ip(&["route", "add", "default", "via", address]);
    }

    /// Changes a setting of the network, such as `ipv4/ip_forward`.
    pub(crate) fn set(&self, name: &str, value: &str) {
        // Which namespace is meant depends on the thread.
        self.run(|| std::fs::write(format!("/proc/sys/net/{name}"), value).unwrap());
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let delete = ["netns", "del", &self.0];
        let _ = Command::new("ip").args(delete).status();
    }
}
