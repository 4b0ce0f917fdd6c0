//! The command line of `clearway get`.

use std::path::PathBuf;

use clap::ArgGroup;
use clearway::{CongestionController, Fingerprint};
use clearway_links::Span;
use http::{HeaderName, HeaderValue, Method};

use super::route::{ConnectTo, Resolve};
use crate::failure::EXIT_CODES;

/// What it does, for `--help`.
pub(crate) const ABOUT: &str = "\
Fetch URLs over HTTP/3, or upload to them.

All requests to one server share a connection. Files are written under FILE.part (with what they \
are of in FILE.part.json; a long name is shortened for it) and get their name when they are \
whole, so FILE is never half of anything; what a broken download leaves, -C goes on with, if the \
server vouches by its entity tag that it is still the same content, and if the last bytes \
received agree with what the server sends again. Files of these names that are not of a download \
are never touched: FILE cannot be written then. An answer without content, such as 304, leaves \
FILE as it is. Redirects are told of and not followed.

A server that cannot be reached stops what was to come from it, a full disk everything; the rest \
is tried.

Servers are verified by the certificates this host trusts (SSL_CERT_FILE and SSL_CERT_DIR are \
honoured), as browsers and other tools on it do. At the end a summary on standard error says what \
the transfer waited for: by the sender's own record if it told, else as far as it can be inferred \
here.";

const EXAMPLES: &str = "\
Examples:
  # to standard output
  clearway get https://example.org/

  # to files named as in the URLs, eight at a time; later, go on with what broke off
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
    /// What to fetch; https:// may be left out.
    #[arg(value_name = "URL")]
    pub(super) url: Vec<String>,
    /// A file with more URLs, one a line; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub(super) urls: Option<PathBuf>,
    /// Write to this file, through symbolic links and keeping its permissions; given
    /// several times, for one URL each.
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Vec<PathBuf>,
    /// Write to files named like the last part of each URL.
    #[arg(short = 'O', long)]
    pub(super) remote_name: bool,
    /// Where -o and -O write.
    #[arg(long, value_name = "DIR", requires = "to")]
    pub(super) output_dir: Option<PathBuf>,
    /// Go on with a download that broke off; leave alone what is complete, going by
    /// its length, if nothing broke off.
    #[arg(short = 'C', long = "continue", requires = "to",
          conflicts_with_all = ["data", "upload", "head"])]
    pub(super) resume: bool,
    /// Transfers at once.
    #[arg(short = 'Z', long, value_name = "COUNT", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) parallel: u16,
    /// The request's method.
    #[arg(short = 'X', long = "request", value_name = "METHOD")]
    pub(super) method: Option<Method>,
    /// A header field: 'Name: value'.
    #[arg(short = 'H', long = "header", value_name = "FIELD", value_parser = field)]
    pub(super) header: Vec<(HeaderName, HeaderValue)>,
    /// Send this (POST), or the content of a file.
    #[arg(short, long, value_name = "DATA|@FILE", conflicts_with = "upload")]
    pub(super) data: Option<String>,
    /// Upload a file (PUT); to a URL that ends with a slash, under its name.
    #[arg(short = 'T', long, value_name = "FILE")]
    pub(super) upload: Option<PathBuf>,
    /// Only ask for the header section, and print it; to a file only if there is none.
    #[arg(short = 'I', long, conflicts_with_all = ["data", "upload"])]
    pub(super) head: bool,
    /// Print the header section before the body.
    #[arg(short, long)]
    pub(super) include: bool,
    /// Statuses of 400 and above are no error: write their bodies too.
    #[arg(long, conflicts_with = "resume")]
    pub(super) no_fail: bool,
    /// As curl has it; the default here.
    #[arg(short, long, conflicts_with = "no_fail")]
    pub(super) fail: bool,
    /// Trust these certificates (PEM) and no others.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fingerprint", "insecure"])]
    pub(super) cacert: Option<PathBuf>,
    /// Trust the certificate with this SHA-256 fingerprint and no other.
    #[arg(long, value_name = "HEX", conflicts_with = "insecure")]
    pub(super) fingerprint: Option<Fingerprint>,
    /// Trust any certificate: whoever is on the path can be the server.
    #[arg(short = 'k', long)]
    pub(super) insecure: bool,
    /// Connect to these addresses for a host and port, whatever the resolver says;
    /// the certificate still has to be for HOST.
    #[arg(long, value_name = "HOST:PORT:ADDR[,ADDR]…")]
    pub(super) resolve: Vec<Resolve>,
    /// Connect to another host and port instead of these; the certificate still
    /// has to be for HOST.
    #[arg(long, value_name = "HOST:PORT:OTHER-HOST:OTHER-PORT")]
    pub(super) connect_to: Vec<ConnectTo>,
    /// Append the connection's secrets to the file that SSLKEYLOGFILE names.
    #[arg(long)]
    pub(super) keylog: bool,
    /// Give up on a server that has not answered by then.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(super) connect_timeout: Span,
    /// Give up altogether by then.
    #[arg(short, long, value_name = "TIME")]
    pub(super) max_time: Option<Span>,
    /// Congestion controller for uploads.
    #[arg(long, value_name = "NAME", default_value_t = CongestionController::Cubic)]
    pub(super) controller: CongestionController,
    /// No progress bar, no summary.
    #[arg(short, long)]
    pub(super) silent: bool,
    /// Print the summary as a JSON object to stdout.
    #[arg(long, requires = "to", conflicts_with = "include")]
    pub(super) json: bool,
}

fn field(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let wrong = || "not a header field; write one such as 'accept: text/html'".to_owned();
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let name = name.trim().parse().map_err(|_| wrong())?;
    let value = value.trim().parse().map_err(|_| wrong())?;
    Ok((name, value))
}
