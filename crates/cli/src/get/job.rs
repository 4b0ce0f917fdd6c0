//! The URLs to fetch and their destinations.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use super::Args;
use super::destination::Destination;
use super::temporary::names;
use crate::failure::{Failure, Kind};
use crate::identity;
use crate::printable;

/// All but unreserved characters, which mean the same unencoded (RFC 3986 §2.3).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// One URL.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) url: Uri,
    pub(super) to: Destination,
}

/// All jobs of the command line.
///
/// # Errors
/// If a URL is invalid, or two of them would be written to the same file.
pub(super) fn jobs(args: &Args) -> Result<Vec<Job>, Failure> {
    let mut texts = args.url.clone();
    if let Some(file) = &args.urls {
        let list = list(file)?;
        let lines = list.lines().map(str::trim);
        texts.extend(lines.filter(|line| !line.is_empty()).map(str::to_owned));
    }
    if !args.output.is_empty() && args.output.len() != texts.len() {
        let message = format!(
            "-o must be given once for each URL: found {} URLs and {} -o",
            texts.len(),
            args.output.len()
        );
        return Err(Failure::new(Kind::Arguments, message));
    }
    let mut taken = ReservedFiles::default();
    let mut jobs = Vec::with_capacity(texts.len());
    for (i, text) in texts.iter().enumerate() {
        let mut url = parse(text)?;
        if let Some(file) = &args.upload {
            url = with_name(url, file)?;
        }
        let file = match args.output.get(i) {
            Some(file) => Some(file.clone()),
            None if args.remote_name => Some(remote_name(&url)?),
            None => None,
        };
        let to = match file {
            None => Destination::Stdout,
            Some(file) => {
                let dir = args.output_dir.as_deref().unwrap_or(Path::new(""));
                taken.by(&dir.join(file))?
            }
        };
        jobs.push(Job { url, to });
    }
    Ok(jobs)
}

/// The files that URLs are written to, including temporary files.
#[derive(Default)]
struct ReservedFiles(BTreeMap<PathBuf, FileUse>);

/// The purpose of a file.
struct FileUse {
    /// The path of the final file, as given by the user.
    named: PathBuf,
    whole: bool,
}

impl ReservedFiles {
    /// Reserves the file with this name.
    ///
    /// # Errors
    /// If the name is invalid, or already reserved.
    fn by(&mut self, named: &Path) -> Result<Destination, Failure> {
        if matches!(named.as_os_str().as_encoded_bytes(), b"" | [.., b'/']) {
            let message = format!("invalid file name {:?}", named.display().to_string());
            return Err(Failure::new(Kind::Arguments, message));
        }
        let to = Destination::of(named.to_owned());
        match &to {
            Destination::Stdout => {}
            Destination::Special(path) => self.take(path, named, true)?,
            Destination::File { real, .. } => {
                self.take(real, named, true)?;
                for temporary in names(real) {
                    self.take(&temporary, named, false)?;
                }
            }
        }
        Ok(to)
    }

    fn take(&mut self, path: &Path, named: &Path, whole: bool) -> Result<(), Failure> {
        let named = named.to_owned();
        let Some(before) = self.0.get(path) else {
            self.0.insert(path.to_owned(), FileUse { named, whole });
            return Ok(());
        };
        let (file, other) = (named.display(), before.named.display());
        let message = match (whole, before.whole) {
            (true, true) if before.named == named => {
                format!("{file}: two URLs would be written to this file")
            }
            (true, true) => {
                format!("{file} and {other} are the same file: two URLs would be written to it")
            }
            (true, false) => format!("{file}: this is the temporary file of {other}"),
            (false, _) => format!("{other}: this is the temporary file of {file}"),
        };
        Err(Failure::new(Kind::Arguments, message))
    }
}

/// The text of a list of URLs.
fn list(file: &Path) -> Result<String, Failure> {
    let bytes = if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin()
            .read_to_end(&mut bytes)
            .map_err(|error| Failure::caused(Kind::Arguments, "cannot read stdin", &error))?;
        bytes
    } else {
        identity::read(file)?
    };
    String::from_utf8(bytes)
        .map_err(|error| Failure::caused(Kind::Arguments, file.display(), &error))
}

