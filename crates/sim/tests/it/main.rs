//! The event loop on modelled cores, and applications over modelled networks.

mod applications;
mod doq;
mod event_loop;
