//! The test cases of the runner, and what an endpoint does differently in each.

/// How a client distributes its requests over connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connections {
    /// All on one.
    One,
    /// The first on one, the others on a second that resumes it.
    Resumed,
    /// The first on one, the others on a second as early data.
    EarlyData,
    /// Each on one of its own, one after the other.
    Each,
}

/// A test case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TestCase {
    name: &'static str,
    pub(crate) connections: Connections,
    /// Over HTTP/3 instead of HTTP/0.9.
    pub(crate) http3: bool,
    /// Only ChaCha20-Poly1305 is offered.
    pub(crate) chacha20: bool,
    /// The server validates addresses with Retry.
    pub(crate) retry: bool,
    /// The client updates its keys after the first bytes.
    pub(crate) key_update: bool,
    /// Both ends prefer version 2.
    pub(crate) version_2: bool,
    /// The client moves to another port in the middle of a download; the server announces the
    /// address that it prefers.
    pub(crate) migration: bool,
}

/// A test in which the endpoints do nothing special.
const PLAIN: TestCase = TestCase {
    name: "transfer",
    connections: Connections::One,
    http3: false,
    chacha20: false,
    retry: false,
    key_update: false,
    version_2: false,
    migration: false,
};

const fn plain(name: &'static str) -> TestCase {
    TestCase { name, ..PLAIN }
}

/// All test cases.
const ALL: &[TestCase] = &[
    plain("handshake"),
    plain("transfer"),
    plain("longrtt"),
    plain("multiplexing"),
    plain("blackhole"),
    plain("ecn"),
    plain("amplificationlimit"),
    plain("transferloss"),
    plain("transfercorruption"),
    plain("ipv6"),
    plain("goodput"),
    plain("crosstraffic"),
    plain("rebind-port"),
    plain("rebind-addr"),
    TestCase {
        chacha20: true,
        ..plain("chacha20")
    },
    TestCase {
        retry: true,
        ..plain("retry")
    },
    TestCase {
        connections: Connections::Resumed,
        ..plain("resumption")
    },
    TestCase {
        connections: Connections::EarlyData,
        ..plain("zerortt")
    },
    TestCase {
        http3: true,
        ..plain("http3")
    },
    TestCase {
        key_update: true,
        ..plain("keyupdate")
    },
    TestCase {
        connections: Connections::Each,
        ..plain("multiconnect")
    },
    TestCase {
        connections: Connections::Each,
        ..plain("handshakeloss")
    },
    TestCase {
        connections: Connections::Each,
        ..plain("handshakecorruption")
    },
    TestCase {
        version_2: true,
        ..plain("v2")
    },
    TestCase {
        migration: true,
        ..plain("connectionmigration")
    },
];

impl TestCase {
    /// Returns the test case that the runner calls `name`.
    pub(crate) fn find(name: &str) -> Option<Self> {
        ALL.iter().copied().find(|test| test.name == name)
    }

    /// Returns whether a client downloads everything on one connection and does nothing else.
    pub(crate) fn is_one_download(&self) -> bool {
        self.connections == Connections::One && !self.key_update && !self.migration
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_unknown_ones_unsupported() {
        for (at, test) in ALL.iter().enumerate() {
            let found = TestCase::find(test.name).expect("listed");
            assert_eq!(found, *test);
            assert!(ALL[..at].iter().all(|other| other.name != test.name));
        }
        assert_eq!(TestCase::find("versionnegotiation"), None);
        assert_eq!(TestCase::find(""), None);
    }
}
