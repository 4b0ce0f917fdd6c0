//! The command line of `clearway get`.

use std::path::PathBuf;

use clap::ArgGroup;
use clearway::{CongestionController, VersionPreference};
use clearway_links::Span;
use http::{HeaderName, HeaderValue, Method};

use crate::connect::{ConnectOptions, ConnectTo, TrustOptions};
use crate::controller_help::controller_help;
use crate::failure::EXIT_CODES;
use crate::qlog::QlogOptions;
use crate::samples::SampleOptions;
use crate::seconds;

/// What it does, for `--help`.
pub(crate) const ABOUT: &str = "\
Fetch URLs over HTTP/3, or upload to them.

All requests to one server share a connection. A file is downloaded to FILE.part and renamed to \
FILE when it is complete, so FILE is never partial; FILE.part.json describes the content (long \
names are shortened for both). -C resumes an interrupted download if the entity tag shows that \
the server still has the same content and the last bytes received match what the server sends \
again. If FILE.part or FILE.part.json exist but do not belong to a download, they are left alone \
and FILE cannot be written. A response without content, such as 304, leaves FILE unchanged. \
Redirects are not followed: they are errors that name the location.

If a server cannot be reached, its remaining URLs are skipped; if the disk is full, all remaining \
URLs are; any other failure affects its own URL only.

Server certificates are verified against the host's trusted roots (SSL_CERT_FILE and SSL_CERT_DIR \
are honoured). At the end, a summary on standard error shows what limited the transfer: as the \
server reported it, or else as inferred by the client.";

const EXAMPLES: &str = "\
Examples:
  # to standard output
  clearway get https://example.org/

  # to files named as in the URLs, eight at a time; later, resume what was interrupted
  clearway get -O --parallel 8 --urls list.txt
  clearway get -O -C https://localhost:4433/large.bin --fingerprint HEX

  # upload a file, post a form
  clearway get -T photo.jpg https://localhost:4433/ --cacert ca.pem
  clearway get -d 'name=value' https://localhost:4433/form --insecure";

/// Options of `clearway get`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
#[command(group(ArgGroup::new("to").args(["output", "remote_name"])))]
#[command(group(ArgGroup::new("what").required(true).multiple(true).args(["url", "urls"])))]
pub(crate) struct Args {
    /// URLs to fetch; https:// may be omitted.
    #[arg(value_name = "URL")]
    pub(super) url: Vec<String>,
    /// Read more URLs from this file, one per line; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub(super) urls: Option<PathBuf>,
    /// Write to this file, following symbolic links and keeping its permissions; give it
    /// once for each URL.
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Vec<PathBuf>,
    /// Write to files named after the last path segment of each URL.
    #[arg(short = 'O', long)]
    pub(super) remote_name: bool,
    /// Directory in which -o and -O create files.
    #[arg(long, value_name = "DIR", requires = "to")]
    pub(super) output_dir: Option<PathBuf>,
    /// Resume an interrupted download; skip a file that is already complete, judged by
    /// its length.
    #[arg(short = 'C', long = "continue", requires = "to",
          conflicts_with_all = ["data", "upload", "head"])]
    pub(super) resume: bool,
    /// Maximum number of parallel transfers.
    #[arg(short = 'Z', long, value_name = "COUNT", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) parallel: u16,
    /// Request method.
    #[arg(short = 'X', long = "request", value_name = "METHOD")]
    pub(super) method: Option<Method>,
    /// Add a header field: 'Name: value'.
    #[arg(short = 'H', long = "header", value_name = "FIELD", value_parser = field)]
    pub(super) header: Vec<(HeaderName, HeaderValue)>,
    /// Send this data, or the content of a file, as a POST request.
    #[arg(short, long, value_name = "DATA|@FILE", conflicts_with = "upload")]
    pub(super) data: Option<String>,
    /// Upload a file (PUT); if the URL ends with a slash, the file's name is appended.
    #[arg(short = 'T', long, value_name = "FILE")]
    pub(super) upload: Option<PathBuf>,
    /// Request and print the response headers only (HEAD); an existing file is not overwritten.
    #[arg(short = 'I', long, conflicts_with_all = ["data", "upload"])]
    pub(super) head: bool,
    /// Print the response headers before the body, whatever the status.
    #[arg(short, long)]
    pub(super) include: bool,
    /// Do not fail on redirects and on HTTP status 400 or above: write the body as usual.
    #[arg(long, conflicts_with = "resume")]
    pub(super) no_fail: bool,
    /// Fail on redirects and on HTTP status 400 or above (the default; accepted for compatibility with curl).
    #[arg(short, long, conflicts_with = "no_fail")]
    pub(super) fail: bool,
    #[command(flatten)]
    pub(super) trust: TrustOptions,
    /// Connect to OTHER-HOST:OTHER-PORT instead of HOST:PORT; the certificate is still
    /// checked against HOST.
    #[arg(long, value_name = "HOST:PORT:OTHER-HOST:OTHER-PORT")]
    pub(super) connect_to: Vec<ConnectTo>,
    #[command(flatten)]
    pub(super) connect: ConnectOptions,
    /// Maximum time for the whole command: seconds, or a time with its unit.
    #[arg(short, long, value_name = "TIME", value_parser = seconds::limit)]
    pub(super) max_time: Option<Span>,
    /// QUIC versions, most preferred first: 1, 2, or both separated by a comma.
    #[arg(long, value_name = "LIST", default_value = "1,2")]
    pub(super) versions: VersionPreference,
    /// Congestion controller for uploads.
    #[arg(long, value_name = "NAME", default_value_t = CongestionController::Cubic,
          help = controller_help("Congestion controller for uploads"))]
    pub(super) controller: CongestionController,
    #[command(flatten)]
    pub(super) qlog: QlogOptions,
    #[command(flatten)]
    pub(super) sample: SampleOptions,
    /// Print neither a progress bar nor a summary.
    #[arg(short, long)]
    pub(super) silent: bool,
    /// Print the summary as a JSON object to stdout.
    #[arg(long, requires = "to", conflicts_with = "include")]
    pub(super) json: bool,
}

fn field(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let wrong =
        || "invalid header field; expected NAME: VALUE such as 'accept: text/html'".to_owned();
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let name = name.trim().parse().map_err(|_| wrong())?;
    let value = value.trim().parse().map_err(|_| wrong())?;
    Ok((name, value))
}
