//! What TLS messages say to an observer (RFC 8446 §4, RFC 9001 §8.2).

use clearway_quic::Role;
use clearway_quic::wire::{Reader, TransportParameters};

use super::key_log::RANDOM_LEN;

const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
const ENCRYPTED_EXTENSIONS: u8 = 8;
const ALPN: [u8; 2] = [0, 16];
const TRANSPORT_PARAMETERS: [u8; 2] = [0, 57];

/// What a TLS message says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hello {
    Client {
        random: [u8; RANDOM_LEN],
        parameters: Option<Box<TransportParameters>>,
    },
    Server {
        cipher_suite: u16,
    },
    Extensions {
        protocol: Option<String>,
        parameters: Option<Box<TransportParameters>>,
    },
}

/// Reads a message; `None` for those that say nothing here, or that are invalid.
pub(super) fn read(kind: u8, body: &[u8]) -> Option<Hello> {
    match kind {
        CLIENT_HELLO => client_hello(body),
        SERVER_HELLO => server_hello(body),
        ENCRYPTED_EXTENSIONS => encrypted_extensions(body),
        _ => None,
    }
}

/// A vector with a length of two bytes.
fn long_vector<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let len: [u8; 2] = reader.array()?;
    reader.bytes(u16::from_be_bytes(len).into())
}

/// A vector with a length of one byte.
fn short_vector<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let len = reader.u8()?;
    reader.bytes(len.into())
}

fn client_hello(body: &[u8]) -> Option<Hello> {
    let mut reader = Reader::new(body);
    reader.bytes(2)?;
    let random = reader.array()?;
    short_vector(&mut reader)?;
    long_vector(&mut reader)?;
    short_vector(&mut reader)?;
    let found = extensions(long_vector(&mut reader)?, Role::Client);
    Some(Hello::Client {
        random,
        parameters: found.parameters,
    })
}

fn server_hello(body: &[u8]) -> Option<Hello> {
    let mut reader = Reader::new(body);
    reader.bytes(2)?;
    reader.bytes(RANDOM_LEN)?;
    short_vector(&mut reader)?;
    let cipher_suite: [u8; 2] = reader.array()?;
    Some(Hello::Server {
        cipher_suite: u16::from_be_bytes(cipher_suite),
    })
}

fn encrypted_extensions(body: &[u8]) -> Option<Hello> {
    let found = extensions(long_vector(&mut Reader::new(body))?, Role::Server);
    Some(Hello::Extensions {
        protocol: found.protocol,
        parameters: found.parameters,
    })
}

#[derive(Default)]
struct Extensions {
    protocol: Option<String>,
    parameters: Option<Box<TransportParameters>>,
}

fn extensions(list: &[u8], sender: Role) -> Extensions {
    let mut found = Extensions::default();
    let mut reader = Reader::new(list);
    while let Some(kind) = reader.array::<2>() {
        let Some(value) = long_vector(&mut reader) else {
            break;
        };
        match kind {
            ALPN => found.protocol = protocol(value),
            TRANSPORT_PARAMETERS => {
                let parameters = TransportParameters::decode(value, sender).ok();
                found.parameters = parameters.map(Box::new);
            }
            _ => {}
        }
    }
    found
}

/// The first protocol of a list: a server sends the one that it chose.
fn protocol(list: &[u8]) -> Option<String> {
    let names = long_vector(&mut Reader::new(list))?;
    let name = short_vector(&mut Reader::new(names))?;
    Some(String::from_utf8_lossy(name).into_owned())
}