fn parse(text: &str) -> Result<Uri, Failure> {
    let bad = |why: &str| Failure::new(Kind::Arguments, format!("invalid URL {text:?}: {why}"));
    let whole = if text.contains("://") {
        text.to_owned()
    } else {
        format!("https://{text}")
    };
    // What the parser says of these is "empty string" and "invalid format".
    let rest = whole.split_once("://").map_or("", |(_, rest)| rest);
    if rest.is_empty() || rest.starts_with('/') {
        return Err(bad("missing host, expected https://HOST/PATH"));
    }
    let url: Uri = whole
        .parse()
        .map_err(|error: http::uri::InvalidUri| bad(&error.to_string()))?;
    if url.scheme_str() != Some("https") {
        return Err(bad("unsupported scheme, expected https"));
    }
    if url.host().is_none_or(str::is_empty) {
        return Err(bad("missing host"));
    }
    if clearway::http::port(&url).is_none() {
        return Err(bad("invalid port, must be between 1 and 65535"));
    }
    // Otherwise credentials on the command line would end up in log files.
    if url
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
    {
        return Err(bad(
            "user names and passwords are not supported in URLs; use -H 'authorization: …'",
        ));
    }
    Ok(url)
}

/// The URL, with the file's name appended if it ends with a slash.
fn with_name(url: Uri, file: &Path) -> Result<Uri, Failure> {
    if !url.path().ends_with('/') {
        return Ok(url);
    }
    let bad = || {
        let message = format!("cannot append the name of {} to {url}", file.display());
        Failure::new(Kind::Arguments, message)
    };
    let name = file.file_name().ok_or_else(bad)?;
    let name = percent_encode(name.as_encoded_bytes(), ENCODED).to_string();
    let query = url
        .query()
        .map_or_else(String::new, |query| format!("?{query}"));
    let mut parts = url.clone().into_parts();
    let path = format!("{}{name}{query}", url.path());
    parts.path_and_query = Some(path.parse().map_err(|_| bad())?);
    Uri::from_parts(parts).map_err(|_| bad())
}

/// The last path segment of the URL as a file name. The URL may come from somebody else: the name
/// must not leave the directory, be hidden, look like an option, or mislead on a terminal.
fn remote_name(url: &Uri) -> Result<PathBuf, Failure> {
    let last = url.path().rsplit('/').next().unwrap_or_default();
    let name: Vec<u8> = percent_decode_str(last).collect();
    let why = match &name[..] {
        b"" => "the URL ends with no file name",
        b"." | b".." => "the last segment is a directory",
        name if name.contains(&b'/') => "the last segment contains a slash",
        [b'.', ..] => "the file name starts with a dot",
        [b'-', ..] => "the file name starts with a dash",
        name => match str::from_utf8(name) {
            Err(_) => "the file name is not valid UTF-8",
            Ok(text) if text.chars().any(printable::is_unsafe) => {
                "the file name contains control characters"
            }
            Ok(_) => return Ok(OsString::from_vec(name.to_vec()).into()),
        },
    };
    let url = printable::short_bytes(url.to_string().as_bytes(), printable::SHOWN);
    let message = format!("-O cannot derive a file name from {url}: {why}; use -o NAME");
    Err(Failure::new(Kind::Arguments, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(url: &str) -> Option<String> {
        let name = remote_name(&parse(url).unwrap()).ok()?;
        Some(name.to_str().unwrap().to_owned())
    }

    #[test]
    fn file_name_from_url_never_leaves_the_directory() {
        for (url, expected) in [
            ("https://h/a/b.txt?x=/y", Some("b.txt")),
            ("h/a%20b", Some("a b")),
            ("h:1/%2e%2e%2e", None),
            ("h/.bashrc", None),
            ("h/-rf", None),
            ("h/a%1b[2J", None),
            ("h/a%0ab", None),
            ("h/%c2%9b", None),
            ("h/a%e2%80%aetxt", None),
            ("h/%ff", None),
            ("h/%c3%a9..txt", Some("é..txt")),
            ("h", None),
            ("h/a/", None),
            ("h/..", None),
            ("h/%2e%2e", None),
            ("h/..%2f..%2fetc%2fpasswd", None),
            ("h/a%00", None),
        ] {
            assert_eq!(name(url).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn invalid_url_is_rejected_with_the_reason() {
        for (url, why) in [
            ("http://h/", "https"),
            ("ftp://h/", "https"),
            ("", "missing host"),
            ("https://", "missing host"),
            ("https:///path", "missing host"),
            ("a b", "invalid"),
            ("user:word@h/", "authorization"),
            ("h:65536/", "65535"),
            ("[::1]:abc/", "65535"),
            ("h:0", "65535"),
        ] {
            let failure = parse(url).unwrap_err();
            assert_eq!(failure.kind, Kind::Arguments);
            assert!(failure.message.contains(why), "{url}: {failure}");
        }
    }

    #[test]
    fn upload_to_url_ending_in_slash_appends_the_file_name() {
        let url = |text| with_name(parse(text).unwrap(), Path::new("x/a b")).unwrap();
        assert_eq!(url("h/d/?q").to_string(), "https://h/d/a%20b?q");
        assert_eq!(url("h/d").to_string(), "https://h/d");
    }
}
