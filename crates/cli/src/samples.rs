//! Counts of sampled connections in a file: `--sample`.

use core::time::Duration;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use clearway::EndpointBuilder;
use clearway_balancer::sample::{SampleDirection, SampleLog, SampledSocket};

use crate::failure::{Failure, Kind};

/// How often counts are written: each is of a second.
const EVERY: Duration = Duration::from_secs(1);

/// Options of every command that is a hop between client and server.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SampleOptions {
    /// Append the packet counts of sampled connections to this file, a line of JSON for each second
    /// and connection. `clearway doctor path` compares the files of client, balancer and server,
    /// and names the hop that loses.
    #[arg(long, value_name = "FILE")]
    sample: Option<PathBuf>,
    /// Sample one connection in so many. The same connections are chosen wherever the number is
    /// the same.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000, requires = "sample",
          value_parser = clap::value_parser!(u64).range(1..))]
    sample_one_in: u64,
}

impl SampleOptions {
    /// Opens the file, if there is to be one, and writes to it from now on.
    ///
    /// # Errors
    /// If it cannot be created, or there cannot be another thread.
    pub(crate) fn open(&self) -> Result<Option<Samples>, Failure> {
        let Some(path) = &self.sample else {
            return Ok(None);
        };
        let file = File::options().append(true).create(true).open(path);
        let file = file.map_err(|error| {
            let what = format!("--sample: cannot write {}", path.display());
            Failure::caused(Kind::Output, what, &error)
        })?;
        let log = Arc::new(SampleLog::new(self.sample_one_in));
        let (stop, stopped) = channel();
        let writer = Writer {
            log: log.clone(),
            file,
            path: path.clone(),
            failed: false,
        };
        let thread = std::thread::Builder::new()
            .name("samples".to_owned())
            .spawn(move || writer.run(&stopped))?;
        Ok(Some(Samples {
            log,
            end: Some((stop, thread)),
        }))
    }
}

/// Samples that are being written. What is left is written when it is dropped.
#[derive(Debug)]
pub(crate) struct Samples {
    log: Arc<SampleLog>,
    end: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Samples {
    pub(crate) fn log(&self) -> &Arc<SampleLog> {
        &self.log
    }

    /// Has an endpoint of this hop count what its sockets send, and what they receive, which goes in
    /// this direction.
    pub(crate) fn watch(
        &self,
        endpoint: EndpointBuilder,
        hop: &'static str,
        received: SampleDirection,
    ) -> EndpointBuilder {
        let log = self.log.clone();
        endpoint.wrap_sockets(move |socket| {
            Arc::new(SampledSocket::new(socket, log.clone(), hop, received))
        })
    }
}

impl Drop for Samples {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.end.take() {
            drop(stop);
            // A panic has been printed; there is nothing to add.
            let _ = thread.join();
        }
    }
}

#[derive(Debug)]
struct Writer {
    log: Arc<SampleLog>,
    file: File,
    path: PathBuf,
    /// The file cannot be written, which has been said.
    failed: bool,
}

impl Writer {
    fn run(mut self, stopped: &Receiver<()>) {
        while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(EVERY) {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            // Of seconds that are over.
            self.write_before(now.map_or(0, |since| since.as_secs()));
        }
        self.write_before(u64::MAX);
    }

    fn write_before(&mut self, second: u64) {
        let lines = self.log.take_before(second);
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            self.complain(&error);
        }
        let left_out = self.log.take_left_out();
        if left_out > 0 {
            say!(
                "--sample: {left_out} datagrams were left out, because too many connections were \
                 sampled at once; use a greater --sample-one-in at every hop"
            );
        }
    }

    fn complain(&mut self, error: &io::Error) {
        if !self.failed {
            let path: &Path = &self.path;
            say!("--sample: cannot write {}: {error}", path.display());
        }
        self.failed = true;
    }
}
