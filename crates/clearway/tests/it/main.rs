//! The library over sockets on loopback.

mod common;
mod connect_response;

mod client_close;
mod closed_port;
mod closing;
mod connect_udp;
mod custom_components;
mod custom_socket;
mod datagrams;
mod early;
mod established;
mod eviction;
mod failures;
mod guide;
mod hostile_http;
mod hostile_sessions;
mod hostile_tunnels;
mod http;
mod icmp_flood;
mod interim;
mod late_settings;
mod limits;
mod mtu;
mod panics;
mod qlog;
mod serving;
mod slices;
mod socket_errors;
mod spans;
mod streams;
mod tunnel;
mod tunnels;
mod websocket;
mod webtransport;
