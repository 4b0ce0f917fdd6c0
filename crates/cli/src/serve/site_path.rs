//! From a URL's path to a place in the directory.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

/// What names of half-written uploads begin with; nobody is shown these files.
pub(super) const UPLOAD_PREFIX: &str = ".clearway-upload.";

/// A place below the directory, made of plain names only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Relative; empty for the directory itself.
    pub(super) path: PathBuf,
    /// The URL ends with a slash: it means a directory.
    pub(super) slash: bool,
}

impl Place {
    /// `None` for what cannot be the name of anything here: `.` and `..`, empty
    /// names, slashes and zeros in disguise (RFC 3986 §7.3), uploads under way.
    pub(super) fn of(url_path: &str) -> Option<Self> {
        let mut path = PathBuf::new();
        let mut names = url_path.strip_prefix('/')?.split('/').peekable();
        while let Some(name) = names.next() {
            if name.is_empty() && names.peek().is_none() {
                return Some(Self { path, slash: true });
            }
            let name: Vec<u8> = percent_decode_str(name).collect();
            let bad = matches!(&name[..], b"" | b"." | b"..")
                || name.iter().any(|byte| matches!(byte, b'/' | 0))
                || name.starts_with(UPLOAD_PREFIX.as_bytes());
            if bad {
                return None;
            }
            path.push(OsString::from_vec(name));
        }
        Some(Self { path, slash: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded_one_by_one() {
        for (url, path, slash) in [
            ("/", "", true),
            ("/a", "a", false),
            ("/a/b/", "a/b", true),
            ("/a%20b/%C3%A9", "a b/é", false),
            ("/%2e%2e%2e", "...", false),
            ("/..a/a..", "..a/a..", false),
            ("/a\\b", "a\\b", false),
            ("/%zz", "%zz", false),
            ("/%252e%252e/x", "%2e%2e/x", false),
            ("/.hidden", ".hidden", false),
        ] {
            let expected = Place {
                path: path.into(),
                slash,
            };
            assert_eq!(Place::of(url), Some(expected), "{url}");
        }
    }

    #[test]
    fn what_could_lead_outside_is_no_place() {
        for url in [
            "",
            "*",
            "//",
            "//etc/passwd",
            "/a//b",
            "/..",
            "/../x",
            "/a/../../x",
            "/./x",
            "/.",
            "/%2e%2e/x",
            "/%2E./x",
            "/..%2fx",
            "/a%2f..%2fb",
            "/%2fetc/passwd",
            "/a%00b",
            "/.clearway-upload.1",
            "/%2eclearway-upload.1",
        ] {
            assert_eq!(Place::of(url), None, "{url}");
        }
    }
}
