//! Servers with defects: each case of the prober has to see something wrong with them.
//!
//! Such a server completes handshakes and answers requests. Apart from that it either ignores
//! whatever a client does, or takes whatever an ordinary client does not do for an error and
//! answers it with a code that nobody expects.

mod ordinary;
mod server;

pub use server::{Defect, DefectiveServer};
