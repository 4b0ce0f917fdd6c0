//! A peer that holds genuine keys and breaks the protocol: what it hears, and
//! what it can cost its victim.
//!
//! Each test names one abuse. The hostile end is a connection of ours that
//! forges packets (feature `testing`); what it hears is the CONNECTION_CLOSE it
//! receives: the code, the frame it names, the words.

mod acks;
mod addresses;
mod cids;
mod closing;
mod crypto;
mod datagrams;
mod deadlines;
mod discarded;
mod floods;
mod flow_control;
mod frame_types;
pub(crate) mod initials;
mod keys;
mod overload;
pub(crate) mod pair;
mod paths;
mod preferred;
mod retry_tokens;
mod tokens;
mod work;
