//! The lab: production code in modelled networks, in virtual time.
pub mod app;
pub mod measure;
pub mod pcapng;
pub mod run;
pub mod scenario;
pub mod stack;
pub mod sweep;
pub mod world;
