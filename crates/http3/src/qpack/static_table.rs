//! The static table (RFC 9204 §3.1 and Appendix A), and finding a field in it.

use bytes::Bytes;

use super::field::Field;

/// Entries there are.
pub(super) const LEN: usize = 99;

/// The entries by index.
#[rustfmt::skip]
static ENTRIES: [(&str, &str); LEN] = ENTRIES_CONST;
#[rustfmt::skip]
const ENTRIES_CONST: [(&str, &str); LEN] = [
    (":authority", ""),
    (":path", "/"),
    ("age", "0"),
    ("content-disposition", ""),
    ("content-length", "0"),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("referer", ""),
    ("set-cookie", ""),
    (":method", "CONNECT"),
    (":method", "DELETE"),
    (":method", "GET"),
    (":method", "HEAD"),
    (":method", "OPTIONS"),
    (":method", "POST"),
    (":method", "PUT"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "103"),
    (":status", "200"),
    (":status", "304"),
    (":status", "404"),
    (":status", "503"),
    ("accept", "*/*"),
    ("accept", "application/dns-message"),
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"),
    ("cache-control", "max-age=0"),
    ("cache-control", "max-age=2592000"),
    ("cache-control", "max-age=604800"),
    ("cache-control", "no-cache"),
    ("cache-control", "no-store"),
    ("cache-control", "public, max-age=31536000"),
    ("content-encoding", "br"),
    ("content-encoding", "gzip"),
    ("content-type", "application/dns-message"),
    ("content-type", "application/javascript"),
    ("content-type", "application/json"),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "image/gif"),
    ("content-type", "image/jpeg"),
    ("content-type", "image/png"),
    ("content-type", "text/css"),
    ("content-type", "text/html; charset=utf-8"),
    ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"),
    ("range", "bytes=0-"),
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"),
    ("vary", "accept-encoding"),
    ("vary", "origin"),
    ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"),
    (":status", "100"),
    (":status", "204"),
    (":status", "206"),
    (":status", "302"),
    (":status", "400"),
    (":status", "403"),
    (":status", "421"),
    (":status", "425"),
    (":status", "500"),
    ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"),
    ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"),
    ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"),
    ("access-control-request-method", "get"),
    ("access-control-request-method", "post"),
    ("alt-svc", "clear"),
    ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    ("early-data", "1"),
    ("expect-ct", ""),
    ("forwarded", ""),
    ("if-range", ""),
    ("origin", ""),
    ("purpose", "prefetch"),
    ("server", ""),
    ("timing-allow-origin", "*"),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", ""),
    ("x-forwarded-for", ""),
    ("x-frame-options", "deny"),
    ("x-frame-options", "sameorigin"),
];

/// The result of a lookup in the static table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// The entry with this index has the name and the value.
    Field(u8),
    /// The first entry with this name, by its index.
    Name(u8),
    /// No entry has the name.
    None,
}

/// Returns the entry with `index`, or `None` if there is no such entry.
pub(super) fn get(index: u64) -> Option<Field> {
    let &(name, value) = ENTRIES.get(usize::try_from(index).ok()?)?;
    Some(Field {
        name: Bytes::from_static(name.as_bytes()),
        value: Bytes::from_static(value.as_bytes()),
        sensitive: false,
    })
}

/// Returns the name of the entry with `index`.
pub(super) fn name(index: u64) -> Option<Bytes> {
    let &(name, _) = ENTRIES.get(usize::try_from(index).ok()?)?;
    Some(Bytes::from_static(name.as_bytes()))
}

/// Finds a field: compares one name, and the values that it has.
pub(super) fn find(name: &[u8], value: &[u8]) -> Match {
    let Some(slot) = slot(name) else {
        return Match::None;
    };
    let members = NAMES.members_in(slot);
    let Some(&first) = members.first() else {
        return Match::None;
    };
    let entry = |index: u8| ENTRIES.get(usize::from(index));
    if entry(first).is_none_or(|entry| entry.0.as_bytes() != name) {
        return Match::None;
    }
    members
        .iter()
        .find(|&&index| entry(index).is_some_and(|entry| entry.1.as_bytes() == value))
        .map_or(Match::Name(first), |&index| Match::Field(index))
}

/// Slots of the perfect hash over the 52 names.
const SLOTS: usize = 128;

/// Returns the slot of a name. The factors were chosen so that no two names of the table collide,
/// which is checked at compile time.
const fn slot(name: &[u8]) -> Option<usize> {
    // The shortest name in the table has three bytes.
    let ([first, ..], [.., third_last, _, last]) = (name, name) else {
        return None;
    };
    let hash = (name.len().wrapping_mul(75))
        .wrapping_add((*first as usize).wrapping_mul(41))
        .wrapping_add((*third_last as usize).wrapping_mul(146))
        .wrapping_add((*last as usize).wrapping_mul(204));
    Some(hash % SLOTS)
}

