//! What files are called until they are whole.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Endings of the part's file and of the one about it.
const ENDINGS: [&str; 2] = [".part", ".part.json"];

/// How long a name may be on the usual file systems, in bytes (`NAME_MAX`).
const LONGEST: usize = 255;

/// What is left of a long name before the digits that tell it from others: both
/// and the longer ending fit.
const PREFIX: usize = LONGEST - 10 - 17;

/// The part's file and the one about it: the same in every run, so that one can
/// go on where another broke off.
pub(super) fn names(path: &Path) -> [PathBuf; 2] {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let stem = if ENDINGS
        .iter()
        .all(|ending| name.len() + ending.len() <= LONGEST)
    {
        name.to_vec()
    } else {
        shortened(name)
    };
    ENDINGS.map(|ending| {
        let name = [&stem, ending.as_bytes()].concat();
        path.with_file_name(OsString::from_vec(name))
    })
}

/// The beginning of a name, and a digest of all of it.
fn shortened(name: &[u8]) -> Vec<u8> {
    let mut length = PREFIX.min(name.len());
    // Not in the middle of a character.
    while length > 0 && name.get(length).is_some_and(|byte| byte & 0xC0 == 0x80) {
        length -= 1;
    }
    let digest = format!(".{:016x}", fnv(name));
    [&name[..length], digest.as_bytes()].concat()
}

/// FNV-1a of 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_files_with_an_ending() {
        let [part, about] = names(Path::new("d/a.b"));
        assert_eq!(
            (part, about),
            ("d/a.b.part".into(), "d/a.b.part.json".into())
        );
    }

    #[test]
    fn long_names_fit_and_stay_apart() {
        let text = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        for letter in ["x", "ö", "€"] {
            let name = letter.repeat(255 / letter.len());
            let [part, about] = names(&Path::new("d").join(&name));
            assert!(part.starts_with("d") && about.starts_with("d"));
            for path in [&part, &about] {
                assert!(text(path).len() <= 255, "{letter}: {}", text(path).len());
            }
            let mut other = name.clone();
            other.pop();
            other.push_str(&"y".repeat(letter.len()));
            assert_ne!(names(Path::new(&other)), names(Path::new(&name)));
        }
        // The longest that needs no other name.
        let name = "x".repeat(245);
        assert_eq!(text(&names(Path::new(&name))[0]), format!("{name}.part"));
        assert!(!text(&names(Path::new(&"x".repeat(246)))[0]).starts_with(&"x".repeat(246)));
    }

    /// The digest of the algorithm's authors for "foobar".
    #[test]
    fn the_digest_is_what_it_is_called() {
        assert_eq!(fnv(b"foobar"), 0x85944171f73967e8);
    }
}
