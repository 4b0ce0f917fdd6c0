//! What traces cost: goodput of downloads from `clearway serve` without any, with metrics only
//! (`--observe`), with full qlog, and with both, in turns; and whether events were dropped.
//!
//! ```sh
//! cargo run --release -p clearway-cli --example trace_cost -- target/release/clearway 500 7
//! ```
//! The arguments are the command, megabytes a download, and rounds. Run nothing else meanwhile.
#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot go on has failed"
)]

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use clearway_trace::event::EventData;
use clearway_trace::qlog::Reader;
use serde_json::Value;

/// What is on.
const MODES: [(&str, &[&str], bool); 4] = [
    ("off", &[], false),
    ("metrics", &["--observe"], false),
    ("qlog", &[], true),
    ("qlog and metrics", &["--observe"], true),
];

/// A child that ends with the measurement. Its output is kept open, or its next line would end it.
struct Server(Child, Option<BufReader<ChildStdout>>);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One download.
struct Sample {
    gbps: f64,
    /// Events and bytes in the trace, and events missing from it.
    events: u64,
    dropped: u64,
    bytes: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().ok_or("expected the path of clearway")?;
    let megabytes: u64 = arguments.next().as_deref().unwrap_or("200").parse()?;
    let rounds: usize = arguments.next().as_deref().unwrap_or("5").parse()?;
    let scratch = std::env::temp_dir().join(format!("clearway-trace-cost-{}", std::process::id()));
    fs::create_dir_all(scratch.join("site"))?;
    let mut file = File::create(scratch.join("site/file"))?;
    for _ in 0..megabytes {
        file.write_all(&[7; 1_000_000])?;
    }
    drop(file);
    let mut samples: [Vec<Sample>; MODES.len()] = Default::default();
    for round in 0..rounds {
        for turn in 0..MODES.len() {
            let at = (round + turn) % MODES.len();
            let (_, options, traced) = MODES[at];
            samples[at].push(download(&command, &scratch, options, traced)?);
        }
    }
    fs::remove_dir_all(&scratch)?;
    report(&mut samples);
    Ok(())
}

fn report(samples: &mut [Vec<Sample>; MODES.len()]) {
    let medians = samples.each_mut().map(|samples| {
        samples.sort_by(|a, b| a.gbps.total_cmp(&b.gbps));
        samples[samples.len() / 2].gbps
    });
    println!("| | Gbit/s | of off | spread | events | dropped | MB |");
    println!("|---|---|---|---|---|---|---|");
    for ((name, ..), (median, samples)) in MODES.iter().zip(medians.iter().zip(samples)) {
        let (first, last) = (&samples[0], &samples[samples.len() - 1]);
        let spread = (last.gbps - first.gbps) / median * 100.0;
        let of_off = median / medians[0];
        let events: u64 = samples.iter().map(|sample| sample.events).sum();
        let dropped: u64 = samples.iter().map(|sample| sample.dropped).sum();
        let bytes: u64 = samples.iter().map(|sample| sample.bytes).sum();
        let megabytes = bytes / 1_000_000;
        println!(
            "| {name} | {median:.3} | {of_off:.2} | {spread:.0} % | {events} | {dropped} | {megabytes} |"
        );
    }
}

fn download(
    command: &str,
    scratch: &Path,
    options: &[&str],
    traced: bool,
) -> Result<Sample, Box<dyn Error>> {
    let traces = scratch.join("traces");
    let mut serve = Command::new(command);
    serve
        .args(["serve", "--json", "--listen", "127.0.0.1:0"])
        .arg(scratch.join("site"))
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .env_remove("QLOGDIR");
    if traced {
        serve.arg("--qlog").arg(&traces);
    }
    let mut server = Server(serve.spawn()?, None);
    let mut line = String::new();
    let stdout = server.0.stdout.take().map(BufReader::new);
    server.1.insert(stdout.unwrap()).read_line(&mut line)?;
    let listening: Value = serde_json::from_str(&line)?;
    let address = listening["address"].as_str().unwrap().to_owned();
    let port = address.rsplit(':').next().unwrap();
    let url = format!("https://localhost:{port}/file");
    let output = Command::new(command)
        .args(["get", "--insecure", "--json", "-o", "/dev/null", &url])
        .env_remove("QLOGDIR")
        .stderr(Stdio::null())
        .output()?;
    let told: Value = serde_json::from_slice(&output.stdout)?;
    if told["completed"] != true {
        return Err(format!("the download failed: {told}").into());
    }
    let gbps = told["gbps"]
        .as_f64()
        .ok_or("expected the rate of the download")?;
    end(&mut server);
    let mut sample = Sample {
        gbps,
        events: 0,
        dropped: 0,
        bytes: 0,
    };
    if traced {
        for path in fs::read_dir(&traces)?.map(|entry| entry.unwrap().path()) {
            count(&path, &mut sample)?;
        }
        fs::remove_dir_all(&traces)?;
    }
    Ok(sample)
}

/// Ends the server by a signal, so that the trace is complete.
fn end(server: &mut Server) {
    let id = server.0.id().to_string();
    let ended = Command::new("kill").args(["-TERM", &id]).status();
    assert!(ended.is_ok_and(|status| status.success()));
    let _ = server.0.wait();
}

fn count(path: &PathBuf, sample: &mut Sample) -> Result<(), Box<dyn Error>> {
    sample.bytes += fs::metadata(path)?.len();
    let mut reader = Reader::new(File::open(path)?)?;
    for event in &mut reader {
        match event?.data {
            EventData::EventsDropped { count } => sample.dropped += count,
            _ => sample.events += 1,
        }
    }
    assert_eq!(reader.problems().unreadable(), 0);
    Ok(())
}
