//! What is tried between a client and a server, and what must then have been seen.

use clap::ValueEnum;

/// One thing that two stacks must manage together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Case {
    /// One download.
    Transfer,
    /// More requests than a connection may have open at once.
    Streams,
    /// Uploads before each answer.
    Upload,
    /// A key update halfway, started by the client.
    KeyUpdate,
    /// An address proven by Retry.
    Retry,
    /// A second connection on a ticket of the first.
    Resumption,
    /// A second connection whose requests travel as early data.
    ZeroRtt,
    /// Early data wanted by a client whose server's tickets do not allow it.
    ZeroRttRefused,
    /// Early data and Retry together.
    ZeroRttRetry,
    /// A client that moves to another port halfway.
    Rebinding,
}

/// Something to be seen besides the right bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fact {
    /// `resumed` at the client.
    Resumed,
    /// `zero_rtt_accepted` at the client, as given.
    ZeroRtt(bool),
    /// `retried` at whoever reports it.
    Retried,
    /// `peer_key_updates` at the server, else `key_updates` at the client.
    KeyUpdate,
    /// `migrated` at the server, if it reports it.
    Migrated,
    /// `received` at the server, if it reports it: so many bytes.
    Received(u64),
}

impl Case {
    /// Options of the server, besides its address and certificate.
    pub(crate) fn server(self) -> &'static [&'static str] {
        match self {
            Self::Transfer
            | Self::Streams
            | Self::Upload
            | Self::KeyUpdate
            | Self::Resumption
            | Self::ZeroRttRefused
            | Self::Rebinding => &[],
            Self::Retry => &["--retry"],
            Self::ZeroRtt => &["--zero-rtt"],
            Self::ZeroRttRetry => &["--zero-rtt", "--retry"],
        }
    }

    /// Option of the client, besides what names its requests.
    pub(crate) fn client(self) -> Option<&'static str> {
        match self {
            Self::Transfer | Self::Streams | Self::Upload | Self::Retry => None,
            Self::KeyUpdate => Some("--key-update"),
            Self::Resumption => Some("--resume"),
            Self::ZeroRtt | Self::ZeroRttRefused | Self::ZeroRttRetry => Some("--zero-rtt"),
            Self::Rebinding => Some("--rebind"),
        }
    }

    /// Bytes of a request. What happens halfway needs a second half that no window holds.
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Self::Transfer => 10_000_001,
            Self::KeyUpdate | Self::Rebinding => 30_000_000,
            Self::Streams => 3_001,
            Self::Upload | Self::Retry | Self::Resumption => 100_000,
            Self::ZeroRtt | Self::ZeroRttRefused | Self::ZeroRttRetry => 5_000,
        }
    }

    /// Requests of a connection.
    pub(crate) fn streams(self) -> u64 {
        match self {
            Self::Streams => 300,
            Self::ZeroRtt | Self::ZeroRttRefused | Self::ZeroRttRetry => 10,
            Self::Upload => 2,
            Self::Transfer | Self::KeyUpdate | Self::Retry | Self::Resumption | Self::Rebinding => {
                1
            }
        }
    }

    /// Upload bytes of a request.
    pub(crate) fn upload(self) -> u64 {
        match self {
            Self::Upload => 2_500_000,
            Self::Transfer
            | Self::Streams
            | Self::KeyUpdate
            | Self::Retry
            | Self::Resumption
            | Self::ZeroRtt
            | Self::ZeroRttRefused
            | Self::ZeroRttRetry
            | Self::Rebinding => 0,
        }
    }

    /// Connections the client makes, one after the other.
    pub(crate) fn connections(self) -> u64 {
        match self {
            Self::Resumption | Self::ZeroRtt | Self::ZeroRttRefused | Self::ZeroRttRetry => 2,
            Self::Transfer
            | Self::Streams
            | Self::Upload
            | Self::KeyUpdate
            | Self::Retry
            | Self::Rebinding => 1,
        }
    }

    /// Times to try. quinn's server updates keys by itself at a random packet among its first
    /// thousand; a client's update that crosses it on the way is the same update, and cannot be
    /// told from it.
    pub(crate) fn attempts(self) -> u32 {
        match self {
            Self::KeyUpdate => 3,
            Self::Transfer
            | Self::Streams
            | Self::Upload
            | Self::Retry
            | Self::Resumption
            | Self::ZeroRtt
            | Self::ZeroRttRefused
            | Self::ZeroRttRetry
            | Self::Rebinding => 1,
        }
    }

    /// What must be seen besides the right bytes.
    pub(crate) fn facts(self) -> &'static [Fact] {
        match self {
            Self::Transfer | Self::Streams => &[],
            Self::Upload => &[Fact::Received(5_000_000)],
            Self::KeyUpdate => &[Fact::KeyUpdate],
            Self::Retry => &[Fact::Retried],
            Self::Resumption => &[Fact::Resumed],
            Self::ZeroRtt => &[Fact::Resumed, Fact::ZeroRtt(true)],
            Self::ZeroRttRefused => &[Fact::Resumed, Fact::ZeroRtt(false)],
            Self::ZeroRttRetry => &[Fact::Resumed, Fact::ZeroRtt(true), Fact::Retried],
            Self::Rebinding => &[Fact::Migrated],
        }
    }

    /// The options that name the requests, for a client's command line.
    pub(crate) fn requests(self) -> Vec<String> {
        let mut options = Vec::new();
        for (option, value) in [("--bytes", self.bytes()), ("--streams", self.streams())] {
            options.extend([option.to_owned(), value.to_string()]);
        }
        if self.upload() > 0 {
            options.extend(["--upload".to_owned(), self.upload().to_string()]);
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_uploads_match_the_options() {
        for case in Case::value_variants() {
            let made = case.upload() * case.streams() * case.connections();
            let expected = case.facts().iter().find_map(|fact| match fact {
                Fact::Received(bytes) => Some(*bytes),
                Fact::Resumed
                | Fact::ZeroRtt(_)
                | Fact::Retried
                | Fact::KeyUpdate
                | Fact::Migrated => None,
            });
            assert_eq!(expected.unwrap_or(0), made, "{case:?}");
        }
    }
}
