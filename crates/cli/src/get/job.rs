//! What there is to fetch, and where it goes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use http::Uri;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use super::Args;
use super::destination::Destination;
use super::temporary::names;
use crate::failure::{Failure, Kind};
use crate::identity;
use crate::printable;

/// One URL.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) url: Uri,
    pub(super) to: Destination,
}

/// Everything the command line asks for.
///
/// # Errors
/// If a URL is none, or two of them would end in one file.
pub(super) fn jobs(args: &Args) -> Result<Vec<Job>, Failure> {
    let mut texts = args.url.clone();
    if let Some(file) = &args.urls {
        let list = list(file)?;
        let lines = list.lines().map(str::trim);
        texts.extend(lines.filter(|line| !line.is_empty()).map(str::to_owned));
    }
    if !args.output.is_empty() && args.output.len() != texts.len() {
        let message = format!("{} URLs, but -o {} times", texts.len(), args.output.len());
        return Err(Failure::new(Kind::Arguments, message));
    }
    let mut taken = Taken::default();
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

/// Files that URLs are written to, with those they are until they are whole.
#[derive(Default)]
struct Taken(BTreeMap<PathBuf, Use>);

/// What a file is for.
struct Use {
    /// What it will be, as somebody called it.
    named: PathBuf,
    whole: bool,
}

impl Taken {
    /// Takes what is named like this.
    ///
    /// # Errors
    /// If it is no name, or something else would be written there.
    fn by(&mut self, named: &Path) -> Result<Destination, Failure> {
        if matches!(named.as_os_str().as_encoded_bytes(), b"" | [.., b'/']) {
            let message = format!("{:?} is no name of a file", named.display().to_string());
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
            self.0.insert(path.to_owned(), Use { named, whole });
            return Ok(());
        };
        let (file, other) = (named.display(), before.named.display());
        let message = match (whole, before.whole) {
            (true, true) if before.named == named => {
                format!("{file}: two URLs would be written there")
            }
            (true, true) => {
                format!("{file} and {other} are one file: two URLs would be written there")
            }
            (true, false) => format!("{file}: {other} is written there until it is whole"),
            (false, _) => format!("{other}: {file} is written there until it is whole"),
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
    let bad = |why: &str| Failure::new(Kind::Arguments, format!("{text:?} is no URL: {why}"));
    let whole = if text.contains("://") {
        text.to_owned()
    } else {
        format!("https://{text}")
    };
    let url: Uri = whole
        .parse()
        .map_err(|error: http::uri::InvalidUri| bad(&error.to_string()))?;
    if url.scheme_str() != Some("https") {
        return Err(bad("HTTP/3 is for https"));
    }
    if url.host().is_none_or(str::is_empty) {
        return Err(bad("it names no host"));
    }
    if clearway::http::port(&url).is_none() {
        return Err(bad("a port is a number from 1 to 65535"));
    }
    // Somebody typed it to the world's log files otherwise.
    if url
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
    {
        return Err(bad(
            "user names and passwords go into -H 'authorization: …'",
        ));
    }
    Ok(url)
}

/// The URL with the file's name where it ends with a slash.
fn with_name(url: Uri, file: &Path) -> Result<Uri, Failure> {
    if !url.path().ends_with('/') {
        return Ok(url);
    }
    let bad = || {
        let message = format!("{}: no name for the end of {url}", file.display());
        Failure::new(Kind::Arguments, message)
    };
    let name = file.file_name().ok_or_else(bad)?;
    let name = percent_encode(name.as_encoded_bytes(), NON_ALPHANUMERIC).to_string();
    let query = url
        .query()
        .map_or_else(String::new, |query| format!("?{query}"));
    let mut parts = url.clone().into_parts();
    let path = format!("{}{name}{query}", url.path());
    parts.path_and_query = Some(path.parse().map_err(|_| bad())?);
    Uri::from_parts(parts).map_err(|_| bad())
}

/// The last part of the URL's path as a file name: never one that leads elsewhere, is
/// hidden, looks like an option, or is more than it seems on a terminal. Whoever made the
/// URL chose it.
fn remote_name(url: &Uri) -> Result<PathBuf, Failure> {
    let last = url.path().rsplit('/').next().unwrap_or_default();
    let name: Vec<u8> = percent_decode_str(last).collect();
    let why = match &name[..] {
        b"" => "it ends with no file name",
        b"." | b".." => "its last part is a directory",
        name if name.contains(&b'/') => "its last part has a slash in it",
        [b'.', ..] => "the file would be hidden",
        [b'-', ..] => "commands would take the file's name for an option",
        name => match str::from_utf8(name) {
            Err(_) => "the file's name would not be UTF-8",
            Ok(text) if text.chars().any(printable::is_unsafe) => {
                "the file's name would have control characters"
            }
            Ok(_) => return Ok(OsString::from_vec(name.to_vec()).into()),
        },
    };
    let url = printable::short_bytes(url.to_string().as_bytes(), printable::SHOWN);
    let message = format!("-O cannot name a file after {url}: {why}; name it with -o NAME");
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
    fn names_never_lead_elsewhere() {
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
    fn what_is_no_url_is_said() {
        for (url, why) in [
            ("http://h/", "https"),
            ("ftp://h/", "https"),
            ("", "empty"),
            ("https://", "no URL"),
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
    fn uploads_to_a_directory_keep_their_name() {
        let url = |text| with_name(parse(text).unwrap(), Path::new("x/a b")).unwrap();
        assert_eq!(url("h/d/?q").to_string(), "https://h/d/a%20b?q");
        assert_eq!(url("h/d").to_string(), "https://h/d");
    }
}
