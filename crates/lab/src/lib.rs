//! The lab: production code in modelled networks, in virtual time.
//!
//! Put a congestion controller, or a whole client and server, through a network
//! and know in seconds whether it survives, how fast it is, and why. The same
//! seed gives the same packets at the same times with the same sizes and the
//! same decisions, on any machine.
//!
//! | room | holds |
//! |---|---|
//! | [`world`] | hosts, links, one clock |
//! | [`stack`] | what a transport has to be able to do; ours |
//! | [`app`] | what runs above it; workloads |
//! | [`scenario`] | networks with workloads and bars, as data; the catalogue |
//! | [`measure`] | what a run showed, in numbers |
//! | [`run`] | runs over cores, and what the bars say |
//! | `specimens` | known bugs, each in a network that shows it (feature `specimens`) |
//! | [`sweep`] | grids of paths |
//! | [`pcapng`] | captures that Wireshark decrypts |
//!
//! # Your own client and server
//!
//! An [`app::Application`] is asked whenever something happened at its end; a
//! closure is one. This server echoes, over a path of 10 Mbit/s and 30 ms that
//! loses one packet in fifty:
//!
//! ```
//! use std::time::Duration;
//!
//! use clearway_lab::app::{Conn, Next};
//! use clearway_lab::stack::{ClearwayFactory, Stream};
//! use clearway_lab::world::{Network, Stretch, World};
//! use clearway_links::Time;
//!
//! let network = Network::symmetric("rate=10M delay=15ms queue=25 loss=2%")?;
//! let mut world = World::new(&network, 7);
//! let stack = ClearwayFactory::default();
//!
//! let server = world.server(&stack, || {
//!     let mut asked: Option<(Stream, Vec<u8>)> = None;
//!     move |conn: &mut Conn<'_>, _now: Time| {
//!         asked = asked.take().or_else(|| Some((conn.accept()?, Vec::new())));
//!         if let Some((stream, text)) = &mut asked
//!             && conn.read_all(*stream, text).expect("a question")
//!         {
//!             conn.say(*stream, text).expect("an answer");
//!             asked = None;
//!         }
//!         Next::Wait
//!     }
//! });
//!
//! let (mut stream, mut answer) = (None, Vec::new());
//! world.client(&stack, server, move |conn: &mut Conn<'_>, _now: Time| {
//!     let Some(stream) = stream else {
//!         stream = conn.open();
//!         if let Some(stream) = stream {
//!             conn.say(stream, b"hello").expect("a question");
//!         }
//!         return Next::Wait;
//!     };
//!     if !conn.read_all(stream, &mut answer).expect("an answer") {
//!         return Next::Wait;
//!     }
//!     assert_eq!(answer, b"hello");
//!     Next::Done
//! });
//!
//! assert_eq!(world.run(Duration::from_secs(10))?, Stretch::Done);
//! println!("answered at {}, digest {:x}", world.now(), world.digest());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A controller through the catalogue
//!
//! ```no_run
//! use clearway_lab::run::{Plan, Settings, run_all};
//! use clearway_lab::scenario::{Size, find};
//!
//! let mut plan = Plan::default();
//! plan.add(find("death_spiral")?, Size::Ci, &["cubic".to_owned()], None)?;
//! run_all(&plan, &Settings::quiet(2), |_task, row| {
//!     assert!(row.failed.is_empty(), "seed {}: {:?}", row.seed, row.failed);
//! });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Another stack
//!
//! Any stack that takes bytes and time and gives bytes and time can be plugged
//! in: implement [`stack::Stack`] and [`stack::StackFactory`], and hand the
//! factory to a run by [`run::Extras::stack`].
pub mod app;
pub mod measure;
pub mod pcapng;
pub mod run;
pub mod scenario;
#[cfg(feature = "specimens")]
pub mod specimens;
pub mod stack;
pub mod sweep;
pub mod world;