/// The indices of one name: a range of [`Names::members`].
#[derive(Clone, Copy)]
struct IndexRange {
    start: u8,
    end: u8,
}

struct Names {
    slots: [IndexRange; SLOTS],
    /// All indices, grouped by name and in order.
    members: [u8; LEN],
}

impl Names {
    /// Returns the indices of the name in this slot, or an empty slice.
    fn members_in(&self, slot: usize) -> &[u8] {
        let range = self.slots.get(slot);
        range
            .and_then(|range| self.members.get(range.start.into()..range.end.into()))
            .unwrap_or_default()
    }
}

static NAMES: Names = names();

#[expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "done while compiling, which fails if it panics"
)]
const fn names() -> Names {
    let mut names = Names {
        slots: [IndexRange { start: 0, end: 0 }; SLOTS],
        members: [0; LEN],
    };
    let (mut placed, mut index) = (0, 0);
    while index < LEN {
        let name = ENTRIES_CONST[index].0.as_bytes();
        if first_of(name) == index {
            let Some(slot) = slot(name) else {
                panic!("a name shorter than the hash needs");
            };
            assert!(names.slots[slot].end == 0, "two names in one slot");
            let start = placed;
            let mut other = index;
            while other < LEN {
                if same(ENTRIES_CONST[other].0.as_bytes(), name) {
                    names.members[placed] = other as u8;
                    placed += 1;
                }
                other += 1;
            }
            names.slots[slot] = IndexRange {
                start: start as u8,
                end: placed as u8,
            };
        }
        index += 1;
    }
    assert!(placed == LEN);
    names
}

#[expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "done while compiling, which fails if it panics"
)]
const fn first_of(name: &[u8]) -> usize {
    let mut index = 0;
    while !same(ENTRIES_CONST[index].0.as_bytes(), name) {
        index += 1;
    }
    index
}

#[expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "done while compiling, which fails if it panics"
)]
const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found_at_its_index() {
        for (index, (name, value)) in ENTRIES.iter().enumerate() {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            assert_eq!(find(name, value), Match::Field(index as u8), "{index}");
            let entry = get(index as u64).unwrap();
            assert_eq!((&entry.name[..], &entry.value[..]), (name, value));
            assert_eq!(super::name(index as u64).unwrap(), name);
        }
        assert_eq!(get(99), None);
        assert_eq!(name(99), None);
        assert_eq!(get(u64::MAX), None);
    }

    #[test]
    fn name_alone_finds_its_first_entry() {
        for (index, (name, _)) in ENTRIES.iter().enumerate() {
            let first = ENTRIES.iter().position(|(other, _)| other == name).unwrap();
            assert!(first <= index);
            assert_eq!(find(name.as_bytes(), b"\x01"), Match::Name(first as u8));
        }
    }

    #[test]
    fn similar_names_are_not_found() {
        for (name, _) in &ENTRIES {
            let mut near = name.as_bytes().to_vec();
            near[1] ^= 0x20;
            assert_eq!(find(&near, b""), Match::None, "{name}");
            assert_eq!(find(&[name.as_bytes(), b"x"].concat(), b""), Match::None);
            assert_eq!(find(&name.as_bytes()[1..], b""), Match::None);
        }
        for name in [&b""[..], b"a", b"ag", b"x-request-id"] {
            assert_eq!(find(name, b""), Match::None);
        }
    }

    /// Compares the table with Appendix A at its ends and at its peculiarities: similar values, a
    /// name in two places, upper case.
    #[test]
    fn entries_match_rfc_9204_appendix_a() {
        for (index, name, value) in [
            (0, ":authority", ""),
            (1, ":path", "/"),
            (17, ":method", "GET"),
            (24, ":status", "103"),
            (25, ":status", "200"),
            (41, "cache-control", "public, max-age=31536000"),
            (53, "content-type", "text/plain"),
            (54, "content-type", "text/plain;charset=utf-8"),
            (
                57,
                "strict-transport-security",
                "max-age=31536000; includesubdomains",
            ),
            (63, ":status", "100"),
            (71, ":status", "500"),
            (73, "access-control-allow-credentials", "FALSE"),
            (
                85,
                "content-security-policy",
                "script-src 'none'; object-src 'none'; base-uri 'none'",
            ),
            (98, "x-frame-options", "sameorigin"),
        ] {
            assert_eq!(ENTRIES[index], (name, value));
        }
    }
}
