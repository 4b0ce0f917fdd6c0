//! Paths of URLs, decoded and checked.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

/// Prefix of temporary upload files, which are never served.
pub(super) const UPLOAD_PREFIX: &str = ".clearway-upload.";

/// The directory of well-known URIs (RFC 8615 §3).
const WELL_KNOWN: &str = ".well-known";

/// A path below the directory, made of plain names only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SitePath {
    /// Relative; empty for the directory itself.
    pub(super) path: PathBuf,
    /// Whether the URL ends with a slash and so refers to a directory.
    pub(super) slash: bool,
}

impl SitePath {
    /// `None` for paths that cannot name anything here: `.` and `..`, empty names, encoded slashes
    /// and zeros (RFC 3986 §7.3), temporary upload files.
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

impl SitePath {
    /// Whether a name in it begins with a dot. Such files are often secrets: `.git`, `.env`.
    pub(super) fn has_dotfile(&self) -> bool {
        self.path.iter().any(is_dotfile)
    }

    /// The same, except for `.well-known` at the root, which is there to be read (RFC 8615).
    pub(super) fn is_hidden(&self) -> bool {
        let public = self
            .path
            .iter()
            .next()
            .is_some_and(|name| name == WELL_KNOWN);
        let checked = self.path.iter().skip(usize::from(public));
        checked.into_iter().any(is_dotfile)
    }
}

fn is_dotfile(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_known_at_the_root_is_not_hidden() {
        for (url, hidden, dotfile) in [
            ("/", false, false),
            ("/a/b.c", false, false),
            ("/.env", true, true),
            ("/a/.git/config", true, true),
            ("/.well-known/x", false, true),
            ("/.well-known/.x", true, true),
            ("/a/.well-known/x", true, true),
            ("/.well-knowns", true, true),
        ] {
            let path = SitePath::of(url).unwrap();
            assert_eq!(
                (path.is_hidden(), path.has_dotfile()),
                (hidden, dotfile),
                "{url}"
            );
        }
    }

    #[test]
    fn path_segments_are_percent_decoded() {
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
            let expected = SitePath {
                path: path.into(),
                slash,
            };
            assert_eq!(SitePath::of(url), Some(expected), "{url}");
        }
    }

    #[test]
    fn path_that_could_leave_the_root_is_rejected() {
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
            assert_eq!(SitePath::of(url), None, "{url}");
        }
    }
}
