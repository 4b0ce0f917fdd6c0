//! Small worlds that are explored to the end: see `explore` for how.

mod cids;
mod handshake;
mod key_phases;
mod migration;
mod paths;
mod routes;
mod streams;
