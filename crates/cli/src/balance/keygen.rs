//! A new configuration file.

use core::net::SocketAddr;
use std::fmt::Write as _;
use std::io::Write as _;

use rustix::rand::{GetRandomFlags, getrandom};

use crate::failure::{Failure, Kind};
use crate::output::print;

/// Most servers that get server IDs of one byte: many values stay unused, so that connection IDs
/// that clients choose seldom name a server.
const MOST_WITH_ONE_BYTE: usize = 32;

/// Prints a configuration for these servers with a random key.
///
/// # Errors
/// If there are too many, or stdout cannot be written.
pub(super) fn keygen(backends: &[SocketAddr]) -> Result<(), Failure> {
    let mut key = [0; 16];
    // So few bytes are returned at once or not at all (getrandom(2)).
    getrandom(&mut key, GetRandomFlags::empty()).map_err(std::io::Error::from)?;
    let text = configuration(backends, &key)?;
    print(|out| out.write_all(text.as_bytes()))
}

fn configuration(backends: &[SocketAddr], key: &[u8; 16]) -> Result<String, Failure> {
    let bytes = if backends.len() <= MOST_WITH_ONE_BYTE {
        1
    } else {
        2
    };
    if backends.len() > usize::from(u16::MAX) {
        return Err(Failure::new(
            Kind::Arguments,
            "--to: more than 65535 servers",
        ));
    }
    let mut text = String::from(
        "# For `clearway balance --config`, and for each `clearway serve --lb`. Keep it secret.\n",
    );
    for (number, backend) in (1_u16..).zip(backends) {
        let digits = bytes * 2;
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n[[backend]]\naddress = \"{backend}\"\nserver_ids = [\"{number:0digits$x}\"]\n"
        );
    }
    let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let _ = write!(
        text,
        "\n[quic_lb]\nactive = 0\n\n[[quic_lb.config]]\nid = 0\nserver_id_len = {bytes}\n\
         nonce_len = {}\nkey = \"{key}\"\n",
        16 - bytes
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_balancer::config::File;

    #[test]
    fn generated_file_is_valid_for_balancer_and_servers() {
        for count in [1, 32, 33, 300] {
            let backends: Vec<SocketAddr> = (1..=count)
                .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
                .collect();
            let text = configuration(&backends, &[0xab; 16]).expect("not too many");
            let file = File::parse(&text).expect("valid TOML");
            let settings = file
                .settings(backends.first().copied())
                .expect("valid values");
            assert_eq!(settings.backends.len(), usize::from(count));
            assert!(
                settings
                    .backends
                    .iter()
                    .all(|backend| backend.server_ids.len() == 1)
            );
            let server = file.server().expect("a section for servers");
            assert!(server.active.is_encrypted());
            assert_eq!(server.active.cid_len(), 17);
        }
    }
}
