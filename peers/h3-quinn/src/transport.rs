//! quinn's own defaults, but for the payload size, which is everybody's.

use clap::Parser;
use peer_quinn::transport::Transport;

/// What [`Transport`] is when no option is given.
pub(crate) fn defaults() -> Transport {
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        transport: Transport,
    }
    Line::parse_from(["defaults"]).transport
}
