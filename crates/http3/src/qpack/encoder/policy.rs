//! The policy for inserting fields in the dynamic table (RFC 9204 §7.1).

use crate::qpack::field::FieldRef;
use crate::qpack::static_table;

/// Whether to insert a field that is in no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IndexingPolicy {
    /// Never insert it, and mark it so for intermediaries (RFC 9204 §7.1.3).
    Never,
    /// Insert it immediately, because it will probably be sent again.
    Immediate,
    /// Insert it if it was sent before.
    IfRepeated,
}

/// Cookies shorter than this, in bytes, are too easy to guess (RFC 9204 §7.1.3).
const SHORT_COOKIE: usize = 20;

/// Static table indices of names whose values usually stay the same over a connection.
const STABLE_INDICES: [u8; 26] = [
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

/// [`STABLE_INDICES`] by index.
#[expect(
    clippy::indexing_slicing,
    reason = "done while compiling, which fails if it panics"
)]
static STABLE: [bool; static_table::LEN] = {
    let mut stable = [false; static_table::LEN];
    let mut at = 0;
    while at < STABLE_INDICES.len() {
        stable[STABLE_INDICES[at] as usize] = true;
        at += 1;
    }
    stable
};

const COOKIE: u8 = 5;
const SET_COOKIE: u8 = 14;
const AUTHORIZATION: u8 = 84;

fn is_stable(index: u8) -> bool {
    STABLE.get(usize::from(index)) == Some(&true)
}

/// Returns the policy for a field. `name` is the static table's first index of its name.
pub(super) fn indexing_policy(name: Option<u8>, field: &FieldRef<'_>) -> IndexingPolicy {
    let secret = match name {
        Some(AUTHORIZATION | SET_COOKIE) => true,
        Some(COOKIE) => field.value.len() < SHORT_COOKIE,
        Some(_) => false,
        None => field.name == b"proxy-authorization",
    };
    if field.sensitive || secret {
        IndexingPolicy::Never
    } else if name.is_some_and(is_stable) {
        IndexingPolicy::Immediate
    } else {
        IndexingPolicy::IfRepeated
    }
}

/// The fields that were encoded recently, to detect repetitions. Each hash is in the slot of its
/// low bits, which keeps the newest.
#[derive(Debug)]
pub(super) struct History {
    slots: Box<[u64]>,
}

const SLOTS: usize = 128;

impl History {
    /// Creates an empty history, which allocates on first use.
    pub(super) fn new() -> Self {
        Self {
            slots: Box::default(),
        }
    }

    /// Inserts a hash. Returns whether it was there already.
    pub(super) fn insert(&mut self, hash: u64) -> bool {
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

    fn policy_for(name: &str, value: &str) -> IndexingPolicy {
        let field = FieldRef::new(name.as_bytes(), value.as_bytes());
        let index = match static_table::find(field.name, b"\x01") {
            Match::Field(index) | Match::Name(index) => Some(index),
            Match::None => None,
        };
        indexing_policy(index, &field)
    }

    #[test]
    fn stable_names_are_inserted_immediately_and_others_if_repeated() {
        let stable = [
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
        assert_eq!(stable.len(), STABLE_INDICES.len());
        for name in stable {
            assert_eq!(policy_for(name, "v"), IndexingPolicy::Immediate, "{name}");
        }
        for name in [
            ":path",
            "content-length",
            "date",
            "etag",
            "x-request-id",
            "referer",
        ] {
            assert_eq!(policy_for(name, "v"), IndexingPolicy::IfRepeated, "{name}");
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
            assert_eq!(policy_for(name, "short"), IndexingPolicy::Never, "{name}");
        }
        assert_eq!(
            policy_for("cookie", "session=0123456789abcdef"),
            IndexingPolicy::IfRepeated
        );
        let field = FieldRef {
            sensitive: true,
            ..FieldRef::new(b"user-agent", b"v")
        };
        assert_eq!(indexing_policy(Some(95), &field), IndexingPolicy::Never);
    }

    #[test]
    fn hash_is_found_until_its_slot_is_reused() {
        let mut history = History::new();
        assert_eq!(history.memory(), 0);
        assert!(!history.insert(7));
        assert!(history.insert(7));
        assert!(
            !history.insert(7 + SLOTS as u64),
            "another in the same slot"
        );
        assert!(!history.insert(7), "which displaced the first");
    }
}
