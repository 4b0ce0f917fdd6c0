//! Integration tests of the balancer.

mod ecmp;
