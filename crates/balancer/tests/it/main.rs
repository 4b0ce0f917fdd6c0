//! Integration tests of the balancer.

mod ecmp;
mod icmp;
