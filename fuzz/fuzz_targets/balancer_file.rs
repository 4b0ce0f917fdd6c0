//! The balancer's file, and what is given on its command line: whatever it says, it is accepted or there is
//! an error.
#![no_main]

use std::net::SocketAddr;

use clearway_balancer::config::{DiscoveredServer, File, Source, sources};
use clearway_balancer::{Balancer, config};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
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
});
