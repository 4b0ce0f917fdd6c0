//! Names of files that are not complete.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Suffixes of the partial file and of its description.
const ENDINGS: [&str; 2] = [".part", ".part.json"];

/// Maximum length of a name on common file systems, in bytes (`NAME_MAX`).
const LONGEST: usize = 255;

/// Length of the prefix of a long name before the digest, so that both and the longer suffix fit.
const PREFIX: usize = LONGEST - 10 - 17;

/// The paths of the partial file and of its description: the same in every run, so that one can
/// resume where another was interrupted.
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

/// The prefix of a name, followed by a digest of all of it.
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
    fn temporary_name_is_file_name_with_suffix() {
        let [part, about] = names(Path::new("d/a.b"));
        assert_eq!(
            (part, about),
            ("d/a.b.part".into(), "d/a.b.part.json".into())
        );
    }

    #[test]
    fn temporary_names_of_long_files_fit_and_differ() {
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

    /// The authors' digest of "foobar".
    #[test]
    fn temporary_name_digest_is_fnv_1a() {
        assert_eq!(fnv(b"foobar"), 0x85944171f73967e8);
    }
}
