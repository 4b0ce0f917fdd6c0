//! Everything that the balancer's command reads apart from datagrams. The first byte says what the rest is:
//!
//! | byte | |
//! |---|---|
//! | `0` | the configuration file, or an address of the command line |
//! | `1` | an answer of a name server to a question for SRV records or addresses |
//! | `2` | what the API of Kubernetes says: a list of EndpointSlices, then events, a line each |
//! | `3` | a request over the control socket |
//! | `4` | a reply |
//! | `5` | packet counts of sampled connections, as `doctor path` reads them |
//! | `6` | `/etc/resolv.conf`, and a name to ask for |
#![no_main]

// Files of the command, which is no library. They use nothing else of it.
#[path = "../../crates/cli/src/balance/discovery/answer.rs"]
mod answer;
#[path = "../../crates/cli/src/balance/report.rs"]
#[expect(dead_code, reason = "the report of a balancer that runs")]
mod report;
#[path = "../../crates/cli/src/balance/request.rs"]
mod request;
#[path = "../../crates/cli/src/balance/discovery/kubernetes/slices.rs"]
mod slices;

use std::net::SocketAddr;

use clearway_balancer::config::{DiscoveredServer, File, Source, sources};
use clearway_balancer::{Balancer, config};
use clearway_doctor::hops;
use libfuzzer_sys::fuzz_target;
use simple_dns::TYPE;

use request::{Reply, Request, line};
use slices::{Lines, Slices};

/// The number of the question that is answered.
const QUESTION: u16 = 0x3130;

/// Longest event of Kubernetes here.
const LONGEST: usize = 2_000;

fuzz_target!(|input: &[u8]| {
    let Some((kind, rest)) = input.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(rest);
    match kind % 8 {
        0 => file(&text),
        1 => name_server(rest),
        2 => kubernetes(rest),
        3 => request(rest),
        4 => reply(rest),
        5 => samples(&text),
        _ => question(&text),
    }
});

/// Whatever the file says, it is accepted or there is an error.
fn file(text: &str) {
    if let Ok(source) = text.parse::<Source>() {
        assert!(
            sources(&[source]).is_ok_and(|all| all.len() <= 65_536)
                || source.0.prefix_len() < 17
                || source.0.addr().is_ipv6()
        );
    }
    let Ok(file) = File::parse(text) else {
        return;
    };
    let listen = SocketAddr::from(([127, 0, 0, 1], 443));
    if let Ok(settings) = file.settings(Some(listen)) {
        // Tables of Maglev take milliseconds.
        if settings.backends.len() <= 4 {
            let _ = Balancer::check(&settings);
        }
    }
    let _ = (file.server(), file.discovery());
    let found = [[10, 0, 0, 1], [10, 0, 0, 2]].map(|address| DiscoveredServer {
        address: SocketAddr::from((address, 443)),
        weight: 1,
        draining: false,
    });
    if let Ok(found) = file.discovered(&found) {
        assert_eq!(found.len(), 2);
    }
    let _ = config::server_id_of(listen.ip());
}

/// Servers in answers have weights that the balancer takes, and all are of the first priority.
fn name_server(answer: &[u8]) {
    let (mut targets, mut addresses) = (Vec::new(), Vec::new());
    let read = answer::read(QUESTION, answer, |data| {
        targets.extend(answer::Target::new(data));
        addresses.extend(answer::address(data));
    });
    if read.is_err() {
        assert!(targets.is_empty() && addresses.is_empty());
        return;
    }
    let all = targets.len();
    let first = answer::first_priority(targets);
    assert_eq!(first.is_empty(), all == 0);
    let mut found = Vec::new();
    for target in &first {
        // Its addresses are asked for.
        if let Ok(question) = answer::question(QUESTION, &target.host, TYPE::A) {
            assert!(question.len() <= 2 + 512);
        }
        found.extend(addresses.iter().map(|ip| target.server(*ip)));
    }
    check(&found);
}

