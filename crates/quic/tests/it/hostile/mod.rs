//! A peer that has the keys and breaks the protocol: how the victim answers, and what the attack
//! can cost it.
//!
//! Each test is for one abuse. The hostile end is a connection of ours that forges packets
//! (feature `testing`). The victim's answer is the CONNECTION_CLOSE that the hostile end receives:
//! its error code, frame type and reason.

mod acks;
mod addresses;
mod cids;
mod closing;
mod crypto;
mod datagrams;
mod deadlines;
mod discarded;
mod early_packets;
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
mod versions;
mod work;
