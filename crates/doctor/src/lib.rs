//! Finds where a Linux host loses UDP datagrams, names the process, and says what to do.
//!
//! | step | module |
//! |---|---|
//! | read what the kernel counts: one file for each place | [`source`] |
//! | take a [`Sample`] of everything, and a [`Recording`] of samples | [`collector`], `recorder`, `census` |
//! | follow each socket over the samples | [`track`] |
//! | walk the path in order: what each stage lost | [`path`] |
//! | model the socket as a queue: rates, pattern, time to overflow | [`model`] |
//! | name process and thread | [`culprit`] |
//! | the first losing stage, two sentences, advice | [`verdict`] |
//! | show it: text, HTML, live | [`render`], [`series`] |
//! | compare what hops saw; what limits QUIC here | [`hops`], [`tune`] |
//!
//! Everything from [`Recording`] on is a pure function: [`Diagnosis::new`] gives the same verdict on a
//! recording of another host. Parsers take bytes and bounds-check them. What the kernel has and this
//! crate does not know is kept and shown.
//!
//! ```no_run
//! # #[cfg(target_os = "linux")] {
//! use std::time::Duration;
//! use clearway_doctor::{Focus, Namespace, diagnose, render};
//!
//! let (_, diagnosis) = diagnose(&Namespace::Own, &Focus::default(), Duration::from_secs(10))?;
//! println!("{}", render::text::text(&diagnosis, false));
//! # }
//! # Ok::<(), clearway_doctor::Error>(())
//! ```
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "rates and shares are for people: 53 bits are enough"
)]

#[cfg(target_os = "linux")]
mod census;
pub mod collector;
pub mod counters;
pub mod culprit;
mod error;
pub mod focus;
pub mod hops;
pub mod model;
pub mod path;
#[cfg(target_os = "linux")]
mod recorder;
pub mod render;
pub mod sample;
pub mod series;
pub mod socket;
pub mod source;
pub mod track;
pub mod tune;
pub mod verdict;

pub use error::{Error, ParseError};
pub use focus::Focus;
pub use sample::{Recording, Sample};
#[cfg(target_os = "linux")]
pub use source::namespace::Namespace;
pub use verdict::{Diagnosis, Health};

#[cfg(target_os = "linux")]
pub use recorder::{Recorder, record};

/// Records for an interval in a network namespace, and diagnoses.
///
/// # Errors
/// If the namespace cannot be entered, the counters cannot be read, or no socket is in focus and
/// nothing else is lost either.
#[cfg(target_os = "linux")]
pub fn diagnose(
    namespace: &Namespace,
    focus: &Focus,
    interval: core::time::Duration,
) -> Result<(Recording, Diagnosis), Error> {
    let recording = namespace.run(|| record(namespace.to_string(), interval))?;
    let diagnosis = Diagnosis::new(&recording, focus);
    match focus.complaint(&recording) {
        // A program that ended is a reason for both.
        Some(complaint) if diagnosis.health == Health::Healthy => {
            Err(Error::NoSuchSocket(complaint))
        }
        Some(_) | None => Ok((recording, diagnosis)),
    }
}
