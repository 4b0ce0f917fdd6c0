//! What is worth an entry in the dynamic table (RFC 9204 §7.1).

use crate::qpack::field::FieldRef;
use crate::qpack::static_table;

/// What to do with a field that no table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    /// Neither insert it nor let others do (RFC 9204 §7.1.3).
    Never,
    /// It will come again: insert it at once.
    AtOnce,
    /// Insert it if it came before.
    Repeated,
}

/// Cookies shorter than this are guessed too easily (RFC 9204 §7.1.3, bytes).
const SHORT_COOKIE: usize = 20;

/// Static table indices of names whose values stay the same over a connection.
const STEADY_INDICES: [u8; 26] = [
    0,  // :authority
    15, // :method
    22, // :scheme
    29, // accept
    31, // accept-encoding
    32, // accept-ranges
    33, // access-control-allow-headers
    35, // access-control-allow-origin
    36, // cache-control
    42, // content-encoding
    44, // content-type
    56, // strict-transport-security
    59, // vary
    61, // x-content-type-options
    62, // x-xss-protection
    72, // accept-language
    73, // access-control-allow-credentials
    76, // access-control-allow-methods
    79, // access-control-expose-headers
    83, // alt-svc
    85, // content-security-policy
    90, // origin
    92, // server
    94, // upgrade-insecure-requests
    95, // user-agent
    97, // x-frame-options
];

/// [`STEADY_INDICES`] by index.
#[expect(
    clippy::indexing_slicing,
    reason = "done while compiling, which fails if it panics"
)]
static STEADY: [bool; static_table::LEN] = {
    let mut steady = [false; static_table::LEN];
    let mut at = 0;
    while at < STEADY_INDICES.len() {
        steady[STEADY_INDICES[at] as usize] = true;
        at += 1;
    }
    steady
};

const COOKIE: u8 = 5;
const SET_COOKIE: u8 = 14;
const AUTHORIZATION: u8 = 84;

fn is_steady(index: u8) -> bool {
    STEADY.get(usize::from(index)) == Some(&true)
}

/// What a field is worth; `name` is the static table's first index of its name.
pub(super) fn worth(name: Option<u8>, field: &FieldRef<'_>) -> Worth {
    let secret = match name {
        Some(AUTHORIZATION | SET_COOKIE) => true,
        Some(COOKIE) => field.value.len() < SHORT_COOKIE,
        Some(_) => false,
        None => field.name == b"proxy-authorization",
    };
    if field.sensitive || secret {
        Worth::Never
    } else if name.is_some_and(is_steady) {
        Worth::AtOnce
    } else {
        Worth::Repeated
    }
}

/// What was encoded lately, to know what is repeated: hashes, each in the slot
/// its low bits name, the newest of each slot.
#[derive(Debug)]
pub(super) struct History {
    slots: Box<[u64]>,
}

const SLOTS: usize = 128;

impl History {
    /// Remembers nothing until it is used.
    pub(super) fn new() -> Self {
        Self {
            slots: Box::default(),
        }
    }

    /// Whether this hash was noted lately; it is from now on.
    pub(super) fn note(&mut self, hash: u64) -> bool {
        if self.slots.is_empty() {
            self.slots = vec![0; SLOTS].into();
        }
        let slot = self.slots.get_mut(hash as usize % SLOTS);
        slot.is_some_and(|slot| std::mem::replace(slot, hash) == hash)
    }

    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qpack::static_table::Match;

    fn judged(name: &str, value: &str) -> Worth {
        let field = FieldRef::new(name.as_bytes(), value.as_bytes());
        let index = match static_table::find(field.name, b"\x01") {
            Match::Field(index) | Match::Name(index) => Some(index),
            Match::None => None,
        };
        worth(index, &field)
    }

    #[test]
    fn names_as_meant() {
        let steady = [
            ":authority",
            ":method",
            ":scheme",
            "accept",
            "accept-encoding",
            "accept-ranges",
            "access-control-allow-headers",
            "access-control-allow-origin",
            "cache-control",
            "content-encoding",
            "content-type",
            "strict-transport-security",
            "vary",
            "x-content-type-options",
            "x-xss-protection",
            "accept-language",
            "access-control-allow-credentials",
            "access-control-allow-methods",
            "access-control-expose-headers",
            "alt-svc",
            "content-security-policy",
            "origin",
            "server",
            "upgrade-insecure-requests",
            "user-agent",
            "x-frame-options",
        ];
        assert_eq!(steady.len(), STEADY_INDICES.len());
        for name in steady {
            assert_eq!(judged(name, "v"), Worth::AtOnce, "{name}");
        }
        for name in [
            ":path",
            "content-length",
            "date",
            "etag",
            "x-request-id",
            "referer",
        ] {
            assert_eq!(judged(name, "v"), Worth::Repeated, "{name}");
        }
    }

    #[test]
    fn secrets_are_never_indexed() {
        for name in [
            "authorization",
            "proxy-authorization",
            "set-cookie",
            "cookie",
        ] {
            assert_eq!(judged(name, "short"), Worth::Never, "{name}");
        }
        assert_eq!(
            judged("cookie", "session=0123456789abcdef"),
            Worth::Repeated
        );
        let field = FieldRef {
            sensitive: true,
            ..FieldRef::new(b"user-agent", b"v")
        };
        assert_eq!(worth(Some(95), &field), Worth::Never);
    }

    #[test]
    fn the_second_time_is_a_repetition() {
        let mut history = History::new();
        assert_eq!(history.memory(), 0);
        assert!(!history.note(7));
        assert!(history.note(7));
        assert!(!history.note(7 + SLOTS as u64), "another in the same slot");
        assert!(!history.note(7), "which displaced the first");
    }
}
