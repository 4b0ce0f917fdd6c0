//! How a diagnosis is shown.

pub mod html;
pub mod text;
#[cfg(all(feature = "watch", target_os = "linux"))]
pub mod watch;
pub mod words;
