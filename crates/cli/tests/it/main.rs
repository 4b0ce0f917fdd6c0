//! The built `clearway` command, as a person runs it.

mod common;
mod viewer;
mod web;

mod balance;
mod demo;
#[cfg(target_os = "linux")]
mod doctor;
mod findings;
mod get;
mod lab;
mod probe;
mod qlog;
mod raw;
mod relay;
mod serve;
mod trace;
mod tunnel;