/// Lists and events lead to the same servers, however the pieces are cut, and each server is there once.
fn kubernetes(input: &[u8]) {
    let at_once = follow(input, input.len().max(1));
    let in_pieces = follow(input, 1 + input.len() % 13);
    assert_eq!(at_once, in_pieces);
    let mut addresses: Vec<_> = at_once.iter().map(|server| server.address).collect();
    addresses.dedup();
    assert_eq!(addresses.len(), at_once.len(), "they are in order");
    check(&at_once);
}

fn follow(input: &[u8], size: usize) -> Vec<DiscoveredServer> {
    let mut lines = Lines::new(LONGEST.max(input.len()));
    let mut slices = None;
    for piece in input.chunks(size) {
        lines.push(piece).expect("a line is no longer than all");
        while let Some(line) = lines.take() {
            assert_eq!(
                line.iter().position(|byte| *byte == b'\n'),
                Some(line.len() - 1)
            );
            match &mut slices {
                None => match Slices::listed(&line) {
                    Ok((listed, version)) => {
                        assert!(version.is_ascii(), "it is a part of a URL");
                        slices = Some(listed);
                    }
                    Err(_) => return Vec::new(),
                },
                Some(slices) => {
                    if slices.apply(&line).is_err() {
                        return slices.servers("quic");
                    }
                }
            }
        }
    }
    slices.unwrap_or_default().servers("quic")
}

/// What was found is accepted as backends, whatever it is.
fn check(found: &[DiscoveredServer]) {
    assert!(
        found
            .iter()
            .all(|server| (1..=100).contains(&server.weight))
    );
    let file = File::parse("").expect("nothing is required");
    let settings = file.discovered(found).expect("no QUIC-LB configuration");
    assert!(settings.len() <= found.len());
    if (1..=4).contains(&settings.len()) {
        let mut all = clearway_balancer::Settings::new(SocketAddr::from(([127, 0, 0, 1], 443)));
        all.backends = settings;
        all.backends.sort_by_key(|backend| backend.address);
        all.backends.dedup_by_key(|backend| backend.address);
        Balancer::check(&all).expect("a server that was found can be one");
    }
}

/// A request that is accepted is the same after it was written.
fn request(bytes: &[u8]) {
    match Request::parse(bytes) {
        Ok(request) => {
            let written = line(&request).expect("it can be written");
            assert_eq!(written.matches('\n').count(), 1, "{written:?}");
            assert_eq!(Request::parse(written.as_bytes()), Ok(request));
        }
        Err(message) => assert!(message.starts_with("invalid request: ")),
    }
}

/// A reply can be shown, whatever another program puts into it.
fn reply(bytes: &[u8]) {
    let Ok(reply) = Reply::parse(bytes) else {
        return;
    };
    if let Reply::Status(report) = &reply {
        let _ = (report.text(), report.draining());
    }
    let written = line(&reply).expect("it can be written");
    let again = Reply::parse(written.as_bytes()).expect("what was written can be read");
    assert_eq!(line(&again).expect("it can be written"), written);
}

/// Whatever is in the files, no segment loses more than was sent, and the worst is one that loses.
fn samples(text: &str) {
    let Ok(samples) = hops::parse("fuzz", text) else {
        return;
    };
    let orders = [Vec::new(), vec!["server".to_owned(), "client".to_owned()]];
    for order in orders {
        let report = hops::PathReport::new(&samples, &hops::order(&samples, &order));
        for segment in &report.segments {
            assert!(segment.lost <= segment.sent && segment.from != segment.to);
            assert!((0.0..=1.0).contains(&segment.loss()));
        }
        if let Some(worst) = report.worst {
            assert!(report.segments[worst].lost > 0);
        }
    }
}

/// A name that can be asked for is asked for in one question, and any file names a server or none.
fn question(text: &str) {
    let _ = answer::first_name_server(text);
    for kind in [TYPE::SRV, TYPE::A, TYPE::AAAA] {
        if let Ok(question) = answer::question(QUESTION, text, kind) {
            let (len, packet) = question.split_first_chunk().expect("a length");
            assert_eq!(usize::from(u16::from_be_bytes(*len)), packet.len());
            // It is a question, not an answer.
            assert!(answer::read(QUESTION, packet, |_| {}).is_err());
        }
    }
}
